"""The last state of sums that share what enters them, without the states before it."""

import jax.numpy as jnp

from ssm_jax.kernels.arguments import check_flags
from ssm_jax.types import Array, Float, Int, Steps


def last_state(
    decays: tuple[float, ...],
    weights: Float[Array, "*c l k"],
    s: Float[Array, "*b l d"],
    h0: Float[Array, "*b k d"],
    *,
    reset: Steps | None = None,
    lengths: Int[Array, "*b"] | None = None,
) -> Float[Array, "*b k d"]:
    """The last ``h`` of ``h_t^k = decays_k h_{t-1}^k + weights_t^k s_t``.

    Each ``s_t`` is weighted by what is left of it at the end, so that this takes one
    product of matrices, and no memory for states.

    Args:
      decays: Of each sum, in ``[0, 1]``.
      weights: How a step enters each sum; axes of size 1 where rows do not differ.
      s: What enters.
      h0: The sums before the first step.
      reset: True where a segment starts: the sums before such a step are zeros.
      lengths: Steps of each row that are data; they stand in front. None means all.

    Returns:
      The sums after the data.

    Example:
      >>> s, ones = jnp.ones((3, 1)), jnp.ones((3, 2))
      >>> last_state((0.5, 1.0), ones, s, jnp.ones((2, 1)))[:, 0].tolist()
      [1.875, 4.0]
    """
    check_flags("reset", reset)
    length = s.shape[-2]
    n = jnp.asarray(length) if lengths is None else lengths
    age = n[..., None] - 1 - jnp.arange(length)
    counts, starts = age >= 0, jnp.ones((), bool)
    if reset is not None:
        segment = jnp.cumsum(reset, -1)
        latest = jnp.max(jnp.where(counts, segment, 0), -1, keepdims=True)
        counts, starts = counts & (segment == latest), latest[..., 0] == 0
    a = jnp.asarray(decays)
    left = weights * a ** jnp.maximum(age, 0)[..., None]
    left = jnp.where(counts[..., None], left, 0)
    of_start = jnp.where(starts[..., None], a ** n[..., None], 0)[..., None]
    sums = jnp.matmul(jnp.swapaxes(left, -1, -2), s, precision="highest")
    return of_start * h0 + sums
