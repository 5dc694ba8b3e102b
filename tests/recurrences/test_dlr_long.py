"""DLR over long sequences: all methods match the float32 parameters in float64."""

import jax
import numpy as np
import pytest
from scipy.signal import lfilter

from ssm_jax.recurrences import DLR, convolution_kernel

LENGTH = 131_072
LONG = {"dt_min": 1e-5, "dt_max": 1e-2}
READOUTS = {
    "real": DLR(d_state=8, **LONG),
    "prod": DLR(d_state=4, **LONG, readout="prod"),
}
METHODS = [
    "fft",
    pytest.param("chunked", marks=pytest.mark.full),
    pytest.param("sequential", marks=pytest.mark.nightly),
    pytest.param("associative", marks=pytest.mark.nightly),
]


def exact_modes(dlr, params):
    """Decays and weights in float64, both ``(n,)``."""
    log_abs, phase = (
        -(np.float64(params["sqrt_decay"]) ** 2),
        np.float64(params["phase"]),
    )
    w = np.complex128(params["w_re"] + 1j * params["w_im"])[0]
    if dlr.readout == "real":
        return np.exp(log_abs + 1j * phase), w
    lam = np.exp(np.add.outer(log_abs, log_abs) + 1j * np.add.outer(phase, phase))
    return lam.ravel(), -0.5j * np.outer(w, w).ravel()


@pytest.mark.full
@pytest.mark.parametrize("dlr", READOUTS.values(), ids=READOUTS.keys())
@pytest.mark.parametrize("method", METHODS)
def test_evaluation_of_a_long_sequence_is_right(dlr, method):
    params = dlr.init(jax.random.key(0), 1)
    x = np.random.default_rng(0).normal(size=(LENGTH, 1)).astype(np.float32)
    lam, w = exact_modes(dlr, params)
    inputs = x[:, 0].astype(complex)
    states = (
        w_n * lfilter([1], [1, -a], inputs) for a, w_n in zip(lam, w, strict=True)
    )
    wanted = sum(states).real + np.float64(params["feedthrough"]) * x[:, 0]
    y, _ = jax.jit(dlr.apply, static_argnames="method")(params, x, method=method)
    np.testing.assert_allclose(
        y[:, 0], wanted, rtol=0, atol=2e-5 * np.abs(wanted).max()
    )


@pytest.mark.full
@pytest.mark.parametrize("dlr", READOUTS.values(), ids=READOUTS.keys())
def test_convolution_kernel_of_a_million_steps_is_right(dlr):
    params = dlr.init(jax.random.key(0), 1)
    lam, w = exact_modes(dlr, params)
    log_lam, steps = np.log(lam), np.arange(2**20)
    wanted = sum(w_n * np.exp(log * steps) for log, w_n in zip(log_lam, w, strict=True))
    given = jax.jit(lambda params: convolution_kernel(dlr.modes(params), 2**20))(params)
    np.testing.assert_allclose(
        given[0], wanted.real, rtol=0, atol=2e-6 * np.abs(wanted.real).max()
    )
