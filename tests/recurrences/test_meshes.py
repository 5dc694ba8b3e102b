"""Every recurrence on arrays that are sharded over explicit and automatic axes."""

import functools
from typing import get_type_hints

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec as P

from ssm_jax.aot.collectives import traffic
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
KINDS = meshes.KINDS | meshes.SHARDED_PARAMS
FULL_KINDS = ("explicit", "explicit_params", "auto_params")
COMPILED = [(kind, spec) for spec in (meshes.ROWS, meshes.CHANNELS) for kind in KINDS]
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
    function, arrays = with_flags(row, flags, method)
    meshes.check_types(function, *arrays, **options)


@pytest.mark.parametrize("sharded", tiered([False, True]))
@rows(brief=True, fast=("dlr_cut", "selective", "gru"), full=FEW)
def test_types_of_sharded_rows_agree(row, sharded):
    """With whole and with sharded parameters."""
    check_row(row, FLAGS["flags"], sharded=sharded)


@pytest.mark.parametrize("sharded", tiered([True, False]))
@rows(brief=True, fast=("dlr_cut", "selective"), full=FEW)
def test_types_of_sharded_channels_agree(row, sharded):
    """Also of recurrences that gather the channels, as decays depend on all of them."""
    check_row(row, FLAGS["flags"], spec=meshes.CHANNELS, sharded=sharded)


@pytest.mark.nightly
@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
@rows(methods=METHODS[1:])
def test_types_of_sharded_rows_agree_by_each_method(row, method, flags):
    if method == "fft" and flags is FLAGS["flags"]:
        flags = {"mask": flags["mask"]}
    check_row(row, flags, method)


@pytest.mark.full
@pytest.mark.parametrize("kind", tiered(KINDS, 0, full=FULL_KINDS))
@pytest.mark.parametrize("flags", tiered(FLAGS, 0, full=("flags",)))
@rows(brief=True, full=("dlr",))
def test_sharded_rows_have_the_values_and_gradients_of_one_device(row, flags, kind):
    check_values(row, flags, kind)


@pytest.mark.full
@pytest.mark.parametrize(
    "kind", tiered(meshes.BOTH_AXES, 0, full=("explicit_channels",))
)
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
    # Gradients are sums over rows and steps in another order: they differ by 2e-6 in
    # SelectiveSSM and by 4e-6 in MLSTM, in time-invariant ones by less than 1e-6.
    meshes.check_close(given, expected, 1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "spec"), tiered(COMPILED, 0, full=len(KINDS), unpack=True)
)
def test_fft_without_a_gradient_compiles(kind, spec):
    """A layout that XLA gives the values alone made its FFT fail."""
    dlr, (params, x, *_) = ROWS["dlr"].recurrence, with_flags(ROWS["dlr"], {})[1]

    def values(params, x):
        return dlr.apply(params, x, method="fft")

    expected = jax.jit(values)(params, x)
    on_mesh = KINDS[kind]._replace(shape=(2, 2), spec=spec)
    given = on_mesh.evaluate(values, params, x)
    meshes.check_close(given, expected)


@pytest.mark.full
def test_sharded_rows_send_the_gradient_of_the_kernel_alone():
    """Nothing in the forward pass; then sums over the rows, one for each tap."""
    mesh = meshes.KINDS["explicit"].mesh()
    dlr, (params, x, *_) = ROWS["dlr"].recurrence, with_flags(ROWS["dlr"], {})[1]
    arrays = (
        jax.device_put(params, NamedSharding(mesh, P())),
        jax.device_put(x, NamedSharding(mesh, meshes.ROWS)),
    )

    def values(params, x):
        return dlr.apply(params, x, method="fft")[0]

    def sent(function):
        with jax.set_mesh(mesh):
            compiled = jax.jit(function).lower(*arrays).compile()
        return {c.kind: c.bytes for c in traffic(compiled.as_text()).collectives}

    assert sent(values) == {}
    # Of the kernel, which has twice the taps, and of the feedthrough.
    n_bytes = 4 * x.shape[-1] * (2 * LENGTH + 1)
    gradient = jax.grad(lambda params, x: jnp.sum(jnp.sin(values(params, x))))
    assert sent(gradient) == {"all-reduce": n_bytes}


@pytest.mark.full
@pytest.mark.parametrize("kind", tiered(["explicit", "carried"], 0, full=1))
@pytest.mark.parametrize(
    "name", tiered(["selective", "dlr", "gru", "delta_rule"], 0, full=1)
)
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
