"""The selective SSM of Mamba: decays and input projections depend on the input."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.fields import PositiveFloat, check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.kernels.precision import (
    affine_f32,
    bounded_exp,
    matmul_f32,
)
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.selective import selective_form
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.initializers import (
    inverse_softplus,
    log_uniform,
    validate_dt_range,
)
from ssm_jax.recurrences.families.input_dependent import InputDependent
from ssm_jax.types import Activations, Array, Float, Method, Outputs, PRNGKey, Steps


@dataclass(frozen=True, kw_only=True)
class SelectiveSSM(InputDependent):
    r"""Diagonal state space with input-dependent steps, input projections and readouts.

    .. math::
      h_t = \exp(\Delta_t A) h_{t-1} + \Delta_t B_t x_t, \qquad
      y_t = \langle C_t, h_t \rangle + D x_t

    .. math::
      (r_t, B_t, C_t) = x_t W, \qquad \Delta_t = \operatorname{softplus}(r_t V + b)

    Each channel has its own step ``Delta`` and decay rates ``A``; all channels share
    ``B`` and ``C``. The state is ``(*b, d, n)``.

    Attributes:
      d_state: Number of states per channel, ``N`` in the paper.
      dt_rank: Rank of the map to the steps, ``r``. None: ``ceil(d / 16)``.
      dt_min: Minimum initial step size.
      dt_max: Maximum initial step size.
      dt_floor: Lower bound of the initial step sizes.
      rms_epsilon: Constant added to the mean squares of ``r``, ``B`` and ``C``, by
        whose roots they are divided, each by its own, as in Falcon-Mamba. None: they
        are not.

    Parameters, float32, for inputs of width ``d``:
      input_kernel: ``(d, r + 2 n)``, ``W``, uniform in ``+-1 / sqrt(d)``.
      step_kernel: ``(r, d)``, ``V``, uniform in ``+-1 / sqrt(r)``.
      step_bias: ``(d,)``, ``b``; its softplus is log-uniform in ``[dt_min, dt_max]``.
      log_rate: ``(d, n)``, ``A = -exp(log_rate)``, initialized to ``-1`` to ``-n``.
      feedthrough: ``(d,)``, ``D``, 1.

    Raises:
      ValueError: A size is not positive, or ``dt_min`` exceeds ``dt_max``.

    Example:
      >>> selective = SelectiveSSM(d_state=4)
      >>> params = selective.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(selective.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 2), (2, 4))

    Note:
      Rates are at most ``exp(30)``, so that values and gradients are finite. As in the
      authors' code the input term is ``Delta B x``, Euler's rule, where the paper
      writes a zero-order hold; weight decay is not applied to rates and ``D``. Here it
      is not applied to the bias ``b`` either, which sets time scales.

    References:
      Gu and Dao, `Mamba: Linear-Time Sequence Modeling with Selective State Spaces
      <https://arxiv.org/abs/2312.00752>`_, 2023, section 3 and algorithm 2;
      with ``rms_epsilon`` Zuo and others, `Falcon Mamba
      <https://arxiv.org/abs/2410.05355>`_, 2024, section 2
    """

    d_state: int = 16
    dt_rank: int | None = None
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    dt_floor: float = 1e-4
    rms_epsilon: PositiveFloat | None = None

    takes_dt = True

    def __post_init__(self):
        check_fields(self)
        if self.d_state < 1:
            raise ValueError(
                f"`d_state` must be positive, got {self.d_state}; the published size "
                "is 16."
            )
        if self.dt_rank is not None and self.dt_rank < 1:
            raise ValueError(
                f"`dt_rank` must be positive, got {self.dt_rank}; None is a sixteenth "
                "of the width."
            )
        validate_dt_range(self.dt_min, self.dt_max, "all channels one step size")

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        key_in, key_step, key_dt = jax.random.split(key, 3)
        n, rank = self.d_state, self.dt_rank or math.ceil(d_in / 16)

        def uniform(key, rows, columns):
            # The default of `torch.nn.Linear`, which the authors' code has here.
            bound = rows**-0.5
            return jax.random.uniform(key, (rows, columns), minval=-bound, maxval=bound)

        log_dt = log_uniform(key_dt, (d_in,), self.dt_min, self.dt_max)
        dt = jnp.maximum(jnp.exp(log_dt), self.dt_floor)
        # S4D-Real: A = -1, ..., -n in every channel.
        rates = jnp.arange(1, n + 1, dtype=jnp.float32)
        return {
            "input_kernel": uniform(key_in, d_in, rank + 2 * n),
            "step_kernel": uniform(key_step, rank, d_in),
            "step_bias": inverse_softplus(dt),
            "log_rate": jnp.broadcast_to(jnp.log(rates), (d_in, n)),
            "feedthrough": jnp.ones(d_in),
        }

    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Float[jax.Array, "*b d n"]:
        """Returns zeros, batch axes first."""
        return jnp.zeros((*batch_shape, d_in, self.d_state))

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        return len(params["log_rate"])

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns groups without weight decay for rates, step bias and feedthrough."""
        group = ParamGroup(weight_decay=False)
        return dict.fromkeys(["log_rate", "step_bias", "feedthrough"], group)

    def apply(
        self,
        params: Params,
        x: Activations,
        state: Float[Array, "..."] | None = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        method: Method = "auto",
        dt: Float[Array, "*#b l"] | None = None,
    ) -> tuple[Outputs, Float[jax.Array, "*b d n"]]:
        """Maps a sequence to a sequence; see `InputDependent.apply`.

        The method ``"pallas"`` is a kernel from ``Delta``, ``B`` and ``C`` to the
        outputs, which keeps all states within the chip. It has no forward-mode
        derivative.

        ``dt``, ``(*b, l)`` or ``(l,)``, multiplies the step ``Delta`` of each step; for
        irregular samples it is the time since the previous one in units of the mean
        interval. It is at least 0; that of a padded step has no effect. None means 1.
        """
        return self._evaluate(
            params, x, state, dt, reset=reset, mask=mask, method=method
        )

    def form_of_rows(
        self, params: Params, x: Activations, dt: Any, state: Array, reset: Any
    ) -> ChunkedForm:
        """Returns `chunked_form` with the factors of the step sizes."""
        del state, reset
        return self.chunked_form(params, x, dt)

    def chunked_form(
        self,
        params: Params,
        x: Activations,
        dt: Float[Array, "*#b l"] | None = None,
    ) -> ChunkedForm:
        """Returns the recurrence with ``Delta``, ``B``, ``C`` computed from ``x``."""
        n = params["log_rate"].shape[-1]
        # Matrix products of all steps at once, as they are small beside the states.
        chosen = matmul_f32(x, params["input_kernel"])
        rank = chosen.shape[-1] - 2 * n
        parts = jnp.split(chosen, [rank, rank + n], -1)
        step, B, C = (self._normalize(part) for part in parts)
        step = affine_f32(step, params["step_kernel"], params["step_bias"])
        steps = jax.nn.softplus(step)
        steps = steps if dt is None else steps * promoted_like(dt[..., None], steps)
        rates = bounded_exp(params["log_rate"])
        return selective_form(x, steps, B, C, rates, params["feedthrough"])

    def _normalize(self, part):
        if self.rms_epsilon is None:
            return part
        mean = jnp.mean(jnp.square(part), -1, keepdims=True)
        return part * jax.lax.rsqrt(mean + self.rms_epsilon)
