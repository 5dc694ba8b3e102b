"""Mamba-3: the trapezoidal SSD of normalized keys and queries, gated by the input."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from ssm_jax.fields import PositiveInt
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.layers.channel_mixing import Linear
from ssm_jax.layers.mamba2 import width_of_heads
from ssm_jax.layers.module import Module
from ssm_jax.layers.recurrent import Recurrent
from ssm_jax.layers.rms_norm import RMSNorm
from ssm_jax.layers.segments import mix_segments
from ssm_jax.recurrences.families.base import check
from ssm_jax.recurrences.trapezoidal_ssd import TrapezoidalSSD
from ssm_jax.types import Activations, Method, Outputs, PyTree, Steps


class Mamba3(Module):
    r"""`TrapezoidalSSD`, gated by the input, without a convolution.

    .. math::
      (z, v, B, C, r) = W_{in} x, \quad
      y = W_{out} (s(v, \operatorname{RMSNorm}(B), \operatorname{RMSNorm}(C), r) \,
        \operatorname{SiLU}(z))

    with ``s`` the recurrence and ``r`` its numbers of heads and angles. Of ``d_inner =
    expand * d`` channels ``v`` and ``z`` are, in heads of ``d_head``. The state is that
    of the recurrence.

    Attributes:
      recurrence: Recurrence over time, with the sizes of heads, states and groups.
      expand: Ratio ``d_inner / d``; ``d_head`` and ``n_groups`` divide ``d_inner`` into
        as many heads in each group.
      n_layers: Number of layers of the model; the initial ``W_out`` is divided by its
        square root.
      method: Evaluation method of the recurrence; it changes the cost, not the values.

    Parameters, float32:
      in: `Linear` without bias to ``z`` and the inputs of the recurrence, in its order.
      key_norm, query_norm: `RMSNorm`, ``(d_state,)``, which the groups share.
      recurrent: `Recurrent`.
      out: `Linear` without bias, ``(d_inner, d)``.

    Raises:
      ValueError: Heads of ``d_head`` in ``n_groups`` do not divide ``d_inner``.

    Example:
      >>> layer = Mamba3(TrapezoidalSSD(d_head=4, d_state=8))
      >>> x = jnp.ones((2, 16, 8))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, state = jax.jit(layer.apply)(variables, x)
      >>> y.shape, state.shape
      ((2, 16, 8), (2, 4, 46))

    References:
      Lahoti, Li, Chen, Wang, Bick, Kolter, Dao and Gu, `Mamba-3: Improved Sequence
      Modeling using State Space Principles <https://arxiv.org/abs/2603.15569>`_, 2026,
      section 3
    """

    recurrence: TrapezoidalSSD = TrapezoidalSSD()
    expand: PositiveInt = 2
    n_layers: PositiveInt = 1
    method: Method = "auto"

    def d_recurrence(self, d_model: int) -> int:
        """Returns the width of the inputs of the recurrence."""
        ssd = self.recurrence
        d_inner = width_of_heads(ssd, self.expand, d_model)
        return ssd.width(d_inner // ssd.d_head)

    def initial_state(self, batch_shape: tuple[int, ...], d_model: int) -> PyTree:
        """Returns the state before the first step of inputs of width ``d_model``."""
        return self.recurrence.initial_state(batch_shape, self.d_recurrence(d_model))

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
        del train
        check_floating("x", x)
        check(x, None, reset, mask, d=x.shape[-1], state_shape=None)

        def mix(x, state):
            return self._mix(x, state, reset=reset, mask=mask)

        return mix_segments(mix, x, state, reset, mask)

    def _mix(self, x, state, *, reset, mask):
        d, ssd = x.shape[-1], self.recurrence
        d_inner, d_keys = self.expand * d, ssd.n_groups * ssd.d_state
        # One matrix product for all parts, as in the published weights.
        width = d_inner + self.d_recurrence(d)
        parts = Linear(width, use_bias=False, name="in")(x)
        sizes = d_inner, d_inner, d_keys, d_keys
        z, v, B, C, numbers = jnp.split(parts, np.cumsum(sizes), -1)

        def norm(values, name):
            groups = values.reshape(*values.shape[:-1], ssd.n_groups, ssd.d_state)
            return RMSNorm(name=name)(groups).reshape(values.shape)

        B, C = norm(B, "key_norm"), norm(C, "query_norm")
        recurrent = Recurrent(ssd, self.method, name="recurrent")
        inputs = jnp.concatenate([v, B, C, numbers], -1)
        y, state = recurrent(inputs, state, reset=reset, mask=mask)
        # Keeps the variance of the residual stream independent of the depth.
        scale = self.n_layers**-0.5
        out = Linear(d, use_bias=False, scale=scale, name="out")
        return out(y * jax.nn.silu(z)), state
