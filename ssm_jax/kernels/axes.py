"""Axes of arrays: padded, split into chunks or joined, and those of a mesh."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.kernels.platforms import target_platform
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.types import Array, Bool, Dimension, Float, Int, PyTree, Shaped


def append_axes(x: Shaped[Array, "..."], ndim: int) -> Shaped[jax.Array, "..."]:
    """Returns an array with axes of 1 at its end, ``ndim`` in all."""
    return jnp.expand_dims(x, tuple(range(x.ndim, ndim)))


def steps_from(first: Int[Array, "*b"], n: Dimension) -> Int[jax.Array, "*b n"]:
    """Returns the indices of ``n`` steps of each row, from its first one on.

    Args:
      first: Index of the first one, ``(*b,)``.
      n: Number of steps.
    """
    first = jnp.asarray(first)[..., None]
    return first + promoted_like(jnp.arange(n), first)


def valid_steps(lengths: Int[Array, "*b"], n: Dimension) -> Bool[jax.Array, "*b n"]:
    """Returns which of ``n`` steps are valid, of rows that begin with these.

    Args:
      lengths: Number of valid steps of each row, ``(*b,)``.
      n: Number of steps.

    Example:
      >>> print(valid_steps(jnp.array([2, 0]), 3))
      [[ True  True False]
       [False False False]]
    """
    ends = lengths[..., None]
    return promoted_like(jnp.arange(n), ends) < ends


def pad_axis(
    values: Shaped[Array, "..."],
    axis: int,
    *,
    before: int = 0,
    after: int = 0,
    **options: Any,
) -> Shaped[jax.Array, "..."]:
    """Pads one axis.

    Args:
      values: The array.
      axis: The axis.
      before: Number of entries in front, zeros unless ``options`` says otherwise.
      after: Number of entries at the end.
      options: Arguments of `jax.numpy.pad`.
    """
    widths = [(0, 0)] * values.ndim
    widths[axis] = (before, after)
    return jnp.pad(values, widths, **options)


def split_axis(
    values: Shaped[Array, "..."], axis: int, size: int
) -> Shaped[jax.Array, "..."]:
    """Splits an axis of ``l`` steps into two, the chunks and the steps of each.

    Args:
      values: The array, ``(*b, l, ...)``.
      axis: The axis.
      size: Number of steps of a chunk, ``c``.

    Returns:
      The chunks, ``(*b, ceil(l / c), c, ...)``, the last padded with zeros.
    """
    axis %= values.ndim
    values = pad_axis(values, axis, after=-values.shape[axis] % size)
    return values.reshape(*values.shape[:axis], -1, size, *values.shape[axis + 1 :])


def join_axis(
    values: Shaped[Array, "..."], axis: int, length: int
) -> Shaped[jax.Array, "..."]:
    """Inverts `split_axis`: ``(*b, k, c, ...)`` to ``(*b, l, ...)``.

    Args:
      values: The chunks.
      axis: The axis of the chunks, nonnegative, and of the steps in the result.
      length: Number of steps without padding, ``l``.
    """
    values = values.reshape(*values.shape[:axis], -1, *values.shape[axis + 2 :])
    return jax.lax.slice_in_dim(values, 0, length, axis=axis)


def split_chunks(
    values: Shaped[Array, "..."], *, axis: int, size: int
) -> Shaped[jax.Array, "..."]:
    """Splits an axis as `split_axis`, with the chunks first: a loop goes over them.

    Args:
      values: The array, ``(*b, l, ...)``.
      axis: The axis, nonnegative.
      size: Number of steps of a chunk, ``c``.

    Returns:
      The chunks, ``(ceil(l / c), *b, c, ...)``, the last padded with zeros.
    """
    return jnp.moveaxis(split_axis(values, axis, size), axis, 0)


def join_chunks(
    values: Shaped[Array, "..."], *, axis: int, length: int
) -> Shaped[jax.Array, "..."]:
    """Inverts `split_chunks`: ``(k, *b, c, ...)`` to ``(*b, l, ...)``.

    Args:
      values: The chunks.
      axis: The axis of the steps in the result, nonnegative.
      length: Number of steps without padding, ``l``.
    """
    return join_axis(jnp.moveaxis(values, 0, axis), axis, length)


def by_rows(
    function: Callable[[Any], jax.Array], x: Float[Array, "*b d"]
) -> Float[jax.Array, "*b o"]:
    """Applies a function of rows ``(n, d)`` to all steps of sequences.

    On CPUs to all steps as one matrix: of more axes, XLA computes the gradient of a
    weight from a transposed copy. Elsewhere, and if another axis than the first is
    divided among devices by its type, to ``x``.

    Args:
      function: Maps ``(*b, d)`` to ``(*b, o)``, each row by itself.
      x: ``(*b, d)``.
    """
    divided = any(jax.typeof(x).sharding.spec[1:])
    if x.ndim < 3 or divided or target_platform() != "cpu":
        return function(x)
    y = function(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]))
    return y.reshape(*x.shape[:-1], y.shape[-1])


def match_varying_axes(*trees: PyTree) -> Any:
    """Marks all leaves as varying over each mesh axis that any of them varies over.

    In `jax.shard_map` the operands of some operations must vary over the same axes.

    Args:
      *trees: Trees of arrays.

    Returns:
      A tuple of the trees.
    """
    leaves = jax.tree.leaves(trees)
    return mark_varying(trees, frozenset().union(*map(_varying_axes, leaves)))


def mark_varying(tree: PyTree, axes: Iterable[str]) -> Any:
    """Marks the leaves of a tree as varying over axes of a mesh.

    Args:
      tree: Arrays.
      axes: Names of axes of `jax.shard_map`.
    """
    axes = frozenset(axes)

    def mark(leaf):
        missing = tuple(axes - _varying_axes(leaf))
        return jax.lax.pcast(leaf, missing, to="varying") if missing else leaf

    return jax.tree.map(mark, tree)


def _varying_axes(leaf):
    return frozenset(jax.typeof(leaf).manual_axis_type.varying)
