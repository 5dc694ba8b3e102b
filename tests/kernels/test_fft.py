"""Modal kernels and convolutions against direct sums in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import fftconvolve

from ssm_jax.kernels import (
    LogDecay,
    bidirectional_convolution,
    causal_convolution,
    compiling_for,
    final_state,
    modal_kernel,
)
from tests.kernels import oracle
from tests.tiers import tiered

K, N = 2, 3
LOG_ABS = np.array([[0.0, -1e-6, -0.01], [-1e-3, -1.0, -1e-5]], np.float32)
PHASE = np.array([[1.0, -3.0, 0.1], [1e-3, 2.0, 3.1]], np.float32)
WEIGHTS = oracle.draw(np.random.default_rng(0), (K, N))
DECAYS = {
    "shared": LogDecay(LOG_ABS[0], PHASE[0]),
    "shared_real": LogDecay(LOG_ABS[0]),
    "own": LogDecay(LOG_ABS, PHASE),
    "own_real": LogDecay(LOG_ABS),
}
DECAYS = jax.tree.map(jnp.asarray, DECAYS)
each_decay = pytest.mark.parametrize(
    "log", tiered(DECAYS, ["shared_real"], full=["shared_real", "own"])
)


def table(log, length):
    """Returns the powers of the modes of all kernels, ``(k, n, l)``, in float64."""
    log_abs, *phases = (np.float64(leaf) for leaf in jax.tree.leaves(log))
    exponent = np.broadcast_to(log_abs + 1j * sum(phases), (K, N))
    return np.exp(exponent[..., None] * np.arange(length))


@functools.partial(jax.jit, static_argnames=("length", "part"))
def kernel_and_gradient(log, w, c, *, length, part):
    """Returns the kernels, and the gradient of ``Re(sum(c k))``."""

    def loss(log, w):
        k = modal_kernel(log, w, length, part=part)
        return jnp.sum(jnp.real(c * k)), k

    grads, k = jax.grad(loss, argnums=(0, 1), has_aux=True)(log, w)
    return k, grads


def wanted_kernel_and_gradient(log, w, c, *, length, part):
    powers, w = table(log, length), w.astype(complex)
    k = np.einsum("kn,knl->kl", w, powers)
    # The imaginary part of `c` does not affect the loss of a real kernel.
    c = c if part == "complex" else np.real(c)
    of_w = np.einsum("kl,knl->kn", c, powers)
    of_log = w * np.einsum("kl,knl,l->kn", c, powers, np.arange(length))
    if log.log_abs.ndim == 1:
        of_log = of_log.sum(0)
    phases = [] if log.phase is None else [-np.imag(of_log)]
    k = k if part == "complex" else np.real(k)
    return k, (LogDecay(np.real(of_log), *phases), of_w)


@pytest.mark.parametrize("part", tiered(["real", "complex"]))
@each_decay
def test_modal_kernel_is_the_sum_of_its_modes(log, part):
    for length in (1, 2, 127):
        c = oracle.draw(np.random.default_rng(1), (K, length))
        options = {"length": length, "part": part}
        oracle.assert_close(
            kernel_and_gradient(log, WEIGHTS, c, **options),
            wanted_kernel_and_gradient(log, WEIGHTS, c, **options),
            2e-6,
        )


@pytest.mark.parametrize("part", tiered(["complex", "real"], 0, full=1))
@pytest.mark.parametrize("decay", tiered(["shared", "own"], 0, full=["own"]))
def test_modal_kernel_is_exact_at_a_million_steps(decay, part):
    log, length = DECAYS[decay], 2**20
    c = oracle.draw(np.random.default_rng(1), (K, length))
    oracle.assert_close(
        kernel_and_gradient(log, WEIGHTS, c, length=length, part=part),
        wanted_kernel_and_gradient(log, WEIGHTS, c, length=length, part=part),
        2e-6,
    )


def test_kernels_keep_the_axes_of_their_weights():
    w = oracle.draw(np.random.default_rng(2), (4, K, N))
    kernels = jax.jit(functools.partial(modal_kernel, length=5))
    shared = kernels(DECAYS["shared"], w)
    wanted = np.einsum("jkn,knl->jkl", w, table(DECAYS["shared"], 5)).real
    oracle.assert_close(shared, wanted, 1e-6)
    alone = kernels(DECAYS["shared"], w[0, 0])
    oracle.assert_close(alone, wanted[0, 0], 1e-6)


SIZES = [(1, 1), (7, 7), (13, 5), (5, 13), (127, 127), (1, 9), (1009, 1009)]
each_size = pytest.mark.parametrize(
    ("length", "taps"), tiered(SIZES, SIZES[1:4], unpack=True)
)


# On a TPU by matrix products, which run on any platform.
each_platform = pytest.mark.parametrize("platform", ["cpu", "tpu"])


def signals(length, taps, n_kernels, batch=(2,)):
    rng = np.random.default_rng(length + taps)
    u = oracle.draw(rng, (*batch, length, K), is_complex=False)
    kernels = [oracle.draw(rng, (K, taps), is_complex=False) for _ in range(n_kernels)]
    return jnp.asarray(u), [jnp.asarray(kernel) for kernel in kernels]


def direct(u, kernel):
    """Computes ``y_t = sum_j kernel_j u_{t-j}`` by NumPy, without FFT."""
    u, kernel = np.asarray(u, float), np.asarray(kernel, float)
    y = np.empty_like(u)
    for row in np.ndindex(u.shape[:-2]):
        for d in range(K):
            y[row][:, d] = np.convolve(u[row][:, d], kernel[d])[: u.shape[-2]]
    return y


@each_platform
@each_size
def test_causal_convolution_is_the_direct_sum(length, taps, platform):
    u, (kernel,) = signals(length, taps, 1)
    with compiling_for(platform):
        given = jax.jit(causal_convolution)(u, kernel)
    oracle.assert_close(given, direct(u, kernel), 1e-6)


@each_platform
@pytest.mark.parametrize("length", tiered([64, 500, 4096, 65_536], (500,)))
def test_error_of_a_step_is_relative_to_the_norms(length, platform):
    rng = np.random.default_rng(length)
    u = rng.normal(size=(4, length, 3))
    u[1, length // 2 :] *= 1e6
    u[2, :-1] *= 1e-9
    u[3] = 1
    rates = np.array([[1e-6], [1e-2], [1]])
    kernel = np.exp(-rates * np.arange(length)) * rng.normal(size=(3, length))
    u, kernel = np.float32(u), np.float32(kernel)
    with compiling_for(platform):
        given = jax.jit(causal_convolution)(u, kernel)
    exact = fftconvolve(np.float64(u), np.float64(kernel.T[None]), axes=1)[:, :length]
    bound = 1e-6 * np.linalg.norm(u, axis=1) * np.linalg.norm(kernel, axis=1)
    assert np.all(np.max(np.abs(given - exact), 1) < bound)


@each_platform
def test_values_that_are_not_finite_reach_the_steps_of_their_taps(platform):
    u, (kernel,) = signals(20, 6, 1)
    bad = np.array(u)
    bad[..., 3, 0], bad[..., 5, 0], bad[..., 15, 1] = np.inf, np.nan, -np.inf
    with compiling_for(platform):
        given = jax.jit(causal_convolution)(bad, kernel)
        clean = jax.jit(causal_convolution)(np.where(np.isfinite(bad), bad, 0), kernel)
    reached = np.zeros(u.shape, bool)
    reached[..., 3:11, 0] = reached[..., 15:, 1] = True
    np.testing.assert_array_equal(given, np.where(reached, np.nan, clean))


@each_platform
@each_size
def test_bidirectional_convolution_counts_the_current_step_once(length, taps, platform):
    u, (forward, backward) = signals(length, taps, 2)
    with compiling_for(platform):
        given = jax.jit(bidirectional_convolution)(u, forward, backward)
    # The backward kernel starts at the next step.
    shifted = np.pad(backward, [(0, 0), (1, 0)])
    future = np.flip(direct(np.flip(u, -2), shifted), -2)
    oracle.assert_close(given, direct(u, forward) + future, 1e-6)


def test_convolution_takes_any_batch_axes():
    for batch in ((), (2, 3)):
        u, (kernel,) = signals(6, 4, 1, batch)
        given = jax.jit(causal_convolution)(u, kernel)
        oracle.assert_close(given, direct(u, kernel), 1e-6)
        nothing = jnp.zeros_like(kernel)
        given = jax.jit(bidirectional_convolution)(u, kernel, nothing)
        oracle.assert_close(given, direct(u, kernel), 1e-6)


@each_platform
def test_convolution_gradient_is_a_correlation(platform):
    u, (kernel, c) = signals(9, 9, 2, ())

    def loss(u, kernel):
        return jnp.sum(c.T * causal_convolution(u, kernel))

    with compiling_for(platform):
        of_u, of_kernel = jax.jit(jax.grad(loss, argnums=(0, 1)))(u, kernel)
    back = np.flip(c.T, 0)
    oracle.assert_close(of_u, np.flip(direct(back, kernel), 0), 1e-6)
    oracle.assert_close(of_kernel, np.flip(direct(back, u.T), 0).T, 1e-6)


@pytest.mark.parametrize("length", tiered([70_000, 300_000], full=1))
def test_matrix_products_of_three_factors_are_the_fft(length):
    u, (kernel,) = signals(length, length, 1)
    wanted = jax.jit(causal_convolution)(u, kernel)
    with compiling_for("tpu"):
        compiled = jax.jit(causal_convolution).lower(u, kernel).compile()
    assert "fft(" not in compiled.as_text()
    oracle.assert_close(compiled(u, kernel), wanted, 2e-6)


def test_low_precision_in_is_low_precision_out_of_float32_sums():
    u, (kernel, other) = signals(1009, 1009, 2)
    low = u.astype(jnp.bfloat16)
    exact = low.astype(jnp.float32)
    for y, wanted in (
        (causal_convolution(low, kernel), causal_convolution(exact, kernel)),
        (
            bidirectional_convolution(low, kernel, other),
            bidirectional_convolution(exact, kernel, other),
        ),
    ):
        assert y.dtype == jnp.bfloat16
        # One unit in the last place: the two float32 results may round differently.
        np.testing.assert_allclose(np.float32(y), wanted, rtol=2.0**-7)


@each_decay
@pytest.mark.parametrize("length", tiered([1, 2, 127], (127,)))
def test_final_state_is_that_of_the_recurrence(log, length):
    u, _ = signals(length, 1, 0)
    given = jax.jit(final_state)(log, u)
    lam = table(log, 2)[..., 1]
    u = np.asarray(u)
    inputs = np.broadcast_to(u[..., None], (*u.shape, N))
    b, start = inputs.reshape(2, length, K * N), np.zeros((2, K * N))
    p = oracle.Problem(lam.reshape(-1), b, start, b, start)
    _, h_last = oracle.states(p)
    oracle.assert_close(given, h_last.reshape(2, K, N), 1e-6)


@pytest.mark.full
def test_final_state_is_exact_after_131072_steps():
    log, u = DECAYS["own"], oracle.draw(np.random.default_rng(3), (2**17, K))
    given = jax.jit(final_state)(log, u.real)
    wanted = np.einsum("ld,dnl->dn", u.real[::-1].astype(float), table(log, 2**17))
    oracle.assert_close(given, wanted, 2e-6)


def test_double_precision_stays_double():
    with jax.enable_x64(True):
        log, w = jax.tree.map(
            lambda v: jnp.asarray(v, jnp.promote_types(v.dtype, jnp.float64)),
            (DECAYS["own"], WEIGHTS),
        )
        k = modal_kernel(log, w, 1000)
        assert k.dtype == jnp.float64
        wanted = np.einsum("kn,knl->kl", WEIGHTS.astype(complex), table(log, 1000))
        oracle.assert_close(k, wanted.real, 1e-12)
        u, (kernel,) = signals(127, 127, 1)
        y = causal_convolution(u.astype(float), kernel.astype(float))
        oracle.assert_close(y, direct(u, kernel), 1e-12)
