"""Encoders of task inputs to width ``d_model``, and positional embeddings."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import NonNegativeFloat, PositiveFloat, PositiveInt
from ssm_jax.kernels.arguments import check_flags, check_floating, describe, is_array
from ssm_jax.kernels.axes import by_rows
from ssm_jax.kernels.sharding import take
from ssm_jax.layers.channel_mixing import Linear
from ssm_jax.layers.module import Dense, Embed, Module
from ssm_jax.sharding.axis import first_step, n_pieces, previous_pieces
from ssm_jax.types import Activations, Array, Float, Integer, Outputs, Steps


class VectorEncoder(Module):
    """A linear map of the features of each step.

    Attributes:
      d_model: Width of the output.

    Parameters, float32:
      linear: `Linear`, ``(f, d_model)`` and ``(d_model,)``.
    """

    d_model: PositiveInt

    @nn.compact
    def __call__(self, x: Float[Array, "*b l f"]) -> Outputs:
        """Maps ``(*b, l, f)`` to ``(*b, l, d_model)``."""
        return Linear(self.d_model, name="linear")(x)


class ScalarEncoder(Module):
    """A linear map of one scalar per step, such as a pixel.

    Attributes:
      d_model: Width of the output.

    Parameters, float32:
      kernel: ``(1, d_model)``, initialized standard normal.
      bias: ``(d_model,)``, initialized normal with standard deviation 0.1.

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
                f"`x` must be (*b, l, 1), got {x.shape}; use `VectorEncoder` for "
                "several features per step."
            )
        normal = jax.nn.initializers.normal
        dense = Dense(
            self.d_model, kernel_init=normal(1.0), bias_init=normal(0.1), name="dense"
        )
        return by_rows(dense, x)


class TokenEncoder(Module):
    """An embedding table, which `attend` also uses as the output projection.

    Attributes:
      d_model: Width of the output.
      vocabulary: Number of tokens.
      std: Standard deviation of the initial table.
      d_embedding: Width of the table, which linear maps without a bias connect to
        ``d_model``. None means ``d_model``, without such maps.
      scale: Factor of the embedded tokens; `attend` does not have it.

    Parameters, float32:
      table: `flax.linen.Embed`, ``(vocabulary, d_model)``, or with ``d_embedding``
        ``(vocabulary, d_embedding)``.
      from_table: `Linear`, ``(d_embedding, d_model)``; only with ``d_embedding``.
      to_table: `Linear`, ``(d_model, d_embedding)``; only with ``d_embedding``, and if
        `attend` is used.

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
    d_embedding: PositiveInt | None = None
    scale: PositiveFloat = 1.0

    def setup(self) -> None:
        """Creates the table that `__call__` and `attend` share."""
        normal = jax.nn.initializers.normal(self.std)
        width = self.d_embedding or self.d_model
        # `setup` instead of `compact`, because two methods use the table.
        self.table = Embed(self.vocabulary, width, embedding_init=normal)
        if self.d_embedding is not None:
            self.from_table = Linear(self.d_model, "xavier", use_bias=False)
            self.to_table = Linear(width, "xavier", use_bias=False)

    def __call__(self, x: Integer[Array, "*b l"]) -> Outputs:
        """Maps tokens ``(*b, l)`` to ``(*b, l, d_model)``.

        A token that is not in ``[0, vocabulary)`` gives NaN, because a compiled
        function cannot raise an error of a value; negative ones do not count from the
        end. Tasks and `generate` check tokens before.

        Raises:
          ValueError: ``x`` is no array of integers.
        """
        # Flags and floats are no indices; converting them would hide a mistake.
        if not is_array(x) or not jnp.issubdtype(x.dtype, jnp.integer):
            raise ValueError(
                f"`x` must be an array of integers, got {describe(x)}; a token is an "
                "index in the vocabulary."
            )
        # Not `self.table(x)`, which takes -1 as the last token, and any token as the
        # only one of a vocabulary of 1.
        options = {"fill_value": jnp.nan, "wrap_negative_indices": False}
        embedded = take(self.table.embedding, x, mode="fill", **options)
        if self.d_embedding is not None:
            embedded = self.from_table(embedded)
        return embedded if self.scale == 1 else self.scale * embedded

    def attend(self, x: Activations) -> Outputs:
        """Maps ``(*b, l, d_model)`` to logits ``(*b, l, vocabulary)``.

        The logits are the inner products of ``x`` with the embeddings of all tokens,
        with ``d_embedding`` after ``to_table``.
        """
        if self.d_embedding is not None:
            x = self.to_table(x)
        # Tied to the embedding: no second matrix of the size of the vocabulary.
        return by_rows(self.table.attend, x)


class PositionalEmbedding(Module):
    """Adds a learned vector for the position of each step in its segment.

    Positions count valid steps only.

    Attributes:
      max_length: Maximum length of a sequence.
      std: Standard deviation of the initial table.

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
        # Indexing clamps in JAX: later steps would share the last embedding.
        if (whole := length * n_pieces()) > self.max_length:
            raise ValueError(
                f"`max_length` must be at least {whole}, the length of the sequence, "
                f"got {self.max_length}; later steps have no embedding."
            )
        normal = jax.nn.initializers.normal(self.std)
        table = self.param("table", normal, (self.max_length, d))
        return x + take(table, _positions(length, reset, mask))


def _positions(length, reset, mask):
    """Number of earlier valid steps in the segment, ``(*b, l)`` or ``(l,)``."""
    if mask is None:
        position = first_step(length) + jnp.arange(length)
    else:
        valid = mask.astype(jnp.int32)
        before = jnp.sum(previous_pieces(jnp.sum(valid, -1)), 0)
        # An exclusive sum: the first valid step has position 0.
        position = before[..., None] + jnp.cumsum(valid, -1) - valid
    if reset is None:
        return position
    # Positions never decrease, so the running maximum over the resets is the position
    # at which the current segment starts.
    at_reset = jnp.where(reset, position, 0)
    before = jnp.max(previous_pieces(jnp.max(at_reset, -1)), 0)
    start = jax.lax.cummax(at_reset, at_reset.ndim - 1)
    return position - jnp.maximum(start, before[..., None])
