"""SSD: the widths that it takes, its initialization, and bounds of its steps."""

import numpy as np
import pytest

from ssm_jax.recurrences import SSD
from tests.bad_inputs import refuses


# Two heads take 18 channels, four 24; three heads, 21, are not two groups of one size.
@pytest.mark.parametrize(("width", "total"), [(3, 18), (19, 18), (21, 18), (26, 24)])
def test_width_that_does_not_fit_is_refused(width, total, key):
    ssd = SSD(d_head=2, d_state=3, n_groups=2)
    assert ssd.d_in(ssd.init(key, total)) == total
    for call in (
        lambda: ssd.init(key, width),
        lambda: ssd.initial_state((), width),
        lambda: ssd.d_out(width),
    ):
        with refuses("d_in", width, rule=str(total)):
            call()


@pytest.mark.full
def test_rates_and_steps_are_initialized_in_their_ranges(key):
    params = SSD(d_head=1, d_state=1).init(key, 2 + 2 * 4000)
    rate = np.exp(params["log_rate"])
    assert 1 <= rate.min() < 1.1 and 15.9 < rate.max() <= 16
    np.testing.assert_allclose(rate.mean(), 8.5, rtol=0.05)
    log_dt = np.log(np.log1p(np.exp(np.float64(params["step_bias"]))))
    low, high = np.log([1e-3, 1e-1])
    np.testing.assert_allclose([log_dt.min(), log_dt.max()], [low, high], atol=0.05)
    np.testing.assert_allclose(log_dt.mean(), (low + high) / 2, atol=0.1)
    np.testing.assert_array_equal(params["feedthrough"], 1)


def test_limits_in_the_wrong_order_are_refused():
    with refuses("step_limits", "(1.0, 0.5)"):
        SSD(step_limits=(1.0, 0.5))
