"""Nonlinear recurrences evaluated in parallel and step by step."""

import logging
from collections.abc import Iterable
from functools import partial

import jax
import jax.numpy as jnp

from benchmarks.measurement import Row, measure, relative_error
from ssm_jax.recurrences import FRU, GRU, RNN, Nonlinear, log_spaced
from ssm_jax.types import Activations

FACTORS = (1, 2, 4, 8)
"""Factors on the weights of the FRU."""

GRID = (0.5, 1, 1.5, 2, 2.5, 3, 4, 6, 8)
"""Factors on the weights of all units, around those at which changes grow."""


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


def stability_rows(length: int, *, batch: int = 4) -> Iterable[Row]:
    """Counts iterations beside the largest Lyapunov exponent, by the size of weights.

    Args:
      length: Sequence length, and the horizon of the FRU.
      batch: Number of sequences.

    Yields:
      A row for each unit and factor on its matrices: ``exponent``, the mean logarithm
      per step of the growth of a small change of the state, and ``growth``, that over
      the sequence; iterations, and whether they converged. Changes of the state die out
      where it is negative, and grow where it is positive.
    """
    waves = log_spaced(60, float(length))
    x = jax.random.normal(jax.random.key(0), (batch, length, 1))
    units = {
        "RNN": RNN(d_state=32),
        "GRU": GRU(d_state=32),
        "FRU": FRU(frequencies=waves, horizon=length),
    }
    for name, unit in units.items():
        for factor in GRID:
            logging.info("%s, %d steps, weights x %g", name, length, factor)
            params = _scaled(unit, factor)
            _, _, stats = unit.solve(params, x, method="associative")
            exponent = float(_exponent(unit, params, x))
            yield {
                "what": name,
                "length": length,
                "factor": factor,
                "exponent": exponent,
                "growth": exponent * length,
                "iterations": int(stats.iterations),
                "converged": bool(stats.converged),
            }


@partial(jax.jit, static_argnums=0)
def _exponent(unit, params, x):
    """The largest Lyapunov exponent along the states for some inputs."""

    def step(carry, x_t):
        state, change = carry

        def after(state):
            return unit.apply(params, x_t[:, None], state, method="sequential")[1]

        state, change = jax.jvp(after, (state,), (change,))
        size = jnp.linalg.norm(change, axis=-1, keepdims=True)
        return (state, change / size), jnp.log(size)

    state = unit.initial_state(x.shape[:1], x.shape[-1])
    change = jax.random.normal(jax.random.key(2), state.shape)
    change /= jnp.linalg.norm(change, axis=-1, keepdims=True)
    _, growth = jax.lax.scan(step, (state, change), jnp.swapaxes(x, 0, 1))
    return jnp.mean(growth)


def _scaled(unit, factor):
    """Initial parameters with all matrices multiplied by a factor."""
    return {
        name: factor * leaf if leaf.ndim == 2 else leaf
        for name, leaf in unit.init(jax.random.key(1), 1).items()
    }


def _row(unit: Nonlinear, x: Activations, factor: int, repeats: int) -> Row:
    logging.info("%s, %d steps, weights x %d", type(unit).__name__, x.shape[1], factor)
    params = _scaled(unit, factor)

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
