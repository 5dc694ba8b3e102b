"""The recurrence of Mamba-3: SSD with rotations, discretized by a trapezoidal rule."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import PositiveFloat, PositiveInt, check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.kernels.matrix import matrix_recurrence
from ssm_jax.kernels.precision import sigmoid
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.initializers import (
    inverse_softplus,
    log_uniform,
    validate_dt_range,
)
from ssm_jax.recurrences.families.input_dependent import InputDependent
from ssm_jax.recurrences.families.padding import state_after
from ssm_jax.types import Activations, Array, Float, PRNGKey, Steps


@dataclass(frozen=True, kw_only=True)
class TrapezoidalSSD(InputDependent):
    r"""SSD with complex decays, whose input of a step is an average of two steps.

    .. math::
      S_t = \alpha_t S_{t-1} + (1 - \lambda_t) \Delta_t \alpha_t k_{t-1} v_{t-1}^\top
        + \lambda_t \Delta_t k_t v_t^\top, \qquad y_t = S_t^\top q_t + D v_t

    .. math::
      k_t = R(\theta_t) (B_t + b_B), \quad q_t = R(\theta_t) (C_t + b_C), \quad
      \theta_t = \theta_{t-1} + \pi \tanh(\varphi_t) \Delta_t

    .. math::
      \Delta_t = \operatorname{softplus}(r_t + b), \quad
      \alpha_t = \exp(-\Delta_t \max(\operatorname{softplus}(a_t), a_{min})), \quad
      \lambda_t = \sigma(l_t)

    in each head. ``R`` rotates the entries ``2 i`` and ``2 i + 1`` by the angle ``i``:
    a state with complex decays, in real numbers. The input is ``v``, ``B``, ``C``,
    ``r``, ``a``, ``l`` and ``phi``, side by side: ``h`` heads ``v`` of size ``p``,
    ``g`` groups ``B`` and ``C`` of size ``n``, three numbers for each head, and the
    ``m`` angles, which the heads share, ``h (p + 3) + 2 g n + m`` in all, which gives
    ``h``. Heads ``i h / g`` to ``(i + 1) h / g - 1`` share ``B`` and ``C`` of group
    ``i``. The output is that of all heads, of width ``h p``.

    The state is ``(*b, h, n p + n + p + m)``: of each head ``S``, row by row, ``k`` and
    ``v`` of the last step, and the angles, in [-pi, pi].

    Attributes:
      d_head: ``p``, ``P`` in the paper.
      d_state: ``n``, ``N`` in the paper.
      n_groups: ``g``; divides ``h``.
      n_angles: ``m``; the first ``2 m`` entries of keys and queries are rotated. None:
        ``n // 4``, half of the entries.
      dt_min: Minimum initial step size.
      dt_max: Maximum initial step size.
      dt_floor: Lower bound of the initial step sizes.
      rate_min: ``a_min``.

    Parameters, float32:
      step_bias: ``(h,)``, ``b``; its softplus is log-uniform in ``[dt_min, dt_max]``.
      key_bias, query_bias: ``(h, n)``, ``b_B`` and ``b_C``, 1.
      feedthrough: ``(h,)``, ``D``, 1.

    Raises:
      ValueError: A field is out of its range; in `init`, the width is not ``h (p + 3)
        + 2 g n + m`` for a multiple ``h`` of ``g``.

    Example:
      >>> ssd = TrapezoidalSSD(d_head=4, d_state=8)
      >>> params = ssd.init(jax.random.key(0), d_in=2 * (4 + 3) + 2 * 8 + 2)
      >>> y, state = jax.jit(ssd.apply)(params, jnp.ones((6, 32)))
      >>> y.shape, state.shape
      ((6, 8), (2, 46))

    Note:
      The form with one input and one output for each head (SISO). The authors' code
      normalizes ``B`` and ``C`` before this recurrence, which belongs to a layer.
      Weight decay is not applied to steps and ``D``.

    References:
      Lahoti, Li, Chen, Wang, Bick, Kolter, Dao and Gu, `Mamba-3: Improved Sequence
      Modeling using State Space Principles <https://arxiv.org/abs/2603.15569>`_, 2026,
      section 3
    """

    d_head: PositiveInt = 64
    d_state: PositiveInt = 128
    n_groups: PositiveInt = 1
    n_angles: PositiveInt | None = None
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    dt_floor: float = 1e-4
    rate_min: PositiveFloat = 1e-4

    # The inputs of a step depend on the step before.
    diagonal: ClassVar[bool] = False

    def __post_init__(self):
        check_fields(self)
        validate_dt_range(self.dt_min, self.dt_max, "all heads one step size")
        if not 0 < 2 * self._n_angles <= self.d_state:
            raise ValueError(
                "`n_angles` must be from 1 to d_state / 2, got "
                f"{self.n_angles} with d_state {self.d_state}; an angle rotates two "
                "entries, and None is d_state // 4."
            )

    @property
    def _n_angles(self):
        return self.d_state // 4 if self.n_angles is None else self.n_angles

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        heads = self._heads(d_in)
        log_dt = log_uniform(key, (heads,), self.dt_min, self.dt_max)
        dt = jnp.maximum(jnp.exp(log_dt), self.dt_floor)
        return {
            "step_bias": inverse_softplus(dt),
            "key_bias": jnp.ones((heads, self.d_state)),
            "query_bias": jnp.ones((heads, self.d_state)),
            "feedthrough": jnp.ones(heads),
        }

    def _heads(self, d_in):
        """Returns the number of heads."""
        g = self.n_groups
        heads, rest = divmod(d_in - self.width(0), self.d_head + 3)
        if heads < 1 or rest or heads % g:
            near = g * max(1, heads // g)
            raise ValueError(
                "`d_in` must be h (d_head + 3) + 2 n_groups d_state + n_angles for a "
                f"multiple h of n_groups, such as {near} * {self.d_head + 3} + "
                f"{self.width(0)} = {self.width(near)}, got {d_in}; the input is v, B, "
                "C, three numbers for each head and angles, side by side."
            )
        return heads

    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Float[jax.Array, "*b h m"]:
        """Returns zeros, batch axes first."""
        p, n = self.d_head, self.d_state
        size = n * p + n + p + self._n_angles
        return jnp.zeros((*batch_shape, self._heads(d_in), size))

    def width(self, n_heads: int) -> int:
        """Returns the width of the inputs of so many heads."""
        shared = 2 * self.n_groups * self.d_state + self._n_angles
        return n_heads * (self.d_head + 3) + shared

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        return self.width(len(params["step_bias"]))

    def d_out(self, d_in: int) -> int:
        """Returns the width of all heads."""
        return self._heads(d_in) * self.d_head

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns a group without weight decay for steps and feedthrough."""
        return dict.fromkeys(
            ("step_bias", "feedthrough"), ParamGroup(weight_decay=False)
        )

    def form_of_rows(
        self, params: Params, x: Activations, dt: Any, state: Array, reset: Any
    ) -> ChunkedForm:
        """Returns `chunked_form` with the last key, value and angles of the state."""
        del dt
        return self.chunked_form(params, x, state, reset)

    def chunked_form(
        self,
        params: Params,
        x: Activations,
        state: Float[Array, "*b h m"] | None = None,
        reset: Steps | None = None,
    ) -> ChunkedForm:
        """Returns the evaluation by `matrix_recurrence`.

        Args:
          params: Parameters, float32.
          x: Input, ``(*b, l, d)``, float32.
          state: State before the first step, ``(*b, h, m)``. None means zeros.
          reset: True where a segment starts, ``(*b, l)``, or None.
        """
        p, n, g = self.d_head, self.d_state, self.n_groups
        heads = len(params["step_bias"])
        sizes = heads * p, g * n, g * n, heads, heads, heads
        # What is left are the angles.
        v, B, C, raw, rate, mixing, angle = jnp.split(x, np.cumsum(sizes), -1)
        v = v.reshape(*v.shape[:-1], heads, p)
        steps = jax.nn.softplus(raw + promoted_like(params["step_bias"], raw))
        log_decay = -steps * jnp.maximum(jax.nn.softplus(rate), self.rate_min)
        if state is None:
            state = jnp.zeros((*x.shape[:-2], heads, n * p + n + p + self._n_angles))
        memory, k_0, v_0, theta_0 = jnp.split(state, np.cumsum([n * p, n, p]), -1)
        half_turns = jnp.tanh(angle)[..., None, :] * steps[..., None]
        theta = np.pi * _sums(half_turns, theta_0 / np.pi, reset)

        def of_heads(values, bias):
            values = values.reshape(*values.shape[:-1], g, n)
            # Each head has a bias of its own.
            values = jnp.repeat(values, heads // g, -2)
            return _rotate(values + promoted_like(params[bias], values), theta)

        k, q = of_heads(B, "key_bias"), of_heads(C, "query_bias")

        def before(values, first):
            """Values of the step before, zero where there is none."""
            values = jnp.concatenate(
                [first[..., None, :, :], values[..., :-1, :, :]], -3
            )
            if reset is None:
                return values
            return jnp.where(reset[..., None, None], 0, values)

        # sigmoid(-x) is 1 - sigmoid(x) with all digits.
        of_this = (sigmoid(mixing) * steps)[..., None] * v
        weight = sigmoid(-mixing) * steps * jnp.exp(log_decay)
        of_before = weight[..., None] * before(v, v_0)

        def by_products(start, reset, valid, method):
            if start is not None:
                start = memory.reshape(*memory.shape[:-1], n, p)
                start = jnp.concatenate([start, jnp.zeros_like(start)], -3)
            # Both terms as if heads of their own, whose memories add up.
            y, last = matrix_recurrence(
                jnp.concatenate([q, q], -2),
                jnp.concatenate([k, before(k, k_0)], -2),
                jnp.concatenate([of_this, of_before], -2),
                jnp.concatenate([log_decay, log_decay], -1),
                state=start,
                reset=reset,
                mask=valid,
                method=method,
            )
            y = y[..., :heads, :] + y[..., heads:, :]
            last = last[..., :heads, :, :] + last[..., heads:, :, :]
            y = y + promoted_like(params["feedthrough"][:, None], v) * v
            lengths = None if valid is None else jnp.sum(valid, -1)
            parts = (k, k_0), (v, v_0), (theta, theta_0)
            after = [_after(values, first, lengths) for values, first in parts]
            last = jnp.concatenate([last.reshape(memory.shape), *after], -1)
            return y.reshape(*y.shape[:-2], heads * p), last

        return ChunkedForm(None, None, x, products=by_products)


def _after(values, first, lengths):
    """Values of the last valid step, ``(*b, h, n)``, of those of all steps."""
    values = values.reshape(*values.shape[:-2], -1)
    last = state_after(values, first.reshape(*first.shape[:-2], -1), lengths)
    return last.reshape(first.shape)


def _wrap(half_turns):
    """The same angle in [-1, 1], without rounding, unlike a multiple of pi."""
    return half_turns - 2 * jnp.round(half_turns / 2)


def _sums(turns, first, reset):
    """Sums of half turns from the start of each segment, ``(*b, l, h, m)``, in [-1, 1].

    By an associative scan: sums of many turns would lose their digits.
    """
    axis = turns.ndim - 3
    if reset is not None:
        reset = reset[..., None, None]
        first = jnp.where(reset[..., 0, :, :], 0, first)
    turns = _wrap(turns.at[..., 0, :, :].add(first))

    def combine(left, right):
        (before, reset_left), (after, reset_right) = left, right
        total = _wrap(before + after)
        if reset is None:
            return total, None
        return jnp.where(reset_right, after, total), reset_left | reset_right

    return jax.lax.associative_scan(combine, (turns, reset), axis=axis)[0]


def _rotate(x, theta):
    """Rotates the first pairs of entries, ``(*b, n)``, by angles, ``(*b, m)``."""
    n_rotated = 2 * theta.shape[-1]
    even, odd = x[..., :n_rotated:2], x[..., 1:n_rotated:2]
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    pairs = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
    pairs = pairs.reshape(*x.shape[:-1], n_rotated)
    return jnp.concatenate([pairs, x[..., n_rotated:]], -1)
