"""Convolutions by blocks, against direct sums in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import toeplitz
from scipy.signal import fftconvolve

from ssm_jax.kernels import LogDecay
from ssm_jax.kernels.toeplitz import (
    _correlate,
    _mix,
    block_convolution,
    direct_convolution,
)
from tests.kernels.oracle import assert_close, draw
from tests.tiers import tiered

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


@pytest.mark.parametrize(
    "side", tiered(list(SIDES), ("real",), full=("real", "two_floats"))
)
@pytest.mark.parametrize("length", tiered([1, 127, 129, 16_384], (129,), full=(129,)))
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


@pytest.mark.parametrize("length", [1, 2, 17])
def test_one_matrix_is_the_sums_that_define_it(length):
    rng = np.random.default_rng(length)
    u, g = draw(rng, (2, 2, length, D), is_complex=False)
    ahead, behind = draw(rng, (2, D, length), is_complex=False)
    y, back = jax.vjp(jax.jit(direct_convolution), u, ahead, behind)
    taps = np.concatenate([np.zeros((D, 1)), np.float64(behind)], 1)
    matrices = [
        [toeplitz(np.float64(k), np.zeros(len(k)))[:length, :length] for k in kernels]
        for kernels in (ahead, taps)
    ]
    exact = np.stack([one + other.T for one, other in zip(*matrices, strict=True)])
    assert_close(y, np.einsum("dij,bjd->bid", exact, u), 1e-6)
    of_u, of_ahead, of_behind = back(g)
    assert_close(of_u, np.einsum("dij,bid->bjd", exact, g), 1e-6)
    products = np.einsum("bid,bjd->dij", np.float64(g), u)
    lags = np.arange(length)
    sums = [[np.trace(p, -lag) for lag in lags] for p in products]
    assert_close(of_ahead, np.array(sums), 1e-6)
    sums = [[np.trace(p, 1 + lag) for lag in lags] for p in products]
    assert_close(of_behind, np.array(sums), 1e-6)


@pytest.mark.full
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


CHANNELS = 3


def weights_and_values(blocks, i, j):
    rng = np.random.default_rng(blocks)
    m, v, g = (
        draw(rng, shape, is_complex=False)
        for shape in ((i, j, CHANNELS), (blocks, j, CHANNELS), (blocks, i, CHANNELS))
    )
    return jnp.asarray(m), jnp.asarray(v), jnp.asarray(g)


def by_einsum(m, v):
    return jnp.einsum("ijd,kjd->kid", m, v, precision="highest")


@pytest.mark.parametrize("blocks", tiered([1, 17, 48], (17,), full=(17,)))
@pytest.mark.parametrize(("i", "j"), tiered([(4, 4), (2, 5), (5, 1)], unpack=True))
def test_sums_and_their_derivatives_are_those_of_einsum(blocks, i, j):
    m, v, g = weights_and_values(blocks, i, j)
    y, back = jax.vjp(lambda m, v: _mix((m, v)), m, v)
    wanted, wanted_back = jax.vjp(by_einsum, m, v)
    assert_close(y, wanted, 1e-6)
    jax.tree.map(lambda a, b: assert_close(a, b, 1e-6), back(g), wanted_back(g))


def test_sums_are_differentiable_again():
    m, v, g = weights_and_values(32, 4, 4)

    def slope(function):
        def loss(m, v):
            return jnp.sum(jnp.sin(function(m, v)) * g)

        def of_slope(m, v):
            of_m, of_v = jax.grad(loss, (0, 1))(m, v)
            return jnp.sum(jnp.square(of_m)) + jnp.sum(jnp.sin(of_v))

        return jax.jit(jax.grad(of_slope, (0, 1)))(m, v)

    found = slope(lambda m, v: _mix((m, v)))
    jax.tree.map(lambda a, b: assert_close(a, b, 1e-5), found, slope(by_einsum))


def test_terms_are_added():
    m, v, _ = weights_and_values(8, 4, 4)
    more, w, _ = weights_and_values(8, 4, 2)
    assert_close(_mix((m, v), (more, w)), by_einsum(m, v) + by_einsum(more, w), 1e-6)


@pytest.mark.parametrize("term", [0, 1])
def test_a_term_without_weights_adds_nothing(term):
    m, v, _ = weights_and_values(8, 4, 4)
    nothing = jnp.zeros_like(m), v
    terms = [(m, v), nothing] if term else [nothing, (m, v)]
    assert_close(_mix(*terms), by_einsum(m, v), 1e-6)
    assert not np.any(_mix(nothing, nothing))


def test_what_is_not_a_number_stays_so():
    """Also where it is the only weight, or meets a weight of zero beside others."""
    m, v, _ = weights_and_values(8, 4, 4)
    assert np.isnan(_mix((jnp.full_like(m, jnp.nan), v))).all()
    broken = v.at[0, 0].set(jnp.nan)
    assert np.isnan(_mix((m.at[:, 0].set(0), broken))[0]).all()


@pytest.mark.full
def test_many_are_mixed_at_once():
    m, v, g = weights_and_values(16, 4, 4)
    many = jnp.stack([m, jnp.zeros_like(m)])
    y = jax.vmap(lambda m: _mix((m, v)))(many)
    assert_close(y[0], by_einsum(m, v), 1e-6)
    assert not np.any(y[1])
    of_m = jax.vmap(lambda g: _correlate(g, v))(jnp.stack([g, 2 * g]))
    assert_close(of_m[1], 2 * of_m[0], 1e-6)
