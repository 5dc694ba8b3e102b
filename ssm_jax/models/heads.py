"""Heads: maps from a sequence of width ``d`` to predictions."""

import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import Fraction, PositiveInt
from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.promotion import common_dtype
from ssm_jax.kernels.sharding import broadcast_to_steps
from ssm_jax.layers.channel_mixing import InitScheme, Linear, gelu
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Module
from ssm_jax.sharding.axis import (
    last_output,
    n_pieces,
    refuse_sharded_length,
    sum_over_pieces,
)
from ssm_jax.types import Activations, Array, Bool, Float, Steps


class StepHead(Module):
    """Predicts at each of the last steps.

    Attributes:
      d_output: Number of values or classes of a prediction.
      l_output: Number of last steps to predict at. None means all steps.
      use_bias: Whether the linear map has a bias.

    Parameters, float32:
      linear: `Linear`, ``(d, d_output)`` and ``(d_output,)``.
    """

    d_output: PositiveInt
    l_output: PositiveInt | None = None
    use_bias: bool = True

    @nn.compact
    def __call__(
        self, x: Activations, *, mask: Steps | None = None, train: bool = False
    ) -> Float[Array, "*b k o"]:
        """Maps ``(*b, l, d)`` to ``(*b, l_output, d_output)``."""
        _check(x, mask)
        del train
        if self.l_output is not None:
            refuse_sharded_length(self, "leave out `l_output`")
            if not 0 < self.l_output <= x.shape[-2]:
                raise ValueError(
                    f"`l_output` must be in [1, {x.shape[-2]}], the length of the "
                    f"sequence, got {self.l_output}; None predicts at all steps."
                )
            # Sliced before the linear map, so that it runs on these steps only.
            x = x[..., -self.l_output :, :]
        return Linear(self.d_output, use_bias=self.use_bias, name="linear")(x)


class LastHead(Module):
    """Predicts from the last valid step.

    Attributes:
      d_output: Number of values or classes of the prediction.
      kernel_init: Initialization of the linear map; see `Linear`.

    Parameters, float32:
      linear: `Linear`, ``(d, d_output)`` and ``(d_output,)``.
    """

    d_output: PositiveInt
    kernel_init: InitScheme = "uniform"

    @nn.compact
    def __call__(
        self, x: Activations, *, mask: Steps | None = None, train: bool = False
    ) -> Float[Array, "*b o"]:
        """Maps ``(*b, l, d)`` to ``(*b, d_output)``.

        A row without valid steps is treated as a last step of zeros.
        """
        del train
        _check(x, mask)
        # With padding at the end, `x[..., -1, :]` would be the output at padding.
        last = last_output(x, mask)[..., 0, :]
        return Linear(self.d_output, self.kernel_init, name="linear")(last)


class PooledHead(Module):
    """Predicts from the mean over the valid steps.

    Attributes:
      d_output: Number of values or classes of the prediction.
      d_hidden: Width of a hidden layer with tanh activation. None means no hidden
        layer.
      dropout: Probability of dropping a hidden channel.
      kernel_init: Initialization of the linear maps; see `Linear`.
      use_bias: Whether the last linear map has a bias.

    Parameters, float32:
      hidden: `Linear`, ``(d, d_hidden)`` and ``(d_hidden,)``; only with ``d_hidden``.
      linear: `Linear` from the hidden layer or the mean to ``d_output``.
    """

    d_output: PositiveInt
    d_hidden: PositiveInt | None = None
    dropout: Fraction = 0.0
    kernel_init: InitScheme = "uniform"
    use_bias: bool = True

    @nn.compact
    def __call__(
        self, x: Activations, *, mask: Steps | None = None, train: bool = False
    ) -> Float[Array, "*b o"]:
        """Maps ``(*b, l, d)`` to ``(*b, d_output)``."""
        _check(x, mask)
        # The mean comes first, so that the hidden layer runs once per sequence.
        x = _mean(x, mask)
        if self.d_hidden is not None:
            x = jnp.tanh(Linear(self.d_hidden, self.kernel_init, name="hidden")(x))
            x = RowDropout(self.dropout)(x, train=train)
        return Linear(self.d_output, self.kernel_init, self.use_bias, name="linear")(x)


class PairHead(Module):
    """Predicts from the concatenated means of two sequences.

    Attributes:
      d_output: Number of values or classes of the prediction.
      d_hidden: Width of the hidden layer, which has a GELU activation.
      dropout: Probability of dropping a hidden channel.
      kernel_init: Initialization of the linear maps; see `Linear`.
      use_bias: Whether the last linear map has a bias.

    Parameters, float32:
      hidden: `Linear`, ``(2 d, d_hidden)`` and ``(d_hidden,)``.
      linear: `Linear`, ``(d_hidden, d_output)`` and ``(d_output,)``.

    References:
      Chu and Lin, `Incorporating Exponential Smoothing into MLP
      <https://arxiv.org/abs/2403.17445>`_, 2024, the authors' code (Retrieval)
    """

    d_output: PositiveInt
    d_hidden: PositiveInt
    dropout: Fraction = 0.0
    kernel_init: InitScheme = "uniform"
    use_bias: bool = True

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "*b p l d"],
        *,
        mask: Bool[Array, "*b p l"] | None = None,
        train: bool = False,
    ) -> Float[Array, "*b o"]:
        """Maps pairs ``(*b, 2, l, d)`` to ``(*b, d_output)``."""
        _check(x, mask)
        if x.ndim < 3 or x.shape[-3] != 2:
            raise ValueError(
                f"`x` must be (*b, 2, l, d), got {x.shape}; stack the two sequences of "
                "a pair on the axis before the length."
            )
        # The pair axis precedes the length, so one mean covers both sequences.
        mean = _mean(x, mask)
        both = jnp.concatenate([mean[..., 0, :], mean[..., 1, :]], -1)
        hidden = Linear(self.d_hidden, self.kernel_init, name="hidden")(both)
        hidden = RowDropout(self.dropout)(hidden, train=train)
        linear = Linear(self.d_output, self.kernel_init, self.use_bias, name="linear")
        return linear(gelu(hidden))


def _check(x, mask):
    check_floating("x", x)
    check_flags("mask", mask)


def _mean(x, mask):
    """Mean over the valid steps; zeros for a row without any."""
    if mask is None:
        mean = sum_over_pieces(jnp.mean(x, -2))
        return mean / n_pieces() if n_pieces() > 1 else mean
    valid = broadcast_to_steps(mask, x)[..., None]
    # bfloat16 has no odd numbers above 256, so that counts need a wider dtype.
    wide = common_dtype(x, jnp.float32)
    # `where` instead of a product with the mask: NaN * 0 is NaN.
    sums = jnp.sum(jnp.where(valid, x, 0), -2, dtype=wide)
    total, n = sum_over_pieces((sums, jnp.sum(valid, -2, dtype=wide)))
    return (total / jnp.maximum(n, 1)).astype(x.dtype)
