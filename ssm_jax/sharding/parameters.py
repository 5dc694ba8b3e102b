"""Parameters sharded over devices, and gathered where they are used."""

import dataclasses
import math
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

import jax
from jax.sharding import PartitionSpec as P

from ssm_jax.kernels.sharding import is_sharded
from ssm_jax.types import PyTree

SMALLEST = 2**16
"""Bytes below which an array is not sharded."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["value"],
    meta_fields=["axis_name", "axis"],
)
@dataclasses.dataclass(frozen=True)
class Shard:
    """This device's shard of a parameter, inside `jax.shard_map`.

    Attributes:
      value: The shard.
      axis_name: Mesh axis that the parameter is sharded over.
      axis: Axis of the array that is divided.
    """

    value: Any
    axis_name: str
    axis: int

    def gather(self) -> jax.Array:
        """Returns the whole parameter.

        The transpose adds up the gradients of the devices and leaves each its shard, if
        these have different rows of a batch.
        """
        return jax.lax.all_gather(
            self.value, self.axis_name, axis=self.axis, tiled=True
        )


def shard_specs(tree: PyTree, axis_name: str, n: int) -> PyTree:
    """Returns how parameters, or the state of their optimizer, are sharded.

    An array is divided along the longest of the axes whose length is a multiple of
    ``n``, as a table of embeddings along the vocabulary; one of more than two axes,
    such as the weights of experts, along the first if ``n`` divides it. Arrays of less
    than 64 KiB, and those that have no such axis, are whole on all devices.

    Args:
      tree: Arrays or `jax.ShapeDtypeStruct`; the rule depends on shapes and dtypes.
      axis_name: Mesh axis to shard over.
      n: Number of devices along that axis.

    Returns:
      A tree of ``PartitionSpec``.

    Example:
      >>> import jax.numpy as jnp
      >>> tree = {"embedding": jnp.zeros((512, 64)), "bias": jnp.zeros(64)}
      >>> shard_specs(tree, "model", 4)["embedding"]
      P('model',)
    """

    def spec(leaf):
        axis = _divided_axis(leaf.shape, leaf.dtype.itemsize, n)
        return P() if axis is None else P(*[None] * axis, axis_name)

    return jax.tree.map(spec, tree)


def _divided_axis(shape, itemsize, n):
    n_bytes = itemsize * math.prod(shape)
    axes = [i for i, size in enumerate(shape) if size and size % n == 0]
    if n == 1 or n_bytes < SMALLEST or not axes:
        return None
    if len(shape) > 2 and axes[0] == 0:
        return 0
    return max(axes, key=lambda i: shape[i])


def bytes_of_device(tree: PyTree, shardings: PyTree) -> int:
    """Returns the bytes of a tree that each device holds.

    Args:
      tree: Arrays or `jax.ShapeDtypeStruct`.
      shardings: The sharding of each.
    """

    def n_bytes(leaf, sharding):
        # `math.prod` computes in Python integers; those of NumPy would overflow.
        return math.prod(sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize

    return sum(jax.tree.leaves(jax.tree.map(n_bytes, tree, shardings)))


def box_shards(shards: PyTree, specs: PyTree) -> PyTree:
    """Boxes the arrays that are sharded as `Shard`; the others are unchanged.

    Args:
      shards: What a device has of each array.
      specs: The result of `shard_specs` for the whole arrays.
    """

    def box(shard, spec):
        if not (divided := [i for i, name in enumerate(spec) if name is not None]):
            return shard
        return Shard(shard, spec[divided[0]], divided[0])

    return jax.tree.map(box, shards, specs)


def strip_boxes(tree: PyTree) -> PyTree:
    """Inverts `box_shards`: shards as they are, not gathered."""
    return _map_shards(lambda shard: shard.value, tree)


def has_shards(tree: PyTree) -> bool:
    """Whether an array of a tree is a `Shard`, or sharded over explicit axes."""
    # Metrics that are sown may be numbers.
    return any(
        _is_shard(leaf) or isinstance(leaf, jax.Array) and is_sharded(leaf)
        for leaf in jax.tree.leaves(tree, is_leaf=_is_shard)
    )


def gather(tree: PyTree, leave: Collection[str] = ()) -> PyTree:
    """Gathers the parameters of a tree.

    Args:
      tree: Arrays, of which a `Shard` is gathered.
      leave: Keys at the top below which nothing is.

    Example:
      >>> import jax.numpy as jnp
      >>> def total(w, x):
      ...     w = gather({"w": Shard(w, "model", 0)})["w"]
      ...     return jax.lax.psum(jnp.sum(x @ w), "model")
      >>> mesh = jax.sharding.Mesh(jax.devices(), ("model",))
      >>> specs = P("model"), P("model")
      >>> mapped = jax.shard_map(total, mesh=mesh, in_specs=specs, out_specs=P())
      >>> print(mapped(jnp.ones((8, 3)), jnp.ones((8, 8))))
      192.0
    """
    if not has_shards(tree):
        return tree
    whole = partial(_map_shards, Shard.gather)
    if not leave:
        return whole(tree)
    return {key: part if key in leave else whole(part) for key, part in tree.items()}


def sum_gradients(gradient: PyTree, axes: Iterable[str]) -> PyTree:
    """Adds up gradients over mesh axes; a `Shard` is the sum over its axis already."""
    axes = tuple(axes)
    leaves, structure = jax.tree.flatten(gradient, is_leaf=_is_shard)

    def add(shards, axes):
        # In one call for all arrays, which are then sent together.
        return jax.lax.psum(shards, axes) if axes else shards

    names = {leaf.axis_name for leaf in leaves if _is_shard(leaf)}
    sharded = [leaf.value for leaf in leaves if _is_shard(leaf)]
    whole = add([leaf for leaf in leaves if not _is_shard(leaf)], axes)
    sharded = add(sharded, tuple(name for name in axes if name not in names))
    sums = [
        dataclasses.replace(leaf, value=sharded.pop(0))
        if _is_shard(leaf)
        else whole.pop(0)
        for leaf in leaves
    ]
    return jax.tree.unflatten(structure, sums)


def _map_shards(function, tree):
    def apply(leaf):
        return function(leaf) if _is_shard(leaf) else leaf

    return jax.tree.map(apply, tree, is_leaf=_is_shard)


def _is_shard(leaf):
    return isinstance(leaf, Shard)
