"""S4: initialization by HiPPO-LegS, and invalid arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import cont2discrete

from ssm_jax.recurrences import S4
from ssm_jax.recurrences.families import hippo, nplr
from tests.bad_inputs import refuses
from tests.tiers import tiered


@pytest.mark.parametrize("length", tiered([1, 2, 64, 1023], (64,), full=(1, 64, 1023)))
@pytest.mark.parametrize("dt", tiered([0.1, 1e-3], full=1))
def test_s4_starts_as_hippo_itself(length, dt, key):
    """Its kernel is that of the real HiPPO matrices, discretized by scipy."""
    n = 16
    s4 = S4(d_state=n, dt_min=dt, dt_max=dt)
    params = s4.init(key, 1)
    C = (params["C_re"][0] + 1j * np.complex128(params["C_im"][0])) @ (
        hippo.legs(n).V.conj().T
    )
    A, B = hippo.matrices(n)
    system = (A, B[:, None], 2 * np.real(C)[None], np.zeros((1, 1)))
    A, B, *_ = cont2discrete(
        system, np.exp(np.float64(params["log_dt"][0])), "bilinear"
    )
    expected, h = [], B
    for _ in range(length):
        expected.append((2 * np.real(C) @ h)[0])
        h = A @ h
    given = jax.jit(lambda params: nplr.kernel(s4.systems(params)[0], length))(params)
    atol = 5e-6 * np.abs(expected).max()
    np.testing.assert_allclose(given[0], expected, rtol=0, atol=atol)


@pytest.mark.parametrize(("method", "reset"), [("associative", None), ("fft", True)])
def test_s4_says_which_methods_it_knows(method, reset, key):
    s4, x = S4(d_state=4), jnp.ones((3, 2))
    flags = None if reset is None else jnp.zeros(3, bool)
    with refuses("method", f"got {method!r}", rule="'sequential' or 'chunked'"):
        s4.apply(s4.init(key, 2), x, reset=flags, method=method)
