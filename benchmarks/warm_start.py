"""Iterations of parallel solves from zeros and from the states of another solve."""

from collections.abc import Iterable
from functools import partial

import jax
import jax.numpy as jnp

from benchmarks.iterations import larger
from benchmarks.measurement import Row
from ssm_jax.kernels import nonlinear_recurrence
from ssm_jax.recurrences import GRU, LSTM, RNN, Nonlinear
from ssm_jax.types import Activations, Array, PyTree

_BATCH, _WIDTH = 8, 64
# Of a step of training: a change of each parameter.
_MOVE = 1e-3


def warm_start_rows(length: int, *, repeats: int) -> Iterable[Row]:
    """Counts the iterations of Newton's method for units with dense weights.

    Args:
      length: Sequence length.
      repeats: Not used; a count is the same at each run.

    Yields:
      A row for each unit and factor on its initial weights: iterations from zeros, from
      the states of another batch, and for moved parameters from zeros and from the
      states of the same batch before.
    """
    del repeats
    for unit in (GRU(d_state=_WIDTH), LSTM(d_state=_WIDTH), RNN(d_state=_WIDTH)):
        for factor in (1.0, 1.5):
            row = {"what": type(unit).__name__, "factor": factor, "length": length}
            yield row | _counts(unit, factor, length)


def _counts(unit: Nonlinear, factor: float, length: int) -> Row:
    params = larger(unit.init(jax.random.key(0), _WIDTH), factor)
    moved = jax.tree.map(
        lambda leaf: leaf + _MOVE * jax.random.normal(jax.random.key(1), leaf.shape),
        params,
    )
    other, x = jax.random.normal(jax.random.key(2), (2, _BATCH, length, _WIDTH))
    states_of_other, _ = _solve(unit, params, other)
    states, from_zeros = _solve(unit, params, x)
    return {
        "from_zeros": from_zeros,
        "from_another_batch": _solve(unit, params, x, states_of_other)[1],
        "moved_from_zeros": _solve(unit, moved, x)[1],
        "moved_from_same_batch": _solve(unit, moved, x, states)[1],
    }


def _solve(
    unit: Nonlinear, params: PyTree, x: Activations, guess: Array | None = None
) -> tuple[Array, int]:
    solve = partial(
        nonlinear_recurrence,
        unit.nonlinear_term,
        diagonal=unit.diagonal,
        method="newton",
        inner="associative",
    )
    h0 = jnp.zeros((len(x), unit.d_hidden))
    u = unit.input_projection(params, x)
    h, stats = jax.jit(lambda *args: solve(*args[:3], initial_guess=args[3]))(
        params, u, h0, guess
    )
    return h, int(stats.iterations)
