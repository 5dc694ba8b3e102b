"""Parallel solutions of nonlinear recurrences whose feedback weights are scaled."""

import functools
import logging
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.exact import relative_error
from benchmarks.measurement import Row
from ssm_jax.recurrences import FRU, GRU, LSTM, RNN, SRU, Nonlinear
from ssm_jax.recurrences.families.base import Params
from ssm_jax.types import Activations, Method, Steps

D_IN = 4
SCALES = (1.0, 2.0, 3.0, 4.0, 8.0, 12.0, 20.0)
FEEDBACK = ("recurrent_kernel", "W_r", "W_phi", "W_1", "W_2")
"""Parameters that the state passes through on its way to the next state."""


def units(length: int) -> dict[str, Nonlinear]:
    """The nonlinear recurrences, with several states each."""
    sums: dict[str, Any] = {"d_statistic": 8, "d_feedback": 8, "d_output": 4}
    return {
        "rnn": RNN(d_state=16),
        "gru": GRU(d_state=16),
        "lstm": LSTM(d_state=16),
        "fru": FRU(frequencies=(0.0, 0.5, 3.0, 20.0), horizon=length, **sums),
        "sru": SRU(**sums),
    }


def scaled(unit: Nonlinear, scale: float) -> Params:
    """Initial parameters of a unit, with feedback weights multiplied by ``scale``."""
    params = unit.init(jax.random.key(1), D_IN)
    return {k: v * scale if k in FEEDBACK else v for k, v in params.items()}


def inputs(length: int) -> Activations:
    """Standard normal inputs, ``(2, length, D_IN)``."""
    x = np.random.default_rng(0).normal(size=(2, length, D_IN))
    return jnp.asarray(x, jnp.float32)


@functools.partial(jax.jit, static_argnums=(0, 1))
def solve(
    unit: Nonlinear, method: Method, params: Params, x: Activations, reset: Steps
):
    """Outputs, the gradient of their mean square, and the solver statistics."""

    def loss(params):
        y, _, taken = unit.solve(params, x, reset=reset, method=method)
        return jnp.mean(jnp.square(y)), (y, taken)

    grads, (y, taken) = jax.grad(loss, has_aux=True)(params)
    return y, grads, taken


def scaled_rows(length: int, *, repeats: int) -> Iterable[Row]:
    """Compares parallel and sequential solutions at each scale of the feedback.

    Args:
      length: Sequence length.
      repeats: Ignored, since nothing is timed.

    Yields:
      A row for each unit and scale: iterations, whether they converged (otherwise the
      output is the sequential one), the maximum error relative to the largest output,
      the largest output, and whether the gradients are finite, in parallel and
      sequentially.
    """
    del repeats
    x, reset = inputs(length), jnp.zeros((2, length), bool)
    for name, unit in units(length).items():
        for scale in SCALES:
            logging.info("%s, %d steps, feedback x %g", name, length, scale)
            params = scaled(unit, scale)
            wanted, wanted_grads, _ = solve(unit, "sequential", params, x, reset)
            y, grads, taken = solve(unit, "associative", params, x, reset)
            yield {
                "what": name,
                "length": length,
                "scale": scale,
                "iterations": int(taken.iterations),
                "converged": bool(taken.converged),
                "error": relative_error(y, wanted),
                "largest": float(jnp.max(jnp.abs(wanted))),
                "finite_grads": _finite(grads),
                "finite_sequential_grads": _finite(wanted_grads),
            }


def _finite(tree):
    return all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(tree))
