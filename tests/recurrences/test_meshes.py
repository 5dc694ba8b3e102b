"""Every recurrence on arrays that are sharded over explicit and automatic axes."""

import functools
from typing import get_type_hints

import chex
import jax
import numpy as np
import pytest

from ssm_jax.recurrences.families.finite_kernel import FiniteKernel
from ssm_jax.recurrences.families.modes import SISOModes
from ssm_jax.recurrences.families.time_invariant import TimeInvariant
from tests import meshes
from tests.recurrences.cases import evaluation, problem, rows
from tests.recurrences.table import ROWS
from tests.tiers import tiered

BATCH = 8
# Convolutions of more steps than one product of a Toeplitz matrix is of.
LENGTH = 40
_RNG = np.random.default_rng(0)
FLAGS = {
    "plain": {},
    "flags": {
        "reset": _RNG.random((BATCH, LENGTH)) < 0.1,
        "mask": _RNG.random((BATCH, LENGTH)) < 0.7,
    },
}


def is_diagonal(recurrence):
    """Whether each channel depends on no other one."""
    if isinstance(recurrence, TimeInvariant):
        return get_type_hints(type(recurrence).modes)["return"] is SISOModes
    return isinstance(recurrence, FiniteKernel)


DIAGONAL = tuple(name for name, row in ROWS.items() if is_diagonal(row.recurrence))
# Not automatic axes of channels: there, XLA refuses the layout that it chooses for the
# FFT of values without a gradient.
COMPILED = [
    *[(kind, meshes.ROWS) for kind in meshes.KINDS],
    *[(kind, meshes.CHANNELS) for kind in ("explicit", "carried")],
]
# One of each family, of both directions and with a cut kernel.
FEW = ("dlr", "dlr_bidirectional", "dlr_cut", "selective", "delta_rule", "gru")
METHODS = ("auto", "sequential", "associative", "chunked", "fft", "pallas")


def with_flags(row, flags, method="auto"):
    """The arrays of a problem, and its values and gradients as a function of them."""
    of_row = evaluation(functools.partial(row.recurrence.apply, method=method))
    params, x, state, weights = problem(row, LENGTH, batch=BATCH, start=True)

    def function(params, x, state, weights, flags):
        return of_row(params, x, state, weights, **flags)

    return function, (params, x, state, weights, flags)


def check_row(row, flags, method="auto", **options):
    function, (params, *sharded) = with_flags(row, flags, method)
    meshes.check_types(functools.partial(function, params), *sharded, **options)


@rows(brief=True, fast=("dlr_cut", "selective", "gru"), full=FEW)
def test_types_of_sharded_rows_agree(row):
    check_row(row, FLAGS["flags"])


@rows(brief=True, fast=("dlr_cut", "selective"), full=FEW)
def test_types_of_sharded_channels_agree(row):
    """Also of recurrences that gather the channels, as decays depend on all of them."""
    check_row(row, FLAGS["flags"], spec=meshes.CHANNELS)


@pytest.mark.nightly
@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
@rows(methods=METHODS[1:])
def test_types_of_sharded_rows_agree_by_each_method(row, method, flags):
    if method == "fft" and flags is FLAGS["flags"]:
        flags = {"mask": flags["mask"]}
    check_row(row, flags, method)


@pytest.mark.full
@pytest.mark.parametrize("kind", tiered(meshes.KINDS, 0, full=("explicit",)))
@pytest.mark.parametrize("flags", tiered(FLAGS, 0, full=("flags",)))
@rows(brief=True, full=("dlr",))
def test_sharded_rows_have_the_values_and_gradients_of_one_device(row, flags, kind):
    check_values(row, flags, kind)


@pytest.mark.full
@pytest.mark.parametrize("kind", tiered(meshes.BOTH_AXES, 0, full=("explicit",)))
@pytest.mark.parametrize("flags", tiered(FLAGS, 0, full=("plain",)))
@pytest.mark.parametrize("name", tiered([*DIAGONAL, "selective"], 0, full=("dlr",)))
def test_sharded_channels_have_the_values_and_gradients_of_one_device(
    name, flags, kind
):
    check_values(ROWS[name], flags, kind)


def check_values(row, flags, kind):
    function, arrays = with_flags(row, flags)
    expected = jax.jit(function)(*arrays)
    given = kind.evaluate(function, *arrays)
    # Sums of gradients over rows are formed in another order.
    chex.assert_trees_all_close(given, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "spec"), tiered(COMPILED, full=len(meshes.KINDS), unpack=True)
)
def test_fft_without_a_gradient_compiles(kind, spec):
    """A layout that XLA gives the values alone made its FFT fail."""
    dlr, (params, x, *_) = ROWS["dlr"].recurrence, with_flags(ROWS["dlr"], {})[1]

    def values(params, x):
        return dlr.apply(params, x, method="fft")

    expected = jax.jit(values)(params, x)
    on_mesh = meshes.KINDS[kind]._replace(shape=(2, 2), spec=spec)
    given = on_mesh.evaluate(values, params, x)
    chex.assert_trees_all_close(given, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("kind", tiered(["explicit", "carried"], 0, full=1))
@pytest.mark.parametrize("name", tiered(["selective", "dlr", "gru"], 0, full=1))
def test_kernels_in_pallas_are_evaluated_on_the_rows_of_each_device(name, kind):
    function, arrays = with_flags(ROWS[name], FLAGS["flags"], "pallas")
    expected = jax.jit(function)(*arrays)
    given = meshes.KINDS[kind]._replace(shape=(2, 2)).evaluate(function, *arrays)
    chex.assert_trees_all_close(given, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize(
    "method", tiered(["sequential", "chunked", "pallas"], 0, full=1)
)
def test_states_and_flags_that_all_devices_hold_are_sharded_as_the_rows(method):
    function, arrays = with_flags(ROWS["dlr"], FLAGS["plain"], method)
    params, x, state, weights, _ = arrays
    flags = FLAGS["flags"]
    if method == "chunked":
        flags = {"mask": flags["mask"]}
    expected = jax.jit(function)(params, x, state, weights, flags)

    def replicated(params, x):
        return function(params, x, state, weights, flags)

    given = meshes.KINDS["explicit"].evaluate(replicated, params, x)
    chex.assert_trees_all_close(given, expected, rtol=1e-4, atol=1e-4)
