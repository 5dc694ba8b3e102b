"""Containment of values that are not finite in causal maps of whole sequences.

An FFT, and a product with a triangular matrix, multiply inputs by weights that are zero
or cancel. ``0 * inf`` is NaN, so that one infinite input would reach every output.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ssm_jax.types import Array, Bool, Inexact

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
    step = jnp.arange(length)[:, None]
    if taps is None or taps >= length:
        first = jnp.min(jnp.where(finite, length, step), -2, keepdims=True)
        return jnp.where(step >= first, jnp.nan, y)

    def mark_reached(y):
        latest = jax.lax.cummax(jnp.where(finite, -taps, step), axis=u.ndim - 2)
        return jnp.where(step - latest < taps, jnp.nan, y)

    # A cumulative maximum would take half as long as the FFT.
    return jax.lax.cond(all_finite(u), lambda y: y, mark_reached, y)


def all_finite(values: Inexact[Array, "..."]) -> Bool[jax.Array, ""]:
    """Returns whether no value is infinite or NaN."""
    # On CPUs a maximum, which is NaN if a value is, takes a third of the time of `all`.
    return jnp.max(jnp.abs(values)) < jnp.inf
