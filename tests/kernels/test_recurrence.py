"""Every method against the loop in double precision, in value and gradient."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssm_jax.kernels import LogDecay, linear_recurrence
from tests.kernels import oracle
from tests.kernels.oracle import METHODS

N = 4
LOG_ABS = np.array([-0.3, -0.01, 0.0, -2.0], np.float32)
PHASE = np.array([3.0, -0.5, 1e-3, -2.0], np.float32)
PHASE_LO = np.array([1e-8, -3e-9, 0, 5e-8], np.float32)
DECAYS = {
    "real": np.array([0.9, -0.7, 0.0, 1.0], np.float32),
    "complex": np.array([0.9j, -0.7 + 0.2j, 0.0, 1.0], np.complex64),
    "log": LogDecay(LOG_ABS),
    "log_phase": LogDecay(LOG_ABS, PHASE),
    "log_phase_lo": LogDecay(LOG_ABS, PHASE, PHASE_LO),
    "varying_real": None,
    "varying_complex": None,
}
each_method = pytest.mark.parametrize("method", METHODS)


def numbers(decay):
    """The decay as the oracle takes it."""
    if not isinstance(decay, LogDecay):
        return decay
    log_abs, *phases = (np.float64(leaf) for leaf in jax.tree.leaves(decay))
    return np.exp(log_abs + 1j * sum(phases)) if phases else np.exp(log_abs)


def make(kind, shape, **options):
    """A decay of this kind, and the problem that it poses."""
    is_complex = "complex" in kind or "phase" in kind
    decay = DECAYS[kind]
    if decay is None:
        decay = oracle.draw(np.random.default_rng(1), shape, is_complex=is_complex)
        decay = (0.9 * np.tanh(np.abs(decay)) * np.sign(decay)).astype(decay.dtype)
    options.setdefault("is_complex", is_complex)
    return decay, oracle.problem(numbers(decay), shape, **options)


@functools.partial(jax.jit, static_argnames=("reverse", "method"))
def evaluate(decay, b, h0, c, c_last, reset, *, reverse, method):
    """Gives ``(h, h_last)`` and the gradients of the loss in decay, b and h0."""

    def loss(decay, b, h0):
        out = linear_recurrence(
            decay, b, h0, reset=reset, reverse=reverse, method=method
        )
        return jnp.sum(jnp.real(c * out[0])) + jnp.sum(jnp.real(c_last * out[1])), out

    grads, out = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(decay, b, h0)
    return out, grads


def expected(decay, p):
    """What `evaluate` must give; a logarithm's gradient is that of its number's."""
    of_a, *rest = oracle.gradients(p)
    if isinstance(decay, LogDecay):
        of_log = of_a * p.a
        of_phase = -np.imag(of_log)
        of_a = LogDecay(np.real(of_log), *[of_phase] * (len(jax.tree.leaves(decay)) - 1))
    return oracle.states(p), (of_a, *rest)


def check(decay, p, method, tolerance):
    given = evaluate(decay, *p[1:6], reverse=p.reverse, method=method)
    oracle.assert_close(given, expected(decay, p), tolerance)


# Row 0 is one segment; the others start segments at both ends and side by side.
RESET = np.array(
    [[0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 1, 1, 0, 0], [0, 1, 0, 0, 0, 1, 1]], bool
)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("kind", DECAYS)
@pytest.mark.parametrize("method", METHODS[:-1])
def test_methods_are_the_loop(method, kind, reverse):
    decay, p = make(kind, (3, 7, N), reset=RESET, reverse=reverse)
    check(decay, p, method, 1e-6)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("kind", [k for k in DECAYS if "varying" not in k])
def test_fft_is_the_loop(kind, reverse):
    decay, p = make(kind, (3, 7, N), reverse=reverse)
    check(decay, p, "fft", 2e-6)


@pytest.mark.parametrize("length", [1, 2, 3, 127, 1000, 8191])
@each_method
def test_constant_decay_of_any_length(method, length):
    decay, p = make("log_phase", (length, N))
    check(decay, p, method, 1e-5)


@pytest.mark.parametrize("length", [1, 2, 3, 127, 1000, 8191])
@pytest.mark.parametrize("method", METHODS[:-1])
def test_varying_decay_of_any_length(method, length):
    decay, p = make("varying_complex", (length, N))
    check(decay, p, method, 1e-5)


@st.composite
def recurrences(draw):
    method = draw(st.sampled_from(METHODS))
    kinds = [k for k in DECAYS if method != "fft" or "varying" not in k]
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    length = draw(st.integers(1, 6))
    resets = [None, (length,), (*batch, length)]
    reset = None if method == "fft" else draw(st.sampled_from(resets))
    if reset is not None:
        flags = draw(st.integers(0, 2**30 - 1))
        reset = np.random.default_rng(flags).random(reset) < 0.3
    options = {"reset": reset, "reverse": draw(st.booleans()), "is_complex": True}
    return method, *make(draw(st.sampled_from(kinds)), (*batch, length, N), **options)


@settings(deadline=None, max_examples=12, derandomize=True)
@given(recurrences())
def test_any_shape_is_the_loop(recurrence):
    method, decay, p = recurrence
    check(decay, p, method, 2e-6)


@functools.partial(jax.jit, static_argnames=("reverse", "method"))
def piece(decay, b, h0, *, reverse, method):
    return linear_recurrence(decay, b, h0, reverse=reverse, method=method)


@pytest.mark.parametrize("sizes", [(1, 5), (5, 1), (1,) * 6], ids=str)
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@each_method
def test_pieces_are_the_whole(method, reverse, sizes):
    decay, p = make("log_phase", (6, N), reverse=reverse)
    ends = np.cumsum(sizes)[:-1]

    def loss(decay, b, h0):
        pieces, state = jnp.split(b, ends), h0
        for i in reversed(range(len(pieces))) if reverse else range(len(pieces)):
            pieces[i], state = piece(
                decay, pieces[i], state, reverse=reverse, method=method
            )
        out = jnp.concatenate(pieces), state
        return jnp.real(jnp.sum(p.c * out[0]) + jnp.sum(p.c_last * out[1])), out

    grads, out = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(decay, p.b, p.h0)
    oracle.assert_close((out, grads), expected(decay, p), 1e-6)


MODULI = np.array([0.9, 0.99, 0.999, 0.99999, 1.0])
LONG = {"fft": 2e-6, "chunked": 5e-6, "associative": 5e-6, "sequential": 2e-5}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["numbers", "log"])
@pytest.mark.parametrize("method", LONG)
def test_long_memory_is_exact_at_131072_steps(method, form):
    log_abs = np.log(np.repeat(MODULI, 2)).astype(np.float32)
    phase = np.random.default_rng(2).uniform(-3.1, 3.1, 10).astype(np.float32)
    decay = LogDecay(log_abs, phase)
    if form == "numbers":
        decay = numbers(decay).astype(np.complex64)
    p = oracle.problem(numbers(decay), (2**17, 10), seed=3)
    given = evaluate(decay, *p[1:6], reverse=False, method=method)
    each_modulus = functools.partial(np.split, indices_or_sections=5, axis=-1)
    trees = (given, expected(decay, p))
    oracle.assert_close(
        *(jax.tree.map(each_modulus, jax.tree.leaves(t)) for t in trees), LONG[method]
    )
