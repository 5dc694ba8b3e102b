"""Convolutions by blocks, against direct sums in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import fftconvolve

from ssm_jax.kernels import LogDecay
from ssm_jax.kernels.blocked import block_convolution
from tests.kernels.oracle import assert_close, draw

D, N = 2, 3
LOG_ABS = np.array([[-1e-6, -1e-4, -0.1], [-0.5, -0.01, -2.0]], np.float32)
PHASE = np.array([[0.3, -2.0, 3.1], [1e-3, 0.0, 2.0]], np.float32)
LOW = np.full((D, N), 1e-8, np.float32)
SIDES = {
    "complex": LogDecay(LOG_ABS, PHASE),
    "two_floats": LogDecay(LOG_ABS, PHASE, LOW),
    "real": LogDecay(LOG_ABS),
}


def wanted(u, g, log, w, gap):
    """Output, and cotangents of decay and weight, of what is ``gap`` steps before."""
    length = u.shape[1]
    log_abs, *phases = (np.float64(leaf) for leaf in jax.tree.leaves(log))
    exponent = log_abs + 1j * sum(phases)
    power = np.exp(exponent * np.arange(length)[:, None, None])
    kernel = np.real(np.sum(w * power, -1))
    kernel = np.pad(kernel, [(gap, 0), (0, 0)])[None]
    y = fftconvolve(np.float64(u), kernel, axes=1)[:, :length]
    lags = fftconvolve(np.float64(g), u[:, ::-1], axes=1).sum(0)[length - 1 + gap :]
    lags = np.pad(lags, [(0, gap), (0, 0)])
    of_w = np.einsum("ld,ldn->dn", lags, power)
    of_log = w * np.einsum("ld,ldn,l->dn", lags, power, np.arange(length))
    return y, of_log, of_w


@jax.jit
def evaluated(u, g, *sides):
    y, back = jax.vjp(block_convolution, u, *sides)
    of_u, *of_sides = back(g)
    return y, of_u, of_sides


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("length", [1, 127, 129, 16_384])
def test_blocks_are_the_sums_that_define_them(length, side):
    log = jax.tree.map(jnp.asarray, SIDES[side])
    rng = np.random.default_rng(length)
    u, g = draw(rng, (2, 2, length, D), is_complex=False)
    w, behind = draw(rng, (2, D, N), is_complex=side != "real")
    y, of_u, (*of_ahead, of_log_behind, of_behind) = evaluated(
        u, g, log, w, log, behind
    )
    ahead, *wanted_ahead = wanted(u, g, log, w, 0)
    after, *wanted_after = wanted(u[:, ::-1], g[:, ::-1], log, behind, 1)
    tolerance = 2e-5 if length > 1000 else 2e-6
    assert_close(y, ahead + after[:, ::-1], tolerance)
    back, _, _ = wanted(g[:, ::-1], u, log, w, 0)
    back_after, _, _ = wanted(g, u, log, behind, 1)
    assert_close(of_u, back[:, ::-1] + back_after, tolerance)
    for (of_log, of_w), (wanted_log, wanted_w) in (
        (of_ahead, wanted_ahead),
        ((of_log_behind, of_behind), wanted_after),
    ):
        assert_close(of_w, wanted_w, 10 * tolerance)
        assert_close(of_log.log_abs, wanted_log.real, 10 * tolerance)
        for of_phase in of_log[1:]:
            if of_phase is not None:
                assert_close(of_phase, -wanted_log.imag, 10 * tolerance)


def test_blocks_are_differentiable_again():
    """The derivative of the convolution's, by its own rule, as that of the sums."""
    length = 140
    rng = np.random.default_rng(0)
    u, g = draw(rng, (2, 2, length, D), is_complex=False)
    log = SIDES["complex"]
    w = draw(rng, (D, N))

    def by_sums(u, log, w):
        exponent = jax.lax.complex(log.log_abs, log.phase)
        power = jnp.exp(exponent * jnp.arange(length)[:, None, None])
        kernel = jnp.real(jnp.sum(w * power, -1))
        past = jnp.arange(length)[:, None] - jnp.arange(length)
        mixing = jnp.where(past[..., None] < 0, 0, kernel[past])
        return jnp.einsum("tsd,bsd->btd", mixing, u)

    def twice(function):
        def loss(values):
            return jnp.sum(g * jnp.sin(function(*values)))

        def slope(values):
            return sum(
                jnp.sum(jnp.real(leaf) * 0.3 - jnp.imag(leaf) * 0.7)
                for leaf in jax.tree.leaves(jax.grad(loss)(values))
            )

        return jax.jit(jax.grad(slope))((u, log, w))

    given, expected = twice(block_convolution), twice(by_sums)
    jax.tree.map(lambda a, b: assert_close(a, b, 1e-4), given, expected)
