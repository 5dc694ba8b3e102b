"""Moving averages: initialization, and decays near 0 and 1."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ssm_jax.recurrences import DampedEMA, ExponentialSmoothing
from tests.bad_inputs import refuses

WIDTH = 500


def follows(sample, distribution):
    """Whether a sample follows a distribution, by the Kolmogorov-Smirnov test."""
    return stats.kstest(np.ravel(sample), distribution).pvalue > 0.01


def test_smoothing_factors_start_log_uniform(key):
    params = ExponentialSmoothing(bidirectional=True).init(key, WIDTH)
    low, high = np.log([1e-3, 1e-1])
    for name in ("logit_smoothing", "logit_smoothing_backward"):
        log = -np.log1p(np.exp(-np.float64(params[name])))
        assert follows(log, stats.uniform(low, high - low).cdf), name
    assert np.any(params["logit_smoothing"] != params["logit_smoothing_backward"])


def test_damped_averages_start_as_in_the_authors_code(key):
    params = DampedEMA(bidirectional=True).init(key, WIDTH)
    assert params.keys() == {"feedthrough"} | {
        f"{name}{suffix}"
        for name in ("logit_smoothing", "logit_damping", "expansion", "projection")
        for suffix in ("", "_backward")
    }
    signs = np.tile([1, -1], 8)
    for suffix in ("", "_backward"):
        assert follows(params[f"logit_smoothing{suffix}"] / 0.2, "norm")
        assert follows(params[f"logit_damping{suffix}"] / 0.2, "norm")
        assert follows((params[f"expansion{suffix}"] - signs) / 0.02, "norm")
        assert follows(params[f"projection{suffix}"], "norm")
    assert follows(params["feedthrough"], "norm")


@pytest.mark.parametrize("alpha", [-30.0, -8.0, 0.0, 3.0, 12.0, 60.0])
@pytest.mark.parametrize("delta", [-30.0, 0.0, 12.0, 60.0])
def test_damped_decays_lose_nothing_and_always_learn(alpha, delta):
    ema = DampedEMA(d_state=1)
    params = {
        "logit_smoothing": jnp.full((1, 1), alpha),
        "logit_damping": jnp.full((1, 1), delta),
        "expansion": jnp.ones((1, 1)),
        "projection": jnp.ones((1, 1)),
        "feedthrough": jnp.zeros(1),
    }

    def log_decay(params):
        return ema.modes(params).log_decay.log_abs[0, 0]

    value, grads = jax.value_and_grad(log_decay)(params)
    a, b = np.exp(-alpha), np.exp(-delta)
    decay, kept = (a + b + a * b) / ((1 + a) * (1 + b)), 1 / ((1 + a) * (1 + b))
    expected = np.log1p(-kept) if kept < 0.5 else np.log(decay)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    slope = -kept / decay * a / (1 + a)
    np.testing.assert_allclose(grads["logit_smoothing"], slope, rtol=1e-4, atol=1e-7)


REFUSALS = {
    "size": (DampedEMA, {"d_state": 0}, "d_state", "positive", 0),
    "order": (ExponentialSmoothing, {"decay_min": 0.2}, "decay_min", "(0, 1)", 0.2),
    "range": (ExponentialSmoothing, {"decay_max": 1.0}, "decay_min", "(0, 1)", 1.0),
}


@pytest.mark.parametrize(
    ("ema", "options", "name", "rule", "value"), REFUSALS.values(), ids=REFUSALS
)
def test_numbers_out_of_range_are_refused(ema, options, name, rule, value):
    with refuses(name, value, rule=rule):
        ema(**options)
