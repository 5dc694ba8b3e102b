"""Multi-head self-attention with softmax weights or a linear feature map."""

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import Fraction, PositiveInt
from ssm_jax.kernels import linear_attention
from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.nonfinite import nan_where
from ssm_jax.kernels.rotary import rotate
from ssm_jax.kernels.sharding import broadcast_to_steps
from ssm_jax.layers.channel_mixing import InitScheme, Linear
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Module
from ssm_jax.layers.softmax import full_attention
from ssm_jax.recurrences.families.nonfinite import isolate_segments
from ssm_jax.sharding.axis import refuse_sharded_length
from ssm_jax.types import Activations, Array, Float, Outputs, Steps

AttentionKind = Literal["softmax", "rotary", "linear"]


class Attention(Module):
    r"""Multi-head self-attention.

    .. math::
      y_i = \frac{\sum_j w(q_i, k_j)\, v_j}{\sum_j w(q_i, k_j)}, \qquad
      w(q, k) = \exp(q \cdot k / \sqrt{d_h}) \;\text{ or }\; \phi(q) \cdot \phi(k)

    in each head of width ``d_h``. Queries, keys and values are linear maps of ``x``; an
    output projection maps the concatenated heads to the output.

    Attributes:
      n_heads: Number of heads.
      kind: ``"softmax"`` selects the first ``w``; time grows with ``l**2``, memory
        with ``l``. ``"rotary"``: the same, of queries and keys that are rotated by
        their positions (`rotate`); padding has no position. ``"linear"`` selects
        the second, with ``phi(x) = elu(x) + 1``; both grow with ``l``.
      bidirectional: Whether each step attends to all steps of its segment. If False,
        it attends to itself and to earlier steps.
      kernel_init: Initialization of the linear maps; see `Linear`.
      dropout: Probability of dropping an element of the output.
      d_head: Width of a head, ``d_h``; even for ``"rotary"``. None means
        ``d / n_heads``, which ``n_heads`` must divide.

    Parameters, float32, with ``d_a = n_heads d_h``, which is usually ``d``:
      in: `Linear` to queries, keys and values, ``(d, 3 d_a)`` and ``(3 d_a,)``.
      out: `Linear` output projection, ``(d_a, d)`` and ``(d,)``.

    Example:
      >>> layer = Attention(n_heads=2, kind="linear")
      >>> x = jnp.ones((3, 16, 8))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, state = jax.jit(layer.apply)(variables, x)
      >>> y.shape, state.shape
      ((3, 16, 8), (3, 2, 4, 5))

    References:
      Vaswani et al., `Attention Is All You Need <https://arxiv.org/abs/1706.03762>`_,
      2017, section 3.2; Katharopoulos et al., `Transformers are RNNs
      <https://arxiv.org/abs/2006.16236>`_, 2020, equations 5, 7 and 16 to 20; Su et
      al., `RoFormer <https://arxiv.org/abs/2104.09864>`_, 2021, section 3.2 (rotary)
    """

    n_heads: PositiveInt
    kind: AttentionKind = "softmax"
    bidirectional: bool = False
    kernel_init: InitScheme = "xavier"
    dropout: Fraction = 0.0
    d_head: PositiveInt | None = None

    def initial_state(
        self, batch_shape: tuple[int, ...], d_model: int
    ) -> Float[jax.Array, "*b h k v"] | None:
        """Returns zeros, ``(*batch_shape, n_heads, d_h, d_h + 1)``, or None.

        The state is the sum of ``phi(k) v^T`` over the steps so far; its last column is
        the sum of ``phi(k)``. Softmax attention and bidirectional attention have no
        state of fixed size, so the result is None.
        """
        if self.kind != "linear" or self.bidirectional:
            return None
        d_head = self.d_head or d_model // self.n_heads
        return jnp.zeros((*batch_shape, self.n_heads, d_head, d_head + 1))

    @nn.compact
    def __call__(
        self,
        x: Activations,
        state: Float[Array, "*b h k v"] | None = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        train: bool = False,
    ) -> tuple[Outputs, Float[jax.Array, "*b h k v"] | None]:
        """Maps a sequence to a sequence.

        Args:
          x: Input, ``(*b, l, d)``.
          state: Initial state, as returned by `initial_state` or by a previous call.
            None means `initial_state`.
          reset: True where a segment starts, ``(*b, l)`` or, for all rows, ``(l,)``; a
            step attends only to steps of its own segment. None means a single segment.
          mask: True at valid steps, ``(*b, l)`` or ``(l,)``; no step attends to
            padding, and outputs at padding are zero. None means that all steps are
            valid.
          train: Whether dropout is active.

        Returns:
          ``(y, state)``: output in the dtype of ``x``, ``(*b, l, d)``, and the final
          state, or None for attention without a state.

        Raises:
          ValueError: ``n_heads`` does not divide the width, a head to rotate has an odd
            width, a shape does not fit, or a state is given to attention without a
            state.
        """
        self._check(x, state, reset, mask)
        if reset is not None:
            reset = broadcast_to_steps(reset, x)
        if mask is not None:
            mask = broadcast_to_steps(mask, x)
            # NaN at padding would reach the gradient of the kernel even with weight 0.
            x = jnp.where(mask[..., None], x, 0)
        attend = functools.partial(self._attend, reset=reset, mask=mask, train=train)
        if self.kind == "linear":
            # A weight of 0 would not hide values that are not finite from other steps,
            # nor from the gradients of the linear maps, also without segments.
            starts = jnp.zeros(x.shape[:-1], bool) if reset is None else reset
            bidirectional = self.bidirectional
            return isolate_segments(
                attend, x, state, starts, mask, bidirectional=bidirectional
            )
        finite = jnp.all(jnp.isfinite(x), -1)
        x = jnp.where(finite[..., None], x, 0)
        y, reached = attend(x, state, flags=~finite)
        return nan_where((reached | ~finite)[..., None], y), None

    def _attend(
        self, x, state, *, reset, mask, train, flags: Any = None
    ) -> tuple[jax.Array, Any]:
        """Returns the output and the final state or, if softmax, what flags reach."""
        d = x.shape[-1]
        d_head = self.d_head or d // self.n_heads
        heads = Linear(3 * self.n_heads * d_head, self.kernel_init, name="in")(x)
        heads = heads.reshape(*x.shape[:-1], 3, self.n_heads, d_head)
        q, k, v = (heads[..., i, :, :] for i in range(3))
        if self.kind == "rotary":
            # Only differences of positions matter, so segments need not start at 0.
            steps = None if mask is None else jnp.maximum(jnp.cumsum(mask, -1) - 1, 0)
            q, k = rotate(q, steps=steps), rotate(k, steps=steps)
        if self.kind == "linear":
            # Positive features keep the denominator, a sum of their products, positive.
            options = {"bidirectional": self.bidirectional, "reset": reset}
            y, last = linear_attention(
                _features(q), _features(k), v, state, mask=mask, **options
            )
        else:
            y, last = full_attention(
                q * q.shape[-1] ** -0.5,
                k,
                v,
                bidirectional=self.bidirectional,
                # Steps of one segment share the number of resets up to them.
                segment=None if reset is None else jnp.cumsum(reset, -1),
                mask=mask,
                flags=flags,
            )
        y = y.reshape(*x.shape[:-1], self.n_heads * d_head)
        y = Linear(d, self.kernel_init, name="out")(y)
        if mask is not None:
            # The bias of the output projection is not zero at padding.
            y = jnp.where(mask[..., None], y, 0)
        return RowDropout(self.dropout)(y, train=train).astype(jnp.result_type(x)), last

    def _check(self, x, state, reset, mask):
        check_floating("x", x)
        refuse_sharded_length(self, "shard the batch, or use a recurrence")
        multiple = self.n_heads if self.d_head is None else 1
        if x.ndim < 2 or x.shape[-2] == 0 or x.shape[-1] % multiple:
            raise ValueError(
                f"`x` must be (*b, l, d) with l > 0 and d a multiple of n_heads = "
                f"{self.n_heads}, got {x.shape}; heads share the width evenly without "
                "a `d_head`."
            )
        d_head = self.d_head or x.shape[-1] // self.n_heads
        if self.kind == "rotary" and d_head % 2:
            raise ValueError(
                f"`d_head` must be even for rotary attention, got {d_head}; pairs of "
                "channels are rotated."
            )
        if 0 in x.shape:
            raise ValueError(
                f"`x` must have at least one row, got {x.shape}; skip empty batches."
            )
        for name, flags in (("reset", reset), ("mask", mask)):
            check_flags(name, flags, x.shape[:-1], x.shape[-2:-1])
        if state is None:
            return
        # Only shapes are compared, so no array is allocated.
        initial = jax.eval_shape(lambda: self.initial_state(x.shape[:-2], x.shape[-1]))
        if initial is None:
            raise ValueError(
                f"`state` must be None for {self.kind} attention with bidirectional = "
                f"{self.bidirectional}, got one; only unidirectional linear attention "
                "has a state."
            )
        check_floating("state", state)
        if state.shape != initial.shape:
            raise ValueError(
                f"`state` must be {initial.shape}, got {state.shape}; `initial_state` "
                "returns one."
            )


def _features(x):
    """The feature map ``elu(x) + 1``."""
    # `exp(x)` keeps its relative precision for x << 0, where `expm1(x) + 1` rounds to
    # 0. The minimum keeps the branch that is not taken finite in the gradient.
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0)))
