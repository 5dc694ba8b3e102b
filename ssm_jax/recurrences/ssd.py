"""SSD, the recurrence of Mamba-2: a decay for each head, a matrix as its state."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    check_fields,
)
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.kernels.matrix import matrix_recurrence
from ssm_jax.kernels.precision import bounded_exp
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.initializers import (
    inverse_softplus,
    log_uniform,
    validate_dt_range,
)
from ssm_jax.recurrences.families.input_dependent import InputDependent
from ssm_jax.types import Activations, Float, PRNGKey


@dataclass(frozen=True, kw_only=True)
class SSD(InputDependent):
    r"""State space duality: in each head a selective SSM with one decay for all states.

    .. math::
      S_t = e^{\Delta_t A} S_{t-1} + B_t (\Delta_t x_t)^\top, \qquad
      y_t = S_t^\top C_t + D x_t

    .. math::
      \Delta_t = \operatorname{clip}(\operatorname{softplus}(r_t + b))

    The input is ``x``, ``B``, ``C`` and ``r``, side by side: ``h`` heads ``x`` of size
    ``p``, ``g`` groups ``B`` and ``C`` of size ``n``, and a number ``r`` for each head,
    ``h p + 2 g n + h`` in all, which gives ``h``. Heads ``i h / g`` to ``(i + 1) h / g
    - 1`` share ``B`` and ``C`` of group ``i``. The output is that of all heads, of
    width ``h p``; the state is ``(*b, h, n, p)``.

    Attributes:
      d_head: ``p``, ``P`` in the paper.
      d_state: ``n``, ``N`` in the paper.
      n_groups: ``g``; divides ``h``.
      dt_min: Minimum initial step size.
      dt_max: Maximum initial step size.
      dt_floor: Lower bound of the initial step sizes.
      step_limits: Bounds of ``Delta`` at all times; None: there is no upper bound.

    Parameters, float32:
      log_rate: ``(h,)``, ``A = -exp(log_rate)``, initially uniform in [-16, -1].
      step_bias: ``(h,)``, ``b``; its softplus is log-uniform in ``[dt_min, dt_max]``.
      feedthrough: ``(h,)``, ``D``, 1.

    Raises:
      ValueError: A field is out of its range; in `init`, the width is not ``h p + 2 g n
        + h`` for a multiple ``h`` of ``g``.

    Example:
      >>> ssd = SSD(d_head=4, d_state=3)
      >>> params = ssd.init(jax.random.key(0), d_in=2 * 4 + 2 * 3 + 2)
      >>> y, state = jax.jit(ssd.apply)(params, jnp.ones((8, 16)))
      >>> y.shape, state.shape
      ((8, 8), (2, 3, 4))

    Note:
      Rates are at most ``exp(30)``. Weight decay is not applied to the parameters.

    References:
      Dao and Gu, `Transformers are SSMs: Generalized Models and Efficient Algorithms
      Through Structured State Space Duality <https://arxiv.org/abs/2405.21060>`_, 2024,
      sections 5 to 7
    """

    d_head: PositiveInt = 64
    d_state: PositiveInt = 128
    n_groups: PositiveInt = 1
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    dt_floor: float = 1e-4
    step_limits: tuple[NonNegativeFloat, PositiveFloat | None] = (0.0, None)

    def __post_init__(self):
        check_fields(self)
        validate_dt_range(self.dt_min, self.dt_max, "all heads one step size")
        low, high = self.step_limits
        if high is not None and low > high:
            raise ValueError(
                "`step_limits` must be a lower bound and one that is not below it, got "
                f"{self.step_limits}; (0.0, None) is the published range."
            )

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        heads = self._heads(d_in)
        key_rate, key_dt = jax.random.split(key)
        rate = jax.random.uniform(key_rate, (heads,), minval=1, maxval=16)
        log_dt = log_uniform(key_dt, (heads,), self.dt_min, self.dt_max)
        dt = jnp.maximum(jnp.exp(log_dt), self.dt_floor)
        return {
            "log_rate": jnp.log(rate),
            "step_bias": inverse_softplus(dt),
            "feedthrough": jnp.ones(heads),
        }

    def _heads(self, d_in):
        """Returns the number of heads."""
        p, n, g = self.d_head, self.d_state, self.n_groups
        heads, rest = divmod(d_in - 2 * g * n, p + 1)
        if heads < 1 or rest or heads % g:
            near = g * max(1, heads // g)
            total = near * p + 2 * g * n + near
            raise ValueError(
                "`d_in` must be h d_head + 2 n_groups d_state + h for a multiple h of "
                f"n_groups, such as {near} * {p} + 2 * {g} * {n} + {near} = {total}, "
                f"got {d_in}; the input is x, B, C and the steps, side by side."
            )
        return heads

    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Float[jax.Array, "*b h n p"]:
        """Returns zeros, batch axes first."""
        heads = self._heads(d_in)
        return jnp.zeros((*batch_shape, heads, self.d_state, self.d_head))

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        heads = len(params["log_rate"])
        return heads * (self.d_head + 1) + 2 * self.n_groups * self.d_state

    def d_out(self, d_in: int) -> int:
        """Returns the width of all heads."""
        return self._heads(d_in) * self.d_head

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns a group without weight decay for all parameters."""
        names = ("log_rate", "step_bias", "feedthrough")
        return dict.fromkeys(names, ParamGroup(weight_decay=False))

    def chunked_form(self, params: Params, x: Activations) -> ChunkedForm:
        """Returns the recurrence as products of matrices, its only form."""
        p, n, g = self.d_head, self.d_state, self.n_groups
        heads = len(params["log_rate"])
        u, B, C, raw = jnp.split(x, np.cumsum([heads * p, g * n, g * n]), -1)
        u, B, C = (y.reshape(*y.shape[:-1], -1, d) for y, d in ((u, p), (B, n), (C, n)))
        steps = jax.nn.softplus(raw + promoted_like(params["step_bias"], raw))
        steps = jnp.clip(steps, *self.step_limits)
        log_decay = -steps * promoted_like(bounded_exp(params["log_rate"]), steps)
        values = steps[..., None] * u

        def by_products(state, reset, valid, method):
            flags = {"reset": reset, "mask": valid}
            o, last = matrix_recurrence(
                C, B, values, log_decay, state=state, **flags, method=method
            )
            y = o + promoted_like(params["feedthrough"][:, None], u) * u
            return y.reshape(*y.shape[:-2], heads * p), last

        return ChunkedForm(None, None, x, products=by_products)
