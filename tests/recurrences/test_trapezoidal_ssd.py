"""The recurrence of Mamba-3: its widths, its initialization, and many rotations."""

import functools

import jax
import numpy as np
import pytest

from ssm_jax.recurrences import TrapezoidalSSD
from tests.bad_inputs import refuses
from tests.kernels.oracle import assert_close
from tests.recurrences.oracle_matrix import trapezoidal_ssd


# Two heads take 23 channels, four 33; three heads, 28, are not two groups of one size.
@pytest.mark.parametrize(("width", "total"), [(3, 23), (24, 23), (28, 23), (34, 33)])
def test_width_that_does_not_fit_is_refused(width, total, key):
    ssd = TrapezoidalSSD(d_head=2, d_state=3, n_groups=2, n_angles=1)
    assert ssd.d_in(ssd.init(key, total)) == total
    for call in (
        lambda: ssd.init(key, width),
        lambda: ssd.initial_state((), width),
        lambda: ssd.d_out(width),
    ):
        with refuses("d_in", width, rule=str(total)):
            call()


@pytest.mark.parametrize(("n_angles", "d_state"), [(None, 3), (3, 5)])
def test_angles_that_do_not_fit_are_refused(n_angles, d_state):
    with refuses("n_angles", n_angles, rule="d_state / 2"):
        TrapezoidalSSD(d_state=d_state, n_angles=n_angles)


@pytest.mark.full
def test_steps_are_initialized_in_their_range(key):
    ssd = TrapezoidalSSD(d_head=1, d_state=4)
    params = ssd.init(key, ssd.width(4000))
    log_dt = np.log(np.log1p(np.exp(np.float64(params["step_bias"]))))
    low, high = np.log([1e-3, 1e-1])
    np.testing.assert_allclose([log_dt.min(), log_dt.max()], [low, high], atol=0.05)
    for name in ("key_bias", "query_bias", "feedthrough"):
        np.testing.assert_array_equal(params[name], 1)


@pytest.mark.full
def test_many_rotations_are_the_definition(key):
    """Hundreds of turns in each direction, over many chunks."""
    ssd = TrapezoidalSSD(d_head=2, d_state=4, n_angles=2)
    params, width = ssd.init(key, ssd.width(1)), ssd.width(1)
    x = np.random.default_rng(0).normal(size=(1, 4096, width)).astype(np.float32)
    x[..., -2:] = [1, -1] + x[..., -2:] / 4
    x[..., 10] += 3  # Steps, the first of the numbers of a head.
    given = jax.jit(functools.partial(ssd.apply, method="chunked"))(params, x)
    assert_close(given, trapezoidal_ssd(ssd, params, np.float64(x)), 3e-4)
