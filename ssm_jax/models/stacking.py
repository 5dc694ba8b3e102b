"""Stacks trees of equal structure, and splits them, as compiles fast on CPUs."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ssm_jax.kernels.axes import match_varying_axes
from ssm_jax.kernels.fusion import runtime_false
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.types import Array, Int, PyTree


def stack(trees: Sequence[PyTree]) -> PyTree:
    """Stacks each leaf of all trees along a new first axis, as `jax.numpy.stack`.

    XLA compiles a kernel for each position at which an array is sliced: 15 ms for each
    leaf of each tree in the gradient of a stack, most of the compilation of a training
    step with many layers. On CPUs the gradient is therefore sliced at indices that the
    program reads from memory, so that all slices of a leaf are one kernel.

    Args:
      trees: Trees of arrays of equal structure, shapes and dtypes.

    Returns:
      A tree of the same structure.
    """
    indices = _runtime_indices(len(trees), trees[0])
    if indices is None:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)

    def stack_leaf(*leaves):
        if not jnp.issubdtype(jnp.result_type(leaves[0]), jnp.inexact):
            return jnp.stack(leaves)
        return _stack(indices, leaves)

    return jax.tree.map(stack_leaf, *trees)


@jax.custom_jvp
def _stack(indices, leaves):
    del indices
    return jnp.stack(leaves)


@_stack.defjvp
def _stack_jvp(primals, tangents):
    indices, leaves = primals
    stacked, tangents = jnp.stack(leaves), tangents[1]
    zeros, *tangents = match_varying_axes(jnp.zeros_like(stacked), *tangents)
    # A sum, whose transpose slices the same array at each index; in a chain of updates
    # each update would be undone before the next slice.
    tangent = zeros
    for row, index in zip(tangents, indices, strict=True):
        tangent += jax.lax.dynamic_update_index_in_dim(zeros, row, index, 0)
    return stacked, tangent


def unstack(tree: PyTree, n: int) -> tuple[PyTree, ...]:
    """Splits each leaf along its first axis, of ``n`` entries; inverts `stack`.

    On CPUs the slices of a leaf are one kernel, as in the gradient of `stack`.
    """
    indices = _runtime_indices(n, tree) or range(n)
    return tuple(entry(tree, index) for index in indices)


def entry(tree: PyTree, index: int | Int[Array, ""]) -> PyTree:
    """Returns the entry of each leaf along its first axis at ``index``."""
    at = functools.partial(jax.lax.dynamic_index_in_dim, index=index, keepdims=False)
    return jax.tree.map(at, tree)


def _runtime_indices(n: int, tree: PyTree) -> tuple[Int[Array, ""], ...] | None:
    """Returns ``0, ..., n - 1`` as results of a branch that XLA cannot foresee.

    None where they are of no use, or ``tree`` has no number that the branch may depend
    on.
    """
    # Constants would be compiled into the slices.
    if n == 1 or target_platform() != "cpu":
        return None
    if (false := runtime_false(tree)) is None:
        return None
    return jax.lax.cond(
        false,
        lambda: tuple(jnp.zeros((), jnp.int32) for _ in range(n)),
        lambda: tuple(jnp.asarray(k, jnp.int32) for k in range(n)),
    )
