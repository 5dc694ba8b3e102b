"""Layers over the channels of each step: GELU, `Linear` and `ChannelMixing`."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from ssm_jax.fields import Fraction, PositiveInt
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.kernels.axes import by_rows
from ssm_jax.kernels.fusion import materialize
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Dense, Module
from ssm_jax.types import Activations, Outputs


@jax.custom_jvp
def gelu(x: Activations) -> Activations:
    """Exact GELU, ``x Phi(x)``, with the normal distribution function ``Phi``.

    Equal to ``jax.nn.gelu(x, approximate=False)``, with an explicit derivative: in jax
    0.12 the error function cannot be differentiated inside `jax.shard_map` with
    ``check_vma=True``.

    Args:
      x: ``(*b, l, d)``.

    Returns:
      ``(*b, l, d)``.
    """
    return x * _normal_cdf(x)


@gelu.defjvp
def _gelu_jvp(primals, tangents):
    (x,), (x_dot,) = primals, tangents
    cdf = _normal_cdf(x)
    pdf = jnp.exp(-0.5 * jnp.square(x)) * np.sqrt(0.5 / np.pi).astype(x.dtype)
    # Once, with the value: a gradient would keep several parts of it, or form it anew.
    return x * cdf, materialize(cdf + x * pdf) * x_dot


def _normal_cdf(x):
    # By erfc, because `1 + erf` cancels for x << 0. The constant has the dtype of x, so
    # that it does not promote the result.
    return 0.5 * jax.lax.erfc(-x * np.sqrt(0.5).astype(x.dtype))


InitScheme = Literal["uniform", "xavier", "normal", "truncated_normal", "zeros"]
"""Initialization of the weights and the bias of a linear map; see `Linear`."""


class Linear(Module):
    """Linear map ``y = x W + b``.

    Attributes:
      features: Width of the output.
      kernel_init: Initialization. ``"uniform"``: weights and bias uniform in
        ``+-1 / sqrt(d_in)``, the default of PyTorch. ``"xavier"``: weights uniform in
        ``+-sqrt(6 / (d_in + features))``, bias 0. ``"normal"``: weights normal with
        standard deviation 0.02, as in BERT, bias 0. ``"truncated_normal"``: weights and
        bias normal with standard deviation 0.1, truncated at two standard deviations,
        as the FRU's authors initialize their output layer. ``"zeros"``: weights and
        bias 0.
      use_bias: Whether to add a bias.
      scale: Factor applied to the initial weights.

    Parameters, float32:
      kernel: ``(d_in, features)``, ``W``.
      bias: ``(features,)``, ``b``.
    """

    features: PositiveInt
    kernel_init: InitScheme = "uniform"
    use_bias: bool = True
    scale: float = 1.0

    @nn.compact
    def __call__(self, x: Activations) -> Outputs:
        """Maps ``(*b, l, d_in)`` to ``(*b, l, features)``."""
        check_floating("x", x)
        bound = x.shape[-1] ** -0.5

        def uniform(key, shape, dtype=jnp.float32):
            return jax.random.uniform(key, shape, dtype, -bound, bound)

        # Initializers of the kernel and of the bias.
        zeros = nn.initializers.zeros
        truncated = nn.initializers.truncated_normal(0.1)
        kernel, bias = {
            "uniform": (uniform, uniform),
            "xavier": (nn.initializers.xavier_uniform(), zeros),
            "normal": (nn.initializers.normal(0.02), zeros),
            "truncated_normal": (truncated, truncated),
            "zeros": (zeros, zeros),
        }[self.kernel_init]
        dense = Dense(
            self.features,
            use_bias=self.use_bias,
            kernel_init=lambda *shape: self.scale * kernel(*shape),
            bias_init=bias,
            name="dense",
        )
        return by_rows(dense, x)


class ChannelMixing(Module):
    """GELU, dropout of whole channels, then a linear map or a gated linear unit (GLU).

    Attributes:
      kind: ``"linear"``: ``W x + b``. ``"glu"``: ``(W x + b) * sigmoid(V x + c)``.
      dropout: Probability of dropping a channel at all steps of a sequence.

    References:
      Dauphin et al., `Language Modeling with Gated Convolutional Networks
      <https://arxiv.org/abs/1612.08083>`_, 2017 (GLU)
    """

    kind: Literal["linear", "glu"] = "linear"
    dropout: Fraction = 0.0

    @nn.compact
    def __call__(
        self, x: Activations, features: int, *, train: bool = False
    ) -> Outputs:
        """Maps ``(*b, l, d)`` to ``(*b, l, features)``."""
        check_floating("x", x)
        dtype, x = jnp.result_type(x), gelu(x)
        # One dropout mask for all steps: the length axis (-2) is broadcast.
        x = RowDropout(self.dropout, broadcast_dims=(-2,))(x, train=train)
        if self.kind == "linear":
            return Linear(features, name="out")(x).astype(dtype)
        # One matrix product for both halves; `nn.glu` gates the first by the second.
        return nn.glu(Linear(2 * features, name="out")(x)).astype(dtype)
