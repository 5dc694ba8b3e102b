"""Nonlinear recurrences evaluated in parallel and step by step."""

import logging
from collections.abc import Iterable

import jax

from benchmarks.measurement import Row, measure, relative_error
from ssm_jax.recurrences import FRU, GRU, Nonlinear, log_spaced
from ssm_jax.types import Activations

FACTORS = (1, 2, 4, 8)
"""Factors on the weights of the FRU."""


def iteration_rows(
    length: int, *, batch: int = 4, frequencies: int = 60, repeats: int
) -> Iterable[Row]:
    """Times an FRU with initial and with larger weights, and a GRU.

    Args:
      length: Sequence length, and the horizon of the FRU.
      batch: Number of sequences.
      frequencies: Number of frequencies of the FRU; 60 in the paper for pixel MNIST.
      repeats: Number of timed runs of each.

    Yields:
      A row for each: iterations, whether they converged, the difference from the
      sequential outputs relative to the largest output, and the seconds of both.
    """
    waves = log_spaced(frequencies, float(length))
    fru = FRU(frequencies=waves, horizon=length)
    x = jax.random.normal(jax.random.key(0), (batch, length, 1))
    for factor in FACTORS:
        yield {"what": f"FRU, weights x {factor}"} | _row(fru, x, factor, repeats)
    yield {"what": "GRU"} | _row(GRU(d_state=32), x, 1, repeats)


def _row(unit: Nonlinear, x: Activations, factor: int, repeats: int) -> Row:
    logging.info("%s, %d steps, weights x %d", type(unit).__name__, x.shape[1], factor)
    params = {
        name: factor * leaf if leaf.ndim == 2 else leaf
        for name, leaf in unit.init(jax.random.key(1), x.shape[-1]).items()
    }

    def solve_in_steps(params, x):
        return unit.solve(params, x, method="sequential")[0]

    def solve_in_parallel(params, x):
        y, _, stats = unit.solve(params, x, method="associative")
        return y, stats

    steps, y = measure("steps", solve_in_steps, params, x, repeats=repeats)
    parallel, (solution, stats) = measure(
        "iterations", solve_in_parallel, params, x, repeats=repeats
    )
    return {
        "length": x.shape[1],
        "factor": factor,
        "iterations": int(stats.iterations),
        "converged": bool(stats.converged),
        "error": relative_error(solution, y),
        "steps_s": steps["steps_s"],
        "iterations_s": parallel["iterations_s"],
    }
