"""Encoders: what a task gives, as a sequence of width ``d_model``."""

import jax
from flax import linen as nn

from ssm_jax.layers.channel_mixing import Linear
from ssm_jax.types import Array, Float, Int, Outputs


class VectorEncoder(nn.Module):
    """A linear map of each step's features.

    Attributes:
      d_model: Width of the output.
    """

    d_model: int

    @nn.compact
    def __call__(self, x: Float[Array, "*b l f"]) -> Outputs:
        """Maps ``(*b, l, f)`` to ``(*b, l, d_model)``."""
        return Linear(self.d_model, name="linear")(x)


class ScalarEncoder(nn.Module):
    """One number a step, such as a pixel, times a vector plus a vector.

    Attributes:
      d_model: Width of the output.

    Parameters, float32:
      kernel: ``(1, d_model)``, standard normal.
      bias: ``(d_model,)``, normal of deviation 0.1.

    References:
      Chu and Lin, `Incorporating Exponential Smoothing into MLP
      <https://arxiv.org/abs/2403.17445>`_, 2024, the authors' code
    """

    d_model: int

    @nn.compact
    def __call__(self, x: Float[Array, "*b l 1"]) -> Outputs:
        """Maps ``(*b, l, 1)`` to ``(*b, l, d_model)``."""
        if x.shape[-1] != 1:
            raise ValueError(
                f"`x` must be (*b, l, 1), got {x.shape}; several numbers a step take "
                "a `VectorEncoder`."
            )
        normal = jax.nn.initializers.normal
        dense = nn.Dense(
            self.d_model, kernel_init=normal(1.0), bias_init=normal(0.1), name="dense"
        )
        return dense(x)


class TokenEncoder(nn.Module):
    """A table of vectors.

    Attributes:
      d_model: Width of the output.
      vocabulary: Number of tokens.
      deviation: Standard deviation of the table at the start.
    """

    d_model: int
    vocabulary: int
    deviation: float = 1.0

    @nn.compact
    def __call__(self, x: Int[Array, "*b l"]) -> Outputs:
        """Maps tokens ``(*b, l)`` to ``(*b, l, d_model)``."""
        table = nn.Embed(
            self.vocabulary,
            self.d_model,
            embedding_init=jax.nn.initializers.normal(self.deviation),
            name="table",
        )
        return table(x)
