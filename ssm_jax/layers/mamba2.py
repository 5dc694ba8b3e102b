"""Mamba-2: a short convolution and SSD, gated by the input and normalized."""

import jax
import jax.numpy as jnp

from ssm_jax.fields import PositiveInt
from ssm_jax.layers.channel_mixing import Linear
from ssm_jax.layers.convolved_recurrence import ConvolvedRecurrence
from ssm_jax.layers.recurrent import Recurrent
from ssm_jax.layers.rms_norm import RMSNorm
from ssm_jax.layers.short_convolution import ShortConvolution
from ssm_jax.recurrences.ssd import SSD
from ssm_jax.recurrences.trapezoidal_ssd import TrapezoidalSSD
from ssm_jax.types import Method


class Mamba2(ConvolvedRecurrence):
    r"""A short convolution followed by `SSD`, gated by the input and normalized.

    .. math::
      (z, u, r) = W_{in} x, \quad
      y = W_{out} \operatorname{RMSNorm}(\operatorname{SSD}(f(k * u), r) \, f(z)), \quad
      f = \operatorname{SiLU}

    with ``u`` the parts ``x``, ``B`` and ``C`` of the recurrence, ``r`` its raw step
    sizes and ``k *`` the causal convolution. Of ``d_inner = expand * d`` channels ``x``
    and ``z`` are, in heads of ``d_head``. The mean square is one for each group of
    heads that share ``B`` and ``C``. The state is ``(window, h)``: the last ``d_conv -
    1`` steps of ``u``, and the state of the recurrence.

    Attributes:
      recurrence: Recurrence over time, with the sizes of heads, states and groups.
      expand: Ratio ``d_inner / d``; ``d_head`` and ``n_groups`` divide ``d_inner`` into
        as many heads in each group.
      d_conv: Taps of the convolution.
      n_layers: Number of layers of the model; the initial ``W_out`` is divided by its
        square root.
      method: Evaluation method of the recurrence; it changes the cost, not the values.

    Parameters, float32, with ``h = d_inner / d_head`` heads and ``d_u = d_inner + 2
    n_groups d_state``:
      in: `Linear` without bias to ``z``, ``x``, ``B``, ``C`` and ``r``, in this order,
        ``(d, d_inner + d_u + h)``.
      convolution: `ShortConvolution`, ``(d_conv, d_u)`` and ``(d_u,)``.
      recurrent: `Recurrent`, for inputs of width ``d_u + h``.
      norm: `RMSNorm` of ``n_groups``, ``(d_inner,)``.
      out: `Linear` without bias, ``(d_inner, d)``.

    Raises:
      ValueError: Heads of ``d_head`` in ``n_groups`` do not divide ``d_inner``.

    Example:
      >>> layer = Mamba2(SSD(d_head=4, d_state=3))
      >>> x = jnp.ones((2, 16, 8))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, (window, h) = jax.jit(layer.apply)(variables, x)
      >>> y.shape, window.shape, h.shape
      ((2, 16, 8), (2, 3, 22), (2, 4, 3, 4))

    References:
      Dao and Gu, `Transformers are SSMs: Generalized Models and Efficient Algorithms
      Through Structured State Space Duality <https://arxiv.org/abs/2405.21060>`_, 2024,
      section 7
    """

    recurrence: SSD = SSD()
    expand: PositiveInt = 2
    d_conv: PositiveInt = 4
    n_layers: PositiveInt = 1
    method: Method = "auto"

    def d_inner(self, d_model: int) -> int:
        """Returns the width of the convolution, of ``x``, ``B`` and ``C``."""
        ssd = self.recurrence
        d_values = width_of_heads(ssd, self.expand, d_model)
        return d_values + 2 * ssd.n_groups * ssd.d_state

    def d_recurrence(self, d_model: int) -> int:
        """Returns the width of ``x``, ``B``, ``C`` and the step sizes."""
        n_heads = self.expand * d_model // self.recurrence.d_head
        return self.d_inner(d_model) + n_heads

    def mix(self, x, window, h, *, reset, mask):
        """Maps ``x`` and both states to ``(y, window, h)``."""
        d, ssd = x.shape[-1], self.recurrence
        d_values, d_u = self.expand * d, self.d_inner(d)
        # One matrix product for all parts, as in the published weights.
        width = d_values + self.d_recurrence(d)
        parts = Linear(width, use_bias=False, name="in")(x)
        z, u, steps = jnp.split(parts, [d_values, d_values + d_u], -1)
        convolution = ShortConvolution(self.d_conv, name="convolution")
        u, window = convolution(u, window, reset=reset, mask=mask)
        recurrent = Recurrent(ssd, self.method, name="recurrent")
        inputs = jnp.concatenate([jax.nn.silu(u), steps], -1)
        y, h = recurrent(inputs, h, reset=reset, mask=mask)
        # The gate before the norm, as in the published models.
        y = RMSNorm(ssd.n_groups, name="norm")(y * jax.nn.silu(z))
        # Keeps the variance of the residual stream independent of the depth.
        scale = self.n_layers**-0.5
        return Linear(d, use_bias=False, scale=scale, name="out")(y), window, h


def width_of_heads(recurrence: SSD | TrapezoidalSSD, expand: int, d_model: int) -> int:
    """Returns the width of all heads of a layer of Mamba-2 or Mamba-3.

    Args:
      recurrence: With the sizes of heads and groups.
      expand: Ratio of that width to ``d_model``.
      d_model: Width of the layer.

    Raises:
      ValueError: Heads of ``d_head`` in ``n_groups`` do not divide it.
    """
    width, size = expand * d_model, recurrence.n_groups * recurrence.d_head
    if width % size:
        raise ValueError(
            "`expand` must make the width of all heads, expand * d, a multiple of "
            f"n_groups * d_head = {size}, got {expand} with d = {d_model}; "
            f"`{type(recurrence).__name__}(d_head=...)` sets the size of a head."
        )
    return width
