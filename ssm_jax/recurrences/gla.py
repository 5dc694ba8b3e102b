"""Gated linear attention: a matrix-valued state with input-dependent decay."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ssm_jax.fields import check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.kernels.matrix import matrix_recurrence
from ssm_jax.kernels.precision import affine_f32, matmul_f32
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.input_dependent import InputDependent
from ssm_jax.types import Activations, Float, PRNGKey


@dataclass(frozen=True, kw_only=True)
class GatedLinearAttention(InputDependent):
    r"""Linear attention in several heads, with a decay for each entry of a key.

    .. math::
      S_t = \operatorname{diag}(\alpha_t) S_{t-1} + k_t v_t^\top, \qquad
      y_t = S_t^\top q_t / \sqrt{d_k}, \qquad
      \alpha_t = \sigma(x_t W_1 W_2 + b)^{1 / \tau}

    with queries, keys and values linear in ``x``. The state is ``(*b, h, d_k, d_v)``,
    ``d_v = d / h``; the outputs of the heads are concatenated.

    Attributes:
      n_heads: ``h``; divides the width.
      d_key: Size of a key, ``d_k``. None: half of the size of a value.
      rank: Rank of the map to the decays.
      temperature: ``tau``; larger values give slower decays.

    Parameters, float32, for inputs of width ``d``; matrices are initialized Glorot
    uniform, the bias to zero:
      query_kernel, key_kernel: ``(d, h d_k)``.
      value_kernel: ``(d, d)``.
      decay_in, decay_out: ``(d, rank)`` and ``(rank, h d_k)``, ``W_1`` and ``W_2``.
      decay_bias: ``(h d_k,)``, ``b``.

    Raises:
      ValueError: A size is not positive; in `init`, ``n_heads`` does not divide ``d``.

    Example:
      >>> attention = GatedLinearAttention(n_heads=2)
      >>> params = attention.init(jax.random.key(0), d_in=8)
      >>> y, state = jax.jit(attention.apply)(params, jnp.ones((16, 8)))
      >>> y.shape, state.shape
      ((16, 8), (2, 2, 4))

    References:
      Yang, Wang, Shen, Panda and Kim, `Gated Linear Attention Transformers with
      Hardware-Efficient Training <https://arxiv.org/abs/2312.06635>`_, 2023, sections
      4.1 and 4.4, without the output normalization and gate, which belong to a layer
    """

    n_heads: int = 4
    d_key: int | None = None
    rank: int = 16
    temperature: float = 16.0

    def __post_init__(self):
        check_fields(self)
        d_key = 1 if self.d_key is None else self.d_key
        smallest = min(self.n_heads, self.rank, self.temperature, d_key)
        if smallest <= 0:
            raise ValueError(
                "`n_heads`, `d_key`, `rank` and `temperature` must be positive, got "
                f"{self.n_heads}, {self.d_key}, {self.rank} and {self.temperature}; 4, "
                "None, 16 and 16 are the published values."
            )

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        _, d_key, _ = self._sizes(d_in)
        keys = self.n_heads * d_key
        shapes = {
            "query_kernel": (d_in, keys),
            "key_kernel": (d_in, keys),
            "value_kernel": (d_in, d_in),
            # Low rank, as published: a full map would be as large as `key_kernel`.
            "decay_in": (d_in, self.rank),
            "decay_out": (self.rank, keys),
        }
        draw = jax.nn.initializers.glorot_uniform()
        weight_keys = jax.random.split(key, len(shapes))
        params = {
            name: draw(weight_key, shape, jnp.float32)
            for weight_key, (name, shape) in zip(
                weight_keys, shapes.items(), strict=True
            )
        }
        # With a bias of 0 initial decays are about 0.5**(1 / tau), 0.96.
        return params | {"decay_bias": jnp.zeros(keys)}

    def _sizes(self, d_in):
        """Returns the number of heads and the sizes of a key and of a value."""
        if d_in % self.n_heads:
            raise ValueError(
                f"`n_heads` must divide the width, {d_in}, got {self.n_heads}; the "
                "heads share it evenly."
            )
        d_value = d_in // self.n_heads
        return self.n_heads, self.d_key or max(1, d_value // 2), d_value

    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Float[jax.Array, "*b h k v"]:
        """Returns zeros, batch axes first."""
        return jnp.zeros((*batch_shape, *self._sizes(d_in)))

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        return len(params["value_kernel"])

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns a group without weight decay for the bias, which sets time scales."""
        return {"decay_bias": ParamGroup(weight_decay=False)}

    def chunked_form(self, params: Params, x: Activations) -> ChunkedForm:
        """Returns the recurrence as products of matrices, its only form."""
        heads, d_key, _ = self._sizes(x.shape[-1])

        def split(values):
            return values.reshape(*values.shape[:-1], heads, -1)

        # Matrix products of all steps at once, as they are small beside the states.
        names = ("query_kernel", "key_kernel", "value_kernel", "decay_in")
        q, k, v, low_rank = (matmul_f32(x, params[name]) for name in names)
        gate = affine_f32(low_rank, params["decay_out"], params["decay_bias"])
        # In log space: the derivative of the root of 0, an underflow, is infinite.
        log_decay = jax.nn.log_sigmoid(gate) / self.temperature

        def by_products(state, reset, valid, method):
            heads_of = (split(values) for values in (q, k, v, log_decay))
            flags = {"reset": reset, "mask": valid}
            o, last = matrix_recurrence(*heads_of, state=state, **flags, method=method)
            return o.reshape(v.shape) * d_key**-0.5, last

        return ChunkedForm(None, None, x, products=by_products)
