"""A mixture of MLPs in which each expert chooses its tokens."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from ssm_jax.fields import PositiveFloat, PositiveInt
from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.promotion import common_dtype
from ssm_jax.kernels.sharding import broadcast_to_steps, take
from ssm_jax.layers.channel_mixing import Linear
from ssm_jax.layers.mlp import MLP
from ssm_jax.layers.module import Module
from ssm_jax.metrics import Mean, log_metric
from ssm_jax.sharding.axis import refuse_sharded_length
from ssm_jax.types import Activations, Outputs, Steps


class ExpertChoiceMLP(Module):
    r"""A mixture of MLPs; each expert takes the steps with its highest probabilities.

    .. math::
      y_i = \sum_{e : i \in T_e} p_{ie} \operatorname{MLP}_e(x_i), \qquad
      p_i = \operatorname{softmax}(x_i W_r)

    where ``T_e`` are the ``min(n, ceil(c n / n_experts))`` steps of the largest
    ``p_ie`` among the ``n`` valid steps of a sequence, with the capacity factor ``c``;
    of equal ones the earlier. A step may be taken by several experts, or by none: its
    output is then 0. The fraction of the latter is logged as ``unchosen_steps``.

    Attributes:
      d_hidden: Width of the hidden layer of each expert.
      n_experts: Number of experts.
      capacity_factor: ``c`` in training; all experts together take ``c n`` steps, and
        the cost grows with it.
      eval_capacity_factor: ``c`` outside training.

    Parameters, float32:
      router: `Linear` without a bias, ``(d, n_experts)``, ``W_r``.
      experts: The parameters of an `MLP`, each with a leading axis of the experts.

    Note:
      Whether a step is taken depends on the later steps of the sequence. A language
      model with this layer is therefore not causal, and its likelihoods are not those
      of a causal model, unless every expert takes every step, ``c >= n_experts``. For
      the same reason the outputs for a sequence in pieces are not those for the whole.

      The paper does not say among which steps an expert chooses. Here it chooses in
      each row of the batch on its own, so that rows are independent.

    Example:
      >>> layer = ExpertChoiceMLP(d_hidden=32, n_experts=4)
      >>> x = jnp.ones((2, 16, 8))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> jax.jit(layer.apply)(variables, x).shape
      (2, 16, 8)
      >>> variables["params"]["experts"]["in"]["dense"]["kernel"].shape
      (4, 8, 32)

    References:
      Zhou et al., `Mixture-of-Experts with Expert Choice Routing
      <https://arxiv.org/abs/2202.09368>`_, 2022, section 3.2; Gupta, Mehta and Berant,
      `Simplifying and Understanding State Space Models with Diagonal Linear RNNs
      <https://arxiv.org/abs/2212.00768>`_, 2022, details for table 5
    """

    d_hidden: PositiveInt
    n_experts: PositiveInt
    capacity_factor: PositiveFloat = 1.0
    eval_capacity_factor: PositiveFloat = 2.0

    @nn.compact
    def __call__(
        self, x: Activations, *, mask: Steps | None = None, train: bool = False
    ) -> Outputs:
        """Maps a sequence to a sequence.

        Args:
          x: Input, ``(*b, l, d)``.
          mask: True at valid steps, ``(*b, l)``; no expert takes padding, whose outputs
            are zero. None means that all steps are valid.
          train: Whether ``capacity_factor`` applies.

        Returns:
          ``(*b, l, d)``.

        Raises:
          ValueError: ``x`` is not a floating-point array with at least one step, or the
            shape of ``mask`` does not fit.
        """
        check_floating("x", x)
        refuse_sharded_length(self, "use `MLP`, whose steps do not compete")
        if x.ndim < 2 or x.shape[-2] == 0:
            raise ValueError(
                f"`x` must be (*b, l, d) with l > 0, got {x.shape}; skip empty "
                "sequences."
            )
        check_flags("mask", mask, x.shape[:-1], x.shape[-2:-1])
        valid = jnp.ones(x.shape[-2], bool) if mask is None else mask
        valid = broadcast_to_steps(valid, x)
        # NaN at padding would reach the gradients of the router.
        x = jnp.where(valid[..., None], x, 0)
        n_rows, (length, d) = math.prod(x.shape[:-2]), x.shape[-2:]
        rows, valid = x.reshape(n_rows, length, d), valid.reshape(n_rows, length)

        factor = self.capacity_factor if train else self.eval_capacity_factor
        # On the host for every possible number of valid steps: the device would round
        # the product in float32.
        n = np.arange(length + 1)
        capacities = np.minimum(n, np.ceil(factor * n / self.n_experts)).astype(int)

        # Probabilities in bfloat16 would tie.
        wide = rows.astype(common_dtype(rows, jnp.float32))
        router = Linear(self.n_experts, "xavier", use_bias=False, name="router")
        probability = jax.nn.softmax(router(wide), axis=-1)
        # Below every probability, so that padding is taken last.
        score = jnp.where(valid[..., None], probability, -1).mT
        score, taken = jax.lax.top_k(score, int(capacities[-1]))
        # Rows with padding take fewer steps than there are slots.
        capacity = take(jnp.asarray(capacities), valid.sum(-1))
        used = jnp.arange(score.shape[-1])[None, None] < capacity[:, None, None]
        used = jnp.broadcast_to(used, score.shape)

        experts = nn.vmap(
            MLP,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=1,
            out_axes=1,
            axis_size=self.n_experts,
        )(self.d_hidden, name="experts")
        y = experts(jax.vmap(lambda row, taken: row[taken])(rows, taken))
        y = y * jnp.where(used, score, 0).astype(y.dtype)[..., None]
        # By rows, which may be sharded.
        zeros = jnp.zeros((length, d), y.dtype)
        y = jax.vmap(lambda taken, y: zeros.at[taken].add(y))(taken, y)
        none = jnp.zeros(length, bool)
        chosen = jax.vmap(lambda taken, used: none.at[taken].max(used))(taken, used)
        unchosen = jnp.sum(valid & ~chosen)
        log_metric(self, "unchosen_steps", Mean(unchosen, jnp.sum(valid)))
        return y.reshape(x.shape)
