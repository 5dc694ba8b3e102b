"""Which steps of a segment a value reaches, by a loop over pairs of steps."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels.nonfinite import nan_where, reached
from tests.tiers import tiered

ROWS, LENGTH, CHANNELS = 6, 16, 2
RNG = np.random.default_rng(0)
FLAGS = RNG.random((ROWS, LENGTH, CHANNELS)) < 0.15
RESET = RNG.random((ROWS, LENGTH)) < 0.2
BEFORE = RNG.random((ROWS, CHANNELS)) < 0.5


def by_pairs(flags, reset, before, taps, reverse):
    segment = np.cumsum(reset, -1)
    found = np.zeros_like(flags)
    for row, t, s in itertools.product(range(ROWS), range(LENGTH), range(LENGTH)):
        lag = s - t if reverse else t - s
        if lag >= 0 and lag < taps and segment[row, s] == segment[row, t]:
            found[row, t] |= flags[row, s]
    if before is not None:
        for row, t in itertools.product(range(ROWS), range(LENGTH)):
            if segment[row, t] == 0 and t + 1 < taps:
                found[row, t] |= before[row]
    return found


@pytest.mark.parametrize("taps", [None, 1, 3])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("reset", [None, RESET], ids=["one", "segments"])
def test_flags_reach_later_steps_of_their_segment(taps, reverse, reset):
    before = None if reverse else BEFORE
    given = reached(FLAGS, reset, before, taps=taps, reverse=reverse)
    none = np.zeros((ROWS, LENGTH), bool) if reset is None else reset
    expected = by_pairs(FLAGS, none, before, taps or LENGTH + 1, reverse)
    np.testing.assert_array_equal(given, expected)


@pytest.mark.full
@pytest.mark.parametrize("n", tiered([2, 8]))
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("reset", [None, RESET], ids=["one", "segments"])
def test_length_may_be_sharded(n, reverse, reset):
    mesh = jax.sharding.Mesh(jax.devices()[:n], ("seq",))
    steps, before = jax.P(None, "seq"), None if reverse else BEFORE

    def piece(flags, reset, before):
        return reached(flags, reset, before, axis_name="seq", reverse=reverse)

    specs = {"in_specs": (steps, steps, jax.P()), "out_specs": steps}
    given = jax.jit(jax.shard_map(piece, mesh=mesh, **specs))(FLAGS, reset, before)
    expected = reached(FLAGS, reset, before, reverse=reverse)
    np.testing.assert_array_equal(given, expected)


def test_gradient_is_nan_where_it_depends_on_nan():
    flags, x = jnp.array([True, True, False]), jnp.array([1.0, 2.0, 3.0])

    def total(x, weights):
        return jnp.sum(weights * nan_where(flags, x**2))

    gradient = jax.jit(jax.grad(total))(x, jnp.array([0.0, 1.0, 1.0]))
    np.testing.assert_array_equal(gradient, [0, np.nan, 6])
    y, tangent = jax.jvp(lambda x: nan_where(flags, x**2), (x,), (jnp.ones(3),))
    np.testing.assert_array_equal(y, [np.nan, np.nan, 9])
    np.testing.assert_array_equal(tangent, [np.nan, np.nan, 6])
    rows = jax.vmap(nan_where)(flags, x)
    np.testing.assert_array_equal(rows, [np.nan, np.nan, 3])
