"""Meshes with explicit and automatic axes, and how tests shard arrays over them."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec as P

from ssm_jax.sharding import parameters

N_DEVICES = 4
ROWS = P("data")
CHANNELS = P("data", None, "model")
"""Of ``(b, l, d)``: both the rows and the channels."""


def variable_specs(variables: Any, sharded: bool) -> Any:
    """How variables are sharded: over ``model`` wherever an axis divides, or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parameters, "SMALLEST", 1)
        return parameters.shard_specs(variables, "model", 2 if sharded else 1)


def check_types(
    function: Callable[..., Any],
    variables: Any,
    *rows: Any,
    spec: P = ROWS,
    sharded: bool = False,
) -> None:
    """Traces a function of sharded arrays; their types need no devices.

    Args:
      function: Function of trees of arrays.
      variables: The first tree.
      *rows: The others. The first is one array, which ``spec`` shards; of the others
        the batch axes are sharded.
      spec: How that one is sharded.
      sharded: Whether the variables are sharded.

    Raises:
      TypeError: The types of a loop, a conditional or an operation differ.
    """
    explicit = AxisType.Explicit
    mesh = AbstractMesh((2, 2), ("data", "model"), axis_types=(explicit, explicit))

    def typed(leaf, spec=ROWS):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    x, *others = rows
    with jax.sharding.use_abstract_mesh(mesh):
        of_variables = jax.tree.map(
            typed, variables, variable_specs(variables, sharded)
        )
        of_rows = typed(x, spec), *jax.tree.map(typed, others)
        jax.jit(function).trace(of_variables, *of_rows)


def check_close(given: Any, expected: Any, tolerance: float = 1e-6) -> None:
    """Checks each array, relative to its largest entry.

    Args:
      given: Tree of arrays.
      expected: The one to compare with.
      tolerance: Largest difference, where the largest entry is 1.
    """

    def check(given, expected):
        largest = np.max(np.abs(expected), initial=0)
        np.testing.assert_allclose(given, expected, rtol=0, atol=tolerance * largest)

    jax.tree.map(check, given, jax.tree.map(np.asarray, expected))


class OnMesh(NamedTuple):
    """How a function is evaluated on several devices.

    Attributes:
      axis_type: Type of the axes.
      is_set: Whether `jax.set_mesh` sets the mesh; else arrays carry it.
      shape: Number of devices along ``data`` and ``model``.
      spec: How the first array of the rows is sharded.
      sharded: Whether the variables are sharded over ``model``.
    """

    axis_type: AxisType
    is_set: bool = True
    shape: tuple[int, int] = (N_DEVICES, 1)
    spec: P = ROWS
    sharded: bool = False

    def mesh(self) -> Mesh:
        """Makes the mesh."""
        types = (self.axis_type,) * 2
        return jax.make_mesh(self.shape, ("data", "model"), axis_types=types)

    def evaluate(
        self, function: Callable[..., Any], variables: Any, x: Any, *rows: Any
    ) -> Any:
        """Evaluates a function of variables and of sharded rows."""
        mesh = self.mesh()

        def put(tree, spec):
            return jax.device_put(tree, NamedSharding(mesh, spec))

        of_variables = jax.tree.map(
            put, variables, variable_specs(variables, self.sharded)
        )
        arguments = of_variables, put(x, self.spec), *put(rows, ROWS)
        with jax.set_mesh(mesh) if self.is_set else contextlib.nullcontext():
            return jax.tree.map(np.asarray, jax.jit(function)(*arguments))


KINDS = {
    "explicit": OnMesh(AxisType.Explicit),
    "carried": OnMesh(AxisType.Explicit, is_set=False),
    "auto": OnMesh(AxisType.Auto),
}
SHARDED_PARAMS = {
    f"{name}_params": kind._replace(shape=(2, 2), sharded=True)
    for name, kind in KINDS.items()
}
BOTH_AXES = {
    f"{name}_channels": kind._replace(shape=(2, 2), spec=CHANNELS)
    for name, kind in (KINDS | SHARDED_PARAMS).items()
    if kind.is_set
}
