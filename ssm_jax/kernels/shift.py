"""What each step of a sequence sees of the step before it and of the one after it."""

import jax.numpy as jnp

from ssm_jax.kernels.arguments import check_flags
from ssm_jax.types import Array, Shaped, Steps

Sequence = Shaped[Array, "*b l n"]


def shift_right(
    values: Sequence,
    first: Shaped[Array, "*b n"] | None = None,
    reset: Steps | None = None,
) -> Sequence:
    """Gives each step what the one before it holds.

    Args:
      values: What each step holds, ``(*b, l, n)``.
      first: What there is before the first step, ``(*b, n)``. None means zeros.
      reset: True where a segment starts, ``(*b, l)``: such a step sees zeros.

    Returns:
      ``(*b, l, n)``.

    Example:
      >>> print(shift_right(jnp.arange(1, 5)[:, None])[:, 0])
      [0 1 2 3]
    """
    check_flags("reset", reset)
    edge = jnp.zeros_like(values[..., :1, :]) if first is None else first[..., None, :]
    seen = jnp.concatenate([edge, values[..., :-1, :]], -2)
    return seen if reset is None else jnp.where(reset[..., None], 0, seen)


def shift_left(values: Sequence, reset: Steps | None = None) -> Sequence:
    """Gives each step what the one after it holds, and the last step zeros.

    Args:
      values: What each step holds, ``(*b, l, n)``.
      reset: True where a segment starts, ``(*b, l)``: the step before sees zeros.

    Returns:
      ``(*b, l, n)``.

    Example:
      >>> print(shift_left(jnp.arange(1, 5)[:, None])[:, 0])
      [2 3 4 0]
    """
    check_flags("reset", reset)
    if reset is not None:
        values = jnp.where(reset[..., None], 0, values)
    return jnp.concatenate([values[..., 1:, :], jnp.zeros_like(values[..., :1, :])], -2)
