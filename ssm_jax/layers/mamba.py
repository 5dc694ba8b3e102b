"""Mamba: a short convolution and a recurrence, gated by the input."""

import dataclasses
import math

import jax
import jax.numpy as jnp

from ssm_jax.fields import PositiveInt
from ssm_jax.layers.channel_mixing import Linear
from ssm_jax.layers.convolved_recurrence import ConvolvedRecurrence
from ssm_jax.layers.recurrent import Recurrent
from ssm_jax.layers.short_convolution import ShortConvolution
from ssm_jax.layers.step_sizes import takes_dt
from ssm_jax.recurrences.families.base import Recurrence
from ssm_jax.recurrences.selective_ssm import SelectiveSSM
from ssm_jax.types import Method


class Mamba(ConvolvedRecurrence):
    r"""A short convolution followed by a recurrence, gated by the input.

    .. math::
      (u, z) = W_{in} x, \quad
      y = W_{out} (r(f(k * u)) \, f(z)), \quad f = \operatorname{SiLU}

    with ``r`` the recurrence and ``k *`` the causal convolution, both of width
    ``d_inner = expand * d``. The layer mixes steps as well as channels, so a block
    needs no other layer. The state is ``(window, h)``: the last ``d_conv - 1`` steps of
    ``u``, and the state of the recurrence.

    Attributes:
      recurrence: Recurrence over time; its output must have the width of its input. A
        `SelectiveSSM` with ``dt_rank=None`` gets the published rank, ``ceil(d / 16)``,
        with ``d`` the width of ``x``.
      expand: Ratio ``d_inner / d``, ``E`` in the paper.
      d_conv: Taps of the convolution.
      n_layers: Number of layers of the model; the initial ``W_out`` is divided by its
        square root.
      method: Evaluation method of the recurrence; it changes the cost, not the values.

    Parameters, float32:
      in: `Linear` without bias, ``(d, 2 d_inner)``.
      convolution: `ShortConvolution`, ``(d_conv, d_inner)`` and ``(d_inner,)``.
      recurrent: `Recurrent`, for inputs of width ``d_inner``.
      out: `Linear` without bias, ``(d_inner, d)``.

    Example:
      >>> layer = Mamba()
      >>> x = jnp.ones((2, 16, 8))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, (window, h) = jax.jit(layer.apply)(variables, x)
      >>> y.shape, window.shape, h.shape
      ((2, 16, 8), (2, 3, 16), (2, 16, 16))

    References:
      Gu and Dao, `Mamba: Linear-Time Sequence Modeling with Selective State Spaces
      <https://arxiv.org/abs/2312.00752>`_, 2023, section 3.4
    """

    recurrence: Recurrence = SelectiveSSM()
    expand: PositiveInt = 2
    d_conv: PositiveInt = 4
    n_layers: PositiveInt = 1
    method: Method = "auto"

    @property
    def takes_dt(self) -> bool:
        """Whether the recurrence takes the sizes of steps, ``dt``."""
        return takes_dt(self.recurrence)

    def d_inner(self, d_model: int) -> int:
        """Returns the width of the convolution and of the recurrence."""
        return self.expand * d_model

    def mix(self, x, window, h, *, reset, mask, dt=None):
        """Maps ``x`` and both states to ``(y, window, h)``."""
        d = x.shape[-1]
        # One matrix product for both halves, as in the published weights.
        uz = Linear(2 * self.d_inner(d), use_bias=False, name="in")(x)
        u, z = jnp.split(uz, 2, -1)
        convolution = ShortConvolution(self.d_conv, name="convolution")
        u, window = convolution(u, window, reset=reset, mask=mask)
        recurrent = Recurrent(self._with_rank(d), self.method, name="recurrent")
        y, h = recurrent(jax.nn.silu(u), h, reset=reset, mask=mask, dt=dt)
        # Keeps the variance of the residual stream independent of the depth.
        scale = self.n_layers**-0.5
        out = Linear(d, use_bias=False, scale=scale, name="out")
        return out(y * jax.nn.silu(z)), window, h

    def _with_rank(self, d):
        """The recurrence with ``dt_rank`` set from the width of the input."""
        recurrence = self.recurrence
        # The published rank depends on the width of the model; the recurrence itself
        # knows only d_inner.
        if isinstance(recurrence, SelectiveSSM) and recurrence.dt_rank is None:
            return dataclasses.replace(recurrence, dt_rank=math.ceil(d / 16))
        return recurrence
