"""Powers and kernels of DLR: their errors, clocks, and kernels of a single tap."""

import functools
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measurement import Row, measure, relative_error
from experiments.dlr import long_shift
from ssm_jax.config import build
from ssm_jax.kernels import LogDecay, decay_powers
from ssm_jax.recurrences import DLR, convolution_kernel
from ssm_jax.training.state import create
from ssm_jax.training.step import train_step
from ssm_jax.types import Array, Complex

Kernel = Complex[Array, " l"]
Evaluation = Callable[[LogDecay, Complex[Array, " n"], int], Kernel]


def power_rows(length: int, *, d_state: int = 64) -> Iterable[Row]:
    """Compares three evaluations of the powers in two kernels, without timing them.

    Args:
      length: Number of taps.
      d_state: Number of states of the initial kernel.

    Yields:
      A row for each evaluation: ``error``, the largest error of the initial kernel of
      DLR relative to its largest tap, against float64; and ``left``, the squared
      distance of the kernel of a shift by 7/8 of the length from a single tap of 1, by
      DLR-prod with ``states`` modes that do not decay. The first row is of float64,
      which leaves the rounding of the stored phases.
    """
    n = 2 * math.isqrt(length)
    lag = 7 * length // 8
    initial = DLR(d_state=d_state)
    params = initial.init(jax.random.key(0), 1)
    shift, shift_params = _shift(n, lag)
    modes, shift_modes = initial.modes(params), shift.modes(shift_params)
    expected = np.real(_in_float64(modes.log_decay, modes.w[0], length))
    tap = np.arange(length) == lag
    for name, evaluate in EVALUATIONS.items():
        logging.info("%s, %d steps", name, length)
        kernel = np.real(evaluate(modes.log_decay, modes.w[0], length))
        pair = evaluate(shift_modes.log_decay, shift_modes.w[0], length)
        product = np.float64(np.real(pair)) * np.float64(np.imag(pair))
        yield {
            "what": name,
            "length": length,
            "error": relative_error(kernel, expected),
            "states": n,
            "left": float(np.sum(np.square(product - tap))),
        }


def clock_rows(length: int) -> Iterable[Row]:
    """Reads the step modulo a number from the powers of an eigenvalue of modulus 1.

    Args:
      length: Number of steps.

    Yields:
      A row for each modulus and evaluation: ``accuracy``, the part of the steps whose
      power is nearest to the right one of ``modulus`` points of the circle, and
      ``until``, the steps before the first that is not. Phases are rounded to float32,
      as parameters are.
    """
    steps = np.arange(length)
    for modulus in (2, 3, 5, 60):
        phase = jnp.full(1, 2 * np.pi / modulus, jnp.float32)
        for name, evaluate in EVALUATIONS.items():
            logging.info("%s, modulo %d, %d steps", name, modulus, length)
            power = evaluate(LogDecay(jnp.zeros(1), phase), jnp.ones(1), length)
            turns = np.angle(np.asarray(power)) * modulus / (2 * np.pi)
            right = np.rint(turns).astype(int) % modulus == steps % modulus
            yield {
                "what": name,
                "length": length,
                "modulus": modulus,
                "accuracy": float(right.mean()),
                "until": int(length if right.all() else np.argmin(right)),
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
            log_decay, weight = mode
            return kernel + weight * power(log_decay, steps), None

        zero = jnp.zeros(len(steps), jnp.complex64)
        return jax.lax.scan(add, zero, (log_decay, w))[0]

    return lambda log_decay, w, length: evaluate(log_decay, w, jnp.arange(length))


def _exact_powers(log_decay, steps):
    """Powers by `decay_powers`, with the phase in fixed point."""
    log_decay = jax.tree.map(lambda leaf: leaf[None], log_decay)
    return decay_powers(log_decay, steps)[:, 0]


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


def long_shift_rows(
    length: int, *, repeats: int, d_state: int | None = None
) -> Iterable[Row]:
    """Measures the kernel of a shift by 7/8 of the length, and a training step.

    Args:
      length: Number of steps.
      repeats: Number of timed runs.
      d_state: Number of states. None means ``2 sqrt(length)``.

    Yields:
      One row: number of states; ``left``, the squared distance of the kernel from a
      single tap of 1, with weights in closed form, and its time and temporary memory;
      then those of a training step with 32 channels and a batch of 4.
    """
    n = 2 * math.isqrt(length) if d_state is None else d_state
    lag = 7 * length // 8
    dlr, params = _shift(n, lag)

    def kernel(params):
        return convolution_kernel(dlr.modes(params), length)[0]

    row, taps = measure("kernel", kernel, params, repeats=repeats)
    expected = np.arange(length) == lag
    error = float(np.sum(np.square(np.float64(taps) - expected)))
    step_row, _ = measure("step", *_step(length, n), repeats=repeats)
    yield {"length": length, "states": n, "left": error} | row | step_row


def _shift(n: int, lag: int) -> tuple[DLR, Mapping[str, Any]]:
    """DLR-prod with ``n`` states, and parameters of a kernel that is 1 at a lag only.

    ``Re k`` is a comb of the coarse phases and ``Im k`` a peak of the fine ones, which
    is 0 at the other teeth. The lag is less than ``n**2 / 4``.
    """
    dlr = DLR(d_state=n, readout="prod", eigenvalues="unit", phase_init="coarse_fine")
    params = dlr.init(jax.random.key(0), 1)
    phase = np.asarray(params["phase"], np.float64)
    n_coarse = n // 2
    scale = np.repeat([1 / n_coarse, 1j / (n - n_coarse)], [n_coarse, n - n_coarse])
    w = (scale * np.exp(-1j * phase * lag))[None]
    weights = {"w_re": jnp.float32(np.real(w)), "w_im": jnp.float32(np.imag(w))}
    return dlr, dict(params) | weights


def _step(length, d_state):
    """Returns a training step of the small size, and its arguments."""
    config = long_shift.get_config("model=dlr_prod,phases=coarse_fine,size=small")
    config.task.length = length
    config.model.block.layer.recurrence.d_state = d_state
    task = build(config.task)
    run, state = create(build(config.model), task, build(config.optimizer), seed=0)
    batch = task.batch("train", 0, config.training.batch_size, seed=0)
    return functools.partial(train_step, run), state, batch
