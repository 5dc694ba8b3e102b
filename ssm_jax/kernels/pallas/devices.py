"""Kernels on arrays whose rows are sharded over explicit axes of a mesh."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

from ssm_jax.kernels.recurrence import match_varying_axes
from ssm_jax.kernels.sharding import is_sharded, reshard
from ssm_jax.types import PyTree


def on_each_device(
    function: Callable[..., Any], shared: PyTree, rows: Sequence[PyTree]
) -> Any:
    """Applies a function to the rows of each device: XLA cannot divide a kernel.

    Args:
      function: ``(shared, *rows)`` to a tree of arrays ``(*b, ...)``.
      shared: Arrays that all rows share.
      rows: An array, ``(*b, l, n)``, and trees of arrays ``(*b, ...)``.

    Returns:
      The result for all rows. Only its batch axes are sharded.
    """
    if not any(map(is_sharded, jax.tree.leaves((shared, rows)))):
        return function(shared, *rows)
    first = rows[0]
    batch = range(first.ndim - 2)
    shared = jax.tree.map(lambda v: reshard(v, first, [None] * v.ndim), shared)
    rows = jax.tree.map(
        lambda v: reshard(v, first, [*batch, *[None] * (v.ndim - len(batch))]),
        tuple(rows),
    )
    of_first = jax.typeof(first).sharding
    spec = PartitionSpec(*of_first.spec[: len(batch)])

    def of_device(shared, rows):
        # Operands of a kernel vary over the same axes.
        shared, rows = match_varying_axes(shared, rows)
        return function(shared, *rows)

    mapped = jax.shard_map(
        of_device,
        mesh=of_first.mesh,
        in_specs=(PartitionSpec(), spec),
        out_specs=spec,
        axis_names=_axis_names(spec),
    )
    return mapped(shared, rows)


def _axis_names(spec):
    entries = (entry if isinstance(entry, tuple) else (entry,) for entry in spec)
    return {name for entry in entries for name in entry if name is not None}
