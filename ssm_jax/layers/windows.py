"""Attention in windows of left-aligned sequences, with a cache of keys and values."""

from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.kernels.arguments import check_floating
from ssm_jax.kernels.axes import pad_axis, steps_from
from ssm_jax.kernels.nonfinite import nan_where
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.sharding import state_of_rows
from ssm_jax.layers.softmax import Positions, local_attention
from ssm_jax.types import Array, Bool, Float, Int

Cache = tuple[jax.Array, jax.Array, jax.Array]
"""Keys and values of the last steps, and the position of the next one."""


def initial_cache(
    batch_shape: tuple[int, ...], steps: int, heads: tuple[int, int]
) -> Cache:
    """Returns zeros, ``(*batch_shape, steps, *heads)`` twice and ``batch_shape``."""
    zeros = jnp.zeros((*batch_shape, steps, *heads))
    # The position is a float, so that gradients with respect to a state exist.
    return zeros, zeros, jnp.zeros(batch_shape)


def attend_in_windows(
    q: Float[Array, "*b l h k"],
    k: Float[Array, "*b l g k"],
    v: Float[Array, "*b l g k"],
    cache: Cache | None,
    *,
    window: int,
    behind: int = 1,
    n_rotated: int | None = None,
    bidirectional: bool,
    reset: Bool[Array, "*b l"] | None,
    lengths: Int[Array, "*b"] | None,
    finite: Bool[Array, "*b l"],
) -> tuple[Float[jax.Array, "*b l h k"], Bool[jax.Array, "*b l"], Cache | None]:
    """Attention of each step to its own window and its neighbours.

    Args:
      q: Scaled queries, ``(*b, l, h, k)``, valid steps first.
      k: Keys, ``(*b, l, g, k)``; see `attend` for fewer heads.
      v: Values, ``(*b, l, g, k)``.
      cache: Cache of ``(behind + 1) window`` steps before the first one. None means
        `initial_cache`.
      window: Length of a window; with windows of one step each attends to itself and
        the ``behind`` steps before it.
      behind: Number of earlier windows that a step attends to.
      n_rotated: As for `local_attention`.
      bidirectional: Whether a step attends to later steps, and to the next window.
      reset: True where a segment starts, ``(*b, l)``, or None.
      lengths: Number of valid steps of each row, ``(*b,)``. None: all are valid.
      finite: Whether the keys and values of a step are known, ``(*b, l)``. Others count
        as NaN, also those of the cache that are not finite.

    Returns:
      ``(y, reached, cache)``: means of the values, ``(*b, l, h, k)``, and whether they
      are NaN instead, ``(*b, l)``; and the cache after the last valid step, or None if
      ``bidirectional``.
    """
    *batch, length, heads, width = k.shape
    # A block of queries reaches one window further back, except where it begins with a
    # window because no segment starts elsewhere.
    cached_steps = reach = (behind + 1) * window
    size = min(max(behind, 1) * window, length)
    if cache is None:
        cache = initial_cache((*batch,), cached_steps, (heads, width))
        reach = min(reach, length)
        if reset is None:
            reach = behind * window if length > size else 0
    cached_k, cached_v, first = (
        state_of_rows(leaf, finite[..., None]) for leaf in cache
    )
    cached = jnp.isfinite(cached_k) & jnp.isfinite(cached_v)
    flags = ~jnp.concatenate([jnp.all(cached, (-2, -1)), finite], -1)
    k = jnp.concatenate([cached_k.astype(k.dtype), k], -3)
    v = jnp.concatenate([cached_v.astype(v.dtype), v], -3)
    # A weight of 0 would not hide values that are not finite.
    k, v = (jnp.where(flags[..., None, None], 0, values) for values in (k, v))
    lost, first = ~jnp.isfinite(first), jnp.where(jnp.isfinite(first), first, 0)
    position, segment = _positions(first, length, cached_steps, reset)
    last = None
    if not bidirectional:
        cache_k, cache_v = (
            nan_where(flags[..., None, None], values) for values in (k, v)
        )
        last = _last_cache(
            cache_k, cache_v, position, segment, (window, behind), lengths, lost
        )
    # Without a position nothing is known until a segment starts.
    is_lost = lost[..., None] & (segment[..., cached_steps:] <= 0)
    window_index = jnp.floor_divide(position, window)
    queries = Positions(segment[..., cached_steps:], window_index[..., cached_steps:])
    if lengths is not None:
        steps = jnp.arange(-cached_steps, length)
        steps = promoted_like(steps, lengths[..., None])
        segment = jnp.where(steps < lengths[..., None], segment, -1)
    past, future = reach, reach if bidirectional else 0
    begin, end = cached_steps - past, -length % size + future
    y, seen = local_attention(
        q,
        pad_axis(k[..., begin:, :, :], -3, after=end),
        pad_axis(v[..., begin:, :, :], -3, after=end),
        queries,
        Positions(
            pad_axis(segment[..., begin:], -1, after=end, constant_values=-1),
            pad_axis(window_index[..., begin:], -1, after=end),
        ),
        bidirectional=bidirectional,
        behind=behind,
        n_rotated=n_rotated,
        past=past,
        future=future,
        size=size,
        flags=pad_axis(flags[..., begin:], -1, after=end),
    )
    return y, seen | is_lost, last


def clear_cache(cache: Cache, rows: Bool[Array, "*b"] | None) -> Cache:
    """Returns the cache, with zeros in some rows; None means in none."""
    if rows is None:
        return cache

    def clear_leaf(leaf):
        return jnp.where(
            jnp.expand_dims(rows, tuple(range(rows.ndim, leaf.ndim))), 0, leaf
        )

    return jax.tree.map(clear_leaf, cache)


def check_cache(cache: Any, expected: tuple[Any, ...]) -> None:
    """Checks that a state is a cache of these shapes, of arrays or not.

    Raises:
      ValueError: It is not.
    """
    if not isinstance(cache, tuple) or len(cache) != len(expected):
        raise ValueError(
            "`state` must be the triple (keys, values, position), got "
            f"{type(cache).__name__}; `initial_state` returns one."
        )
    for leaf, like in zip(cache, expected, strict=True):
        check_floating("state", leaf)
        if leaf.shape != like.shape:
            raise ValueError(
                f"`state` must have leaves {[leaf.shape for leaf in expected]}, "
                f"got {leaf.shape}; `initial_state` returns one."
            )


def _positions(first, length, cached_steps, reset):
    """Position and segment of the cached steps, -1 without a step, and of all steps."""
    steps = jnp.arange(-cached_steps, length)
    position = first[..., None]
    position = position + promoted_like(steps, position)
    segment = jnp.where(position < 0, -1, 0)
    if reset is None:
        return position, segment
    reset = pad_axis(reset, -1, before=cached_steps)
    start = jax.lax.cummax(jnp.where(reset, steps, -1), axis=reset.ndim - 1)
    position_in_segment = (promoted_like(steps, start) - start).astype(position.dtype)
    position = jnp.where(start < 0, position, position_in_segment)
    return position, segment + jnp.cumsum(reset, -1)


def _last_cache(k, v, position, segment, windows, lengths, lost):
    """The cache after the last valid step, without a position where it is lost."""
    window, behind = windows
    size = (behind + 1) * window
    if lengths is None:
        lengths = jnp.full(k.shape[:-3], k.shape[-3] - size)
    # The cache shifts the steps by its size, so the final one starts at `lengths`.
    index = steps_from(lengths, size)
    position, segment = (
        jnp.take_along_axis(values, index, -1) for values in (position, segment)
    )
    next_position = position[..., -1] + 1
    # Whole windows that are out of reach are left out: the position stays exact.
    next_position = jnp.where(
        next_position < size, next_position, behind * window + next_position % window
    )
    # Steps before these windows and of other segments are zeroed, because the
    # next call has no access to these resets.
    ages = promoted_like(jnp.arange(size, 0, -1), next_position[..., None])
    is_visible = (segment == segment[..., -1:]) & (ages <= next_position[..., None])
    k, v = (
        jnp.where(
            is_visible[..., None, None],
            jnp.take_along_axis(values, index[..., None, None], -3),
            0,
        )
        for values in (k, v)
    )
    return k, v, nan_where(lost & (segment[..., -1] <= 0), next_position)
