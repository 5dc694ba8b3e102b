"""S5: initialization in the eigenbasis, and modes shared by all channels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal

from ssm_jax.recurrences import S5, convolution_kernel
from ssm_jax.recurrences.families import hippo
from tests.kernels.oracle import assert_close
from tests.tiers import tiered

WIDTH = 16


@pytest.mark.parametrize("blocks", tiered([1, 4], (4,)))
def test_s5_starts_from_real_matrices_in_the_eigenbasis(blocks, key):
    n, d = 64, 8
    params = S5(d_state=n, blocks=blocks).init(key, d)
    V = hippo.legs(n // blocks).V
    B = (params["B_re"] + 1j * params["B_im"]).reshape(blocks, -1, d)
    B = 2 * np.real(V @ B)
    np.testing.assert_allclose(np.std(B), 1 / np.sqrt(n), rtol=0.1)
    # Truncated at two deviations of what it is cut from.
    assert np.abs(B).max() <= 2 / 0.8796 / np.sqrt(n)


DEVIATIONS = {
    "trunc_standard_normal": 1 / np.sqrt(64),
    "lecun_normal": 1 / np.sqrt(64 * WIDTH),
    "complex_normal": np.sqrt(0.5),
}


@pytest.mark.full
@pytest.mark.parametrize(("start", "wanted"), DEVIATIONS.items())
def test_s5_outputs_start_with_the_deviations_of_the_code(start, wanted, key):
    params = S5(d_state=64, C_init=start, bidirectional=True).init(key, WIDTH)
    for name in ("C_re", "C_im", "C_backward_re", "C_backward_im"):
        np.testing.assert_allclose(np.std(params[name]), wanted, rtol=0.1)
    assert np.any(params["C_re"] != params["C_backward_re"])


@pytest.mark.full
@pytest.mark.parametrize("rule", tiered(["zoh", "bilinear"]))
def test_s5_is_what_scipy_discretizes(rule, key):
    s5 = S5(d_state=8, blocks=1, discretization=rule, dt_min=0.01, dt_max=0.5)
    params = s5.init(key, 3)
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    lam, dt = p["lam_re"] + 1j * p["frequency"], np.exp(p["log_dt"])
    B, C = (p[f"{name}_re"] + 1j * p[f"{name}_im"] for name in "BC")
    steps = [
        signal.cont2discrete(
            (lam[i, None, None], B[i, None], np.eye(1), np.zeros((1, 3))), dt[i], rule
        )
        for i in range(len(lam))
    ]
    decay, gain = (np.concatenate([step[i] for step in steps]) for i in (0, 1))
    x = np.random.default_rng(0).normal(size=(200, 3))
    h, wanted = np.zeros(len(lam), complex), []
    for x_t in x:
        h = decay[:, 0] * h + gain @ x_t
        wanted.append(2 * np.real(C @ h) + p["feedthrough"] * x_t)
    y, last = jax.jit(s5.apply)(params, x.astype(np.float32))
    assert_close((y, last), (np.array(wanted), h), 1e-5)


@pytest.mark.full
def test_s5_never_grows(key):
    s5 = S5(d_state=4, blocks=1, dt_min=0.01, dt_max=0.01)
    params = dict(s5.init(key, 2), lam_re=jnp.array([0.3, -0.3]))
    log_decay = s5.modes(params).log_decay
    np.testing.assert_allclose(log_decay.log_abs, [-1e-6, -3e-3], rtol=1e-5)


@pytest.mark.full
def test_s5_kernel_is_what_a_pulse_gives(key):
    length, at = 15, 7
    s5 = S5(d_state=4, blocks=1, bidirectional=True, dt_min=0.1)
    params = dict(s5.init(key, 3), feedthrough=jnp.zeros(3))

    @jax.jit
    def run(params):
        pulses = jnp.zeros((3, length, 3)).at[jnp.arange(3), at, jnp.arange(3)].set(1)
        y, _ = s5.apply(params, pulses)
        modes = s5.modes(params)
        return y, [convolution_kernel(m, at) for m in (modes, modes.backward())]

    y, (ahead, behind) = run(params)
    y = np.moveaxis(y, 0, -1)
    np.testing.assert_allclose(y[at + 1 : -1], np.moveaxis(ahead, -1, 0)[1:], atol=1e-6)
    np.testing.assert_allclose(y[:at][::-1], np.moveaxis(behind, -1, 0), atol=1e-6)
