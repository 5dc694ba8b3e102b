"""An encoder of the neighbourhood of each pixel, for a model that sees no more."""

import math

from flax import linen as nn

from ssm_jax.fields import PositiveInt
from ssm_jax.layers.module import Module
from ssm_jax.types import Array, Float, Outputs


class PatchEncoder(Module):
    """A linear map of the square of pixels around each pixel of a square image.

    Attributes:
      d_model: Width of the output.
      side: Side length of the square in pixels, odd.

    Parameters, float32:
      convolution: `flax.linen.Conv`, ``(side, side, f, d_model)`` and ``(d_model,)``.

    Example:
      >>> import jax
      >>> encoder = PatchEncoder(d_model=2, side=3)
      >>> variables = encoder.init(jax.random.key(0), jax.numpy.ones((1, 16, 1)))
      >>> black = jax.numpy.zeros((1, 16, 1))
      >>> of_black = encoder.apply(variables, black)
      >>> of_pixel = encoder.apply(variables, black.at[0, 0].set(1.0))
      >>> jax.numpy.flatnonzero((of_pixel - of_black)[0, :, 0]).tolist()
      [0, 1, 4, 5]
    """

    d_model: PositiveInt
    side: PositiveInt = 9

    @nn.compact
    def __call__(self, x: Float[Array, "*b l f"]) -> Outputs:
        """Maps pixels ``(*b, l, f)``, row by row, to ``(*b, l, d_model)``.

        Raises:
          ValueError: ``l`` is not a square number.
        """
        length, n_features = x.shape[-2:]
        height = math.isqrt(length)
        if height**2 != length:
            raise ValueError(
                f"`x` must be the pixels of square images, got {length} steps."
            )
        images = x.reshape(-1, height, height, n_features)
        window = self.side, self.side
        y = nn.Conv(self.d_model, window, name="convolution")(images)
        return y.reshape(*x.shape[:-1], self.d_model)
