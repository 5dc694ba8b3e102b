"""Gated DeltaNet: short convolutions and the gated delta rule, normalized and gated."""

import jax
import jax.numpy as jnp

from ssm_jax.fields import PositiveInt
from ssm_jax.layers.channel_mixing import Linear
from ssm_jax.layers.convolved_recurrence import ConvolvedRecurrence
from ssm_jax.layers.recurrent import Recurrent
from ssm_jax.layers.rms_norm import RMSNorm
from ssm_jax.layers.short_convolution import ShortConvolution
from ssm_jax.recurrences.gated_delta_rule import GatedDeltaRule
from ssm_jax.types import Method


class GatedDeltaNet(ConvolvedRecurrence):
    r"""A short convolution followed by the gated delta rule, normalized and gated.

    .. math::
      (z, u, r) = W_{in} x, \quad
      y = W_{out} (\operatorname{RMSNorm}(\delta(f(k * u), r)) \, f(z)), \quad
      f = \operatorname{SiLU}

    with ``delta`` the recurrence, ``u`` its queries, keys and values, ``r`` its numbers
    of each head and ``k *`` the causal convolution. The mean square is that of each
    head. The state is ``(window, h)``: the last ``d_conv - 1`` steps of ``u``, and the
    state of the recurrence. DeltaNet is this layer with ``decay=False`` of the
    recurrence and ``gate=False``.

    Attributes:
      recurrence: Recurrence over time, with the sizes of all heads.
      d_conv: Taps of the convolution.
      gate: Whether ``f(z)`` multiplies the output of the norm. False: there is no
        ``z``.
      method: Evaluation method of the recurrence; it changes the cost, not the values.

    Parameters, float32, with ``d_u`` the width of queries, keys and values, ``d_v``
    that of a head of values and ``h`` the number of these:
      in: `Linear` without bias to ``z``, ``q``, ``k``, ``v``, ``a`` and ``b``, in this
        order, ``(d, h d_v + d_u + 2 h)``.
      convolution: `ShortConvolution` without bias, ``(d_conv, d_u)``.
      recurrent: `Recurrent`, for inputs of width ``d_u + 2 h``.
      norm: `RMSNorm`, ``(d_v,)``, which the heads share.
      out: `Linear` without bias, ``(h d_v, d)``.

    Example:
      >>> layer = GatedDeltaNet(GatedDeltaRule(n_heads=2, d_key=3, d_value=4))
      >>> x = jnp.ones((2, 16, 8))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, (window, h) = jax.jit(layer.apply)(variables, x)
      >>> y.shape, window.shape, h.shape
      ((2, 16, 8), (2, 3, 20), (2, 2, 3, 4))

    References:
      Yang, Kautz and Hatamizadeh, `Gated Delta Networks: Improving Mamba2 with Delta
      Rule <https://arxiv.org/abs/2412.06464>`_, 2024, section 3.4
    """

    recurrence: GatedDeltaRule = GatedDeltaRule()
    d_conv: PositiveInt = 4
    gate: bool = True
    method: Method = "auto"

    def d_inner(self, d_model: int) -> int:
        """Returns the width of the convolution, of queries, keys and values."""
        del d_model
        return sum(self.recurrence.d_parts[:3])

    def d_recurrence(self, d_model: int) -> int:
        """Returns the width of the inputs of the recurrence."""
        del d_model
        return sum(self.recurrence.d_parts)

    def mix(self, x, window, h, *, reset, mask):
        """Maps ``x`` and both states to ``(y, window, h)``."""
        d, rule = x.shape[-1], self.recurrence
        d_gate = rule.n_heads * rule.d_value * self.gate
        d_u = self.d_inner(d)
        # One matrix product for all parts.
        width = d_gate + self.d_recurrence(d)
        parts = Linear(width, use_bias=False, name="in")(x)
        z, u, numbers = jnp.split(parts, [d_gate, d_gate + d_u], -1)
        convolution = ShortConvolution(self.d_conv, use_bias=False, name="convolution")
        u, window = convolution(u, window, reset=reset, mask=mask)
        recurrent = Recurrent(rule, self.method, name="recurrent")
        inputs = jnp.concatenate([jax.nn.silu(u), numbers], -1)
        y, h = recurrent(inputs, h, reset=reset, mask=mask)
        heads = y.reshape(*y.shape[:-1], rule.n_heads, rule.d_value)
        y = RMSNorm(name="norm")(heads).reshape(y.shape)
        # The gate after the norm, unlike Mamba-2.
        y = y * jax.nn.silu(z) if self.gate else y
        return Linear(d, use_bias=False, name="out")(y), window, h
