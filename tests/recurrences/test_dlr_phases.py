"""Coarse and fine initial phases of DLR-prod, with which a kernel is a single tap."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ssm_jax.recurrences import DLR, convolution_kernel
from tests.bad_inputs import refuses

OPTIONS = {"readout": "prod", "eigenvalues": "unit", "phase_init": "coarse_fine"}


@pytest.mark.parametrize("n", [2, 16, 17])
def test_sums_of_coarse_and_fine_phases_are_spread_evenly(n, key):
    phase = np.float64(DLR(d_state=n, **OPTIONS).init(key, 1)["phase"])
    coarse, fine = phase[: n // 2], phase[n // 2 :]
    sums = np.sort(np.add.outer(coarse, fine).ravel() % (2 * np.pi))
    gaps = np.diff(sums, append=sums[0] + 2 * np.pi)
    np.testing.assert_allclose(gaps, 2 * np.pi / (n // 2 * (n - n // 2)), rtol=1e-4)


@pytest.mark.parametrize("lag", [0, 37, 255])
def test_kernel_of_n_squared_over_4_taps_can_be_a_single_tap(lag, key):
    dlr = DLR(d_state=32, **OPTIONS)
    params = dlr.init(key, 1)
    # Re k is a comb of the coarse phases, and Im k a peak of the fine ones, which is 0
    # at the other teeth.
    scale = np.repeat([1, 1j], 16) / 16
    w = scale * np.exp(-1j * np.float64(params["phase"]) * lag)
    params |= {"w_re": jnp.float32(w.real)[None], "w_im": jnp.float32(w.imag)[None]}
    # float32 phases are off by 2e-7, at the last lag by 6e-5.
    length = 16 * 16
    kernel = jax.jit(lambda p: convolution_kernel(dlr.modes(p), length))(params)
    np.testing.assert_allclose(kernel[0], np.arange(length) == lag, rtol=0, atol=2e-5)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}], ids=str)
def test_comb_is_one_factor_of_a_kernel_of_zero(options, key):
    n, length = 32, 200
    dlr = DLR(d_state=n, weight_init="comb", **OPTIONS, **options)
    params = dlr.init(key, 3)
    factor = dataclasses.replace(dlr, readout="real", weight_init="normal")
    real = convolution_kernel(factor.modes(params), length)
    np.testing.assert_allclose(
        real[0], np.arange(length) % (n // 2) == 0, rtol=0, atol=2e-5
    )
    kernel = convolution_kernel(dlr.modes(params), length)
    np.testing.assert_allclose(kernel, 0, rtol=0, atol=2e-5)


def test_one_tap_is_learned_from_a_comb(key):
    dlr = DLR(d_state=32, weight_init="comb", **OPTIONS)
    params = dlr.init(key, 1)
    target = np.arange(256) == 5 * 16

    def loss(weights):
        kernel = convolution_kernel(dlr.modes(params | weights), 256)
        return jnp.sum(jnp.square(kernel - target))

    weights = {name: params[name] for name in ("w_re", "w_im")}
    optimizer = optax.adam(optax.cosine_decay_schedule(6.4 / 32 * 1e-2, 400))
    state = optimizer.init(weights)

    @jax.jit
    def step(weights, state):
        value, gradient = jax.value_and_grad(loss)(weights)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(weights, updates), state, value

    for _ in range(400):
        weights, state, value = step(weights, state)
    assert value < 1e-2  # 1 for a kernel of zero.


@pytest.mark.parametrize("missing", ["phase_init", "readout"])
def test_comb_without_a_product_of_phases_is_refused(missing):
    options = {name: value for name, value in OPTIONS.items() if name != missing}
    with refuses("weight_init", "comb", rule="'normal'"):
        DLR(d_state=4, weight_init="comb", **options)


def test_phases_have_a_rate_of_their_own():
    groups = DLR(lr_multiplier=0.5, phase_lr_multiplier=0.1).groups()
    rates = {name: group.lr_multiplier for name, group in groups.items()}
    assert rates == {"phase": 0.05, "sqrt_decay": 0.5, "w_re": 0.5, "w_im": 0.5}


def test_one_phase_cannot_be_both():
    with refuses("d_state", 1, rule="at least 2"):
        DLR(d_state=1, phase_init="coarse_fine")
