"""What nonlinear recurrences take in parallel, and step by step."""

import logging
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from launch.suites.measure import Row, measure
from ssm_jax.recurrences import FRU, GRU, Nonlinear, log_spaced
from ssm_jax.types import Activations, PyTree


def sweep_rows(
    length: int, *, batch: int = 4, frequencies: int = 60, repeats: int
) -> Iterable[Row]:
    """Evaluates an FRU with its weights at the start and greater, and a GRU.

    Args:
      length: Steps of a sequence, and the FRU's horizon.
      batch: Sequences.
      frequencies: Waves of the FRU; the paper's of pixel MNIST are 60.
      repeats: Timed runs of each.

    Yields:
      A row for each: sweeps, whether they converged, how far the outputs are from
      those step by step, as a part of the largest, and seconds of both.
    """
    waves = log_spaced(frequencies, float(length))
    fru = FRU(frequencies=waves, horizon=length)
    x = jax.random.normal(jax.random.key(0), (batch, length, 1))
    for factor in (1, 2, 4):
        yield {"what": f"FRU, weights x {factor}"} | _row(fru, x, factor, repeats)
    yield {"what": "GRU"} | _row(GRU(d_state=32), x, 1, repeats)


def _row(unit: Nonlinear, x: Activations, factor: int, repeats: int) -> Row:
    logging.info("%s, %d steps, weights x %d", type(unit).__name__, x.shape[1], factor)
    drawn = unit.init(jax.random.key(1), x.shape[-1])
    params: PyTree = {
        name: factor * leaf if "kernel" in name else leaf
        for name, leaf in drawn.items()
    }

    def stepped(params, x):
        return unit.solve(params, x, method="sequential")[0]

    def swept(params, x):
        y, _, sweeps = unit.solve(params, x, method="associative")
        return y, sweeps

    steps, y = measure("steps", stepped, params, x, repeats=repeats)
    sweeps, (found, taken) = measure("sweeps", swept, params, x, repeats=repeats)
    error = np.max(np.abs(found - y)) / np.max(np.abs(y))
    return {
        "length": x.shape[1],
        "sweeps": int(taken.iterations),
        "converged": bool(taken.converged),
        "error": float(jnp.asarray(error)),
        "steps_s": steps["steps_s"],
        "sweeps_s": sweeps["sweeps_s"],
    }
