"""ETSMLP: exponential smoothing between the two linear maps of an MLP."""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import Fraction, PositiveInt
from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.layers.channel_mixing import InitScheme, Linear, gelu
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Module
from ssm_jax.layers.recurrent import Recurrent
from ssm_jax.recurrences.families.base import Recurrence
from ssm_jax.recurrences.families.nonfinite import isolate_segments
from ssm_jax.sharding.axis import length_axis
from ssm_jax.types import Activations, Method, Outputs, PyTree, Steps


class ETSMLP(Module):
    """An MLP with exponential smoothing before its activation.

    ``y = W_2 f(smoothing(W_1 x + b_1)) + b_2``, multiplied by ``sigmoid(W_3 x + b_3)``
    if ``gate``. The layer mixes steps as well as channels, so a block needs no other
    layer.

    Attributes:
      recurrence: Smoothing over time, usually a `CES`; its output must have the width
        of its input.
      d_hidden: Width of the hidden layer, ``H`` in the paper.
      gate: Whether to multiply by the gate (ETSMLP-Gate).
      activation: Activation ``f``; the authors' code uses ``"relu"`` in the long-range
        tasks and ``"gelu"`` in the language tasks.
      kernel_init: Initialization of the linear maps; the authors' code uses
        ``"normal"`` in the long-range tasks and ``"xavier"`` in the language tasks.
      dropout: Probability of dropping an element of the output.
      method: Evaluation method of the recurrence; it changes the cost, not the values.

    Parameters, float32:
      in: `Linear`, ``(d, d_hidden)`` and ``(d_hidden,)``, ``W_1`` and ``b_1``.
      recurrent: `Recurrent`, for inputs of width ``d_hidden``.
      out: `Linear`, ``(d_hidden, d)`` and ``(d,)``, ``W_2`` and ``b_2``.
      gate: `Linear`, ``(d, d)`` and ``(d,)``, ``W_3`` and ``b_3``; only if ``gate``.

    Example:
      >>> import jax
      >>> from ssm_jax.recurrences import CES
      >>> layer = ETSMLP(CES(), d_hidden=8, gate=True)
      >>> x = jax.numpy.ones((2, 16, 4))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, state = jax.jit(layer.apply)(variables, x)
      >>> y.shape, state.shape
      ((2, 16, 4), (2, 8, 1))

    References:
      Chu and Lin, `Incorporating Exponential Smoothing into MLP
      <https://arxiv.org/abs/2403.17445>`_, 2024, section 3.3, equations 14 to 18
    """

    recurrence: Recurrence
    d_hidden: PositiveInt
    gate: bool = False
    activation: Literal["relu", "gelu"] = "relu"
    kernel_init: InitScheme = "normal"
    dropout: Fraction = 0.0
    method: Method = "auto"

    def initial_state(self, batch_shape: tuple[int, ...], d_model: int) -> PyTree:
        """Returns the state of the recurrence; it does not depend on ``d_model``."""
        del d_model
        # The recurrence runs on the hidden layer, so its width is that of its inputs.
        return self.recurrence.initial_state(batch_shape, self.d_hidden)

    @nn.compact
    def __call__(
        self,
        x: Activations,
        state: PyTree = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        train: bool = False,
    ) -> tuple[Outputs, PyTree]:
        """Maps ``x`` ``(*b, l, d)`` to ``(y, state)``, as `Recurrent` does."""
        check_floating("x", x)
        check_flags("mask", mask, x.shape[:-1], x.shape[-2:-1])
        if mask is not None:
            # NaN at padding would reach the gradients of the linear maps.
            x = jnp.where(jnp.asarray(mask)[..., None], x, 0)

        def run(x, state):
            hidden = Linear(self.d_hidden, self.kernel_init, name="in")(x)
            recurrent = Recurrent(self.recurrence, self.method, name="recurrent")
            hidden, state = recurrent(hidden, state, reset=reset, mask=mask)
            hidden = jax.nn.relu(hidden) if self.activation == "relu" else gelu(hidden)
            y = Linear(x.shape[-1], self.kernel_init, name="out")(hidden)
            if self.gate:
                # The gate depends on the current step only, not on the smoothed
                # sequence.
                gate = Linear(x.shape[-1], self.kernel_init, name="gate")(x)
                y = y * jax.nn.sigmoid(gate)
            y = RowDropout(self.dropout)(y, train=train)
            return y.astype(x.dtype), state

        return isolate_segments(run, x, state, reset, mask, axis_name=length_axis())
