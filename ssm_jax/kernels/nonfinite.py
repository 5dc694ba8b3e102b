"""Containment of values that are not finite, in causal maps and in segments.

An FFT, and a product with a triangular matrix, multiply inputs by weights that are zero
or cancel. ``0 * inf`` is NaN, so that one infinite input would reach every output.

A reset separates segments by selection, so that a state which is not finite does not
cross it. In a gradient selection is not enough: a parameter is multiplied with what the
other segments hold. In both cases values that are not finite are replaced by zeros
before an evaluation, and what they reach is set to NaN after it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ssm_jax.kernels.axes import match_varying_axes
from ssm_jax.types import Array, Bool, Inexact, Steps

Convolve = Callable[[Inexact[Array, "*b l d"]], Inexact[Array, "*b l d"]]


def contain_nonfinite(
    convolve: Convolve, u: Inexact[Array, "*b l d"], taps: int | None = None
) -> Inexact[Array, "*b l d"]:
    """Applies a causal convolution; inputs that are not finite reach no earlier step.

    Args:
      convolve: Convolution of each channel over the axis before the last.
      u: Inputs, ``(*b, l, d)``.
      taps: Number of steps that an input reaches, its own included. None means all
        later steps.

    Returns:
      ``convolve(u)``, and NaN at the steps of a channel that an input reaches which is
      not finite. Other steps, sequences and channels do not depend on such inputs.

    Example:
      >>> def total(u):  # A product with a matrix of ones and zeros.
      ...     return jnp.tril(jnp.ones((4, 4))) @ u
      >>> u = jnp.array([1.0, 1.0, jnp.inf, 1.0])[:, None]
      >>> print(total(u)[:, 0], contain_nonfinite(total, u)[:, 0])
      [nan nan inf inf] [ 1.  2. nan nan]
    """
    finite, length = jnp.isfinite(u), u.shape[-2]
    y = convolve(jnp.where(finite, u, 0))
    step = jax.lax.broadcast_to_rank(jnp.arange(length)[:, None], u.ndim)
    if taps is None or taps >= length:
        first = jnp.min(jnp.where(finite, length, step), -2, keepdims=True)
        return jnp.where(step >= first, jnp.nan, y)

    def mark_reached(y):
        return jnp.where(reached(~finite, taps=taps), jnp.nan, y)

    # A cumulative maximum would take half as long as the FFT.
    return jax.lax.cond(all_finite(u), lambda y: y, mark_reached, y)


def all_finite(values: Inexact[Array, "..."]) -> Bool[jax.Array, ""]:
    """Returns whether no value is infinite or NaN."""
    # On CPUs a maximum, which is NaN if a value is, takes a third of the time of `all`.
    return jnp.max(jnp.abs(values)) < jnp.inf


def reached(
    flags: Bool[Array, "*b l n"],
    reset: Steps | None = None,
    before: Bool[Array, "*b n"] | None = None,
    *,
    taps: int | None = None,
    axis_name: str | None = None,
    reverse: bool = False,
) -> Bool[jax.Array, "*b l n"]:
    """Returns the flagged steps and the later ones of their segments.

    Args:
      flags: ``(*b, l, n)``.
      reset: True where a segment starts, ``(*b, l)``. None means one segment.
      before: Whether the state before the first step is flagged, ``(*b, n)``.
      taps: Number of steps that a step reaches, including itself. None: all.
      axis_name: Name of the mapped axis that the length is sharded over, or None.
      reverse: Whether a step reaches earlier steps instead of later ones.

    Returns:
      ``(*b, l, n)``.

    Example:
      >>> flags, reset = jnp.arange(5) == 1, jnp.arange(5) == 3
      >>> print(reached(flags[:, None], reset)[:, 0])
      [False  True  True False False]
    """
    length, axis = flags.shape[-2], flags.ndim - 2
    if reverse:
        flags = jnp.flip(flags, -2)
        if reset is not None:
            # In reverse order a segment starts at its last step.
            reset = jnp.flip(last_of_segments(reset, axis_name), -1)
    first, earlier = 0, None
    if axis_name is not None:
        n, place = jax.lax.axis_size(axis_name), jax.lax.axis_index(axis_name)
        first = length * (n - 1 - place if reverse else place)
        pieces = jnp.arange(n, dtype=jnp.int32)
        earlier = pieces > place if reverse else pieces < place
        earlier = earlier.reshape(-1, *(1,) * flags.ndim)

    def latest_flag(flags, none):
        """Step of the latest flag so far, ``none`` before the first."""
        latest = jnp.where(flags, steps, none)
        latest = jax.lax.cummax(latest, axis=axis)
        if earlier is None:
            return latest
        ends = jax.lax.all_gather(latest[..., -1:, :], axis_name)
        return jnp.maximum(latest, jnp.max(jnp.where(earlier, ends, none), 0))

    # The state before the first step counts as step -1 of the first segment.
    steps = first + jnp.arange(length, dtype=jnp.int32)
    steps = steps.reshape((1,) * axis + (length, 1))
    latest = latest_flag(flags, -2)
    if before is not None:
        latest = jnp.maximum(latest, jnp.where(before, -1, -2)[..., None, :])
    start = -1 if reset is None else latest_flag(reset[..., None], -1)
    if taps is not None:
        start = jnp.maximum(start, steps - taps + 1)
    result = latest >= start
    return jnp.flip(result, -2) if reverse else result


def propagate_flags(
    flags: Bool[Array, "*b l n"],
    before: Bool[Array, "*b n"],
    reset: Steps | None,
    *,
    bidirectional: bool = False,
    axis_name: str | None = None,
) -> tuple[Bool[jax.Array, "*b l n"], Bool[jax.Array, "*b n"]]:
    """Returns the steps that flagged ones reach, and whether they reach the last state.

    Args:
      flags: ``(*b, l, n)``.
      before: Whether the state before the first step is flagged, ``(*b, n)``.
      reset: True where a segment starts, ``(*b, l)``. None means one segment.
      bidirectional: Whether a step also reaches the earlier ones of its segment.
      axis_name: Name of the mapped axis that the length is sharded over, or None.

    Returns:
      ``(*b, l, n)`` and ``(*b, n)``.
    """

    def propagate(flags, before):
        steps = reached(flags, reset, before, axis_name=axis_name)
        if bidirectional:
            steps |= reached(flags, reset, axis_name=axis_name, reverse=True)
        return steps, steps[..., -1, :]

    if axis_name is None:
        # Mostly all values are finite, and the scans over the length are skipped.
        some = jnp.any(flags) | jnp.any(before)
        return jax.lax.cond(some, propagate, lambda *flags: flags, flags, before)
    steps, last = propagate(flags, before)
    is_last = jax.lax.axis_index(axis_name) + 1 == jax.lax.axis_size(axis_name)
    return steps, jax.lax.psum((last & is_last).astype(jnp.int32), axis_name) > 0


def last_of_segments(
    reset: Steps, axis_name: str | None = None
) -> Bool[jax.Array, "*b l"]:
    """Flags the last step of each segment that another one follows.

    Args:
      reset: True where a segment starts, ``(*b, l)``.
      axis_name: Name of the mapped axis that the length is sharded over, or None.

    Returns:
      ``(*b, l)``.
    """
    after = jnp.zeros_like(reset[..., :1])
    if axis_name is not None:
        n = jax.lax.axis_size(axis_name)
        pairs = [(i + 1, i) for i in range(n - 1)]
        first = reset[..., :1].astype(jnp.int32)
        after = jax.lax.ppermute(first, axis_name, pairs) > 0
    return jnp.concatenate([reset[..., 1:], after], -1)


def nan_where(
    flags: Bool[Array, "*#n"], values: Inexact[Array, "*n"]
) -> Inexact[jax.Array, "*n"]:
    """Returns NaN at the flags and ``values`` elsewhere.

    The gradient is NaN if it depends on a flagged value, as it is where NaN is
    computed, and has no part of those that it does not depend on.

    Args:
      flags: ``(*n,)``, or axes of 1.
      values: ``(*n,)``.
    """
    # Inside `shard_map` the map is transposed as it was traced, with equal types.
    flags, values = match_varying_axes(flags, values)

    def solve(_, values):
        return jnp.where(flags, jnp.nan, values)

    def transposed(_, gradient):
        return jnp.where(flags & (gradient != 0), jnp.nan, gradient)

    # A linear map whose transpose is another than that of the selection.
    return jax.lax.custom_linear_solve(lambda v: v, values, solve, transposed)
