"""Evaluates segments so that one which is not finite leaves the others as they are."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.axes import pad_axis
from ssm_jax.kernels.nonfinite import nan_where, reached
from ssm_jax.kernels.recurrence import match_varying_axes
from ssm_jax.kernels.sharding import broadcast_to_steps
from ssm_jax.types import Array, Bool, Float, Outputs, PyTree, Steps


class Reached(NamedTuple):
    """What values that are not finite reach.

    Attributes:
      steps: Outputs at valid steps, ``(*b, l, n)``, ``n`` the number of channels or 1.
      last: The final state, ``(*b, n)``.
    """

    steps: Bool[Array, "*b l n"]
    last: Bool[Array, "*b n"]


class FiniteInputs(NamedTuple):
    """Inputs without the values that are not finite, and what these reach.

    Attributes:
      x: The input, with resets zeros in place of values that are not finite.
      state: The state, likewise.
      reached: ``bidirectional -> Reached``. None without resets.
    """

    x: Array
    state: PyTree
    reached: Callable[[bool], Reached] | None = None

    def nan_outputs(
        self,
        y: Outputs,
        state: PyTree,
        *,
        bidirectional: bool | None = None,
        select: Callable[[Array], Array] | None = None,
    ) -> tuple[Outputs, PyTree]:
        """Returns outputs and final state, NaN where values that are not finite reach.

        Args:
          y: Outputs, ``(*b, l, o)``; ``o`` is ``d`` with ``per_channel``.
          state: Final state, leaves ``(*b, ...)``, or None.
          bidirectional: Whether outputs depend on later steps of the segment. None
            means that they do if there is no state, or one of them is None.
          select: Selects the steps that ``y`` has, ``(*b, l, n) -> (*b, k, n)``. None:
            all.
        """
        if self.reached is None:
            return y, state
        if bidirectional is None:
            leaves = jax.tree.leaves(state, is_leaf=lambda leaf: leaf is None)
            bidirectional = not leaves or any(leaf is None for leaf in leaves)
        steps, last = self.reached(bidirectional)
        if select is not None:
            steps = select(steps.astype(jnp.float32)) > 0

        def of_leaf(leaf):
            # One flag of all channels, or one of each.
            of_rows = last[..., 0] if last.shape[-1] == 1 else last
            axes = tuple(range(of_rows.ndim, leaf.ndim))
            return nan_where(jnp.expand_dims(of_rows, axes), leaf)

        return nan_where(steps, y), jax.tree.map(of_leaf, state)


def finite_inputs(
    x: Array,
    state: PyTree,
    reset: Steps | None,
    mask: Steps | None = None,
    *,
    per_channel: bool = False,
    axis_name: str | None = None,
) -> FiniteInputs:
    """Replaces values that are not finite by zeros, if there are resets.

    With resets, a value of the input or of the state that is not finite makes the
    outputs NaN from its step to the end of its segment, and the final state if it is in
    the last one; `FiniteInputs.nan_outputs` does so after the evaluation. Values and
    gradients of other segments are those without it. A selection at the reset alone
    would leave the gradient of a parameter NaN, which is a sum of products over all
    steps.

    Args:
      x: Input, ``(*b, l, d)``.
      state: State before the first step, leaves ``(*b, ...)``, or None.
      reset: True where a segment starts, ``(*b, l)`` or ``(l,)``. None: one segment,
        whose values are left as they are.
      mask: True at valid steps, ``(*b, l)`` or ``(l,)``. None means all steps. Values
        at padding reach nothing.
      per_channel: Whether a channel depends on no other one. The leaves of ``state``
        are then ``(*b, d, ...)``.
      axis_name: Name of the mapped axis that the length is sharded over, or None.
    """
    if reset is None:
        return FiniteInputs(x, state)
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
    # Not `zeros`, which in `shard_map` would vary over no axes.
    before = bad[..., 0, :] & False
    kept = before.ndim if per_channel else before.ndim - 1
    for leaf in jax.tree.leaves(state):
        if jnp.shape(leaf)[:kept] != before.shape[:kept]:
            continue  # Of no state of these rows, which the evaluation refuses.
        of_leaf = jnp.any(~jnp.isfinite(leaf), tuple(range(kept, leaf.ndim)))
        before |= of_leaf if per_channel else of_leaf[..., None]

    def all_reached(bidirectional):
        def later(bad, before):
            found = reached(bad, reset, before, axis_name=axis_name)
            if bidirectional:
                found |= reached(bad, reset, axis_name=axis_name, reverse=True)
            return found, found[..., -1, :]

        if axis_name is None:
            # Mostly all values are finite, and the scans over the length are skipped.
            some = jnp.any(bad) | jnp.any(before)
            found, last = jax.lax.cond(some, later, lambda *flags: flags, bad, before)
        else:
            found, last = later(bad, before)
            is_last = jax.lax.axis_index(axis_name) + 1 == jax.lax.axis_size(axis_name)
            last = jax.lax.psum((last & is_last).astype(jnp.int32), axis_name) > 0
        return Reached(found if valid is None else found & valid, last)

    return FiniteInputs(_zeroed(x), jax.tree.map(_zeroed, state), all_reached)


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
        ``inputs`` are returned as they are.
      taps: Number of steps that an input reaches, including its own.
      ahead: Number of earlier steps that it reaches, which see it as a future one.

    Returns:
      ``(inputs, reached)``, with zeros in place of values that are not finite, and the
      outputs that these reach within their segment, ``(*b, l, d)``, or None.
    """
    if reset is None:
        return inputs, None
    length = reset.shape[-1]
    reset = pad_axis(reset, -1, before=inputs.shape[-2] - length)
    inputs, reset = match_varying_axes(inputs, reset)

    def within(bad):
        found = reached(bad, reset, taps=taps)
        if ahead:
            found |= reached(bad, reset, taps=ahead + 1, reverse=True)
        return found

    bad = ~jnp.isfinite(inputs)
    found = jax.lax.cond(jnp.any(bad), within, lambda bad: bad, bad)
    return jnp.where(bad, 0, inputs), found[..., -length:, :]


def _zeroed(values):
    return jnp.where(jnp.isfinite(values), values, 0)
