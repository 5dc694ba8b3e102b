"""Linear attention in chunks against its quadratic form in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import linear_attention
from tests.bad_inputs import refuses
from tests.tiers import tiered

LENGTH, HEADS, K, V = 150, 2, 3, 4


def problem(length=LENGTH):
    rng = np.random.default_rng(0)
    q, k = rng.random((2, 2, length, HEADS, K), np.float32)
    return q, k, rng.normal(size=(2, length, HEADS, V)).astype(np.float32)


@pytest.mark.parametrize("bidirectional", tiered([False, True]))
def test_chunks_equal_the_quadratic_form(bidirectional):
    q, k, v = problem()
    weights = np.einsum("bihk,bjhk->bhij", np.float64(q), k)
    weights *= 1 if bidirectional else np.tri(LENGTH)
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bhij,bjhv->bihv", weights, v)
    run = jax.jit(linear_attention, static_argnames="bidirectional")
    # A reset at the first step has no effect, but selects the chunked evaluation.
    for reset in (None, np.tile(np.arange(LENGTH) == 0, (2, 1))):
        y, state = run(q, k, v, bidirectional=bidirectional, reset=reset)
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)
    if bidirectional:
        assert state is None
    else:
        sums = np.einsum("blhk,blhv->bhkv", np.float64(k), v)
        np.testing.assert_allclose(state[..., :-1], sums, rtol=0, atol=1e-4)
        np.testing.assert_allclose(state[..., -1], k.sum(1), rtol=1e-5)


def test_steps_without_valid_keys_return_zeros():
    q, k, v = problem(5)
    mask = np.array([[0, 0, 1, 0, 1], [0, 0, 0, 0, 0]], bool)
    y, state = jax.jit(linear_attention)(q, k, v, mask=mask)
    np.testing.assert_array_equal(y[0, :2], 0)
    np.testing.assert_allclose(y[0, 2:4], v[0, [2, 2]], rtol=1e-5)
    np.testing.assert_array_equal(y[1], 0)
    np.testing.assert_array_equal(state[1], 0)


@pytest.mark.parametrize("bidirectional", tiered([False, True]))
@pytest.mark.parametrize("with_reset", tiered([False, True]))
def test_numbers_at_padding_do_not_matter(bidirectional, with_reset):
    q, k, v = problem()
    mask = np.random.default_rng(1).random((2, LENGTH)) < 0.8
    reset = np.tile(np.arange(LENGTH) % 40 == 0, (2, 1)) if with_reset else None
    options = {"bidirectional": bidirectional, "reset": reset, "mask": mask}
    expected, wanted_state = linear_attention(q, k, v, **options)
    k, v = (np.where(mask[..., None, None], values, np.nan) for values in (k, v))
    y, state = linear_attention(q, k, v, **options)
    np.testing.assert_array_equal(y, expected)
    if not bidirectional:
        np.testing.assert_array_equal(state, wanted_state)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", tiered(["q", "k", "v", "state"], ("v",)))
@pytest.mark.parametrize("bad", tiered([np.nan, np.inf], full=1))
def test_values_that_are_not_finite_reach_steps_that_attend_to_them(
    bidirectional, name, bad
):
    """In value and gradient; segments are shorter and longer than a chunk."""
    if bidirectional and name == "state":
        pytest.skip("has no state")
    at, ends = 75, (70, 140)
    q, k, v = problem()
    reset = np.tile(np.isin(np.arange(LENGTH), ends), (2, 1))
    state = None if bidirectional else np.zeros((2, HEADS, K, V + 1), np.float32)
    given = {"q": q, "k": k, "v": v, "state": state}
    changed = dict(given)
    changed[name] = given[name].copy()
    # Of one head of the first row.
    changed[name][(0, 0) if name == "state" else (0, at, 0)] = bad
    steps = {"q": [at], "state": range(70)}.get(name, range(at, 140))
    steps = range(70, 140) if bidirectional and name != "q" else steps
    reached = np.zeros((2, LENGTH, HEADS), bool)
    reached[0, list(steps), 0] = True
    weights = np.random.default_rng(1).normal(size=v.shape)
    weights = np.where(reached[..., None], 0, weights)

    def total(given):
        options = {"bidirectional": bidirectional, "reset": reset}
        y, last = linear_attention(**given, **options)
        loss = jnp.sum(weights * jnp.where(reached[..., None], 0, y))
        return loss if last is None else loss + jnp.sum(last), (y, last)

    run = jax.jit(jax.grad(total, has_aux=True))
    given[name] = np.where(np.isfinite(changed[name]), given[name], 0)
    expected, (wanted_y, wanted_last) = run(given)
    gradient, (y, last) = run(changed)
    np.testing.assert_array_equal(np.any(~np.isfinite(y), -1), reached)
    np.testing.assert_allclose(y[~reached], wanted_y[~reached], rtol=0, atol=1e-6)
    if not bidirectional:
        np.testing.assert_allclose(last, wanted_last, rtol=1e-6)
    for leaf, other in zip(*map(jax.tree.leaves, (gradient, expected)), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("bidirectional", tiered([False, True]))
def test_rows_share_flags_of_one_axis(bidirectional, unchecked):
    flags = {"reset": np.arange(9) == 4, "mask": np.arange(9) != 2}
    of_each = {name: np.tile(flag, (2, 1)) for name, flag in flags.items()}
    y, _ = linear_attention(*problem(9), bidirectional=bidirectional, **flags)
    expected, _ = linear_attention(*problem(9), bidirectional=bidirectional, **of_each)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("bidirectional", tiered([False, True]))
@pytest.mark.parametrize("with_reset", tiered([False, True]))
def test_bfloat16_is_summed_in_float32(bidirectional, with_reset):
    low = tuple(jnp.asarray(values, jnp.bfloat16) for values in problem())
    reset = np.tile(np.arange(LENGTH) == 0, (2, 1)) if with_reset else None
    options = {"bidirectional": bidirectional, "reset": reset}
    y, state = linear_attention(*low, **options)
    expected, _ = linear_attention(*map(jnp.float32, low), **options)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_array_equal(y, expected.astype(jnp.bfloat16))
    assert bidirectional or state.dtype == jnp.float32


def test_state_in_two_directions_is_refused():
    q, k, v = problem(5)
    state = np.zeros((2, HEADS, K, V + 1), np.float32)
    with refuses("state", rule="None"):
        linear_attention(q, k, v, state, bidirectional=True)
