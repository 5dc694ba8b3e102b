"""Padding: left-aligns valid steps before a recurrence and scatters outputs back."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.kernels.axes import pad_axis
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.sharding import broadcast_to_steps
from ssm_jax.recurrences.families.nonfinite import IsolatedSegments, isolated_segments
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
    per_channel: bool = False,
    isolated: bool = True,
) -> tuple[Any, ...]:
    """Runs a recurrence on the valid steps of each row.

    Outputs and states do not depend on the padding, nor on values of other segments
    that are not finite, as `isolate_segments` describes.

    Args:
      run: ``(x, state, reset, lengths) -> (y, state, *more)``, for sequences with the
        valid steps first and zeros after them. ``lengths``, ``(*b,)``, is the number
        of valid steps, None if all are. The state is the one after the last valid step.
      x: Sequences, ``(*b, l, d)``.
      state: State before the first step, batch axes first, or None.
      reset: True where a segment starts, ``(*b, l)`` or, for all rows, ``(l,)``, or
        None; ``run`` receives it broadcast to all rows.
      mask: True at valid steps, ``(*b, l)``. None means that all steps are valid.
      last_only: Whether ``run`` returns only the output of the last valid step,
        ``(*b, 1, d)``, and so does this function; zeros for a row without valid steps.
      per_channel: Whether a channel depends on no other one; see `isolate_segments`.
      isolated: Whether values that are not finite are kept from ``run``, if there are
        resets. False if ``run`` itself keeps them from other segments.

    Returns:
      ``(y, state, *more)``: outputs at their steps, in the dtype of ``x``, zeros on
      padding; the state returned by ``run``, zeros where a segment starts after the
      last valid step; and the further results of ``run``.
    """
    # NumPy's float64 becomes the dtype that JAX computes in.
    segments = IsolatedSegments(jnp.asarray(x), state)
    if isolated:
        segments = isolated_segments(
            segments.x, state, reset, mask, per_channel=per_channel
        )
    x, state, _ = segments
    reset_after = reset_padding(reset, mask)
    aligned, reset, lengths, positions = left_align(x, reset, mask)
    # Not a function of its own, which would be a frame of each scan.
    with segments.evaluation():
        y, state, *more = run(aligned, state, reset, lengths)
    if not last_only:
        y = scatter_back(y, mask, positions)
    elif lengths is not None:
        y = jnp.where(lengths[..., None, None] > 0, y, 0)
    if state is not None and reset_after is not None:
        # `left_align` drops a reset that no valid step follows; it still clears the
        # state with which the next call continues.
        axes = tuple(range(reset_after.ndim, state.ndim))
        state = jnp.where(jnp.expand_dims(reset_after, axes), 0, state)
    select = (lambda steps, _: last_valid(steps, mask)) if last_only else None
    return *segments.nan_outputs(y.astype(x.dtype), state, select=select), *more


def left_align(
    x: Activations, reset: Steps | None, mask: Steps | None
) -> tuple[
    Activations, Steps | None, Int[Array, "*b"] | None, Int[Array, "*b l"] | None
]:
    """Moves the valid steps of each row to its front, in order, followed by zeros.

    Args:
      x: Sequences, ``(*b, l, d)``.
      reset: True where a segment starts, ``(*b, l)`` or ``(l,)``, or None. A reset
        on padding moves to the next valid step.
      mask: True at valid steps, ``(*b, l)``. None means that all steps are valid.

    Returns:
      ``(x, reset, lengths, positions)``: the aligned sequences and resets, the number
      of valid steps of each row, ``(*b,)``, and the new position of each step,
      ``(*b, l)``. The last two are None if ``mask`` is None.
    """
    if reset is not None:
        reset = broadcast_to_steps(reset, x)
    if mask is None:
        return jnp.asarray(x), reset, None, None
    mask = broadcast_to_steps(mask, x)
    lengths = jnp.sum(mask, axis=-1)
    # Valid and padded steps each keep their order: the positions are a permutation.
    after_valid = lengths[..., None] + jnp.cumsum(~mask, -1)
    positions = jnp.where(mask, jnp.cumsum(mask, -1), after_valid) - 1
    # Padding may hold any values, also NaN, which zero weights would not remove.
    x = jnp.where(mask[..., None], x, 0)
    if reset is None:
        x = _permute(x, positions, inverse=False)
    else:
        # A segment number, unlike a flag, survives when the flagged step is padding.
        segment = jnp.cumsum(reset, -1)
        x, segment = _permute((x, segment[..., None]), positions, inverse=False)
        segment = segment[..., 0]
        previous = pad_axis(segment[..., :-1], -1, before=1)
        reset = segment != previous
    return x, reset, lengths, positions


def scatter_back(
    y: Outputs, mask: Steps | None, positions: Int[Array, "*b l"] | None
) -> Outputs:
    """Moves the outputs of left-aligned sequences back to their steps.

    Args:
      y: Outputs, ``(*b, l, d)``, valid steps first.
      mask: The mask given to `left_align`.
      positions: The positions returned by `left_align`.

    Returns:
      Outputs at their steps, ``(*b, l, d)``; zeros at padded steps.
    """
    if mask is None or positions is None:
        return y
    y = _permute(y, positions, inverse=True)
    return jnp.where(broadcast_to_steps(mask, y)[..., None], y, 0)


def last_valid(y: Outputs, mask: Steps | None) -> Float[Array, "*b 1 o"]:
    """Returns the output of the last valid step of each row.

    Args:
      y: Outputs at their steps, ``(*b, l, d)``.
      mask: True at valid steps, ``(*b, l)``. None means that all steps are valid.

    Returns:
      ``(*b, 1, d)``; zeros for a row without valid steps.
    """
    if mask is None:
        return y[..., -1:, :]
    mask = broadcast_to_steps(mask, y)
    steps = jnp.where(mask, jnp.arange(y.shape[-2]), -1)
    # A row without valid steps has the index -1, which would read its end.
    index = jnp.max(steps, -1)[..., None, None]
    last = jnp.take_along_axis(y, jnp.maximum(index, 0), -2)
    return jnp.where(index >= 0, last, 0)


def _permute(values, positions, *, inverse):
    """Moves each step to its position, or back if ``inverse``."""

    def move(values):
        # A gather by `positions` moves outputs back, by its inverse inputs forward.
        index = (positions if inverse else jnp.argsort(positions, axis=-1))[..., None]
        return jax.tree.map(lambda leaf: jnp.take_along_axis(leaf, index, -2), values)

    # Rows that are padded only at their end are the common case and need no gather.
    aligned = jnp.all(
        positions == promoted_like(jnp.arange(positions.shape[-1]), positions)
    )
    return jax.lax.cond(aligned, lambda values: values, move, values)


def reset_padding(reset: Steps | None, mask: Steps | None) -> Bool[Array, "*b"] | None:
    """Returns whether a reset falls on the padding after the last valid step of a row.

    Args:
      reset: True where a segment starts, ``(*b, l)``, or None.
      mask: True at valid steps, ``(*b, l)``, or None.

    Returns:
      ``(*b,)``; None if either argument is None: then no reset is dropped.
    """
    if reset is None or mask is None:
        return None
    # A reset after the last valid step raises the count beyond the valid ones.
    segment = jnp.cumsum(reset, -1)
    return segment[..., -1] > jnp.max(jnp.where(mask, segment, 0), -1)


def state_after(h: States, h0: State | None, lengths: Int[Array, "*b"] | None) -> State:
    """Returns the state after the last valid step of each row.

    Args:
      h: States after each step, ``(*b, l, n)``, valid steps first.
      h0: State before the first step, ``(*b, n)``. None means zeros.
      lengths: Number of valid steps of each row, ``(*b,)``. None means that all steps
        are valid.

    Returns:
      ``(*b, n)``; ``h0`` for a row without valid steps.
    """
    if lengths is None:
        return h[..., -1, :]
    # Clipped for rows without valid steps, whose result is `h0`.
    index = jnp.maximum(lengths - 1, 0)[..., None, None]
    last = jnp.take_along_axis(h, index, -2)[..., 0, :]
    h0 = jnp.zeros_like(last) if h0 is None else h0
    return jnp.where(lengths[..., None] > 0, last, h0)
