"""Rotary position embedding of queries and keys."""

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.sharding import take
from ssm_jax.types import Array, Float, Int

_THETA = 10_000.0


def angles_of(
    positions: Int[np.ndarray, " l"], width: int, theta: float = _THETA
) -> Float[np.ndarray, "l k"]:
    """Returns the angles ``p theta**(-2 i / width)`` of positions ``p``.

    In float64: in float32 the product of a position of 4,096 and a frequency is off by
    1e-4.

    Args:
      positions: ``(l,)``.
      width: Width of a head, twice the number of angles ``i``.
      theta: Base of the angles.

    Returns:
      ``(l, width / 2)``.
    """
    return positions[:, None] * theta ** (-np.arange(0, width, 2) / width)


def rotate(
    x: Float[Array, "*b l h k"],
    first: int = 0,
    theta: float = _THETA,
    *,
    steps: Int[Array, "*b l"] | None = None,
) -> Float[jax.Array, "*b l h k"]:
    """Rotates pairs of channels by angles proportional to the position.

    The channels ``2 i`` and ``2 i + 1`` of a head are the coordinates of a point, which
    is rotated by ``p theta**(-2 i / k)`` at position ``p``. Products of a rotated query
    and a rotated key then depend on the difference of their positions alone.

    Args:
      x: Queries or keys, ``(*b, l, h, k)`` with even ``k``.
      first: Position of the first step; the others follow.
      theta: Base of the angles.
      steps: The step of ``x``, from 0 to ``l - 1``, whose position each one has. None:
        its own.

    Returns:
      The rotated queries or keys, ``(*b, l, h, k)``.

    Example:
      >>> x = jnp.array([[1.0, 0.0]] * 3)[:, None]
      >>> print(np.asarray(rotate(x)[:, 0]).round(2))
      [[ 1.    0.  ]
       [ 0.54  0.84]
       [-0.42  0.91]]

    References:
      Su et al., `RoFormer <https://arxiv.org/abs/2104.09864>`_, 2021, equation 34
    """
    length, width = x.shape[-3], x.shape[-1]
    angles = angles_of(np.arange(first, first + length), width, theta)[:, None]
    cos, sin = (jnp.asarray(f(angles), x.dtype) for f in (np.cos, np.sin))
    if steps is not None:
        cos, sin = take(cos, steps), take(sin, steps)
    even, odd = x[..., ::2], x[..., 1::2]
    cos, sin = (promoted_like(factor, even) for factor in (cos, sin))
    pairs = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
    return pairs.reshape(x.shape)
