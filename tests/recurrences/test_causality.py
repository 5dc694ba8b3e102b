"""Later inputs, of any size or not finite, do not change earlier outputs."""

import functools

import jax
import numpy as np
import pytest

from tests.kernels.oracle import assert_close
from tests.recurrences.cases import problem, rows
from tests.recurrences.table import ROWS
from tests.tiers import tiered

LENGTH, T = 41, 23  # More than one matrix of "chunked"; not the end of a block.
WAYS = ("fft", "chunked", "associative", "sequential", "pallas")
FEW = ("dlr", "s4", "sgconv")
NONLINEAR = ("fru", "fru_summed", "sru", "gru", "lstm", "rnn")
LINEAR = [name for name in ROWS if name not in NONLINEAR]


@functools.partial(jax.jit, static_argnames=("recurrence", "method"))
def apply(recurrence, params, x, *, method):
    return recurrence.apply(params, x, method=method)


@functools.cache
def case(row):
    """Inputs, and a function of changed ones and a method."""
    p = problem(row, LENGTH)
    return p.x, functools.partial(apply, row.recurrence, p.params)


def changed(x, value):
    """The inputs with another value in a channel of the first sequence."""
    x = x.copy()
    x[0, T, 1] = value
    return x


@functools.cache
def finite(row, value):
    """Which outputs and final states the definition makes finite."""
    x, run = case(row)
    return jax.tree.map(np.isfinite, run(changed(x, value), method="sequential"))


@pytest.mark.parametrize("value", tiered([np.inf, np.nan, -np.inf], 1, full=1))
@rows(methods=WAYS, directions=(1,), brief=True, fast=("sgconv",), full=(*FEW, "gru"))
def test_values_that_are_not_finite_stay_with_later_steps(row, method, value):
    x, run = case(row)
    y, last = run(changed(x, value), method=method)
    without, _ = run(changed(x, 0), method=method)
    assert_close(y[:, :T], without[:, :T], 1e-6)
    assert_close(y[1], without[1], 1e-6)
    # Of inputs that are not finite the definition makes some outputs infinite, others
    # NaN; which of both they are by other methods is not defined.
    of_y, of_last = finite(row, value)
    np.testing.assert_array_equal(np.isfinite(y), of_y)
    np.testing.assert_array_equal(np.isfinite(last), of_last)


@pytest.mark.parametrize("factor", [1e3, 1e6, 1e30])
@rows(
    methods=WAYS[1:],
    directions=(1,),
    brief=True,
    fast=("s4",),
    full=(*FEW, "selective"),
)
def test_large_later_inputs_do_not_change_earlier_outputs(row, method, factor):
    x, run = case(row)
    large = np.concatenate([x[:, :T], np.float32(factor) * x[:, T:]], 1)
    given, wanted = (run(each, method=method)[0][:, :T] for each in (large, x))
    if method != "sequential" and any(row is ROWS[name] for name in NONLINEAR):
        # Iterations end when all steps have converged, later ones too.
        assert_close(given, wanted, 1e-6)
    else:
        np.testing.assert_array_equal(given, wanted)
