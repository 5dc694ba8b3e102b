"""Padding: steps that are no data are moved out of the way, and back afterwards."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.types import (
    Activations,
    Array,
    Bool,
    Float,
    Int,
    Outputs,
    State,
    States,
    Steps,
)


def apply_to_valid_steps(
    run: Callable[..., tuple[Any, ...]],
    x: Activations,
    state: Array | None,
    reset: Steps | None,
    mask: Steps | None,
    *,
    last_only: bool = False,
) -> tuple[Any, ...]:
    """Runs a recurrence on the data of each row, as if the padding were not there.

    Args:
      run: ``(x, state, reset, lengths) -> (y, state, *more)``, of sequences with the
        data first, zeros behind them, and ``lengths`` ``(*b,)`` of them or None for
        all; the state is the one after the last data.
      x: Sequences, ``(*b, l, d)``.
      state: State before the first step, batch axes first, or None.
      reset: True where a segment starts, ``(*b, l)`` or, for all rows, ``(l,)``, or
        None; ``run`` gets it of all rows.
      mask: True where a step is data, ``(*b, l)``. None means all are.
      last_only: Whether ``run`` gives the output of the last data alone, ``(*b, 1, d)``,
        and so does this; zeros for a row without data.

    Returns:
      ``(y, state, *more)``: outputs at their steps, in the dtype of ``x``, zeros on
      padding; the state that ``run`` gives, zeros where a segment starts behind the
      data; and whatever else ``run`` gives.
    """
    fresh = reset_padding(reset, mask)
    data, reset, lengths, places = left_align(x, reset, mask)
    y, state, *more = run(data, state, reset, lengths)
    if not last_only:
        y = scatter_back(y, mask, places)
    elif lengths is not None:
        y = jnp.where(lengths[..., None, None] > 0, y, 0)
    if state is not None and fresh is not None:
        fresh = jnp.expand_dims(fresh, tuple(range(fresh.ndim, state.ndim)))
        state = jnp.where(fresh, 0, state)
    return y.astype(x.dtype), state, *more


def left_align(
    x: Activations, reset: Steps | None, mask: Steps | None
) -> tuple[
    Activations, Steps | None, Int[Array, "*b"] | None, Int[Array, "*b l"] | None
]:
    """Moves the data of each row to its front, in order, and zeros behind them.

    Args:
      x: Sequences, ``(*b, l, d)``.
      reset: True where a segment starts, ``(*b, l)`` or ``(l,)``, or None. A start
        that falls on padding passes to the next data.
      mask: True where a step is data, ``(*b, l)``. None means all are.

    Returns:
      ``(x, reset, lengths, places)``: the sequences and starts, the number of data in
      each row, ``(*b,)``, and the place that each step went to, ``(*b, l)``; the last
      two are None if ``mask`` is.
    """
    if reset is not None:
        reset = jnp.broadcast_to(reset, x.shape[:-1])
    if mask is None:
        return jnp.asarray(x), reset, None, None
    mask = jnp.broadcast_to(mask, x.shape[:-1])
    lengths = jnp.sum(mask, axis=-1)
    behind = lengths[..., None] + jnp.cumsum(~mask, -1)
    places = jnp.where(mask, jnp.cumsum(mask, -1), behind) - 1
    x = jnp.where(mask[..., None], x, 0)
    if reset is None:
        x = _moved(x, places, back=False)
    else:
        segment = jnp.cumsum(reset, -1)
        x, segment = _moved((x, segment[..., None]), places, back=False)
        segment = segment[..., 0]
        before = jnp.pad(segment[..., :-1], [(0, 0)] * (segment.ndim - 1) + [(1, 0)])
        reset = segment != before
    return x, reset, lengths, places


def scatter_back(
    y: Outputs, mask: Steps | None, positions: Int[Array, "*b l"] | None
) -> Outputs:
    """Moves the outputs of `left_align` sequences back to their steps.

    Args:
      y: Outputs, ``(*b, l, d)``, data first.
      mask: As `left_align` took it.
      positions: As `left_align` gave them.

    Returns:
      Outputs at their steps, ``(*b, l, d)``; zeros where a step is no data.
    """
    if mask is None or positions is None:
        return y
    y = _moved(y, positions, back=True)
    return jnp.where(jnp.broadcast_to(mask, y.shape[:-1])[..., None], y, 0)


def last_valid(y: Outputs, mask: Steps | None) -> Float[Array, "*b 1 o"]:
    """The outputs of the last step of each row that is data.

    Args:
      y: Outputs at their steps, ``(*b, l, d)``.
      mask: True where a step is data, ``(*b, l)``. None means all are.

    Returns:
      ``(*b, 1, d)``; zeros for a row without data.
    """
    if mask is None:
        return y[..., -1:, :]
    mask = jnp.broadcast_to(mask, y.shape[:-1])
    steps = jnp.where(mask, jnp.arange(y.shape[-2]), -1)
    index = jnp.max(steps, -1)[..., None, None]
    last = jnp.take_along_axis(y, jnp.maximum(index, 0), -2)
    return jnp.where(index >= 0, last, 0)


def _moved(values, places, *, back):
    """Moves steps to their places, or back; padding behind the data costs nothing."""

    def move(values):
        index = (places if back else jnp.argsort(places, axis=-1))[..., None]
        return jax.tree.map(lambda leaf: jnp.take_along_axis(leaf, index, -2), values)

    in_place = jnp.all(places == jnp.arange(places.shape[-1]))
    return jax.lax.cond(in_place, lambda values: values, move, values)


def reset_padding(reset: Steps | None, mask: Steps | None) -> Bool[Array, "*b"] | None:
    """Whether a segment starts on padding behind the last data of a row.

    Args:
      reset: True where a segment starts, ``(*b, l)``, or None.
      mask: True where a step is data, ``(*b, l)``, or None.

    Returns:
      ``(*b,)``; None if either is None: then no start can be lost.
    """
    if reset is None or mask is None:
        return None
    segment = jnp.cumsum(reset, -1)
    return segment[..., -1] > jnp.max(jnp.where(mask, segment, 0), -1)


def state_after(
    h: States, before: State | None, lengths: Int[Array, "*b"] | None
) -> State:
    """The state after the data of each row.

    Args:
      h: States after each step, ``(*b, l, n)``, data first.
      before: The one before the first step, ``(*b, n)``. None means zeros.
      lengths: Steps of each row that are data, ``(*b,)``. None means all.

    Returns:
      ``(*b, n)``; of a row without data the state before it.
    """
    if lengths is None:
        return h[..., -1, :]
    index = jnp.maximum(lengths - 1, 0)[..., None, None]
    last = jnp.take_along_axis(h, index, -2)[..., 0, :]
    before = jnp.zeros_like(last) if before is None else before
    return jnp.where(lengths[..., None] > 0, last, before)
