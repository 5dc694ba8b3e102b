"""The layer of xLSTM with a matrix memory: a convolution and an mLSTM, gated."""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import PositiveInt
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.layers.channel_mixing import Linear
from ssm_jax.layers.convolved_recurrence import ConvolvedRecurrence
from ssm_jax.layers.layer_norm import center
from ssm_jax.layers.module import Module
from ssm_jax.layers.recurrent import Recurrent
from ssm_jax.layers.rms_norm import RMSNorm
from ssm_jax.layers.short_convolution import ShortConvolution
from ssm_jax.recurrences.mlstm import MLSTM
from ssm_jax.types import Activations, Method, Outputs


class MLSTMLayer(ConvolvedRecurrence):
    r"""A short convolution and an `MLSTM`, gated by the input.

    .. math::
      (u, z) = W_{in} x, \quad c = f(k * u), \quad f = \operatorname{SiLU}, \qquad
      y = W_{out} ((\operatorname{LN}(r(q, k, v, i, f)) + s c) f(z))

    with ``r`` the recurrence, ``k *`` the causal convolution, both of width ``d_inner =
    expand * d``, and a layer norm of each head. Queries and keys are block-diagonal
    maps of ``c``, values of ``u``; the gates are linear in all three. The state is
    ``(window, h)``: the last ``d_conv - 1`` steps of ``u``, and the state of the
    recurrence.

    Attributes:
      recurrence: Recurrence over time, with the size of a head, which divides
        ``d_inner``; the published models have four heads.
      expand: Ratio ``d_inner / d``.
      d_conv: Taps of the convolution.
      block_size: Size of the blocks of the maps to queries, keys and values; divides
        ``d_inner``.
      n_layers: Number of layers of the model; the initial ``W_out`` is divided by its
        square root.
      method: Evaluation method of the recurrence; it changes the cost, not the values.

    Parameters, float32, with ``h`` heads and ``m = d_inner / block_size``:
      in: `Linear` without bias, ``(d, 2 d_inner)``.
      convolution: `ShortConvolution`, ``(d_conv, d_inner)`` and ``(d_inner,)``.
      query, key, value: ``(m, block_size, block_size)``, normal with standard deviation
        ``sqrt(2 / (5 d))``.
      gates: `Linear` without bias, ``(3 d_inner, 2 h)``, initialized to 0.
      recurrent: `Recurrent`, which has the biases of the gates.
      norm: Scale of the layer norm, ``(d_inner,)``, initialized to 1.
      skip: ``(d_inner,)``, ``s``, initialized to 1.
      out: `Linear` without bias, ``(d_inner, d)``.

    Raises:
      ValueError: ``d_head`` or ``block_size`` does not divide ``d_inner``, or keys of
        the recurrence are not of the size of values.

    Example:
      >>> layer = MLSTMLayer(MLSTM(d_head=4))
      >>> x = jnp.ones((2, 16, 8))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, (window, h) = jax.jit(layer.apply)(variables, x)
      >>> y.shape, window.shape, h.shape
      ((2, 16, 8), (2, 3, 16), (2, 4, 5, 5))

    References:
      Beck, Pöppel, Spanring, Auer and others, `xLSTM: Extended Long Short-Term Memory
      <https://arxiv.org/abs/2405.04517>`_, 2024, section 2.4 and appendix A.5
    """

    recurrence: MLSTM = MLSTM()
    expand: PositiveInt = 2
    d_conv: PositiveInt = 4
    block_size: PositiveInt = 4
    n_layers: PositiveInt = 1
    method: Method = "auto"

    def d_inner(self, d_model: int) -> int:
        """Returns the width of the convolution, of queries, of keys and of values."""
        d_inner, d_head = self.expand * d_model, self.recurrence.d_head
        if self.recurrence.d_key not in (None, d_head):
            raise ValueError(
                f"`recurrence` must have `d_key` equal to `d_head`, {d_head}, or None, "
                f"got {self.recurrence.d_key}; queries, keys and values have one width."
            )
        if d_inner % d_head or d_inner % self.block_size:
            raise ValueError(
                "`expand` must make expand * d a multiple of `d_head` and of "
                f"`block_size`, {d_head} and {self.block_size}, got {self.expand} with "
                f"d = {d_model}; `MLSTM(d_head=...)` sets the size of a head."
            )
        return d_inner

    def d_recurrence(self, d_model: int) -> int:
        """Returns the width of queries, keys, values and gates."""
        d_inner = self.d_inner(d_model)
        return 3 * d_inner + 2 * (d_inner // self.recurrence.d_head)

    def mix(self, x, window, h, *, reset, mask):
        """Maps ``x`` and both states to ``(y, window, h)``."""
        d, d_inner = x.shape[-1], self.d_inner(x.shape[-1])
        n_heads = d_inner // self.recurrence.d_head
        # One matrix product for both halves, as in the published weights.
        uz = Linear(2 * d_inner, use_bias=False, name="in")(x)
        u, z = jnp.split(uz, 2, -1)
        convolution = ShortConvolution(self.d_conv, name="convolution")
        c, window = convolution(u, window, reset=reset, mask=mask)
        c = jax.nn.silu(c)
        std = math.sqrt(2 / (5 * d))
        parts = {"query": c, "key": c, "value": u}
        qkv = jnp.concatenate(
            [
                _BlockDiagonal(self.block_size, std, name=name)(inputs)
                for name, inputs in parts.items()
            ],
            -1,
        )
        # The gates begin as their biases, which are those of the recurrence.
        gates = Linear(2 * n_heads, "zeros", use_bias=False, name="gates")(qkv)
        recurrent = Recurrent(self.recurrence, self.method, name="recurrent")
        inputs = jnp.concatenate([qkv, gates], -1)
        y, h = recurrent(inputs, h, reset=reset, mask=mask)
        # A layer norm of each head: the mean square of what is left without the mean.
        centered = center(y.reshape(*y.shape[:-1], n_heads, -1)).reshape(y.shape)
        norm = RMSNorm(n_heads, name="norm")
        y = norm(centered).astype(y.dtype)
        skip = self.param("skip", nn.initializers.ones, (d_inner,))
        y = (y + promoted_like(skip, c) * c) * jax.nn.silu(z)
        # Keeps the variance of the residual stream independent of the depth.
        scale = self.n_layers**-0.5
        return Linear(d, use_bias=False, scale=scale, name="out")(y), window, h


class _BlockDiagonal(Module):
    """Linear map whose matrix is block-diagonal, without bias.

    Attributes:
      size: Size of a block.
      std: Standard deviation of the initial weights.

    Parameters, float32:
      kernel: ``(d / size, size, size)``.
    """

    size: PositiveInt
    std: float

    @nn.compact
    def __call__(self, x: Activations) -> Outputs:
        """Maps ``(*b, l, d)`` to ``(*b, l, d)``."""
        shape = x.shape[-1] // self.size, self.size, self.size
        kernel = self.param("kernel", nn.initializers.normal(self.std), shape)
        dtype = common_dtype(x, kernel)
        blocks = x.astype(dtype).reshape(*x.shape[:-1], *shape[:2])
        return jnp.einsum("...ni,nij->...nj", blocks, kernel.astype(dtype)).reshape(
            x.shape
        )
