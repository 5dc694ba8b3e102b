"""Sharding over the explicit axes of a mesh, which is part of the type of an array.

The branches of a conditional, the carry of a loop and the operands of some operations
must then have equal types. Everything here reads the types and not a mesh, so that it
also works without `jax.set_mesh`; on one device, on automatic axes and on the manual
ones of `jax.shard_map`, types have no sharding, and nothing is done.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import NamedSharding, PartitionSpec

from ssm_jax.kernels.platforms import target_platform
from ssm_jax.types import Array, Inexact, Integer, PyTree, Shaped


def is_sharded(values: Shaped[Array, "..."], axes: slice = slice(None)) -> bool:
    """Returns whether the type of an array has one of its axes sharded.

    Args:
      values: The array.
      axes: The axes.
    """
    return any(_spec(values)[axes])


def reshard(
    values: Shaped[Array, "..."], like: Shaped[Array, "..."], axes: Iterable[int | None]
) -> Shaped[jax.Array, "..."]:
    """Shards the axes of an array as those of another one.

    Args:
      values: The array.
      like: The other array.
      axes: For each axis of ``values`` the one of ``like``; None: not sharded.
    """
    values = jnp.asarray(values)
    if not is_sharded(like) and not is_sharded(values):
        return values
    mesh = jax.typeof(like if is_sharded(like) else values).sharding.mesh
    spec = _spec(like)
    target_spec = PartitionSpec(
        *(None if axis is None else spec[axis] for axis in axes)
    )
    if target_spec == jax.typeof(values).sharding.spec:
        return values
    return jax.sharding.reshard(values, NamedSharding(mesh, target_spec))


def reshard_like(
    values: Shaped[Array, "..."], like: Shaped[Array, "..."]
) -> Shaped[jax.Array, "..."]:
    """Shards an array as another one of as many axes."""
    return reshard(values, like, range(values.ndim))


def gather_explicit(tree: PyTree) -> Any:
    """Gathers the arrays of a tree that types say are sharded.

    On explicit axes a product over an axis that both arrays have sharded is an error,
    unless it is said how its result is sharded; parameters are gathered where they are
    used instead. On automatic axes the compiler decides.

    Args:
      tree: Arrays, such as parameters.

    Returns:
      The tree, with each array whole on all devices.
    """

    def gather(leaf):
        return reshard(leaf, leaf, [None] * leaf.ndim) if is_sharded(leaf) else leaf

    return jax.tree.map(gather, tree)


def take(
    table: Shaped[Array, "n ..."], index: Integer[Array, "..."], **options: Any
) -> Shaped[jax.Array, "..."]:
    """Returns ``table[index]``, sharded as the index.

    Args:
      table: Entries, ``(n, ...)``, not sharded.
      index: Indices of entries, of any shape.
      **options: What an index out of range gives, as for ``table.at[index].get``.
    """
    table, sharding = jnp.asarray(table), jax.typeof(index).sharding
    if sharding.mesh.empty:
        return table.at[index].get(**options)
    # Also if it is not sharded: `vmap` may map over an axis that is.
    axes = *sharding.spec, *(None,) * (table.ndim - 1)
    out_sharding = NamedSharding(sharding.mesh, PartitionSpec(*axes))
    return table.at[index].get(out_sharding=out_sharding, **options)


def convolve_on_each_device(
    convolve: Callable[[Array, Array], jax.Array],
    u: Inexact[Array, "*b l d"],
    kernel: Inexact[Array, "d k"],
) -> Inexact[jax.Array, "*b l d"]:
    """Convolves the rows and channels of each device, if they are sharded.

    XLA would gather all of them for an FFT.

    Args:
      convolve: Function of sequences and of a kernel for each channel.
      u: Sequences, ``(*b, l, d)``, whose length is not sharded.
      kernel: Kernels, ``(d, k)``.
    """
    if not is_sharded(u):
        return convolve(u, kernel)
    kernel, sharding = reshard(kernel, u, [u.ndim - 1, None]), jax.typeof(u).sharding
    mesh, spec = sharding.mesh, sharding.spec
    mapped = jax.shard_map(
        convolve,
        mesh=mesh,
        in_specs=(spec, PartitionSpec(spec[-1], None)),
        out_specs=spec,
        axis_names=set(mesh.axis_names) - set(mesh.manual_axes),
    )
    return mapped(u, kernel)


def row_major(values: Shaped[Array, "..."]) -> Shaped[jax.Array, "..."]:
    """Returns an array that CPUs store with the last axis contiguous, on a mesh.

    On automatic axes XLA gathers the operand of an FFT on all devices, also where only
    other axes than the transformed one are sharded (openxla/xla#24). The FFT for CPUs
    refuses the layout that it gives one that is transposed or gathered there, so it is
    gathered before the layout is fixed.
    """
    values = jnp.asarray(values)
    mesh = jax.typeof(values).sharding.mesh
    if mesh.empty or not mesh.auto_axes or target_platform() != "cpu":
        return values
    if len(mesh.auto_axes) == len(mesh.axis_names):
        whole = NamedSharding(mesh, PartitionSpec())
        values = jax.lax.with_sharding_constraint(values, whole)
    return with_layout_constraint(values, Layout(tuple(range(values.ndim))))


def broadcast_to_steps(
    values: Shaped[Array, "*#b l"], x: Shaped[Array, "*b l d"]
) -> Shaped[jax.Array, "*b l"]:
    """Broadcasts flags or numbers of steps to all rows, sharded as the sequences.

    Args:
      values: One of each step, ``(*b, l)``, ``(l,)``, or with batch axes of 1.
      x: The sequences, ``(*b, l, d)``.
    """
    values = jnp.broadcast_to(values, x.shape[:-1])
    return reshard(values, x, range(values.ndim))


def state_of_rows(
    state: Inexact[Array, "..."],
    x: Shaped[Array, "*b l d"],
    *,
    per_channel: bool = False,
) -> Inexact[jax.Array, "..."]:
    """Shards a state as the sequences that it belongs to.

    Args:
      state: The state of each row, ``(*b, ...)``.
      x: The sequences, ``(*b, l, d)``.
      per_channel: Whether the first axis after ``b`` is that of the channels.

    Returns:
      The state, with the batch axes and with ``per_channel`` the channels sharded as
      those of ``x``.
    """
    n_batch, channels = x.ndim - 2, [x.ndim - 1] * per_channel
    others = [None] * (state.ndim - n_batch - len(channels))
    return reshard(state, x, [*range(n_batch), *channels, *others])


def _spec(values):
    return jax.typeof(values).sharding.spec
