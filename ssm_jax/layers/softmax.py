"""Softmax attention in blocks of queries, over all keys or over windows of them."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.axes import join_chunks, split_chunks
from ssm_jax.kernels.rotary import rotate
from ssm_jax.types import Array, Bool, Float, Int

# Queries per block. The logits of a block, batch x heads x 512 x l, are in memory at a
# time, not those of all queries: .5 GB of 4.3 GB for 16 sequences of 4,096 steps and 4
# heads, of which the gradient needs three copies.
_BLOCK = 512


def attend(
    q: Float[Array, "*b i h k"],
    k: Float[Array, "*b j g k"],
    v: Float[Array, "*b j g v"],
    visible: Bool[Array, "*#b #i #j"],
) -> Float[jax.Array, "*b i h v"]:
    """Softmax attention of scaled queries to the visible keys; zeros without any.

    With fewer heads of keys and values, ``g``, each serves ``h / g`` consecutive heads
    of queries.
    """
    n_queries, n_keys = q.shape[-2], k.shape[-2]
    if n_queries != n_keys:
        q = q.reshape(*q.shape[:-2], n_keys, n_queries // n_keys, q.shape[-1])
        logits = jnp.einsum("...igrk,...jgk->...grij", q, k)
        visible = visible[..., None, None, :, :]
        weights = jax.nn.softmax(logits, where=visible)
        y = jnp.einsum("...grij,...jgv->...igrv", weights, v)
        return y.reshape(*y.shape[:-3], n_queries, y.shape[-1])
    # `jax.nn.dot_product_attention` takes twice the time on CPUs. It also scales the
    # logits after the product; XLA may round the scaled logits and their maximum
    # differently, and for large logits the exponential of the difference overflows.
    logits = jnp.einsum("...ihk,...jhk->...hij", q, k)
    # `where` leaves hidden steps out of the maximum and of the sum; adding -inf to
    # their logits instead would make a row without visible steps NaN.
    weights = jax.nn.softmax(logits, where=visible[..., None, :, :])
    return jnp.einsum("...hij,...jhk->...ihk", weights, v)


def full_attention(
    q: Float[Array, "*b l h k"],
    k: Float[Array, "*b l h k"],
    v: Float[Array, "*b l h v"],
    *,
    bidirectional: bool,
    segment: Int[Array, "*b l"] | None,
    mask: Bool[Array, "*b l"] | None,
    flags: Bool[Array, "*b l"],
) -> tuple[Float[jax.Array, "*b l h v"], Bool[jax.Array, "*b l"]]:
    """Attention of each step to the valid steps of its segment.

    Args:
      q: Scaled queries, ``(*b, l, h, k)``.
      k: Keys, ``(*b, l, h, k)``.
      v: Values, ``(*b, l, h, v)``.
      bidirectional: Whether a step attends to later steps too.
      segment: Number of the segment of each step. None means one segment.
      mask: True at valid steps. None means that all steps are valid.
      flags: Flags of keys, ``(*b, l)``.

    Returns:
      ``(y, seen)``: means of the values, ``(*b, l, h, v)``, and whether a step attends
      to a flagged one, ``(*b, l)``. Memory grows with ``l``, time with ``l**2``.
    """
    length = q.shape[-3]
    size = min(_BLOCK, length)

    def visible_from(start):
        steps = start + jnp.arange(size)
        visible = jnp.ones((1, 1), bool)
        if not bidirectional:
            visible = jnp.arange(length)[None] <= steps[:, None]
        visible = jax.lax.broadcast_to_rank(visible, q.ndim - 1)
        if mask is not None:
            # Padding is hidden as a key; as a query its output is zeroed by the layer.
            visible &= mask[..., None, :]
        if segment is not None:
            # Queries behind the end belong to the last segment; they are dropped.
            of_query = jnp.take(segment, steps, axis=-1, mode="clip")
            visible &= of_query[..., :, None] == segment[..., None, :]
        return visible

    def block(start, q):
        return attend(q, k, v, visible_from(start))

    def flagged_from(start):
        return visible_from(start) & flags[..., None, :]

    seen = _attends_to_flagged(flagged_from, flags, q, size)
    return _map_blocks(block, q, size), seen


class Positions(NamedTuple):
    """Positions of steps in segments and windows.

    Attributes:
      segment: Number of the segment of each step, ``(*b, l)``, -1 for keys that no step
        attends to.
      window: Number of the window of each step in its segment, ``(*b, l)``.
    """

    segment: Int[Array, "*b l"]
    window: Int[Array, "*b l"]


def local_attention(
    q: Float[Array, "*b l h k"],
    k: Float[Array, "*b m g k"],
    v: Float[Array, "*b m g v"],
    queries: Positions,
    keys: Positions,
    *,
    bidirectional: bool,
    behind: int,
    n_rotated: int | None,
    past: int,
    future: int,
    size: int,
    flags: Bool[Array, "*b m"],
) -> tuple[Float[jax.Array, "*b l h v"], Bool[jax.Array, "*b l"]]:
    """Attention of each step to its own window, previous ones and the next one.

    Args:
      q: Scaled queries, ``(*b, l, h, k)``.
      k: Keys: ``past`` steps before the first query, then those of the queries, padded
        to ``past + blocks * size + future`` steps.
      v: Values of the keys.
      queries: Positions of the queries.
      keys: Positions of the keys.
      bidirectional: Whether a step attends to later steps, and to the next window.
      behind: Number of earlier windows that a step attends to.
      n_rotated: Number of channels of each head that are rotated, the first ones. None
        means all.
      past: Number of keys before a block to which its queries may attend.
      future: Number of keys after a block to which its queries may attend.
      size: Number of queries per block.
      flags: Flags of keys, ``(*b, m)``.

    Returns:
      ``(y, seen)``: means of the values, ``(*b, l, h, v)``, and whether a step attends
      to a flagged one, ``(*b, l)``. Time grows with ``l``.
    """
    span = past + size + future

    def slice_keys(array, start, axis):
        return jax.lax.dynamic_slice_in_dim(array, start, span, axis)

    def rotate_first(x, first=0):
        if n_rotated is None:
            return rotate(x, first)
        rotated = rotate(x[..., :n_rotated], first)
        return jnp.concatenate([rotated, x[..., n_rotated:]], -1)

    def visible_from(start):
        steps = start + jnp.arange(size)
        segment, window = (
            jnp.take(values, steps, axis=-1, mode="clip")[..., :, None]
            for values in queries
        )
        key_segment, key_window = (
            slice_keys(values, start, values.ndim - 1)[..., None, :] for values in keys
        )
        visible = (key_segment == segment) & (key_window >= window - behind)
        if bidirectional:
            visible &= key_window <= window + 1
        else:
            not_future = jnp.arange(span)[None] <= past + jnp.arange(size)[:, None]
            visible &= jax.lax.broadcast_to_rank(not_future, visible.ndim)
        return visible

    def flagged_from(start):
        key_flags = slice_keys(flags, start, flags.ndim - 1)
        return visible_from(start) & key_flags[..., None, :]

    def block(start, q):
        # Positions within the block: only their differences matter, so that the angles
        # do not grow with the length.
        block_keys = rotate_first(slice_keys(k, start, k.ndim - 3))
        block_values = slice_keys(v, start, v.ndim - 3)
        queries = rotate_first(q, past)
        return attend(queries, block_keys, block_values, visible_from(start))

    seen = _attends_to_flagged(flagged_from, flags, q, size)
    return _map_blocks(block, q, size), seen


def _attends_to_flagged(flagged_from, flags, q, size):
    """Whether each step attends to a flagged key, ``(*b, l)``, of ``q`` in blocks."""
    # Not `zeros`, which in `shard_map` would vary over no axes.
    none = (q[..., :1, :1] != q[..., :1, :1]) & False

    def block(start, none):
        seen = jnp.any(flagged_from(start), -1)[..., None, None]
        return seen | none

    def find_flagged(none):
        return _map_blocks(block, none, size)

    # Mostly no key is flagged.
    return jax.lax.cond(jnp.any(flags), find_flagged, lambda none: none, none)[
        ..., 0, 0
    ]


def _map_blocks(
    block: Callable[[Array, Array], jax.Array], q: Array, size: int
) -> jax.Array:
    """Evaluates ``block(first step, queries)`` on consecutive blocks of queries."""
    length, axis = q.shape[-3], q.ndim - 3
    if length == size:
        return block(jnp.array(0), q)
    q = split_chunks(q, axis=axis, size=size)
    starts = size * jnp.arange(len(q))
    # The gradient forms the weights of a block again, instead of storing all of them.
    y = jax.lax.map(lambda args: jax.checkpoint(block)(*args), (starts, q))
    return join_chunks(y, axis=axis, length=length)
