"""Kernels on arrays that are sharded over a mesh, or vary over its axes."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

from ssm_jax.kernels.sharding import is_sharded, reshard
from ssm_jax.types import Array, PyTree


def on_each_device(
    function: Callable[..., Any], shared: PyTree, rows: Sequence[PyTree]
) -> Any:
    """Applies a function to the rows of each device: XLA cannot divide a kernel.

    Args:
      function: ``(shared, *rows)`` to a tree of arrays ``(*b, ...)``.
      shared: Arrays that all rows share.
      rows: Trees of arrays ``(*b, ...)``; the first leaf is ``(*b, l, n)``.

    Returns:
      The result for all rows. Only its batch axes are sharded.
    """
    if not any(map(is_sharded, jax.tree.leaves((shared, rows)))):
        return function(shared, *rows)
    first = jax.tree.leaves(rows)[0]
    batch = range(first.ndim - 2)
    shared = jax.tree.map(lambda v: reshard(v, first, [None] * v.ndim), shared)
    rows = jax.tree.map(
        lambda v: reshard(v, first, [*batch, *[None] * (v.ndim - len(batch))]),
        tuple(rows),
    )
    mesh, of_first = jax.typeof(first).sharding.mesh, jax.typeof(first).sharding.spec
    spec = PartitionSpec(*of_first[: len(batch)])

    mapped = jax.shard_map(
        lambda shared, rows: function(shared, *rows),
        mesh=mesh,
        in_specs=(PartitionSpec(), spec),
        out_specs=spec,
        # All that are not manual: an interpreted kernel updates unsharded arrays.
        axis_names=set(mesh.axis_names) - set(mesh.manual_axes),
        # Interpreted kernels lose the axes that their operands vary over.
        check_vma=False,
    )
    return mapped(shared, rows)


def shape_struct(like: Array, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    """Returns the type of a result, which varies over the axes that ``like`` does."""
    varying = jax.typeof(like).manual_axis_type
    return jax.ShapeDtypeStruct(shape, like.dtype, manual_axis_type=varying)
