"""Kinds of decay, and one compiled evaluation that their tests share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import LogDecay, linear_recurrence
from tests.kernels import oracle

METHODS = ("sequential", "associative", "chunked", "pallas", "fft")
SCANS = METHODS[:-1]
N = 4
LOG_ABS = np.array([-0.3, -0.01, 0.0, -2.0], np.float32)
PHASE = np.array([3.0, -0.5, 1e-3, -2.0], np.float32)
PHASE_LO = np.array([1e-8, -3e-9, 0, 5e-8], np.float32)
CONSTANT = {
    "real": np.array([0.9, -0.7, 0.0, 1.0], np.float32),
    "complex": np.array([0.9j, -0.7 + 0.2j, 0.0, 1.0], np.complex64),
    "log": LogDecay(LOG_ABS),
    "log_phase": LogDecay(LOG_ABS, PHASE),
    "log_phase_lo": LogDecay(LOG_ABS, PHASE, PHASE_LO),
}
# Row 0 is one segment. The others have segments at both ends and adjacent resets.
RESET = np.array(
    [[0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 1, 1, 0, 0], [0, 1, 0, 0, 0, 1, 1]], bool
)
VARYING = ("varying_real", "varying_complex")

each_method = pytest.mark.parametrize("method", METHODS)
each_evaluation = pytest.mark.parametrize(
    ("method", "kind"),
    [(method, "log_phase") for method in METHODS]
    + [(method, "varying_complex") for method in SCANS],
)


def numbers(decay):
    """Converts a decay to numbers, as the oracle takes it."""
    if not isinstance(decay, LogDecay):
        return decay
    log_abs, *phases = (np.float64(leaf) for leaf in jax.tree.leaves(decay))
    return np.exp(log_abs + 1j * sum(phases)) if phases else np.exp(log_abs)


def make(kind, shape, *, is_complex=None, **options):
    """Returns a decay of a kind, and its problem with random inputs of a shape."""
    if is_complex is None:
        is_complex = "complex" in kind or "phase" in kind
    if kind in VARYING:
        rng = np.random.default_rng(1)
        decay = oracle.draw(rng, shape, is_complex=kind == "varying_complex")
        decay = decay / np.maximum(1, np.abs(decay))
    else:
        decay = CONSTANT[kind]
    options["is_complex"] = is_complex
    return decay, oracle.problem(numbers(decay), shape, **options)


@functools.partial(jax.jit, static_argnames=("reverse", "method"))
def evaluate(decay, b, h0, c, c_last, reset, *, reverse, method):
    """Returns ``(h, h_last)`` and the gradients of the loss in decay, b and h0."""

    def loss(decay, b, h0):
        out = linear_recurrence(
            decay, b, h0, reset=reset, reverse=reverse, method=method
        )
        return weighted(out, c, c_last), out

    grads, out = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(decay, b, h0)
    return out, grads


def weighted(out, c, c_last):
    """Returns the loss of a problem."""
    return jnp.sum(jnp.real(c * out[0])) + jnp.sum(jnp.real(c_last * out[1]))


def expected(decay, p):
    """Returns the expected result of `evaluate`."""
    of_a, *rest = oracle.gradients(p)
    if isinstance(decay, LogDecay):
        # d / d log(a) = a d / d a
        of_log = of_a * p.a
        n_phases = len(jax.tree.leaves(decay)) - 1
        of_a = LogDecay(np.real(of_log), *[-np.imag(of_log)] * n_phases)
    return oracle.states(p), (of_a, *rest)


def check(decay, p, method, tolerance):
    """Compares values and gradients of a method with those of the oracle."""
    given = evaluate(decay, *p[1:6], reverse=p.reverse, method=method)
    oracle.assert_close(given, expected(decay, p), tolerance)
