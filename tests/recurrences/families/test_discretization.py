"""Discretization of continuous modes, compared to scipy and to series in float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import cont2discrete

from ssm_jax.kernels.powers import decay_powers
from ssm_jax.recurrences.families.discretization import discretize, expm1_ratio
from ssm_jax.recurrences.families.initializers import log_uniform
from tests.tiers import tiered

RULES = ("zoh", "bilinear")
LAM = np.complex64([-0.5, -0.5 + 3j, -20 + 1j, -1e-3 + 300j, -4 - 40j])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dt", [1e-3, 0.1, 2.0])
def test_steps_are_those_of_scipy(rule, dt):
    n, dt = len(LAM), np.float32(dt)
    eye = np.eye(n, dtype=complex)
    system = (np.diag(np.complex128(LAM)), eye, eye, 0 * eye)
    A, B, *_ = cont2discrete(system, float(dt), method=rule)
    log_decay, gain = discretize(rule, LAM, np.full(n, dt))
    decay = decay_powers(log_decay, jnp.ones((), jnp.int32))
    # A phase of 600 radians, rounded to float32, is off by 3e-5.
    atol = 3e-5 if dt > 1 else 2e-6
    np.testing.assert_allclose(decay, np.diag(A), rtol=0, atol=atol)
    np.testing.assert_allclose(gain * LAM, np.diag(B) * LAM, rtol=1e-6, atol=atol)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "z", tiered([0.0, 1e-30, 1e-8, 1e-4j, -1e-3 + 1e-3j, -0.1, 0.3j])
)
def test_short_steps_lose_nothing(rule, z):
    """Value and derivative of the gain divided by ``dt``, compared to their series."""
    terms = np.arange(20)
    factors = (
        [1 / math.factorial(k + 1) for k in terms] if rule == "zoh" else 0.5**terms
    )
    value = np.sum(factors * np.complex128(z) ** terms)
    slope = np.sum(factors[1:] * terms[1:] * np.complex128(z) ** terms[:-1])

    def gain(lam):
        return discretize(rule, lam[None], jnp.ones(1))[1][0]

    lam = jnp.asarray(z, jnp.complex64)
    np.testing.assert_allclose(gain(lam), value, rtol=3e-7)
    np.testing.assert_allclose(jax.grad(gain, holomorphic=True)(lam), slope, rtol=1e-6)


@pytest.mark.parametrize("z", [-0.99, -1.01, 0.99j, 1.01j, -3 + 3j, -200.0, -1 + 50j])
def test_ratio_and_its_derivative_cross_from_series_to_formula(z):
    value = (np.exp(z) - 1) / z
    slope = (np.exp(z) * (z - 1) + 1) / z**2
    z = jnp.asarray(z, jnp.complex64)
    np.testing.assert_allclose(expm1_ratio(z), value, rtol=2e-6)
    given = jax.grad(expm1_ratio, holomorphic=True)(z)
    np.testing.assert_allclose(given, slope, rtol=2e-6)


@pytest.mark.parametrize("re", [-1e-6, -1e-3, -0.5])
def test_bilinear_keeps_slow_decays(re):
    lam = np.complex64([re + 0j, re + 1j, re + 30j])
    log_decay, _ = discretize("bilinear", lam, np.ones(3, np.float32))
    z = np.complex128(lam) / 2
    expected = np.log1p(4 * z.real / np.abs(1 - z) ** 2) / 2
    np.testing.assert_allclose(log_decay.log_abs, expected, rtol=5e-7)


def test_a_bilinear_step_may_forget_all():
    def decay(lam):
        log_decay, _ = discretize("bilinear", lam + 0j, jnp.ones(1))
        return jnp.real(decay_powers(log_decay, jnp.ones((), jnp.int32)))[0]

    value, slope = jax.value_and_grad(decay)(jnp.array([-2.0]))
    assert abs(value) < 1e-6
    assert np.all(np.isfinite(slope))


def test_log_uniform_is_uniform_in_the_logarithm(key):
    drawn = np.sort(log_uniform(key, (10_000,), 1e-3, 1e-1))
    assert drawn[0] >= np.float32(np.log(1e-3))
    assert drawn[-1] <= np.float32(np.log(1e-1))
    expected = np.linspace(np.log(1e-3), np.log(1e-1), len(drawn))
    assert np.abs(drawn - expected).max() < 0.1
