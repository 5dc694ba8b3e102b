"""Shared helpers of the tests that run on all rows of the table."""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.kernels.oracle import assert_close
from tests.recurrences import oracle
from tests.recurrences.table import METHODS as METHODS, ROWS

# Those of which the fast tier tests more than that they are the definition.
FAST = tuple(name for name, row in ROWS.items() if row.fast)

# One of each family and direction.
EVERY_METHOD = (
    "dlr",
    "dlr_bidirectional",
    "dlr_prod",
    "dlr_cut",
    "smoothing_bidirectional",
    "s4",
    "s5",
    "selective",
    "fru",
    "gru",
)

# Rows: no padding; padding at the end, at the start, inside, nearly everywhere.
MASK = np.array(
    [
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 1, 1],
        [0, 1, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 1, 0],
    ],
    bool,
)
RESET = np.array(
    [
        [0, 0, 0, 1, 0, 0, 0],
        [0, 1, 1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 1],
        [1, 0, 1, 1, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ],
    bool,
)


def rows(
    *, methods=None, lengths=False, directions=(1, 2), brief=False, fast=FAST, full=ROWS
):
    """Parametrizes a test by rows, optionally also by methods and lengths.

    ``brief`` takes the brief rows in, too: for what each row has of its own. In the
    fast tier it runs on the rows of ``fast``, by the first method over 17 steps. Rows
    that are not in ``full`` are left to the nightly tier; so are, with ``lengths``,
    other methods than the first, but for 17 steps by FFT or of `EVERY_METHOD`.
    """
    params = []
    for name, row in ROWS.items():
        axes = {"row": [row]}
        if methods is not None:
            axes["method"] = [method for method in methods if method in row.methods]
        if lengths:
            axes["length"] = row.lengths
        if row.directions in directions and brief >= row.brief:
            for values in itertools.product(*axes.values()):
                label = "-".join([name, *map(str, values[1:])])
                is_fast = name in fast and (
                    (methods is None or values[1] == methods[0])
                    and (not lengths or values[-1] == 17)
                )
                # Kernels are tested at all lengths by every method in the full tier.
                marks = () if is_fast else pytest.mark.full
                if methods and lengths and values[1] != row.methods[0]:
                    few = name in EVERY_METHOD or values[1] == "fft"
                    if not few or values[-1] != 17:
                        marks = pytest.mark.nightly
                if name not in full:
                    marks = pytest.mark.nightly
                params.append(pytest.param(*values, id=label, marks=marks))
    names = ["row", *["method"] * (methods is not None), *["length"] * lengths]
    return pytest.mark.parametrize(names, params)


class Problem(NamedTuple):
    """Parameters, inputs and weights of a loss.

    Attributes:
      params: Of the recurrence, for inputs of width ``d``.
      x: Inputs, ``(b, l, d)``.
      state: State before the first step, or None.
      weights: ``(c, c_last)`` of the loss ``sum(c y) + Re sum(c_last last)``, like the
        outputs and the state.
    """

    params: dict
    x: np.ndarray
    state: np.ndarray | None
    weights: tuple[np.ndarray, np.ndarray | None]


@functools.cache
def problem(row, length, *, batch=2, start=False):
    """A random problem of a row, with a random initial state or none."""
    rng = np.random.default_rng(length)

    def draw(like):
        values = rng.normal(size=like.shape)
        if np.iscomplexobj(like):
            values = values + 1j * rng.normal(size=like.shape)
        return values.astype(like.dtype)

    params = row.recurrence.init(jax.random.key(1), row.width)
    x = draw(np.zeros((batch, length, row.width), np.float32))
    c = draw(np.zeros((batch, length, row.recurrence.d_out(row.width)), np.float32))
    zero = row.recurrence.initial_state((batch,), row.width)
    c_last = None if zero is None else draw(np.asarray(zero))
    state = draw(np.asarray(zero)) if start and zero is not None else None
    return Problem(jax.tree.map(np.asarray, params), x, state, (c, c_last))


def loss(out, weights):
    """The loss of a problem."""
    (y, last), (c, c_last) = out, weights
    total = jnp.sum(c * y)
    return total if last is None else total + jnp.sum(jnp.real(c_last * last))


def evaluation(apply):
    """Compiles ``apply(params, x, state)`` to ``((y, last), gradients)``."""

    def of_problem(params, x, state, weights, *args, **options):
        def total(params, x, state):
            out = apply(params, x, state, *args, **options)
            return loss(out, weights), out

        argnums = (0, 1) if state is None else (0, 1, 2)
        grads, out = jax.grad(total, argnums, has_aux=True)(params, x, state)
        return out, (*grads, None)[:3]

    return of_problem


@functools.partial(jax.jit, static_argnames=("recurrence", "method"))
def evaluate(recurrence, problem, reset=None, mask=None, *, method):
    """Returns ``(y, last)`` and the gradients by parameters, inputs and state."""
    of_problem = evaluation(recurrence.apply)
    return of_problem(*problem, reset=reset, mask=mask, method=method)


def evaluate_anew(row, problem, **options):
    """As `evaluate`, compiled anew: with bounds that a test has set."""

    def run(params, x, state):
        return row.recurrence.apply(params, x, state, **options)

    return jax.jit(evaluation(run))(*problem)


def expected(row, problem, reset=None, mask=None):
    """The expected result of `evaluate`."""
    run = row.run
    if reset is not None or mask is not None:
        run = functools.partial(oracle.packed, row.run, reset=reset, mask=mask)
    params, x, state, weights = problem
    out = run(params, np.float64(x), state)
    return out, oracle.gradients(run, params, x, state, weights)


def check(given, wanted):
    """Checks values to 1e-5 of the largest and gradients to 1e-4."""
    assert_close(given[0], wanted[0], 1e-5)
    assert_close(given[1], wanted[1], 1e-4)
