"""Multi-head self-attention, by softmax or by a linear feature map."""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import Fraction, PositiveInt
from ssm_jax.kernels import linear_attention
from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.layers.channel_mixing import InitScheme, Linear
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Module
from ssm_jax.types import Activations, Array, Float, Outputs, Steps

AttentionKind = Literal["softmax", "linear"]


class Attention(Module):
    r"""Multi-head self-attention: every step is a mean over the steps it may see.

    .. math::
      y_i = \frac{\sum_j w(q_i, k_j)\, v_j}{\sum_j w(q_i, k_j)}, \qquad
      w(q, k) = \exp(q \cdot k / \sqrt{d_h}) \;\text{ or }\; \phi(q) \cdot \phi(k)

    in each head of width ``d_h = d / n_heads``, with queries, keys and values that are
    linear maps of ``x``, and a linear map of what all heads give.

    Attributes:
      n_heads: Number of heads; divides the width.
      kind: ``"softmax"``: the first ``w``; time and memory grow with ``l**2``.
        ``"linear"``: the second, ``phi(x) = elu(x) + 1``; both grow with ``l``.
      bidirectional: Every step sees all of its segment; else itself and what is before
        it.
      kernel_init: How the linear maps start; see `Linear`.
      dropout: Probability that a number of the output is dropped.

    Parameters, float32:
      in: `Linear` to queries, keys and values, ``(d, 3 d)`` and ``(3 d,)``.
      out: `Linear` of what the heads give, ``(d, d)`` and ``(d,)``.

    Example:
      >>> layer = Attention(n_heads=2, kind="linear")
      >>> x = jnp.ones((3, 16, 8))
      >>> variables = layer.init(jax.random.key(0), x)
      >>> y, state = layer.apply(variables, x)
      >>> y.shape, state.shape
      ((3, 16, 8), (3, 2, 4, 5))

    References:
      Vaswani et al., `Attention Is All You Need <https://arxiv.org/abs/1706.03762>`_,
      2017, section 3.2; Katharopoulos et al., `Transformers are RNNs
      <https://arxiv.org/abs/2006.16236>`_, 2020, equations 5, 7 and 16 to 20
    """

    n_heads: PositiveInt
    kind: AttentionKind = "softmax"
    bidirectional: bool = False
    kernel_init: InitScheme = "xavier"
    dropout: Fraction = 0.0

    def initial_state(
        self, batch_shape: tuple[int, ...], d_model: int
    ) -> Float[jax.Array, "*b h k v"] | None:
        """Zeros, ``(*batch_shape, n_heads, d_h, d_h + 1)``; None where there is none.

        A state is the sum of ``phi(k) v^T`` over the steps so far, and in its last
        column that of ``phi(k)``. Softmax attention has none: it would need all steps.
        """
        if self.kind == "softmax" or self.bidirectional:
            return None
        d_head = d_model // self.n_heads
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
          state: State before the first step, as `initial_state` makes it. None means
            that of a fresh start.
          reset: True where a segment starts, ``(*b, l)``; steps of different segments
            do not see each other. None means one segment.
          mask: True where a step is data, ``(*b, l)``; the others are seen by none and
            give zeros. None means all are.
          train: Whether dropout drops.

        Returns:
          ``(y, state)``: output, ``(*b, l, d)``, and the state after the last step;
          None in place of the state where there is none.

        Raises:
          ValueError: ``n_heads`` does not divide the width, a shape does not fit, or a
            state is given where there is none.
        """
        self._check(x, state, reset, mask)
        if mask is not None:
            mask = jnp.asarray(mask)
            x = jnp.where(mask[..., None], x, 0)
        d = x.shape[-1]
        heads = Linear(3 * d, self.kernel_init, name="in")(x)
        heads = heads.reshape(*x.shape[:-1], 3, self.n_heads, d // self.n_heads)
        q, k, v = (heads[..., i, :, :] for i in range(3))
        flags = {"bidirectional": self.bidirectional, "reset": reset, "mask": mask}
        if self.kind == "softmax":
            y, last = _softmax_attention(q, k, v, **flags), None
        else:
            q, k = _features(q), _features(k)
            y, last = linear_attention(q, k, v, state, **flags)
        y = Linear(d, self.kernel_init, name="out")(y.reshape(x.shape))
        if mask is not None:
            y = jnp.where(mask[..., None], y, 0)
        return RowDropout(self.dropout)(y, train=train), last

    def _check(self, x, state, reset, mask):
        check_floating("x", x)
        if x.ndim < 2 or x.shape[-2] == 0 or x.shape[-1] % self.n_heads:
            raise ValueError(
                f"`x` must be (*b, l, d) with l > 0 and d a multiple of n_heads = "
                f"{self.n_heads}, got {x.shape}; the heads share the width evenly."
            )
        if 0 in x.shape:
            raise ValueError(
                f"`x` must have at least one row, got {x.shape}; there is nothing to "
                "evaluate."
            )
        check_flags("reset", reset, x.shape[:-1])
        check_flags("mask", mask, x.shape[:-1])
        if state is None:
            return
        start = jax.eval_shape(lambda: self.initial_state(x.shape[:-2], x.shape[-1]))
        if start is None:
            raise ValueError(
                f"`state` must be None for {self.kind} attention with bidirectional = "
                f"{self.bidirectional}, got one; linear attention in one direction has "
                "a state."
            )
        check_floating("state", state)
        if state.shape != start.shape:
            raise ValueError(
                f"`state` must be {start.shape}, got {state.shape}; `initial_state` "
                "makes one."
            )


def _softmax_attention(q, k, v, *, bidirectional, reset, mask):
    """Softmax attention of ``q``, ``k`` and ``v``, all ``(*b, l, h, k)``."""
    # Not `jax.nn.dot_product_attention`: it takes twice the time on CPUs, and scales
    # the product, which XLA may then round differently from its greatest value: where
    # they are great, a difference that overflows.
    length = q.shape[-3]
    visible = jnp.ones((1, 1), bool) if bidirectional else jnp.tri(length, dtype=bool)
    if mask is not None:
        visible &= mask[..., None, None, :]
    if reset is not None:
        segment = jnp.cumsum(reset, -1)[..., None, :]
        visible &= segment[..., :, None] == segment[..., None, :]
    logits = jnp.einsum("...ihk,...jhk->...hij", q * q.shape[-1] ** -0.5, k)
    weights = jax.nn.softmax(logits, where=visible)
    return jnp.einsum("...hij,...jhk->...ihk", weights, v)


def _features(x):
    """``elu(x) + 1``, without the rounding to zero far below zero."""
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0)))
