"""Meshes with explicit and automatic axes, and how tests shard arrays over them."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

N_DEVICES = 4
ROWS = P("data")
CHANNELS = P("data", None, "model")
"""Of ``(b, l, d)``: both the rows and the channels."""


def check_types(function: Callable[..., Any], *rows: Any, spec: P = ROWS) -> None:
    """Traces a function of sharded arrays; their types need no devices.

    Args:
      function: Function of trees of arrays.
      *rows: The trees. The first is one array, which ``spec`` shards; of the others the
        batch axes are sharded.
      spec: How the first one is sharded.

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
        jax.jit(function).trace(typed(x, spec), *jax.tree.map(typed, others))


class OnMesh(NamedTuple):
    """How a function is evaluated on several devices.

    Attributes:
      axis_type: Type of the axes.
      is_set: Whether `jax.set_mesh` sets the mesh; else arrays carry it.
      shape: Number of devices along ``data`` and ``model``.
      spec: How the first array of the rows is sharded.
    """

    axis_type: AxisType
    is_set: bool = True
    shape: tuple[int, int] = (N_DEVICES, 1)
    spec: P = ROWS

    def evaluate(
        self, function: Callable[..., Any], variables: Any, x: Any, *rows: Any
    ) -> Any:
        """Evaluates a function of replicated variables and of sharded rows."""
        types = (self.axis_type,) * 2
        mesh = jax.make_mesh(self.shape, ("data", "model"), axis_types=types)

        def put(tree, spec):
            return jax.device_put(tree, NamedSharding(mesh, spec))

        arguments = put(variables, P()), put(x, self.spec), *put(rows, ROWS)
        with jax.set_mesh(mesh) if self.is_set else contextlib.nullcontext():
            return jax.tree.map(np.asarray, jax.jit(function)(*arguments))


KINDS = {
    "explicit": OnMesh(AxisType.Explicit),
    "carried": OnMesh(AxisType.Explicit, is_set=False),
    "auto": OnMesh(AxisType.Auto),
}
BOTH_AXES = {
    "explicit": OnMesh(AxisType.Explicit, shape=(2, 2), spec=CHANNELS),
    "auto": OnMesh(AxisType.Auto, shape=(2, 2), spec=CHANNELS),
}
