"""The equations of a paper, step by step, compared to the evaluation of a sequence."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences import CES, FRU, SRU, log_spaced
from ssm_jax.recurrences.families.nonlinear import MAX_STEPS
from tests.bad_inputs import refuses
from tests.kernels.oracle import assert_close
from tests.recurrences import oracle_rnn
from tests.recurrences.cases import problem
from tests.recurrences.table import ROWS, SIZES
from tests.tiers import tiered

STEPPED = {
    name: row
    for name, row in ROWS.items()
    if isinstance(row.recurrence, FRU | SRU | CES) and row.directions == 1
}
LENGTH, CUT = 17, 7


@pytest.mark.parametrize(
    "row", tiered(STEPPED, ("sru",), full=("sru", "fru", "smoothing_real"))
)
def test_scan_of_the_equations_is_the_sequence(row):
    """Also if the state is carried from one part of the sequence to the next."""
    given = problem(row, LENGTH, start=True)

    @jax.jit
    def both(params, x, state):
        step = functools.partial(row.recurrence.step, params)
        with jax.default_matmul_precision("highest"):
            last, y = jax.lax.scan(step, state, x.swapaxes(0, 1))
        y_1, between = row.recurrence.apply(params, x[:, :CUT], state)
        y_2, end = row.recurrence.apply(params, x[:, CUT:], between)
        return (y.swapaxes(0, 1), last), (jnp.concatenate([y_1, y_2], 1), end)

    state = given.state
    if hasattr(row.recurrence, "horizon"):
        # The last number of an FRU's state is the number of steps so far.
        state = np.concatenate([state[:, :-1], np.full_like(state[:, -1:], 3)], -1)
    equations, evaluated = both(given.params, given.x, state)
    assert_close(evaluated, equations, 2e-6)


def one_step(row, params, x, state):
    """``(y, last)`` of the equations and of `apply`, for ``x`` ``(b, d)``."""

    @jax.jit
    def both(params, x, state):
        last, y = row.recurrence.step(params, state, x)
        whole, end = row.recurrence.apply(params, x[:, None], state)
        return (y, last), (whole[:, 0], end)

    return both(params, x, state)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16], ids=str)
@pytest.mark.parametrize("row", tiered(STEPPED, ("sru",), full=("sru", "smoothing")))
def test_step_takes_what_the_sequence_takes(row, dtype):
    """Parameters and inputs of few digits: sums and states are float32."""
    given = problem(row, LENGTH, start=True)
    low = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), given.params)
    x = jnp.asarray(given.x[:, 0], dtype)
    equations, evaluated = one_step(row, low, x, given.state)
    chex.assert_trees_all_equal_dtypes(equations, evaluated)
    assert equations[0].dtype == dtype
    assert_close(equations, evaluated, 2e-6)


SMOOTHING = ("smoothing", "smoothing_real", "smoothing_bare")


@pytest.mark.parametrize("small_change", tiered([False, True]))
@pytest.mark.parametrize(
    "name", tiered(SMOOTHING, ("smoothing_real",), full=("smoothing_real", "smoothing"))
)
def test_step_of_smoothing_is_finite_where_the_sequence_is(name, small_change):
    """10,000 channels: parameters up to 1e30, so ``|lambda|`` to 0 and overflow."""
    row, rng, d = STEPPED[name], np.random.default_rng(0), 10_000
    if small_change:
        recurrence = dataclasses.replace(row.recurrence, small_change=True)
        row = row._replace(recurrence=recurrence)
    sizes = rng.choice([-1, 1], (7, d)) * 10 ** rng.uniform(-3, 30, (7, d))
    names = row.recurrence.init(jax.random.key(0), d)
    params = dict(zip(names, np.float32(sizes), strict=False))
    x, state = (rng.normal(size=shape).astype("f") for shape in ((1, d), (1, d, 1)))
    if not name.endswith("real"):
        state = state.astype(np.complex64)
    equations, evaluated = one_step(row, params, x, state)
    chex.assert_tree_all_finite((equations, evaluated))
    # Channel by channel, whose sizes differ by 30 orders of magnitude.
    for one, other in zip(equations, evaluated, strict=True):
        through = np.abs(params.get("shortcut", 0) * x).reshape(other.shape)
        size = np.abs(other) + through
        np.testing.assert_array_less(np.abs(one - other), 1e-5 * size + 1e-30)


def test_step_of_two_directions_is_refused():
    smoothing = CES(bidirectional=True)
    params = smoothing.init(jax.random.key(0), 2)
    with refuses("bidirectional", True, rule="apply"):
        smoothing.step(params, np.zeros((2, 1), np.complex64), np.zeros(2, np.float32))


FAR = FRU(frequencies=log_spaced(12, 1000.0), horizon=1000, **SIZES)


def far_state(t):
    """A state after ``t`` steps."""
    state = np.random.default_rng(1).normal(size=(1, FAR.d_hidden + 1))
    state[:, -1] = t
    return state.astype(np.float32)


@pytest.mark.parametrize(
    "t",
    tiered([0, 700, 100_000, 1_234_567, 10**7, MAX_STEPS - 1], (700, MAX_STEPS - 1)),
)
def test_steps_far_from_the_first_are_those_of_the_sequence(t):
    x = np.random.default_rng(0).normal(size=(1, 2)).astype(np.float32)
    row = ROWS["fru"]._replace(recurrence=FAR)
    params = FAR.init(jax.random.key(0), 2)
    equations, evaluated = one_step(row, params, x, far_state(t))
    y, last = oracle_rnn.statistics(FAR, params, np.float64(x)[:, None], far_state(t))
    for given in (equations, evaluated):
        assert_close(given[0], y[:, 0], 1e-6)
        assert_close(given[1][:, :-1], last[:, :-1], 1e-6)
        np.testing.assert_array_equal(given[1][:, -1], t + 1)


@pytest.mark.full
def test_more_steps_than_a_float_counts_are_refused():
    params = FAR.init(jax.random.key(0), 2)
    x = np.ones((1, 3, 2), np.float32)
    with refuses("state", 2**24 - 2, rule=str(2**24)):
        FAR.apply(params, x, far_state(2**24 - 2))
    reset = np.ones((1, 3), bool)
    y, _ = FAR.apply(params, x, far_state(2**24), reset=reset)
    assert np.all(np.isfinite(y))

    # Where its values are not known, the steps that are not counted have no output.
    y, last = jax.jit(FAR.apply)(params, x, far_state(2**24 - 2))
    assert np.all(np.isfinite(y[:, :2])) and np.all(np.isnan(y[:, 2]))
    for given in jax.jit(FAR.step)(params, last, x[:, 0]):
        assert np.all(np.isnan(given[..., : FAR.d_output]))
