"""Softmax attention with rotary positions, over the whole sequence or over windows."""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import Fraction, PositiveInt
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.kernels.axes import valid_steps
from ssm_jax.kernels.nonfinite import nan_where
from ssm_jax.kernels.rotary import rotate
from ssm_jax.layers.channel_mixing import Linear, gelu
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.layer_norm import LayerNorm
from ssm_jax.layers.mlp import MLP
from ssm_jax.layers.module import Module
from ssm_jax.layers.softmax import full_attention
from ssm_jax.layers.windows import (
    attend_in_windows,
    check_cache,
    clear_cache,
    initial_cache,
)
from ssm_jax.recurrences.families.base import check
from ssm_jax.recurrences.families.padding import (
    left_align,
    reset_padding,
    scatter_back,
)
from ssm_jax.sharding.axis import refuse_sharded_length
from ssm_jax.types import Activations, Outputs, PyTree, Steps


class RotaryAttention(Module):
    r"""Softmax attention with rotary positions and a residual connection of its own.

    .. math::
      y = W_o (x + \operatorname{dropout}(\operatorname{GELU}(W_a a(x) + b_a))) + b_o,
      \qquad a_i = \sum_j \operatorname{softmax}_j(s \, R_i q_i \cdot R_j k_j) \, v_j

    in each head of width ``d / n_heads``, with the rotation ``R_i`` of position ``i``
    (`rotate`) and a learned scale ``s``. The paper on DLR compares its own layer with
    this one. A segment starts at position 0, and padding has no position.

    Attributes:
      n_heads: Number of heads; must divide the width into heads of even width.
      window: Length of a window. Each step attends to its window and to the previous
        one, and if ``bidirectional`` to the next one; windows do not overlap, and the
        first starts with the segment. Time grows with ``l``. None: each step attends to
        the whole segment; time grows with ``l**2``.
      bidirectional: Whether each step attends to later steps too.
      mixing: ``"linear"``: ``W_o x + b_o`` as above. ``"glu"``: a gated linear unit.
      d_feedforward: Width of the hidden layer of two feed-forward sublayers
        ``y + MLP(LayerNorm(y))`` after the output. None means no such sublayers.
      dropout: Probability of dropping a channel at all steps of a sequence.

    Parameters, float32, `Linear` in its default initialization:
      in: to queries, keys and values, ``(d, 3 d)`` and ``(3 d,)``.
      scale: ``()``, ``s``, initialized to ``(d / n_heads)**-0.5``; shared by the heads.
      mixed: ``W_a`` and ``b_a``, ``(d, d)`` and ``(d,)``.
      out: ``W_o`` and ``b_o``, ``(d, d)`` and ``(d,)``; twice as wide for ``"glu"``.
      feedforward_i, feedforward_norm_i: `MLP` and `LayerNorm`, ``i`` = 0, 1.

    Note:
      The layer of the authors' code has ``d`` more parameters: it also creates the
      feedthrough of a DLR, which its attention does not use. Their counts of parameters
      include it.

    Example:
      >>> layer = RotaryAttention(n_heads=2, window=4)
      >>> x = jnp.ones((3, 16, 8))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, (keys, values, position) = jax.jit(layer.apply)(variables, x)
      >>> y.shape, keys.shape, position
      ((3, 16, 8), (3, 8, 2, 4), Array([4., 4., 4.], dtype=float32))

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, sections 3.3
      and A.5
    """

    n_heads: PositiveInt = 4
    window: PositiveInt | None = None
    bidirectional: bool = False
    mixing: Literal["linear", "glu"] = "linear"
    d_feedforward: PositiveInt | None = None
    dropout: Fraction = 0.0

    def initial_state(self, batch_shape: tuple[int, ...], d_model: int) -> PyTree:
        """Returns the state before the first step, or None.

        The state of causal attention in windows is ``(keys, values, position)``: those
        of the last ``2 window`` steps, oldest first, before the rotation,
        ``(*batch_shape, 2 window, n_heads, d / n_heads)``, and the position of the next
        step, ``(*batch_shape,)``, less the whole windows before the previous one. Other
        attention has no state of fixed size, so the result is None.
        """
        if self.window is None or self.bidirectional:
            return None
        heads = (self.n_heads, d_model // self.n_heads)
        return initial_cache(batch_shape, 2 * self.window, heads)

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
        """Maps a sequence to a sequence.

        Args:
          x: Input, ``(*b, l, d)``.
          state: Initial state, as returned by `initial_state` or by a previous call.
            None means `initial_state`.
          reset: True where a segment starts, ``(*b, l)``; a step attends only to steps
            of its own segment. None means a single segment.
          mask: True at valid steps, ``(*b, l)``; padding is skipped and its outputs are
            zero. None means that all steps are valid.
          train: Whether dropout is active.

        Returns:
          ``(y, state)``: output, ``(*b, l, d)``, and the final state, or None for
          attention without a state.

        Raises:
          ValueError: ``n_heads`` does not divide the width into heads of even width, a
            shape does not fit, or a state is given to attention without a state.
        """
        self._check(x, state, reset, mask)
        d, dtype = x.shape[-1], x.dtype
        reset_after = reset_padding(reset, mask)
        x, reset, lengths, positions = left_align(x, reset, mask)
        # Values that are not finite would reach the gradients of the linear maps, and,
        # with a weight of 0, other segments and earlier steps.
        finite = jnp.all(jnp.isfinite(x), -1)
        x = jnp.where(finite[..., None], x, 0)
        heads = Linear(3 * d, name="in")(x)
        heads = heads.reshape(*x.shape[:-1], 3, self.n_heads, d // self.n_heads)
        q, k, v = (heads[..., i, :, :] for i in range(3))
        scale = nn.initializers.constant((d // self.n_heads) ** -0.5)
        # The queries are scaled, and not their products with the keys; see `attend`.
        q = self.param("scale", scale, ()) * q
        if self.window is None:
            y, seen = self._attend_to_all(q, k, v, reset, lengths, finite)
            last = None
        else:
            y, seen, last = attend_in_windows(
                q,
                k,
                v,
                state,
                window=self.window,
                bidirectional=self.bidirectional,
                reset=reset,
                lengths=lengths,
                finite=finite,
            )
        if last is not None:
            # A reset that no valid step follows still clears the state.
            last = clear_cache(last, reset_after)
        y = gelu(Linear(d, name="mixed")(y.reshape(x.shape)))
        # One dropout mask for all steps: the length axis (-2) is broadcast.
        y = x + RowDropout(self.dropout, broadcast_dims=(-2,))(y, train=train)
        if self.mixing == "linear":
            y = Linear(d, name="out")(y)
        else:
            y = nn.glu(Linear(2 * d, name="out")(y))
        if self.d_feedforward is not None:
            for i in range(2):
                norm = LayerNorm(name=f"feedforward_norm_{i}")
                mlp = MLP(
                    self.d_feedforward, kernel_init="uniform", name=f"feedforward_{i}"
                )
                y = y + mlp(norm(y), train=train)
        y = nan_where((seen | ~finite)[..., None], y)
        return scatter_back(y, mask, positions).astype(dtype), last

    def _attend_to_all(self, q, k, v, reset, lengths, finite):
        valid = None if lengths is None else valid_steps(lengths, q.shape[-3])
        return full_attention(
            rotate(q),
            rotate(k),
            v,
            bidirectional=self.bidirectional,
            segment=None if reset is None else jnp.cumsum(reset, -1),
            mask=valid,
            flags=~finite,
        )

    def _check(self, x, state, reset, mask):
        check_floating("x", x)
        refuse_sharded_length(self, "shard the batch, or use a recurrence")
        if x.ndim < 2 or x.shape[-1] % (2 * self.n_heads):
            raise ValueError(
                f"`x` must be (*b, l, d) with d a multiple of 2 n_heads = "
                f"{2 * self.n_heads}, got {x.shape}; pairs of channels are rotated in "
                "each head."
            )
        check(x, None, reset, mask, d=x.shape[-1], state_shape=None)
        if state is None:
            return
        # Only shapes are compared, so no array is allocated.
        initial = jax.eval_shape(lambda: self.initial_state(x.shape[:-2], x.shape[-1]))
        if initial is None:
            raise ValueError(
                f"`state` must be None for attention with window = {self.window} and "
                f"bidirectional = {self.bidirectional}, got one; only causal attention "
                "in windows has a state."
            )
        check_cache(state, initial)
