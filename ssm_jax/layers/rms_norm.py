"""Normalization of channels by their root mean square, in groups."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import PositiveInt
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.layers.module import Module
from ssm_jax.types import Array, Float


class RMSNorm(Module):
    """Divides channels by their root mean square, ``y = s x / sqrt(mean + epsilon)``.

    Attributes:
      n_groups: Number of groups of adjacent channels, each with a mean of its own; must
        divide the width.
      epsilon: Constant added to the mean square; the default is that of the published
        Mamba-2.
      use_scale: Whether to multiply by ``s``.

    Parameters, float32:
      scale: ``(d,)``, ``s``, initialized to 1.

    Example:
      >>> norm = RMSNorm(n_groups=2, use_scale=False)
      >>> print(norm.apply({}, jnp.array([3.0, 3.0, 0.0, 8.0])).round(3))
      [1.    1.    0.    1.414]
    """

    n_groups: PositiveInt = 1
    epsilon: float = 1e-5
    use_scale: bool = True

    @nn.compact
    def __call__(self, x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        """Maps ``(*b, d)`` to ``(*b, d)``."""
        # The mean of squares loses its digits in bfloat16.
        y = x.astype(common_dtype(x, jnp.float32))
        y = y.reshape(*x.shape[:-1], self.n_groups, -1)
        mean = jnp.mean(jnp.square(y), -1, keepdims=True)
        y = (y * jax.lax.rsqrt(mean + self.epsilon)).reshape(x.shape)
        if not self.use_scale:
            return y.astype(x.dtype)
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        dtype = common_dtype(x, scale)
        y = y.astype(common_dtype(y, scale))
        return (y * promoted_like(scale, y)).astype(dtype)
