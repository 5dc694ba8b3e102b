"""Kernels of DLR-prod that are a single tap, and training steps on Shift."""

import functools
import math
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measurement import Row, measure
from experiments.dlr import long_shift
from ssm_jax.config import build
from ssm_jax.recurrences import DLR, convolution_kernel
from ssm_jax.training.state import create
from ssm_jax.training.step import train_step


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
    dlr = DLR(d_state=n, readout="prod", eigenvalues="unit", phase_init="coarse_fine")
    params = dlr.init(jax.random.key(0), 1)
    lag = 7 * length // 8
    phase = np.asarray(params["phase"], np.float64)
    params = dict(params) | spike_weights(phase, lag)

    def kernel(params):
        return convolution_kernel(dlr.modes(params), length)[0]

    row, taps = measure("kernel", kernel, params, repeats=repeats)
    wanted = np.arange(length) == lag
    left = float(np.sum(np.square(np.float64(taps) - wanted)))
    step_row, _ = measure("step", *_step(length, n), repeats=repeats)
    yield {"length": length, "states": n, "left": left} | row | step_row


def spike_weights(phase: np.ndarray, lag: int) -> dict[str, jax.Array]:
    """Returns weights whose product kernel is 1 at a lag and 0 at the others.

    ``Re k`` is a comb of the coarse phases and ``Im k`` a peak of the fine ones, which
    is 0 at the other teeth.

    Args:
      phase: Phases of `DLR` with ``phase_init="coarse_fine"``, ``(n,)``.
      lag: The lag, less than ``n**2 / 4``.

    Returns:
      ``w_re`` and ``w_im``, ``(1, n)``.
    """
    n_coarse = len(phase) // 2
    n_fine = len(phase) - n_coarse
    scale = np.repeat([1 / n_coarse, 1j / n_fine], [n_coarse, n_fine])
    w = (scale * np.exp(-1j * phase * lag))[None]
    return {"w_re": jnp.float32(np.real(w)), "w_im": jnp.float32(np.imag(w))}


def _step(length, d_state):
    """Returns a training step of the small size, and its arguments."""
    config = long_shift.get_config("model=dlr_prod,phases=coarse_fine,size=small")
    config.task.length = length
    config.model.block.layer.recurrence.d_state = d_state
    task = build(config.task)
    run, state = create(build(config.model), task, build(config.optimizer), seed=0)
    batch = task.batch("train", 0, config.training.batch_size, seed=0)
    return functools.partial(train_step, run), state, batch
