"""Segments of which one that is not finite leaves the others as they are."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.axes import match_varying_axes, pad_axis
from ssm_jax.kernels.nonfinite import nan_where, propagate_flags, reached
from ssm_jax.kernels.sharding import broadcast_to_steps
from ssm_jax.types import Array, Bool, Float, Inexact, PyTree, Steps

# Inside an evaluation of which segments are isolated, its parts need not do it again.
_ISOLATED = jax.make_user_context(False)

# Of all steps, of some of them or of rows.
Predictions = Inexact[Array, "..."]
Run = Callable[[Array, PyTree], tuple[Any, Any]]


class IsolatedSegments(NamedTuple):
    """The arguments of an evaluation, and what values that are not finite reach.

    Attributes:
      x: The input, zeros in place of values that are not finite.
      state: The state, likewise.
      reached: ``bidirectional -> (steps, last)``: flags of the outputs, ``(*b, l, n)``,
        and of the final state, ``(*b, n)``; ``n`` is the number of channels or 1. None
        if values are left as they are.
    """

    x: Array
    state: PyTree
    reached: Callable[[bool], tuple[Array, Array]] | None = None

    def evaluation(self) -> AbstractContextManager[None]:
        """A context in which parts of the evaluation leave their values as they are."""
        return _ISOLATED(_ISOLATED.value or self.reached is not None)

    def nan_outputs(
        self,
        y: Predictions,
        state: PyTree,
        *,
        bidirectional: bool | None = None,
        select: Callable[[Array, Predictions], Array] | None = None,
    ) -> tuple[Predictions, PyTree]:
        """Returns outputs and final state, NaN where values that are not finite reach.

        Args:
          y: Outputs.
          state: Final state, leaves ``(*b, ...)``, or None.
          bidirectional: As for `isolate_segments`.
          select: As for `isolate_segments`.
        """
        if self.reached is None:
            return y, state
        if bidirectional is None:
            leaves = jax.tree.leaves(state, is_leaf=lambda leaf: leaf is None)
            bidirectional = not leaves or any(leaf is None for leaf in leaves)
        steps, last = self.reached(bidirectional)
        if select is not None:
            steps = select(steps.astype(jnp.float32), y) > 0

        def mark_leaf(leaf):
            # One flag of all channels, or one of each.
            flags = last[..., 0] if last.shape[-1] == 1 else last
            axes = tuple(range(flags.ndim, leaf.ndim))
            return nan_where(jnp.expand_dims(flags, axes), leaf)

        return nan_where(steps, y), jax.tree.map(mark_leaf, state)


def isolated_segments(
    x: Array,
    state: PyTree,
    reset: Steps | None,
    mask: Steps | None = None,
    *,
    per_channel: bool = False,
    axis_name: str | None = None,
) -> IsolatedSegments:
    """Replaces values that are not finite by zeros; arguments as `isolate_segments`."""
    if reset is None or _ISOLATED.value:
        return IsolatedSegments(x, state)
    check_floating("x", x)
    steps = x.shape[:-1]
    for name, flags in (("reset", reset), ("mask", mask)):
        check_flags(name, flags, steps, steps[-1:])
    reset = broadcast_to_steps(reset, x)
    valid = None if mask is None else broadcast_to_steps(mask, x)[..., None]
    x, state, reset, valid = match_varying_axes(jnp.asarray(x), state, reset, valid)
    bad = ~jnp.isfinite(x)
    bad = bad if per_channel else jnp.any(bad, -1, keepdims=True)
    if valid is not None:
        bad &= valid
    before = _rows_not_finite(state, bad[..., 0, :], per_channel)

    def propagate(bidirectional):
        options = {"bidirectional": bidirectional, "axis_name": axis_name}
        steps, last = propagate_flags(bad, before, reset, **options)
        return steps if valid is None else steps & valid, last

    return IsolatedSegments(
        _zero_nonfinite(x), jax.tree.map(_zero_nonfinite, state), propagate
    )


def isolate_segments(
    run: Run,
    x: Array,
    state: PyTree,
    reset: Steps | None,
    mask: Steps | None = None,
    *,
    per_channel: bool = False,
    axis_name: str | None = None,
    bidirectional: bool | None = None,
    select: Callable[[Array, Predictions], Array] | None = None,
) -> tuple[Predictions, PyTree]:
    """Evaluates segments so that one which is not finite leaves the others as they are.

    With resets, a value of the input or of the state that is not finite makes the
    outputs NaN from its step to the end of its segment, and the final state if it is in
    the last one. Values and gradients of other segments are those without it: ``run``
    receives zeros in place of such values. A selection at the reset alone would leave
    the gradient of a parameter NaN, which is a sum of products over all steps.

    The outermost of nested evaluations does so; the others pass their values on.

    Args:
      run: ``(x, state) -> (y, state)``: outputs, ``(*b, l, o)``, ``o = d`` with
        ``per_channel``, or what ``select`` relates to the steps; and the final state,
        leaves ``(*b, ...)``, or None.
      x: Input, ``(*b, l, d)``.
      state: State before the first step, leaves ``(*b, ...)``, or None.
      reset: True where a segment starts, ``(*b, l)`` or ``(l,)``. None: one segment,
        whose values are left as they are.
      mask: True at valid steps, ``(*b, l)`` or ``(l,)``. None means all steps. Values
        at padding reach nothing.
      per_channel: Whether a channel depends on no other one. The leaves of ``state``
        are then ``(*b, d, ...)``.
      axis_name: Name of the mapped axis that the length is sharded over, or None.
      bidirectional: Whether outputs depend on later steps of the segment. None means
        that they do if there is no final state, or one of them is None.
      select: ``(steps, y) -> steps``: selects, of numbers at all steps, ``(*b, l, n)``,
        those of the outputs ``y``, whose shape they broadcast to. None: all.

    Returns:
      The results of ``run``.
    """
    options = {"per_channel": per_channel, "axis_name": axis_name}
    segments = isolated_segments(x, state, reset, mask, **options)
    with segments.evaluation():
        y, last = run(segments.x, segments.state)
    return segments.nan_outputs(y, last, bidirectional=bidirectional, select=select)


def _rows_not_finite(state, like, per_channel):
    """Flags of rows, or of their channels, whose state is not finite."""
    # Not `zeros`, which in `shard_map` would vary over no axes.
    flags = like & False
    n_axes = flags.ndim if per_channel else flags.ndim - 1
    for leaf in jax.tree.leaves(state):
        if jnp.shape(leaf)[:n_axes] != flags.shape[:n_axes]:
            continue  # Of no state of these rows, which the evaluation refuses.
        leaf_flags = jnp.any(~jnp.isfinite(leaf), tuple(range(n_axes, leaf.ndim)))
        flags |= leaf_flags if per_channel else leaf_flags[..., None]
    return flags


def finite_taps(
    inputs: Float[Array, "*b m d"],
    reset: Steps | None,
    taps: int,
    *,
    ahead: int = 0,
) -> tuple[Float[Array, "*b m d"], Bool[Array, "*b l d"] | None]:
    """Returns the inputs of a convolution without the values that are not finite.

    Args:
      inputs: Inputs before the first step and at all steps, ``(*b, m, d)``.
      reset: True where a segment starts, ``(*b, l)``, at the last ``l`` of them. None:
        ``inputs`` are returned as they are, and inside `isolate_segments`.
      taps: Number of steps that an input reaches, including its own.
      ahead: Number of earlier steps that it reaches, which see it as a future one.

    Returns:
      ``(inputs, reached)``, with zeros in place of values that are not finite, and the
      outputs that these reach within their segment, ``(*b, l, d)``, or None.
    """
    if reset is None or _ISOLATED.value:
        return inputs, None
    length = reset.shape[-1]
    reset = pad_axis(reset, -1, before=inputs.shape[-2] - length)
    inputs, reset = match_varying_axes(inputs, reset)

    def propagate(bad):
        is_reached = reached(bad, reset, taps=taps)
        if ahead:
            is_reached |= reached(bad, reset, taps=ahead + 1, reverse=True)
        return is_reached

    bad = ~jnp.isfinite(inputs)
    is_reached = jax.lax.cond(jnp.any(bad), propagate, lambda bad: bad, bad)
    return jnp.where(bad, 0, inputs), is_reached[..., -length:, :]


def _zero_nonfinite(values):
    return jnp.where(jnp.isfinite(values), values, 0)
