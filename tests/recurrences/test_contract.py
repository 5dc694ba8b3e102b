"""The contract of every recurrence, tested for each evaluation method."""

import functools
import itertools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences import ParamGroup, Recurrence
from tests.compilation import assert_allowed_by_strict_promotion, strict_promotion
from tests.kernels.oracle import assert_close
from tests.recurrences.cases import (
    MASK,
    METHODS,
    RESET,
    check,
    evaluate,
    evaluation,
    expected,
    problem,
    rows,
)
from tests.recurrences.table import ROWS, VARYING, first_of_each_class
from tests.tiers import tiered

FEW = ("dlr", "dlr_bidirectional", "selective", "ssd", "gru")
FIRST = first_of_each_class(ROWS).values()

# All methods of a length share the expected values.
wanted = functools.cache(lambda row, length: expected(row, problem(row, length)))


@rows(methods=("sequential",), lengths=True, brief=True, fast=FIRST)
def test_sequential_method_equals_the_definition(row, method, length):
    check_method(row, method, length)


@rows(
    methods=("fft", "chunked", "associative", "pallas"),
    lengths=True,
    brief=True,
    fast=(),
    full=(*FEW, "s4", "sgconv"),
)
def test_other_methods_equal_the_definition(row, method, length):
    check_method(row, method, length)


def check_method(row, method, length):
    given = evaluate(row.recurrence, problem(row, length), method=method)
    check(given, wanted(row, length))


@rows(brief=True, fast=FEW, full=(*FEW, "s4", "fru"))
def test_auto_equals_the_definition(row):
    p = problem(row, 17)
    given = jax.jit(row.recurrence.apply)(p.params, p.x)
    assert_close(given, wanted(row, 17)[0], 1e-5)


@rows(fast=("dlr",), full=FEW)
@pytest.mark.parametrize("length", [2, 17])
def test_auto_is_one_of_the_methods(row, length):
    p = problem(row, length)

    def program(method):
        def run(params, x):
            return row.recurrence.apply(params, x, method=method)

        jaxpr = jax.make_jaxpr(run)(p.params, p.x)
        return re.sub(r"0x[0-9a-f]+", "", str(jaxpr))

    auto = program("auto")
    # By steps, and by chunks for gradients: small heads whose states are matrices.
    both = "name=_value_by_steps" in auto
    assert both or any(auto == program(method) for method in row.methods)


@rows(
    methods=("fft", "sequential"),
    fast=("dlr_bidirectional",),
    full=FEW,
)
def test_padding_is_as_if_it_were_not_there(row, method):
    p = problem(row, 7, batch=5, start=True)
    x = np.where(MASK[..., None], p.x, np.nan)
    given = evaluate(row.recurrence, p._replace(x=x), mask=MASK, method=method)
    check(given, expected(row, p, mask=MASK))
    (y, _), (_, of_x, _) = given
    assert not np.any(y[~MASK])
    assert not np.any(of_x[~MASK])


@rows(methods=("sequential",), fast=("gru",), full=FEW)
def test_segments_are_separate_sequences(row, method):
    p = problem(row, 7, batch=5, start=True)
    x = np.where(MASK[..., None], p.x, np.nan)
    given = evaluate(row.recurrence, p._replace(x=x), RESET, MASK, method=method)
    check(given, expected(row, p, RESET, MASK))


@rows(brief=True, fast=("gru",), full=FEW)
def test_values_that_are_not_finite_stay_in_their_segment(row):
    """Also in gradients, where 0 times infinity is NaN."""
    check_segments(row, "sequential")


@rows(methods=VARYING[1:], fast=(), full=())
def test_values_that_are_not_finite_stay_in_their_segment_by_all_methods(row, method):
    check_segments(row, method)


def check_segments(row, method):
    """Of row 0, values before a reset are not finite; row 1 has zeros there."""
    p, length, start = problem(row, 9, start=True), 9, 5
    zero = None if p.state is None else np.zeros_like(p.state)
    for at, bad in itertools.product((0, start), (np.nan, np.inf, -np.inf)):
        reset = np.tile(np.arange(length) == at, (2, 1))
        c = np.where(np.arange(length)[:, None] >= at, p.weights[0], 0)
        run = functools.partial(evaluate, row.recurrence, reset=reset, method=method)
        p_after = p._replace(state=zero, weights=(c, p.weights[1]))
        alone = np.where(np.arange(length)[:, None] >= at, p.x, 0)
        (y, *wanted), grads = run(p_after._replace(x=alone))
        one, all_channels = alone.copy(), alone.copy()
        one[0, 2:at, 0], all_channels[0, 2:at] = bad, bad
        states = [zero]
        if zero is not None:
            states.append(zero.copy())
            states[1][0] = bad
        for x, state in itertools.product((one, all_channels), states):
            given = run(p_after._replace(x=x, state=state))
            (given_y, *last), given_grads = given
            after = given_y[:, at:], last, given_grads
            assert_close(after, (y[:, at:], wanted, grads), 1e-6)
            np.testing.assert_array_equal(given_y[1], y[1])
            # What is not finite is not hidden.
            if at and (state is not zero or x is all_channels):
                assert not np.all(np.isfinite(given_y[0, :at]))


@pytest.mark.parametrize(
    "name",
    tiered(["dlr_cut", "s4", "dlr", "dlr_prod", "sgconv", "smoothing"], 1, full=3),
)
def test_channels_have_their_own_values_that_are_not_finite(name):
    """Of a recurrence whose channels have states of their own, also with resets."""
    row = ROWS[name]
    p, reset = problem(row, 9, start=True), np.tile(np.arange(9) == 6, (2, 1))
    x = p.x.copy()
    x[0, 3, 0] = np.inf
    run = jax.jit(functools.partial(row.recurrence.apply, method="sequential"))
    (y, _), (given, _) = (
        run(p.params, each, p.state, reset=reset) for each in (p.x, x)
    )
    reached = ~np.isfinite(given)
    np.testing.assert_array_equal(given[~reached], y[~reached])
    assert not np.any(reached[1]) and not np.any(reached[..., 1])
    assert np.any(reached[0, 3:6, 0]) and not np.any(reached[0, [0, 1, 2, 6, 7, 8], 0])


@rows(brief=True)
def test_parameters_are_real_float32_and_all_learn(row):
    assert isinstance(row.recurrence, Recurrence)
    p = problem(row, 17)
    _, (of_params, of_x, _) = evaluate(row.recurrence, p, method="sequential")
    params = row.recurrence.init(jax.random.key(1), row.width)
    chex.assert_trees_all_equal_shapes_and_dtypes(params, of_params)
    assert {leaf.dtype for leaf in params.values()} == {jnp.dtype(jnp.float32)}
    # A weak type would compile a program again once the parameters are updated.
    assert not any(leaf.weak_type for leaf in params.values())
    chex.assert_tree_all_finite((of_params, of_x))
    for name, grad in of_params.items():
        assert np.any(grad != 0), name


@rows(brief=True)
def test_groups_name_parameters(row):
    groups = row.recurrence.groups()
    assert groups.keys() <= row.recurrence.init(jax.random.key(0), row.width).keys()
    assert all(isinstance(group, ParamGroup) for group in groups.values())


@rows(brief=True)
def test_init_draws_from_its_key(row):
    one, same, other = (
        row.recurrence.init(jax.random.key(seed), row.width) for seed in (1, 1, 2)
    )
    chex.assert_trees_all_equal(one, same)
    assert any(np.any(one[name] != other[name]) for name in one)


@rows(methods=("fft",), fast=("dlr_cut",), full=("dlr", "dlr_cut", "s4", "sgconv"))
def test_low_precision_is_that_of_input_and_output_only(row, method):
    p = problem(row, row.lengths[-1])
    low = jnp.asarray(p.x, jnp.bfloat16)
    (exact, _), _ = evaluate(
        row.recurrence, p._replace(x=np.float32(low)), method=method
    )

    @jax.jit
    def run(params, x):
        return row.recurrence.apply(params, x, method=method)

    y, last = run(p.params, low)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(
        np.float32(y), np.float32(exact.astype(y.dtype)), rtol=2.0**-7
    )
    for leaf in jax.tree.leaves(last):
        assert leaf.dtype in (jnp.float32, jnp.complex64)


def gradients_of_all(row, method):
    """Returns a program with all arguments, its arguments, and those of one step."""
    recurrence, p = row.recurrence, problem(row, len(RESET[0]), batch=len(RESET))
    state = recurrence.initial_state((len(RESET),), row.width)
    flags = {"mask": MASK} if method == "fft" else {"mask": MASK, "reset": RESET}
    if (
        getattr(recurrence, "takes_dt", False)
        and "reset" in flags
        and state is not None
    ):
        flags["dt"] = np.full(RESET.shape, 1.5, np.float32)

    def gradients(params, x, state, **options):
        def total(params, x, state):
            out = recurrence.apply(params, x, state, method=method, **options)
            parts = (jnp.real(leaf).astype("float32") for leaf in jax.tree.leaves(out))
            return sum(map(jnp.sum, parts)), out

        argnums = (0, 1) if state is None else (0, 1, 2)
        return jax.grad(total, argnums, has_aux=True)(params, x, state)

    low = jnp.asarray(p.x, jnp.bfloat16)
    return gradients, (p.params, low, state), flags


@rows(brief=True, fast=("gru",), full=FEW)
def test_promotion_is_explicit(row):
    """Under the strictest settings of the caller the program is the same."""
    gradients, args, flags = gradients_of_all(row, "auto")
    assert_allowed_by_strict_promotion(functools.partial(gradients, **flags), *args)
    params, low, state = args
    if hasattr(row.recurrence, "step") and state is not None:
        # The reference step of the paper.
        step = functools.partial(row.recurrence.step, params)
        assert_allowed_by_strict_promotion(step, state, low[:, 0])


@rows(methods=(*METHODS, "pallas"), fast=(), full=())
def test_promotion_is_explicit_by_each_method(row, method):
    gradients, (params, low, state), flags = gradients_of_all(row, method)
    with strict_promotion():
        row.recurrence.init(jax.random.key(0), row.width)
        jax.eval_shape(functools.partial(gradients, **flags), params, low, state)
        for x in (np.float32(low), low[:, :1]):
            jax.eval_shape(gradients, params, x, None)


@rows(methods=METHODS, directions=(1,))
def test_future_does_not_reach_past(row, method):
    p = problem(row, 17)
    half = p.x.shape[1] // 2
    x = p.x.copy()
    x[:, half:] += 1
    (y, _), (changed, _) = (
        evaluate(row.recurrence, q, method=method)[0] for q in (p, p._replace(x=x))
    )
    tolerance = 1e-5 * np.abs(changed).max() if method == "fft" else 0
    np.testing.assert_allclose(changed[:, :half], y[:, :half], rtol=0, atol=tolerance)
    assert np.all(np.any(np.abs(changed - y)[:, half:] > 1e-3, -1))


@rows(directions=(2,), fast=(), full=("dlr_bidirectional", "dlr_cut_bidirectional"))
def test_future_reaches_past_in_two_directions(row):
    p = problem(row, 7)
    run = jax.jit(row.recurrence.apply)
    x = p.x.copy()
    x[:, 4] += 1
    (y, _), (changed, _) = run(p.params, p.x), run(p.params, x)
    assert np.all(np.abs(changed - y) > 1e-6)


@rows(fast=(), full=("dlr", "gru"))
def test_transformations_compose(row):
    p = problem(row, 7)
    other = row.recurrence.init(jax.random.key(2), row.width)
    many = [p, p._replace(params=jax.tree.map(np.asarray, other))]
    both = jax.tree.map(lambda *leaves: np.stack(leaves), *(q.params for q in many))

    def run(params, x, state):
        return row.recurrence.apply(params, x, state, method="sequential")

    def of_one(params):
        return evaluation(jax.checkpoint(run))(params, *p[1:])

    given = jax.jit(jax.vmap(of_one))(both)
    for i, q in enumerate(many):
        check(jax.tree.map(lambda leaf, i=i: leaf[i], given), expected(row, q))
