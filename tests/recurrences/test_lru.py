"""LRU: the initial ring of its eigenvalues, and the normalization of the variance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ssm_jax.recurrences import LRU, ParamGroup
from tests.bad_inputs import refuses

RINGS = {"disk": {}, "ring": {"r_min": 0.9, "r_max": 0.999, "max_phase": 0.314}}
each_ring = pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS.keys())


@each_ring
def test_eigenvalues_start_uniformly_over_the_ring(ring, key):
    lru = LRU(d_state=2000, **ring)
    params = jax.tree.map(np.float64, lru.init(key, 2))
    modulus = np.exp(-np.exp(params["log_rate"]))
    low, high = lru.r_min**2, lru.r_max**2
    area = stats.uniform(low, high - low).cdf
    assert stats.kstest(modulus**2, area).pvalue > 0.01
    assert np.all((modulus > lru.r_min * (1 - 1e-6)) & (modulus < lru.r_max))
    circle = stats.uniform(0, lru.max_phase).cdf
    assert stats.kstest(np.exp(params["log_phase"]), circle).pvalue > 0.01
    gain = np.exp(params["log_gain"])
    np.testing.assert_allclose(gain**2, 1 - modulus**2, rtol=1e-5)


@pytest.mark.full
def test_matrices_start_with_the_published_deviations(key):
    n, d = 64, 100
    params = LRU(d_state=n).init(key, d)
    expected = {"B": (n, d, np.sqrt(1 / (2 * d))), "C": (d, n, np.sqrt(1 / n))}
    for name, (*shape, deviation) in expected.items():
        for part in ("re", "im"):
            values = params[f"{name}_{part}"]
            assert values.shape == tuple(shape)
            np.testing.assert_allclose(np.std(values), deviation, rtol=0.05)


@pytest.mark.full
def test_gains_keep_the_variance_of_noise(key):
    lru = LRU(d_state=64, r_min=0.9, r_max=0.99)
    params = dict(lru.init(key, 1), B_re=jnp.ones((64, 1)), B_im=jnp.zeros((64, 1)))
    noise = jax.random.normal(key, (400, 600, 1))
    _, state = jax.jit(lru.apply)(params, noise)
    variance = np.mean(np.abs(state) ** 2, 0)
    np.testing.assert_allclose(variance, 1, rtol=0.25)


def test_eigenvalues_gains_and_inputs_have_a_group():
    group = ParamGroup(weight_decay=False, lr_multiplier=0.25)
    names = {"log_rate", "log_phase", "log_gain", "B_re", "B_im"}
    assert LRU(lr_multiplier=0.25).groups() == dict.fromkeys(names, group)


REFUSALS = {
    "size": ({"d_state": 0}, "d_state", "positive", 0),
    "order": ({"r_min": 0.9, "r_max": 0.9}, "r_min", "[0, r_max)", 0.9),
    "range": ({"r_max": 1.1}, "r_min", "at most 1", 0.0),
    "phase": ({"max_phase": 0.0}, "max_phase", "positive", 0.0),
}


@pytest.mark.parametrize(
    ("fields", "name", "rule", "value"), REFUSALS.values(), ids=REFUSALS.keys()
)
def test_numbers_that_do_not_fit_are_refused(fields, name, rule, value):
    with refuses(name, value, rule=rule):
        LRU(**fields)
