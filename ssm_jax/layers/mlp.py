"""Multi-layer perceptrons with one hidden layer, applied to each step."""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import Fraction, PositiveInt
from ssm_jax.kernels.arguments import check_flags
from ssm_jax.layers.channel_mixing import InitScheme, Linear, gelu
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Module
from ssm_jax.types import Activations, Outputs, Steps


class MLP(Module):
    """The feed-forward layer of a Transformer, ``W_2 f(W_1 x + b_1) + b_2``.

    Attributes:
      d_hidden: Width of the hidden layer.
      activation: Activation ``f``.
      kernel_init: Initialization of the linear maps; see `Linear`.
      dropout: Probability of dropping an element of the output.

    Parameters, float32:
      in: `Linear`, ``(d, d_hidden)`` and ``(d_hidden,)``, ``W_1`` and ``b_1``.
      out: `Linear`, ``(d_hidden, d)`` and ``(d,)``, ``W_2`` and ``b_2``.

    Example:
      >>> layer = MLP(d_hidden=32)
      >>> x = jax.numpy.ones((2, 16, 8))
      >>> jax.jit(layer.apply)(jax.jit(layer.init)(jax.random.key(0), x), x).shape
      (2, 16, 8)

    References:
      Vaswani et al., `Attention Is All You Need <https://arxiv.org/abs/1706.03762>`_,
      2017, section 3.3
    """

    d_hidden: PositiveInt
    activation: Literal["relu", "gelu"] = "gelu"
    kernel_init: InitScheme = "xavier"
    dropout: Fraction = 0.0

    @nn.compact
    def __call__(
        self, x: Activations, *, mask: Steps | None = None, train: bool = False
    ) -> Outputs:
        """Maps ``(*b, l, d)`` to ``(*b, l, d)``."""
        # A block passes the mask to every feed-forward module. The steps of this one
        # are independent, so that padding changes nothing.
        check_flags("mask", mask)
        hidden = Linear(self.d_hidden, self.kernel_init, name="in")(x)
        # `gelu` of this package can be differentiated inside `shard_map`.
        hidden = jax.nn.relu(hidden) if self.activation == "relu" else gelu(hidden)
        y = Linear(x.shape[-1], self.kernel_init, name="out")(hidden)
        return RowDropout(self.dropout)(y, train=train).astype(jnp.result_type(x))


class GatedMLP(Module):
    """A feed-forward layer with a gate, ``W_2 (f(W_g x + b_g) (W_1 x + b_1)) + b_2``.

    Attributes:
      d_hidden: Width of the hidden layer.
      activation: Activation ``f`` of the gate; ``"gelu_tanh"`` is the approximation by
        tanh, of Griffin and Gemma.
      kernel_init: Initialization of the linear maps; see `Linear`.
      use_bias: Whether the linear maps have biases.

    Parameters, float32:
      gate: `Linear`, ``(d, d_hidden)`` and ``(d_hidden,)``, ``W_g`` and ``b_g``.
      in: `Linear`, ``(d, d_hidden)`` and ``(d_hidden,)``, ``W_1`` and ``b_1``.
      out: `Linear`, ``(d_hidden, d)`` and ``(d,)``, ``W_2`` and ``b_2``.

    Example:
      >>> layer = GatedMLP(d_hidden=32)
      >>> x = jax.numpy.ones((2, 16, 8))
      >>> jax.jit(layer.apply)(jax.jit(layer.init)(jax.random.key(0), x), x).shape
      (2, 16, 8)

    References:
      Shazeer, `GLU Variants Improve Transformer <https://arxiv.org/abs/2002.05202>`_,
      2020
    """

    d_hidden: PositiveInt
    activation: Literal["gelu_tanh", "silu"] = "gelu_tanh"
    kernel_init: InitScheme = "xavier"
    use_bias: bool = True

    @nn.compact
    def __call__(
        self, x: Activations, *, mask: Steps | None = None, train: bool = False
    ) -> Outputs:
        """Maps ``(*b, l, d)`` to ``(*b, l, d)``."""
        # As in `MLP`, padding changes nothing.
        check_flags("mask", mask)
        del train

        def linear(features, name):
            return Linear(features, self.kernel_init, self.use_bias, name=name)

        gate = linear(self.d_hidden, "gate")(x)
        if self.activation == "silu":
            gate = jax.nn.silu(gate)
        else:
            gate = jax.nn.gelu(gate, approximate=True)
        y = linear(x.shape[-1], "out")(gate * linear(self.d_hidden, "in")(x))
        return y.astype(jnp.result_type(x))
