"""Encoders: what a task gives, as a sequence of width ``d_model``; and positions."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import NonNegativeFloat, PositiveInt
from ssm_jax.kernels.arguments import check_flags, check_floating, is_array, shown
from ssm_jax.layers.channel_mixing import Linear
from ssm_jax.layers.module import Module
from ssm_jax.types import Activations, Array, Float, Int, Outputs, Steps


class VectorEncoder(Module):
    """A linear map of each step's features.

    Attributes:
      d_model: Width of the output.
    """

    d_model: PositiveInt

    @nn.compact
    def __call__(self, x: Float[Array, "*b l f"]) -> Outputs:
        """Maps ``(*b, l, f)`` to ``(*b, l, d_model)``."""
        return Linear(self.d_model, name="linear")(x)


class ScalarEncoder(Module):
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

    d_model: PositiveInt

    @nn.compact
    def __call__(self, x: Float[Array, "*b l 1"]) -> Outputs:
        """Maps ``(*b, l, 1)`` to ``(*b, l, d_model)``."""
        check_floating("x", x)
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


class TokenEncoder(Module):
    """A table of vectors, which may also be read the other way round.

    Attributes:
      d_model: Width of the output.
      vocabulary: Number of tokens.
      std: Standard deviation of the table at the start.

    Example:
      >>> encoder = TokenEncoder(d_model=2, vocabulary=3)
      >>> embedding = jnp.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
      >>> variables = {"params": {"table": {"embedding": embedding}}}
      >>> encoder.apply(variables, jnp.array([1])).tolist()
      [[0.0, 2.0]]
      >>> x = jnp.array([[3.0, 4.0]])
      >>> encoder.apply(variables, x, method="attend").tolist()
      [[3.0, 8.0, 7.0]]
    """

    d_model: PositiveInt
    vocabulary: PositiveInt
    std: NonNegativeFloat = 1.0

    def setup(self) -> None:
        """Makes the table, which both directions share."""
        start = jax.nn.initializers.normal(self.std)
        self.table = nn.Embed(self.vocabulary, self.d_model, embedding_init=start)

    def __call__(self, x: Int[Array, "*b l"]) -> Outputs:
        """Maps tokens ``(*b, l)`` to ``(*b, l, d_model)``."""
        if not is_array(x) or not jnp.issubdtype(x.dtype, jnp.integer):
            raise ValueError(
                f"`x` must be an array of integers, got {shown(x)}; a token is its "
                "number in the vocabulary."
            )
        return self.table(x)

    def attend(self, x: Activations) -> Outputs:
        """Maps ``(*b, l, d_model)`` to logits ``(*b, l, vocabulary)``.

        They are the inner products with the vectors of all tokens.
        """
        return self.table.attend(x)


class PositionalEmbedding(Module):
    """Adds a learned vector to each step, by its place among the data of its segment.

    Attributes:
      max_length: Greatest length of a sequence.
      std: Standard deviation of the vectors at the start.

    Parameters, float32:
      table: ``(max_length, d)``.

    Example:
      >>> positions = PositionalEmbedding(max_length=8)
      >>> x = jnp.zeros((5, 2))
      >>> mask = jnp.array([False, True, True, False, True])
      >>> variables = {"params": {"table": jnp.arange(8.0)[:, None] * jnp.ones(2)}}
      >>> positions.apply(variables, x, mask=mask)[mask, 0].tolist()
      [0.0, 1.0, 2.0]
    """

    max_length: PositiveInt
    std: NonNegativeFloat = 0.02

    @nn.compact
    def __call__(
        self, x: Activations, *, reset: Steps | None = None, mask: Steps | None = None
    ) -> Activations:
        """Maps ``(*b, l, d)`` to ``(*b, l, d)``.

        Raises:
          ValueError: The sequence is longer than ``max_length``.
        """
        check_floating("x", x)
        length, d = x.shape[-2:]
        check_flags("reset", reset, x.shape[:-1], (length,))
        check_flags("mask", mask, x.shape[:-1], (length,))
        if length > self.max_length:
            raise ValueError(
                f"`max_length` must be at least {length}, the length of the sequence, "
                f"got {self.max_length}; there is no vector for the steps beyond it."
            )
        start = jax.nn.initializers.normal(self.std)
        table = self.param("table", start, (self.max_length, d))
        return x + table[_places(length, reset, mask)]


def _places(length, reset, mask):
    """How many data of its segment come before each step, ``(*b, l)`` or ``(l,)``."""
    data = jnp.ones(length, jnp.int32) if mask is None else mask.astype(jnp.int32)
    before = jnp.cumsum(data, -1) - data
    if reset is None:
        return before
    at_start = jnp.where(reset, before, 0)
    return before - jax.lax.cummax(at_start, at_start.ndim - 1)
