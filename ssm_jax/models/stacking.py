"""Stacks trees of equal structure, with a gradient that compiles fast on CPUs."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ssm_jax.kernels.platforms import target_platform
from ssm_jax.kernels.recurrence import match_varying_axes
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
    floating = [
        leaf
        for leaf in jax.tree.leaves(trees[0])
        if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) and jnp.size(leaf)
    ]
    if not floating or len(trees) == 1 or target_platform() != "cpu":
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    indices = _unknown_to_xla(len(trees), floating[0])

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


def _unknown_to_xla(n: int, leaf: Array) -> tuple[Int[Array, ""], ...]:
    """Returns ``0, ..., n - 1`` as results of a branch that XLA cannot foresee."""
    number = jnp.ravel(jax.lax.stop_gradient(leaf))[0]
    # False for every number; constants would be compiled into the slices.
    never = (number != number) & (number == number)
    return jax.lax.cond(
        never,
        lambda: tuple(jnp.zeros((), jnp.int32) for _ in range(n)),
        lambda: tuple(jnp.asarray(k, jnp.int32) for k in range(n)),
    )
