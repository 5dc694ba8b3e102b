"""Evaluation block by block; the backward pass computes the states of a block again.

The states of all steps are many times larger than the input. If they do not fit in the
cache, they are written to memory and read again, and the gradient needs all of them.
Those of a block stay in the cache, and the gradient computes them again.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.kernels.axes import join_chunks, match_varying_axes, split_chunks
from ssm_jax.types import Activations, Inexact, Int, Outputs, PyTree, Steps

Run = Callable[..., tuple[Outputs, Any]]
"""Evaluates a block: ``(x, state, reset, lengths) -> (y, state)``."""


def map_blocks(
    run: Run,
    x: Activations,
    state: Inexact[jax.Array, "..."],
    reset: Steps | None,
    lengths: Int[jax.Array, "*b"] | None,
    *,
    size: int,
    params: PyTree,
) -> tuple[Outputs, Inexact[jax.Array, "..."]]:
    """Evaluates a recurrence block by block; the gradient evaluates each block again.

    For the gradient only ``x`` and one state per block are stored.

    Args:
      run: Evaluates a block.
      x: Input, ``(*b, l, d)``.
      state: State before the first step, batch axes first.
      reset: True where a segment starts, ``(*b, l)``, or None.
      lengths: Number of valid steps of each row, ``(*b,)``. None means all.
      size: Largest number of steps of a block.
      params: All that ``run`` closes over. In `jax.shard_map` the states vary over its
        axes, too.

    Returns:
      ``(y, state)``: outputs, ``(*b, l, o)``, and the state after the last valid step.
    """
    *batch, length, _ = x.shape
    n_blocks = math.ceil(length / size)
    # Of equal length, so that fewer steps are padded than there are blocks.
    size, axis = math.ceil(length / n_blocks), len(batch)
    if lengths is None and length % size:
        lengths = jnp.full(batch, length)
    arrays = [leaf for leaf in jax.tree.leaves(params) if not isinstance(leaf, str)]
    x, state, reset, lengths, _ = match_varying_axes(x, state, reset, lengths, arrays)
    split = functools.partial(split_chunks, axis=axis, size=size)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def one_block(state, block):
        x, reset, start = block
        valid = None if lengths is None else jnp.clip(lengths - start, 0, size)
        y, state = run(x, state, reset, valid)
        return state, y

    starts = size * jnp.arange(n_blocks)
    blocks = *jax.tree.map(split, (x, reset)), starts
    last, y = jax.lax.scan(one_block, state, blocks)
    return join_chunks(y, axis=axis, length=length), last
