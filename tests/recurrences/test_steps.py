"""The equations of a paper, step by step, compared to the evaluation of a sequence."""

import functools

import jax
import numpy as np
import pytest

from ssm_jax.recurrences import CES, FRU, SRU
from tests.kernels.oracle import assert_close
from tests.recurrences.cases import problem
from tests.recurrences.table import ROWS
from tests.tiers import tiered

STEPPED = {
    name: row
    for name, row in ROWS.items()
    if isinstance(row.recurrence, FRU | SRU | CES) and row.directions == 1
}
LENGTH, CUT = 17, 7


@pytest.mark.parametrize("row", tiered(STEPPED, ("fru", "sru")))
def test_scan_of_the_equations_is_the_sequence(row):
    """Also if the state is carried from one part of the sequence to the next."""
    given = problem(row, LENGTH, start=True)

    @jax.jit
    def both(params, x, state):
        step = functools.partial(row.recurrence.step, params)
        with jax.default_matmul_precision("highest"):
            last, y = jax.lax.scan(step, state, x.swapaxes(0, 1))
        y_1, between = row.recurrence.apply(params, x[:, :CUT], state)
        y_2, end = row.recurrence.apply(params, x[:, CUT:], between)
        return (y.swapaxes(0, 1), last), (jax.numpy.concatenate([y_1, y_2], 1), end)

    state = given.state
    if hasattr(row.recurrence, "horizon"):
        # The last number of an FRU's state is the number of steps so far.
        state = np.concatenate([state[:, :-1], np.full_like(state[:, -1:], 3)], -1)
    equations, evaluated = both(given.params, given.x, state)
    assert_close(evaluated, equations, 2e-6)
