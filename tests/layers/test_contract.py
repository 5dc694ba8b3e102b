"""The contract of layers over time: calls, states, masks and segments."""

import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.layers import MLP, ChannelMixing, ExpertChoiceMLP
from tests.bad_inputs import refuses
from tests.compilation import assert_allowed_by_strict_promotion
from tests.layers.cases import (
    BATCH,
    HALF,
    LENGTH,
    MASK,
    WEIGHTS,
    WIDTH,
    X,
    evaluate,
    evaluate_whole,
    initialized,
    rows,
    state_of,
)
from tests.tiers import tiered

# Rows of what is one for all layers around the recurrences; others are nightly.
# Of layers that come with and without a gate or a direction, one.
CONTRACT = (
    *("recurrent", "ets_mlp", "mamba", "griffin", "softmax", "softmax_causal"),
    *("softmax_rotary", "linear", "linear_causal", "local_causal", "rotary_causal"),
    "short_convolution",
)
FEW = ("mamba", "softmax_rotary", "linear_causal")


def close(given, expected, atol=2e-5):
    chex.assert_trees_all_close(given, expected, rtol=0, atol=atol)


@rows(
    fast=("recurrent", "softmax", "linear_causal", "short_convolution"), full=CONTRACT
)
def test_output_has_shape_and_dtype_of_the_input(row):
    (y, last), _ = evaluate_whole(row)
    chex.assert_trees_all_equal_shapes_and_dtypes(y, X)
    chex.assert_trees_all_equal_shapes_and_dtypes(
        last, row.layer.initial_state((BATCH,), WIDTH)
    )
    chex.assert_tree_all_finite((y, last))
    # A weak type would compile a step again once the array is one of its results.
    before = initialized(row), row.layer.initial_state((BATCH,), WIDTH)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(before))


@rows()
def test_output_has_the_dtype_of_the_input(row):
    """Parameters and states are float32, whatever the dtype of the activations."""
    variables = jax.eval_shape(row.layer.init, jax.random.key(0), X)
    zero = row.layer.initial_state((BATCH,), WIDTH)
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16):
        x = jax.ShapeDtypeStruct(X.shape, dtype)
        y, last = jax.eval_shape(row.layer.apply, variables, x)
        assert (y.shape, y.dtype) == (X.shape, dtype)
        chex.assert_trees_all_equal_shapes_and_dtypes(last, zero)


FEEDFORWARD = {
    "linear": (ChannelMixing(), WIDTH),
    "glu": (ChannelMixing("glu"), WIDTH),
    "mlp": (MLP(6),),
    "experts": (ExpertChoiceMLP(6, 3),),
}


@pytest.mark.parametrize("called", tiered(FEEDFORWARD, fast=len(FEEDFORWARD)))
def test_output_of_a_feedforward_layer_has_the_dtype_of_the_input(called):
    layer, *args = called
    variables = jax.eval_shape(lambda: layer.init(jax.random.key(0), X, *args))

    def apply(variables, x):
        return layer.apply(variables, x, *args)

    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16):
        x = jax.ShapeDtypeStruct(X.shape, dtype)
        assert jax.eval_shape(apply, variables, x).dtype == dtype


@rows(fast=("mamba",), full=FEW)
def test_promotion_is_explicit(row):
    """Under the strictest settings of the caller the program is the same."""
    variables = jax.eval_shape(row.layer.init, jax.random.key(0), X)
    variables = jax.tree.map(lambda v: np.zeros(v.shape, v.dtype), variables)

    def gradients(variables, x):
        def total(variables, x):
            flags = {"mask": MASK, "reset": ~MASK}
            rngs = {"dropout": jax.random.key(0)} if row.drops else None
            options = {"train": row.drops, "rngs": rngs}
            return jnp.sum(row.layer.apply(variables, x, None, **flags, **options)[0])

        return jax.grad(total, (0, 1))(variables, x)

    assert_allowed_by_strict_promotion(gradients, variables, X)


@rows(fast=("recurrent",), full=("recurrent", "ets_mlp", *FEW))
def test_outputs_and_state_do_not_depend_on_padding(row):
    x = np.where(MASK[..., None], X, np.float32(1e3))
    weights = np.where(MASK[..., None], WEIGHTS, 0)
    (y, last), (of_x, of_state) = evaluate_whole(row, x=x, weights=weights, mask=MASK)

    def data(values):
        return np.asarray(values)[MASK].reshape(BATCH, HALF, WIDTH)

    given = (data(y), last), (data(of_x), of_state)
    close(given, evaluate(row, data(X), state_of(row), data(WEIGHTS)))
    np.testing.assert_array_equal(of_x[~MASK], 0)


@rows(fast=("recurrent",))
def test_segments_are_separate_sequences(row):
    reset = np.tile(np.arange(LENGTH) == HALF, (BATCH, 1))
    left, right = (np.where(reset.cumsum(-1) == i, 1, 0)[..., None] for i in (0, 1))
    packed, (of_x, _) = evaluate_whole(row, weights=left * WEIGHTS, reset=reset)
    np.testing.assert_array_equal(of_x[:, HALF:], 0)
    _, (of_x, of_state) = evaluate_whole(row, weights=right * WEIGHTS, reset=reset)
    np.testing.assert_array_equal(of_x[:, :HALF], 0)
    chex.assert_trees_all_equal(of_state, jax.tree.map(jnp.zeros_like, of_state))

    start = row.layer.initial_state((BATCH,), WIDTH)
    (first, _), _ = evaluate(row, X[:, :HALF], state_of(row), WEIGHTS[:, :HALF])
    (second, last), _ = evaluate(row, X[:, HALF:], start, WEIGHTS[:, HALF:])
    close(packed, (jnp.concatenate([first, second], 1), last))


@rows(fast=("linear_causal",), full=FEW)
def test_values_that_are_not_finite_stay_in_their_segment(row):
    """Of one row, before a reset; also in gradients, where 0 times infinity is NaN."""
    zero, steps = row.layer.initial_state((BATCH,), WIDTH), np.arange(LENGTH)[:, None]

    @jax.jit
    def gradients(variables, x, state, reset, weights):
        def total(*args):
            y, last = row.layer.apply(*args, reset=reset)
            parts = [jnp.sum(jnp.real(leaf)) for leaf in jax.tree.leaves(last)]
            return sum(parts, jnp.sum(weights * y)), (y, last)

        arguments = (0, 1) if zero is None else (0, 1, 2)
        return jax.grad(total, arguments, has_aux=True)(variables, x, state)

    for at, bad in itertools.product((0, HALF), (np.nan, np.inf)):
        reset = np.tile(steps[:, 0] == at, (BATCH, 1))
        weights = np.where(steps >= at, WEIGHTS, 0)
        run = functools.partial(gradients, initialized(row))
        alone = np.where(steps >= at, X, 0)
        expected, (wanted_y, wanted_last) = run(alone, zero, reset, weights)
        x, state = alone.copy(), jax.tree.map(np.array, zero)
        x[0, 2:at, 1] = bad
        for leaf in jax.tree.leaves(state):
            leaf[0] = bad
        for before in (zero, state):
            given, (y, last) = run(x, before, reset, weights)
            close((given, y[:, at:], last), (expected, wanted_y[:, at:], wanted_last))
            np.testing.assert_array_equal(y[1:], wanted_y[1:])
            # What is not finite is not hidden.
            reached = y[0, 2:at, 1]
            assert not np.any(np.isfinite(reached))


@rows(fast=("softmax_rotary",), full=FEW)
def test_flags_of_one_axis_are_those_of_all_rows(row, unchecked):
    mask, reset = MASK[2], np.arange(LENGTH) == HALF
    flags = {"mask": mask, "reset": reset}
    of_each = {name: np.tile(flag, (BATCH, 1)) for name, flag in flags.items()}
    apply = jax.jit(row.layer.apply)
    expected = apply(initialized(row), X, **of_each)
    chex.assert_trees_all_equal(apply(initialized(row), X, **flags), expected)


@rows(fast=("recurrent", "linear_causal", "short_convolution"), has_state=True)
def test_state_continues_the_sequence(row):
    whole, _ = evaluate_whole(row)
    (left, state), _ = evaluate(row, X[:, :HALF], state_of(row), WEIGHTS[:, :HALF])
    (right, last), _ = evaluate(row, X[:, HALF:], state, WEIGHTS[:, HALF:])
    close((jnp.concatenate([left, right], 1), last), whole)


@rows(fast=("softmax", "bidirectional"), has_state=False)
def test_state_of_a_layer_without_state_is_rejected(row):
    with refuses("state", rule="None"):
        row.layer.apply(initialized(row), X, np.zeros((BATCH, 2, 2, 3), np.float32))


@rows(fast=("recurrent", "softmax_causal", "mamba"), directions=1)
def test_causal_outputs_do_not_depend_on_the_future(row):
    (y, _), _ = evaluate_whole(row)
    x = X.copy()
    x[:, HALF:] += 1
    (changed, _), _ = evaluate_whole(row, x=x)
    close(changed[:, :HALF], y[:, :HALF])
    assert np.all(np.any(np.abs(changed - y)[:, HALF:] > 1e-3, -1))
    # Neither do they if it is not finite; a weight of 0 would not hide it.
    x[:, HALF:] = np.nan
    (changed, _), _ = evaluate_whole(row, x=x)
    close(changed[:, :HALF], y[:, :HALF])
    assert not np.any(np.isfinite(changed[:, HALF:]))


@rows(fast=("softmax",), directions=2)
def test_bidirectional_outputs_depend_on_the_future(row):
    last_only = np.where(np.arange(LENGTH) == LENGTH - 1, 1, 0)[:, None] * WEIGHTS
    first_only = last_only[:, ::-1]
    for weights in (first_only, last_only):
        _, (of_x, _) = evaluate_whole(row, weights=weights)
        assert np.all(np.any(of_x != 0, -1))


@rows()
def test_rows_of_a_batch_are_independent(row):
    (y, last), _ = evaluate_whole(row)
    x = X.copy()
    x[1] *= -2
    changed, _ = evaluate_whole(row, x=x)

    def others(tree):
        return jax.tree.map(lambda leaf: leaf[np.array([0, 2])], tree)

    chex.assert_trees_all_equal(others(changed), others((y, last)))
    assert np.all(np.any(changed[0][1] != y[1], -1))


@rows(fast=("glu", "softmax"), drops=True)
def test_dropout_is_active_only_in_training(row):
    # Outside of training no key is given.
    (calm, _), _ = evaluate_whole(row)

    @jax.jit
    def train(seed):
        rngs = {"dropout": jax.random.key(seed)}
        return row.layer.apply(
            initialized(row), X, state_of(row), train=True, rngs=rngs
        )[0]

    one, same, other = map(train, (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)
    assert not np.allclose(one, calm)
