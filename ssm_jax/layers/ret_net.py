"""The layer of RetNet: retention, normalized in each head and gated by the input."""

import jax
from flax import linen as nn

from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.layers.channel_mixing import Linear
from ssm_jax.layers.module import Module
from ssm_jax.layers.recurrent import Recurrent
from ssm_jax.layers.rms_norm import RMSNorm
from ssm_jax.layers.segments import mix_segments
from ssm_jax.recurrences.gla import GatedLinearAttention
from ssm_jax.recurrences.retention import Retention
from ssm_jax.types import Activations, Method, Outputs, PyTree, Steps


class RetNet(Module):
    r"""A recurrence in several heads, normalized in each and gated by the input.

    .. math::
      y = W_{out} (\operatorname{RMSNorm}(r(x)) \, \operatorname{SiLU}(W_g x))

    with ``r`` the recurrence, of ``d_o`` outputs. It is the multi-scale retention of
    RetNet, and with `GatedLinearAttention` the layer of that paper, but for its bias of
    the gate. The state is that of the recurrence.

    Attributes:
      recurrence: Recurrence over time.
      method: Evaluation method of the recurrence; it changes the cost, not the values.

    Parameters, float32:
      recurrent: `Recurrent`, for inputs of width ``d``.
      gate: `Linear` without bias, ``(d, d_o)``, ``W_g``.
      out: `Linear` without bias, ``(d_o, d)``.

    Example:
      >>> import jax.numpy as jnp
      >>> layer = RetNet(Retention(n_heads=2))
      >>> x = jnp.ones((2, 16, 8))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, state = jax.jit(layer.apply)(variables, x)
      >>> y.shape, state.shape
      ((2, 16, 8), (2, 2, 2, 8))

    References:
      Sun, Dong, Huang, Ma, Xia, Xue, Wang and Wei, `Retentive Network: A Successor to
      Transformer for Large Language Models <https://arxiv.org/abs/2307.08621>`_, 2023,
      equation 8; Yang, Wang, Shen, Panda and Kim, `Gated Linear Attention Transformers
      with Hardware-Efficient Training <https://arxiv.org/abs/2312.06635>`_, 2023,
      section 4.4
    """

    recurrence: Retention | GatedLinearAttention = Retention()
    method: Method = "auto"

    def initial_state(self, batch_shape: tuple[int, ...], d_model: int) -> PyTree:
        """The state before the first step of inputs of width ``d_model``."""
        return self.recurrence.initial_state(batch_shape, d_model)

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
        check_flags("mask", mask, x.shape[:-1], x.shape[-2:-1])

        def mix(x, state):
            recurrent = Recurrent(self.recurrence, self.method, name="recurrent")
            y, state = recurrent(x, state, reset=reset, mask=mask)
            norm = RMSNorm(self.recurrence.n_heads, use_scale=False, name="norm")
            gate = Linear(y.shape[-1], use_bias=False, name="gate")(x)
            y = norm(y) * jax.nn.silu(gate)
            out = Linear(x.shape[-1], use_bias=False, name="out")
            return out(y), state

        return mix_segments(mix, x, state, reset, mask)
