"""The gated delta rule: a value replaces what a decaying state holds for its key."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import PositiveInt, check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.kernels.matrix import matrix_recurrence
from ssm_jax.kernels.precision import bounded_exp, sigmoid
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.initializers import (
    inverse_softplus,
    log_uniform,
    validate_dt_range,
)
from ssm_jax.recurrences.families.input_dependent import InputDependent
from ssm_jax.types import Activations, Array, Float, PRNGKey


@dataclass(frozen=True, kw_only=True)
class GatedDeltaRule(InputDependent):
    r"""In each head, a state that decays and is corrected towards each key's value.

    .. math::
      \bar S_t = \alpha_t S_{t-1}, \qquad
      S_t = \bar S_t + \beta_t k_t (v_t - \bar S_t^\top k_t)^\top, \qquad
      y_t = S_t^\top q_t / \sqrt{d_k}

    .. math::
      \alpha_t = \exp(-e^A \operatorname{softplus}(a_t + b)), \qquad
      \beta_t = \sigma(b_t)

    with queries and keys of norm 1. The input is ``q``, ``k``, ``v``, ``a`` and ``b``,
    side by side: ``g`` heads of queries and of keys of size ``d_k``, ``h`` heads of
    values of size ``d_v``, and two numbers for each of these, ``2 g d_k + h (d_v + 2)``
    in all. Heads of values ``i h / g`` to ``(i + 1) h / g - 1`` share the queries and
    keys of head ``i``. The output is that of all heads, of width ``h d_v``; the state
    is ``(*b, h, d_k, d_v)``.

    Attributes:
      n_heads: ``h``.
      d_key: ``d_k``.
      d_value: ``d_v``.
      n_key_heads: ``g``; divides ``h``. None: ``h``.
      decay: Whether the state decays. False: this is the delta rule of DeltaNet,
        ``alpha`` is 1, the input has no ``a``, and there are no parameters.
      negative_eigenvalues: Whether ``beta`` is doubled. Along its key, ``1 - beta`` of
        the decayed state remains: then from -1 to 1, else from 0 to 1.
      dt_min: Minimum of the initial values of ``softplus(b)``.
      dt_max: Maximum of them.
      dt_floor: Lower bound of them.

    Parameters, float32:
      log_rate: ``(h,)``, ``A``; ``exp(A)`` is initially uniform in (0, 16].
      step_bias: ``(h,)``, ``b``; its softplus is log-uniform in ``[dt_min, dt_max]``.

    Raises:
      ValueError: A field is out of its range, ``n_key_heads`` does not divide
        ``n_heads``, or, in `init`, the width is not that of all parts.

    Example:
      >>> rule = GatedDeltaRule(n_heads=2, d_key=3, d_value=4)
      >>> params = rule.init(jax.random.key(0), d_in=2 * 2 * 3 + 2 * (4 + 2))
      >>> y, state = jax.jit(rule.apply)(params, jnp.ones((8, 24)))
      >>> y.shape, state.shape
      ((8, 8), (2, 3, 4))

    Note:
      Queries and keys are divided by the root of their squared norm plus 1e-6, so that
      the norm is at most 1, also of zeros: with it the state is bounded. Rates are at
      most ``exp(30)``. Weight decay is not applied to the parameters.

    References:
      Yang, Kautz and Hatamizadeh, `Gated Delta Networks: Improving Mamba2 with Delta
      Rule <https://arxiv.org/abs/2412.06464>`_, 2024, section 3; Yang, Wang, Zhang,
      Shen and Kim, `Parallelizing Linear Transformers with the Delta Rule over Sequence
      Length <https://arxiv.org/abs/2406.06484>`_, 2024, for DeltaNet; Grazzi, Siems,
      Zela, Franke, Hutter and Pontil, `Unlocking State-Tracking in Linear RNNs Through
      Negative Eigenvalues <https://arxiv.org/abs/2411.12537>`_, 2024
    """

    n_heads: PositiveInt = 6
    d_key: PositiveInt = 256
    d_value: PositiveInt = 512
    n_key_heads: PositiveInt | None = None
    decay: bool = True
    negative_eigenvalues: bool = False
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    dt_floor: float = 1e-4

    # Entries of a column of a state are coupled by the keys.
    diagonal: ClassVar[bool] = False

    def __post_init__(self):
        check_fields(self)
        validate_dt_range(self.dt_min, self.dt_max, "all heads one step size")
        if self.n_heads % (self.n_key_heads or 1):
            raise ValueError(
                f"`n_key_heads` must divide n_heads, {self.n_heads}, got "
                f"{self.n_key_heads}; each head of keys serves as many of values."
            )

    @property
    def d_parts(self) -> tuple[int, ...]:
        """The widths of the parts of the input: ``q``, ``k``, ``v``, ``a``, ``b``."""
        keys = (self.n_key_heads or self.n_heads) * self.d_key
        numbers = (self.n_heads,) * (1 + self.decay)
        return keys, keys, self.n_heads * self.d_value, *numbers

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        if d_in != sum(self.d_parts):
            raise ValueError(
                f"`d_in` must be {' + '.join(map(str, self.d_parts))} = "
                f"{sum(self.d_parts)}, got {d_in}; the input is queries, keys, values "
                "and the numbers of each head, side by side."
            )
        if not self.decay:
            return {}
        key_rate, key_dt = jax.random.split(key)
        # In (0, 16], whose logarithm is finite.
        rate = 16 * (1 - jax.random.uniform(key_rate, (self.n_heads,)))
        log_dt = log_uniform(key_dt, (self.n_heads,), self.dt_min, self.dt_max)
        dt = jnp.maximum(jnp.exp(log_dt), self.dt_floor)
        return {"log_rate": jnp.log(rate), "step_bias": inverse_softplus(dt)}

    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Float[jax.Array, "*b h k v"]:
        """Returns zeros, batch axes first."""
        del d_in
        return jnp.zeros((*batch_shape, self.n_heads, self.d_key, self.d_value))

    def d_in(self, params: Params) -> int:
        """Returns the width of all parts of the input."""
        del params
        return sum(self.d_parts)

    def d_out(self, d_in: int) -> int:
        """Returns the width of all heads of values."""
        del d_in
        return self.n_heads * self.d_value

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns a group without weight decay for all parameters."""
        names = ("log_rate", "step_bias") if self.decay else ()
        return dict.fromkeys(names, ParamGroup(weight_decay=False))

    def chunked_form(self, params: Params, x: Activations) -> ChunkedForm:
        """Returns the recurrence as products of matrices, its only form."""
        q, k, v, *a, b = jnp.split(x, np.cumsum(self.d_parts[:-1]), -1)
        q, k = (_normalize(y.reshape(*y.shape[:-1], -1, self.d_key)) for y in (q, k))
        v = v.reshape(*v.shape[:-1], self.n_heads, self.d_value)
        beta = sigmoid(b) * (1 + self.negative_eigenvalues)
        log_decay = None
        if self.decay:
            step = jax.nn.softplus(a[0] + promoted_like(params["step_bias"], a[0]))
            log_decay = -step * promoted_like(bounded_exp(params["log_rate"]), step)

        def by_products(state, reset, valid, method):
            flags = {"reset": reset, "mask": valid}
            o, last = matrix_recurrence(
                q, k, v, log_decay, beta, state, **flags, method=method
            )
            y = o.reshape(*o.shape[:-2], -1) * self.d_key**-0.5
            return y, last

        return ChunkedForm(None, None, x, products=by_products)


def _normalize(x: Float[Array, "*b k"]) -> Float[Array, "*b k"]:
    # Within the root, where it bounds the derivative at zero.
    return x * jax.lax.rsqrt(jnp.sum(jnp.square(x), -1, keepdims=True) + 1e-6)
