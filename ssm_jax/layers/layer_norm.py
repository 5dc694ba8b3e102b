"""Layer normalization whose moments keep their digits at large means."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.layers.module import Module
from ssm_jax.types import Activations, Array, Float


def center(x: Activations) -> Float[Array, "*b l d"]:
    """Returns ``x`` minus its mean over the channels, in at least float32.

    The mean of numbers far from zero is rounded to a multiple of their own rounding;
    that of the differences, which are small, is subtracted once more.

    Args:
      x: ``(*b, l, d)``.
    """
    x = x.astype(common_dtype(x, jnp.float32))
    x = x - jnp.mean(x, -1, keepdims=True)
    # A mean that is zero but for rounding has no derivative.
    return x - jax.lax.stop_gradient(jnp.mean(x, -1, keepdims=True))


class LayerNorm(Module):
    """Normalizes the channels of each step, with a scale and a bias per channel.

    ``y = s (x - mean) / sqrt(var + epsilon) + b``. The variance is the mean square of
    the centered channels: `flax.linen.LayerNorm` subtracts the squared mean from the
    mean square by default, which loses the variance where the mean is large.

    Attributes:
      epsilon: Constant added to the variance; the default is that of PyTorch.

    Parameters, float32:
      scale: ``(d,)``, ``s``, initialized to 1.
      bias: ``(d,)``, ``b``, initialized to 0.
    """

    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Activations) -> Activations:
        """Maps ``(*b, l, d)`` to ``(*b, l, d)``."""
        d = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, d)
        bias = self.param("bias", nn.initializers.zeros, d)
        dtype, x = common_dtype(x, scale), center(x)
        x = x.astype(common_dtype(x, scale))
        scale, bias = (promoted_like(param, x) for param in (scale, bias))
        variance = jnp.mean(jnp.square(x), -1, keepdims=True)
        y = x * (scale * jax.lax.rsqrt(variance + self.epsilon)) + bias
        return y.astype(dtype)
