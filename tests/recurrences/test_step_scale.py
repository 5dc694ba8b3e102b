"""Steps of several times the length: inputs that hold, sums of taps, and step sizes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences import DLR, DSS, convolution_kernel
from tests.bad_inputs import refuses
from tests.tiers import tiered

WIDTH, LENGTH = 3, 17
DT = {"dt_min": 0.01, "dt_max": 0.3}
CASES = {
    "dlr": DLR(d_state=4, **DT),
    "dlr_prod": DLR(d_state=4, readout="prod", **DT),
    "dlr_bidirectional": DLR(d_state=4, bidirectional=True, **DT),
    "dlr_sum": DLR(d_state=4, readout="sum", bidirectional=True, **DT),
    "dlr_real": DLR(d_state=4, eigenvalues="real", **DT),
    "dlr_unit": DLR(d_state=4, eigenvalues="unit"),
    "dss": DSS(d_state=3, **DT),
    "dss_softmax": DSS(
        d_state=3, kernel="softmax", length=20, bidirectional=True, **DT
    ),
}
each = pytest.mark.parametrize(
    "recurrence",
    tiered(
        CASES,
        fast=["dlr_real"],
        full=["dlr", "dlr_bidirectional", "dlr_real", "dlr_sum", "dlr_unit"],
    ),
)


def taps(modes, length):
    """The kernel in float64, ``(d, length)``, from its definition."""
    log_abs = np.float64(modes.log_decay.log_abs)
    phase = modes.log_decay.phase
    lam = np.exp(log_abs + 1j * (0 if phase is None else np.float64(phase)))
    w = np.complex128(modes.w)
    lam = np.broadcast_to(lam, w.shape)
    kernel = np.zeros((w.shape[0], length))
    for channel in range(w.shape[0]):
        for lag in range(length):
            k = sum(w[channel, n] * lam[channel, n] ** lag for n in range(w.shape[1]))
            kernel[channel, lag] = k.real * (k.imag if modes.readout == "prod" else 1)
    return kernel


@each
@pytest.mark.parametrize("scale", tiered([2, 3]))
def test_kernel_has_the_sums_of_consecutive_taps(recurrence, scale, key):
    params = recurrence.init(key, WIDTH)
    long_steps = dataclasses.replace(recurrence, step_scale=scale)
    directions = [lambda modes: modes]
    if recurrence.bidirectional:
        directions.append(lambda modes: modes.backward())
    for direction in directions:
        short = taps(direction(recurrence.modes(params)), scale * LENGTH)
        modes = direction(long_steps.modes(params))
        # The first taps of a softmax are large, so that the error is relative to them.
        np.testing.assert_allclose(
            convolution_kernel(modes, LENGTH),
            short.reshape(WIDTH, LENGTH, scale).sum(-1),
            rtol=0,
            atol=3e-6 * np.abs(short).max(),
        )


@each
@pytest.mark.parametrize("method", tiered(["sequential", "fft"]))
def test_outputs_are_those_of_inputs_that_hold(recurrence, method, key):
    params = recurrence.init(key, WIDTH)
    x = np.random.default_rng(0).normal(size=(LENGTH, WIDTH)).astype(np.float32)
    long_steps = dataclasses.replace(recurrence, step_scale=2)
    y, _ = long_steps.apply(params, x, method=method)
    held, _ = recurrence.apply(params, np.repeat(x, 2, axis=0), method=method)
    scale = np.abs(held).max()
    np.testing.assert_allclose(y, held[1::2], rtol=0, atol=3e-6 * scale)


def test_zero_order_hold_has_steps_of_twice_the_size(key):
    dss = DSS(d_state=3, **DT)
    params = dss.init(key, WIDTH)
    double = params | {"log_dt": params["log_dt"] + np.float32(np.log(2))}
    expected = convolution_kernel(dss.modes(double), LENGTH)
    modes = dataclasses.replace(dss, step_scale=2).modes(params)
    np.testing.assert_allclose(convolution_kernel(modes, LENGTH), expected, atol=1e-5)


@pytest.mark.full
def test_decay_without_loss_sums_its_inputs(key):
    """At lam = 1 the quotient of the geometric series is 0 / 0."""
    dlr = DLR(d_state=1, eigenvalues="unit", step_scale=3)
    params = dlr.init(key, 1) | {"w_re": jnp.ones((1, 1)), "w_im": jnp.zeros((1, 1))}

    def total(params):
        return jnp.sum(convolution_kernel(dlr.modes(params), 5))

    value, gradient = jax.value_and_grad(total)(params)
    assert value == 15
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("cls", [DLR, DSS])
@pytest.mark.parametrize("value", [0, 0.5])
def test_fraction_of_a_step_is_refused(cls, value, unchecked):
    with refuses("step_scale", value):
        cls(step_scale=value)
