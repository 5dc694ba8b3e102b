"""Shifts of a sequence by one step, with resets at segment boundaries."""

import jax
import jax.numpy as jnp

from ssm_jax.kernels.arguments import check_flags
from ssm_jax.types import Array, Shaped, Steps

Sequence = Shaped[Array, "*b l n"]
Shifted = Shaped[jax.Array, "*b l n"]


def shift_right(
    values: Sequence,
    first: Shaped[Array, "*b n"] | None = None,
    reset: Steps | None = None,
) -> Shifted:
    """Returns at each step the value of the previous step.

    Args:
      values: Sequence, ``(*b, l, n)``.
      first: Value returned at the first step, ``(*b, n)``. None means zeros.
      reset: True where a segment starts, ``(*b, l)``; zeros are returned there.

    Returns:
      The shifted sequence, ``(*b, l, n)``.

    Example:
      >>> print(shift_right(jnp.arange(1, 5)[:, None])[:, 0])
      [0 1 2 3]
    """
    check_flags("reset", reset)
    edge = jnp.zeros_like(values[..., :1, :]) if first is None else first[..., None, :]
    shifted = jnp.concatenate([edge, values[..., :-1, :]], -2)
    # Select, not multiply: a value that is not finite must not cross a reset.
    return shifted if reset is None else jnp.where(reset[..., None], 0, shifted)


def shift_left(values: Sequence, reset: Steps | None = None) -> Shifted:
    """Returns at each step the value of the next step, and zeros at the last step.

    Args:
      values: Sequence, ``(*b, l, n)``.
      reset: True where a segment starts, ``(*b, l)``; zeros are returned at the step
        before.

    Returns:
      The shifted sequence, ``(*b, l, n)``.

    Example:
      >>> print(shift_left(jnp.arange(1, 5)[:, None])[:, 0])
      [2 3 4 0]
    """
    check_flags("reset", reset)
    if reset is not None:
        # The flags mark the first step of a segment, so they apply before the shift.
        values = jnp.where(reset[..., None], 0, values)
    return jnp.concatenate([values[..., 1:, :], jnp.zeros_like(values[..., :1, :])], -2)
