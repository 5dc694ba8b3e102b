"""Kernels of DLR by exact powers of the decays, by exponentials and by products."""

import logging
import math
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.exact import relative_error
from benchmarks.long_shift import spike_weights
from benchmarks.measurement import Row
from ssm_jax.kernels import LogDecay, decay_powers
from ssm_jax.recurrences import DLR
from ssm_jax.types import Array, Complex

Kernel = Complex[Array, " l"]
Evaluation = Callable[[LogDecay, Complex[Array, " n"], int], Kernel]


def power_rows(length: int, *, repeats: int, d_state: int = 64) -> Iterable[Row]:
    """Compares three evaluations of the powers in two kernels, without timing them.

    Args:
      length: Number of taps.
      repeats: Ignored, since nothing is timed.
      d_state: Number of states of the initial kernel.

    Yields:
      A row for each evaluation: ``error``, the largest error of the initial kernel of
      DLR relative to its largest tap, against float64; and ``left``, the squared
      distance of the kernel of a shift by 7/8 of the length from a single tap of 1, by
      DLR-prod with ``states`` modes that do not decay. The first row is of float64,
      which leaves the rounding of the stored phases.
    """
    del repeats
    n = 2 * math.isqrt(length)
    lag = 7 * length // 8
    initial = DLR(d_state=d_state)
    drawn = initial.init(jax.random.key(0), 1)
    shift = DLR(d_state=n, readout="prod", eigenvalues="unit", phase_init="coarse_fine")
    of_shift = dict(shift.init(jax.random.key(0), 1))
    of_shift |= spike_weights(np.asarray(of_shift["phase"], np.float64), lag)
    modes, modes_of_shift = initial.modes(drawn), shift.modes(of_shift)
    wanted = np.real(_in_float64(modes.log_decay, modes.w[0], length))
    tap = np.arange(length) == lag
    for name, evaluate in EVALUATIONS.items():
        logging.info("%s, %d steps", name, length)
        kernel = np.real(evaluate(modes.log_decay, modes.w[0], length))
        pair = evaluate(modes_of_shift.log_decay, modes_of_shift.w[0], length)
        product = np.float64(np.real(pair)) * np.float64(np.imag(pair))
        yield {
            "what": name,
            "length": length,
            "error": relative_error(kernel, wanted),
            "states": n,
            "left": float(np.sum(np.square(product - tap))),
        }


def _in_float64(log_decay, w, length):
    """The kernel by numpy, from the stored parameters."""
    size = math.isqrt(length - 1) + 1
    log_decay = [np.asarray(leaf, float) for leaf in log_decay[:2]]
    exponent = log_decay[0] + 1j * log_decay[1]
    # A power is that of its block times that within the block: a product of matrices.
    blocks = np.exp(np.arange(0, size * size, size)[:, None] * exponent)
    steps = np.exp(exponent[:, None] * np.arange(size))
    kernel = (blocks * np.asarray(w, complex)) @ steps
    return kernel.ravel()[:length]


def _sum_of_modes(power):
    """Evaluates a kernel mode by mode, so that the memory is that of the kernel."""

    @jax.jit
    def evaluate(log_decay, w, steps):
        def add(kernel, mode):
            one, weight = mode
            return kernel + weight * power(one, steps), None

        zero = jnp.zeros(len(steps), jnp.complex64)
        return jax.lax.scan(add, zero, (log_decay, w))[0]

    return lambda log_decay, w, length: evaluate(log_decay, w, jnp.arange(length))


def _exact_powers(log_decay, steps):
    """Powers by `decay_powers`, with the phase in fixed point."""
    one = jax.tree.map(lambda leaf: leaf[None], log_decay)
    return decay_powers(one, steps)[:, 0]


def _exponentials(log_decay, steps):
    """Powers as in the authors' code: the exponential of a product in float32."""
    steps = steps.astype(jnp.float32)
    return jnp.exp(jax.lax.complex(log_decay.log_abs * steps, log_decay.phase * steps))


def _products(log_decay, w, length):
    """Each tap by one more product of the weights with the decays, as in a scan."""

    @jax.jit
    def evaluate(decay, w):
        def multiply(terms, _):
            return terms * decay, jnp.sum(terms)

        return jax.lax.scan(multiply, w, length=length)[1]

    log_abs, phase = log_decay.log_abs, log_decay.phase
    return evaluate(jnp.exp(jax.lax.complex(log_abs, phase)), w.astype(jnp.complex64))


EVALUATIONS: dict[str, Evaluation] = {
    "float64": _in_float64,
    "exact": _sum_of_modes(_exact_powers),
    "exponentials": _sum_of_modes(_exponentials),
    "products": _products,
}
"""Evaluations of a complex kernel, by name."""
