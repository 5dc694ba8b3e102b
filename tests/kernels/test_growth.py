"""Decays above 1: every method agrees with a loop in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from ssm_jax.kernels import linear_recurrence
from tests.tiers import tiered

RNG = np.random.default_rng(0)
SHORT, LONG = 64, 1000
# A growing, a constant and a decaying mode.
REAL = {1.1: np.float32([1.1, 1.0, 0.5]), 2: np.float32([2.0, -1.0, 0.5])}
COMPLEX = {a: np.complex64(of * [1j, 1, -1]) for a, of in REAL.items()}


@pytest.fixture(autouse=True)
def seeded():
    """Lets the draws of a test not depend on the tests before it."""
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state


def by_steps(a, b):
    """Returns the states in float64, for ``b`` of shape ``(..., l, n)``."""
    a, b = np.asarray(a, np.complex128), np.asarray(b, np.complex128)
    h = np.zeros_like(b)
    for t in range(b.shape[-2]):
        h[..., t, :] = b[..., t, :] + (a * h[..., t - 1, :] if t else 0)
    return h


def gradients(a, b, c):
    """Returns the gradients of ``Re sum(c h)``, in JAX's complex convention.

    That of ``a`` as its terms, one for each state.
    """
    h = by_steps(a, b)
    of_b = by_steps(a, np.flip(c, -2))[..., ::-1, :]
    h_prev = np.concatenate([np.zeros_like(h[..., :1, :]), h[..., :-1, :]], -2)
    return of_b * h_prev, of_b


def drawn(length, *batch, dtype=np.float32):
    return RNG.normal(size=(*batch, length, 3)).astype(dtype)


def assert_close(given, expected):
    """Checks errors relative to the largest state up to each step."""
    expected = expected if np.iscomplexobj(given) else np.real(expected)
    given = np.asarray(given, expected.dtype)
    scale = np.maximum.accumulate(np.abs(expected), -2)
    shown = np.abs(expected) < 1e37
    error = np.abs(np.where(shown, given - expected, 0)) / np.maximum(scale, 1e-3)
    assert np.max(error) < 3e-6


def assert_sum_close(given, terms):
    """Checks the error of a sum relative to that of the absolute values."""
    terms = (terms if np.iscomplexobj(given) else np.real(terms)).reshape(-1, 3)
    error = np.abs(given - np.sum(terms, 0)) / np.sum(np.abs(terms), 0)
    assert np.max(error) < 1e-6


@functools.partial(jax.jit, static_argnames="method")
def evaluate(a, b, c, *, method):
    def loss(a, b):
        h, _ = linear_recurrence(a, b, method=method)
        return jnp.sum(jnp.real(c * h)), h

    grads, h = jax.grad(loss, (0, 1), has_aux=True)(a, b)
    return h, grads


@pytest.mark.full
@pytest.mark.parametrize("growth", tiered([1.1, 2], (2,)))
@pytest.mark.parametrize("decays", tiered({"complex": COMPLEX, "real": REAL}))
def test_convolution_of_growing_states_is_exact(decays, growth):
    a = decays[growth]
    b, c = drawn(SHORT, 2), drawn(SHORT, 2)
    h, (of_a, of_b) = evaluate(a, b, c, method="fft")
    expected = gradients(a, b, c)
    assert_close(h, by_steps(a, b))
    assert_sum_close(of_a, expected[0])
    assert_close(of_b[:, ::-1], expected[1][:, ::-1])


@pytest.mark.parametrize("growth", [1.1, 2])
def test_states_are_exact_until_they_overflow(growth):
    a, b = REAL[growth], drawn(LONG)
    c = np.where(np.arange(LONG)[:, None] < 100, drawn(LONG), 0)
    h, (_, of_b) = evaluate(a, b, c, method="fft")
    assert_close(h, by_steps(a, b))
    assert_close(of_b[::-1], gradients(a, b, c)[1][::-1])


@pytest.mark.full
@pytest.mark.parametrize(
    ("method", "length", "growth", "varies"),
    tiered(
        [
            ("associative", 49, 2**20, False),
            ("sequential", 1300, 2, False),
            ("sequential", 1300, 2**17, False),
            ("chunked", 400, 2**17, False),
            ("chunked", 400, 2**17, True),
        ],
        unpack=True,
    ),
)
def test_overflow_of_powers_keeps_zero_states_finite(method, length, growth, varies):
    # An infinite power times a state of zero would be NaN.
    a, b = np.float32([growth, 1.0, 0.5]), drawn(length)
    b[:-6, 0] = 0
    run = jax.jit(functools.partial(linear_recurrence, method=method))
    given = run(np.broadcast_to(a, b.shape) if varies else a, b)[0]
    assert_close(given, by_steps(a, b))


@pytest.mark.full
def test_each_row_of_vmap_is_evaluated_by_its_own_decays():
    b, c = drawn(SHORT, 3), drawn(SHORT, 3)
    # Errors of an FFT are relative to the largest value, also where the first is small.
    b[:, 0], c[:, -1] = 1, 1
    a = np.stack([REAL[2], REAL[1.1], REAL[1.1] / 2])
    run = jax.jit(jax.vmap(functools.partial(evaluate, method="fft")))
    h, (of_a, of_b) = run(a, b, c)
    for i in range(3):
        expected = gradients(a[i], b[i], c[i])
        assert_close(h[i], by_steps(a[i], b[i]))
        assert_sum_close(of_a[i], expected[0])
        assert_close(of_b[i, ::-1], expected[1][::-1])


@pytest.mark.full
@pytest.mark.parametrize("check_vma", [True, False])
def test_devices_may_decide_for_themselves(check_vma):
    a = np.stack([REAL[2], REAL[1.1] / 2])
    b = drawn(SHORT, 2)
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
    spec = PartitionSpec("data")

    def piece(a, b):
        return linear_recurrence(a[0], b, method="fft")[0]

    run = jax.shard_map(
        piece, mesh=mesh, in_specs=(spec, spec), out_specs=spec, check_vma=check_vma
    )
    h = jax.jit(run)(a, b)
    for i in range(2):
        assert_close(h[i], by_steps(a[i], b[i]))


@pytest.mark.full
def test_a_decay_rounded_above_one_is_still_convolved():
    circle = np.exp(1j * np.linspace(0.1, 3, 500)).astype(np.complex64)
    above = circle[np.abs(np.complex128(circle)) > 1][:3]
    b = drawn(LONG)

    def fft(a, b):
        return linear_recurrence(a, b, method="fft")[0]

    scan = linear_recurrence(above, b, method="sequential")[0]
    given = jax.jit(fft)(above, b)
    assert np.any(given != scan)
    np.testing.assert_allclose(given, by_steps(above, b), rtol=0, atol=1e-4)
