"""The recurrent block of Griffin: a convolution and an RG-LRU, gated by the input."""

import jax

from ssm_jax.fields import PositiveInt
from ssm_jax.layers.channel_mixing import Linear
from ssm_jax.layers.convolved_recurrence import ConvolvedRecurrence
from ssm_jax.layers.recurrent import Recurrent
from ssm_jax.layers.short_convolution import ShortConvolution
from ssm_jax.recurrences.families.base import Recurrence
from ssm_jax.recurrences.rg_lru import RGLRU
from ssm_jax.types import Method


class Griffin(ConvolvedRecurrence):
    r"""A short convolution followed by a recurrence, gated by the input.

    .. math::
      y = W_{out} (r(k * W_x x) \, \operatorname{GELU}(W_y x))

    with ``r`` the recurrence and ``k *`` the causal convolution, of width ``d_inner``;
    there is no activation between them, and all maps have biases. In the published
    models a block with this layer has a gated feed-forward layer after it. The state is
    ``(window, h)``: the last ``d_conv - 1`` inputs of the convolution, and the state of
    the recurrence.

    Attributes:
      recurrence: Recurrence over time; its output must have the width of its input.
      width: ``d_inner``. None: that of ``x``.
      d_conv: Taps of the convolution.
      method: Evaluation method of the recurrence; it changes the cost, not the values.

    Parameters, float32:
      gate: `Linear`, ``(d, d_inner)``, ``W_y``.
      in: `Linear`, ``(d, d_inner)``, ``W_x``.
      convolution: `ShortConvolution`, ``(d_conv, d_inner)`` and ``(d_inner,)``.
      recurrent: `Recurrent`, for inputs of width ``d_inner``.
      out: `Linear`, ``(d_inner, d)``.

    Example:
      >>> import jax.numpy as jnp
      >>> layer = Griffin(RGLRU(n_heads=2))
      >>> x = jnp.ones((2, 16, 8))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, (window, h) = jax.jit(layer.apply)(variables, x)
      >>> y.shape, window.shape, h.shape
      ((2, 16, 8), (2, 3, 8), (2, 9))

    References:
      De, Smith, Fernando, Botev and others, `Griffin: Mixing Gated Linear Recurrences
      with Local Attention for Efficient Language Models
      <https://arxiv.org/abs/2402.19427>`_, 2024, section 2.3
    """

    recurrence: Recurrence = RGLRU()
    width: PositiveInt | None = None
    d_conv: PositiveInt = 4
    method: Method = "auto"

    def d_inner(self, d_model: int) -> int:
        """Returns the width of the convolution and of the recurrence."""
        return self.width or d_model

    def mix(self, x, window, h, *, reset, mask):
        """Maps ``x`` and both states to ``(y, window, h)``."""
        d_inner = self.d_inner(x.shape[-1])
        gate = Linear(d_inner, name="gate")(x)
        u = Linear(d_inner, name="in")(x)
        convolution = ShortConvolution(self.d_conv, name="convolution")
        u, window = convolution(u, window, reset=reset, mask=mask)
        recurrent = Recurrent(self.recurrence, self.method, name="recurrent")
        y, h = recurrent(u, h, reset=reset, mask=mask)
        # The published models have the approximation by tanh.
        y = y * jax.nn.gelu(gate, approximate=True)
        return Linear(x.shape[-1], name="out")(y), window, h
