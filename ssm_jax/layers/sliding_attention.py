"""Softmax attention of each step to the last steps, with rotary positions."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import PositiveInt
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.kernels.nonfinite import nan_where
from ssm_jax.layers.channel_mixing import InitScheme, Linear
from ssm_jax.layers.module import Module
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


class SlidingAttention(Module):
    r"""Causal attention of each step to itself and the ``window - 1`` steps before it.

    .. math::
      y_i = W_{out} \, a_i + b, \qquad a_i = \sum_{j = i - w + 1}^{i}
      \operatorname{softmax}_j(R_i q_i \cdot R_j k_j / \sqrt{d_h}) \, v_j

    in each head of width ``d_h``, with the rotation ``R_i`` of position ``i``
    (`rotate`), which only sees differences of positions. Queries, keys and values are
    linear maps of ``x`` without a bias. Time and memory grow with ``l``, and the state
    has a fixed size. Segments and padding are as for a recurrence: no step attends to
    another segment, and padding has no position.

    Attributes:
      n_heads: Number of heads of queries.
      window: Number of steps that a step attends to, including its own.
      n_kv_heads: Number of heads of keys and values, a divisor of ``n_heads``; each
        serves ``n_heads / n_kv_heads`` heads of queries. 1 is multi-query attention.
        None means ``n_heads``.
      d_head: Width of a head, ``d_h``. None means ``d / n_heads``, which ``n_heads``
        must divide.
      d_rotary: Number of channels of a head that are rotated, the first ones; even.
        None means all.
      kernel_init: Initialization of the linear maps; see `Linear`.

    Parameters, float32:
      in: `Linear` to queries, keys and values,
        ``(d, (n_heads + 2 n_kv_heads) d_h)``, without a bias.
      out: `Linear`, ``(n_heads d_h, d)`` and ``(d,)``.

    Note:
      RecurrentGemma pairs the channels ``i`` and ``i + d_rotary / 2`` for the rotation,
      `rotate` pairs neighbours: the same layer up to the order of the channels of
      queries and keys, which `ssm_jax.interop.load_pretrained` changes.

    Example:
      >>> layer = SlidingAttention(n_heads=4, window=3, n_kv_heads=1, d_rotary=2)
      >>> x = jnp.ones((2, 16, 16))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, (keys, values, position) = jax.jit(layer.apply)(variables, x)
      >>> y.shape, keys.shape, position
      ((2, 16, 16), (2, 3, 1, 4), Array([2., 2.], dtype=float32))

    References:
      Beltagy, Peters and Cohan, `Longformer <https://arxiv.org/abs/2004.05150>`_, 2020,
      section 3.1; Shazeer, `Fast Transformer Decoding: One Write-Head is All You Need
      <https://arxiv.org/abs/1911.02150>`_, 2019; as in De, Smith, Fernando, Botev and
      others, `Griffin <https://arxiv.org/abs/2402.19427>`_, 2024, section 2.3
    """

    n_heads: PositiveInt
    window: PositiveInt
    n_kv_heads: PositiveInt | None = None
    d_head: PositiveInt | None = None
    d_rotary: PositiveInt | None = None
    kernel_init: InitScheme = "xavier"

    def initial_state(self, batch_shape: tuple[int, ...], d_model: int) -> PyTree:
        """Returns the state before the first step, ``(keys, values, position)``.

        Keys and values are those of the last ``window`` steps, oldest first, before the
        rotation, ``(*batch_shape, window, n_kv_heads, d_h)``; the position is the
        number of them that later steps may attend to, ``(*batch_shape,)``, as a float.
        """
        heads = (self.n_kv_heads or self.n_heads, self._d_head(d_model))
        return initial_cache(batch_shape, self.window, heads)

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
          train: Unused.

        Returns:
          ``(y, state)``: output in the dtype of ``x``, ``(*b, l, d)``, and the final
          state.

        Raises:
          ValueError: The numbers of heads or channels do not fit, or a shape does not.
        """
        del train
        self._check(x, state, reset, mask)
        d, dtype, d_head = x.shape[-1], x.dtype, self._d_head(x.shape[-1])
        reset_after = reset_padding(reset, mask)
        x, reset, lengths, positions = left_align(x, reset, mask)
        # Values that are not finite would reach the gradients of the linear maps, and,
        # with a weight of 0, other segments and earlier steps.
        finite = jnp.all(jnp.isfinite(x), -1)
        x = jnp.where(finite[..., None], x, 0)
        n, n_kv = self.n_heads, self.n_kv_heads or self.n_heads
        heads = Linear(
            (n + 2 * n_kv) * d_head, self.kernel_init, use_bias=False, name="in"
        )(x)
        heads = heads.reshape(*x.shape[:-1], n + 2 * n_kv, d_head)
        q, k, v = jnp.split(heads, (n, n + n_kv), -2)
        # The queries are scaled, and not their products with the keys; see `attend`.
        y, seen, last = attend_in_windows(
            q * d_head**-0.5,
            k,
            v,
            state,
            window=1,
            behind=self.window - 1,
            n_rotated=self.d_rotary,
            bidirectional=False,
            reset=reset,
            lengths=lengths,
            finite=finite,
        )
        y = y.reshape(*x.shape[:-1], n * d_head)
        y = Linear(d, self.kernel_init, name="out")(y)
        y = nan_where((seen | ~finite)[..., None], y)
        # A reset that no valid step follows still clears the state.
        last = None if last is None else clear_cache(last, reset_after)
        return scatter_back(y, mask, positions).astype(dtype), last

    def _d_head(self, d_model):
        return self.d_head or d_model // self.n_heads

    def _check(self, x, state, reset, mask):
        check_floating("x", x)
        refuse_sharded_length(self, "shard the batch, or use a recurrence")
        if self.n_heads % (n_kv := self.n_kv_heads or self.n_heads):
            raise ValueError(
                f"`n_kv_heads` must be a divisor of n_heads = {self.n_heads}, got "
                f"{n_kv}; 1 shares keys and values among all heads."
            )
        multiple = self.n_heads if self.d_head is None else 1
        if x.ndim < 2 or x.shape[-1] % multiple:
            raise ValueError(
                f"`x` must be (*b, l, d) with d a multiple of n_heads = "
                f"{self.n_heads}, got {x.shape}; heads share the width evenly without "
                "a `d_head`."
            )
        d_head = self._d_head(x.shape[-1])
        d_rotary = self.d_rotary or d_head
        if d_rotary % 2 or d_rotary > d_head:
            raise ValueError(
                f"`d_rotary` must be even and at most d_head = {d_head}, got "
                f"{d_rotary}; pairs of channels are rotated."
            )
        check(x, None, reset, mask, d=x.shape[-1], state_shape=None)
        if state is not None:
            # Only shapes are compared, so no array is allocated.
            shape = x.shape[:-2], x.shape[-1]
            check_cache(state, jax.eval_shape(lambda: self.initial_state(*shape)))
