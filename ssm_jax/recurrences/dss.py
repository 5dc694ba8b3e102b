"""Diagonal state spaces (DSS), with the kernels of the paper's two propositions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import PositiveInt, check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.powers import decay_powers
from ssm_jax.kernels.precision import bounded_exp, in_float32, power_of_two, scale
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.discretization import discretize
from ssm_jax.recurrences.families.hippo import legs
from ssm_jax.recurrences.families.initializers import (
    join_complex,
    log_uniform,
    validate_dt_range,
)
from ssm_jax.recurrences.families.modes import SISOModes, resample
from ssm_jax.recurrences.families.time_invariant import TimeInvariant
from ssm_jax.types import PRNGKey

# Added to the squared divisor of the softmax, as in the authors' code.
_SOFTMAX_EPS = 1e-7


@dataclass(frozen=True, kw_only=True)
class DSS(TimeInvariant):
    r"""Diagonal state space: channels share continuous modes and have their own steps.

    .. math::
      y_t = \operatorname{Re} \sum_n w_n g_n \sum_{k} e^{\lambda_n \Delta k} x_{t-k}
      + D x_t, \qquad
      g_n = \frac{e^{\lambda_n \Delta} - 1}{\lambda_n}
      \ \text{or}\
      \frac{e^{\lambda_n \Delta} - 1}{\lambda_n (e^{\lambda_n \Delta L} - 1)}

    Attributes:
      d_state: Number of modes per channel, ``N`` in the paper.
      kernel: ``"exp"``: the first gain. ``"softmax"``: the second; the ``length`` first
        taps of a mode then sum to ``1 / lam``.
      length: Number of steps ``L`` of the softmax, the length of a training sequence;
        None for ``"exp"``. Longer sequences use the same modes.
      eigenvalue_init: Initial ``lam``. ``"hippo"``: the eigenvalues of the normal
        part of HiPPO-LegS, one of each conjugate pair. ``"lin"``: ``-1/2 + i pi n``.
      bidirectional: Adds a backward convolution over future steps, with the same
        modes and its own weights.
      step_scale: Number of steps of the trained sequences that one step replaces, for
        evaluation at a fraction of their sample rate; see `resample`. With the
        exponential kernel this is the step size ``step_scale Delta``.
      dt_min: Minimum initial step size.
      dt_max: Maximum initial step size.
      lr_multiplier: Factor on the learning rate of modes, steps and weights.

    Parameters, float32, for inputs of width ``d``:
      log_rate: ``(n,)``, ``Re lam = -exp(log_rate)``.
      frequency: ``(n,)``, ``Im lam``.
      log_dt: ``(d,)``, the step ``Delta``, log-uniform in ``[dt_min, dt_max]``.
      w_re, w_im: ``(d, n)``, standard normal.
      w_backward_re, w_backward_im: Likewise, only if bidirectional.
      feedthrough: ``(d,)``, ``D``, standard normal.

    Raises:
      ValueError: A size is not positive, ``dt_min`` exceeds ``dt_max``, or ``length``
        is missing for the softmax kernel or given for the other.

    Example:
      >>> dss = DSS(d_state=4, kernel="softmax", length=8)
      >>> params = dss.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(dss.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 2), (2, 4))

    Note:
      Rates and step sizes are bounded by ``exp(30)``, so that values and gradients are
      finite.
      The paper's softmax allows both signs of ``Re lam``. Here ``Re lam`` is negative
      with both kernels, so that states are bounded beyond ``length``; for negative
      values the kernels equal the paper's. As in the authors' code, the softmax divides
      by ``z`` as ``conj(z) / (|z|**2 + 1e-7)``. Weight decay is not applied to modes,
      steps and weights; their published learning rate is 1e-3.

    References:
      Gupta, Gu and Berant, `Diagonal State Spaces are as Effective as Structured State
      Spaces <https://arxiv.org/abs/2203.14343>`_, 2022, proposition 1 and section 3
    """

    d_state: int = 64
    kernel: Literal["exp", "softmax"] = "exp"
    length: int | None = None
    eigenvalue_init: Literal["hippo", "lin"] = "hippo"
    bidirectional: bool = False
    step_scale: PositiveInt = 1
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    lr_multiplier: float = 1.0

    # Re lam < 0 and dt > 0, so that an FFT needs no test of the decays.
    bounded_decay = True

    def __post_init__(self):
        check_fields(self)
        if self.d_state < 1:
            raise ValueError(
                f"`d_state` must be positive, got {self.d_state}; the published size "
                "is 64."
            )
        validate_dt_range(self.dt_min, self.dt_max, "all channels one step size")
        if (self.kernel == "softmax") != (self.length is not None) or (
            self.length is not None and self.length < 1
        ):
            raise ValueError(
                "`length` must be positive with the softmax kernel and None with the "
                f"other, got {self.length} with {self.kernel!r}; it is the length of a "
                "training sequence."
            )

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        key_dt, key_w, key_through = jax.random.split(key, 3)
        n = self.d_state
        if self.eigenvalue_init == "hippo":
            # One of each conjugate pair: n modes are half of 2 n eigenvalues.
            frequency = np.imag(legs(2 * n).lam)
        else:
            frequency = np.pi * np.arange(n)
        params = {
            # Re lam = -1/2, that of all eigenvalues of the normal part.
            "log_rate": jnp.full((n,), np.log(0.5), jnp.float32),
            "frequency": jnp.asarray(frequency, jnp.float32),
            "log_dt": log_uniform(key_dt, (d_in,), self.dt_min, self.dt_max),
            "feedthrough": jax.random.normal(key_through, (d_in,)),
        }
        names = self._weights()
        drawn = jax.random.normal(key_w, (len(names), d_in, n))
        return params | dict(zip(names, drawn, strict=True))

    def _weights(self):
        names = ["w_re", "w_im"]
        if self.bidirectional:
            names += ["w_backward_re", "w_backward_im"]
        return names

    def modes(self, params: Params) -> SISOModes:
        """Returns the modes for the given parameters."""
        params = in_float32(params)
        lam = jax.lax.complex(-bounded_exp(params["log_rate"]), params["frequency"])
        # (d, 1), so that `lam dt` gives each channel its own decays.
        dt = bounded_exp(params["log_dt"])[:, None]
        log_decay, gain = discretize("zoh", lam, dt)
        if self.length is not None:
            # The taps exp(z l) of L steps sum to (exp(L z) - 1) / (exp(z) - 1).
            lam = lam[None]
            z, steps = lam * dt.astype(lam.dtype), jnp.asarray(self.length)
            # `decay_powers` is exact for long phases; `expm1` does not cancel near 0.
            short = jnp.abs(self.length * z) < 1
            passed = decay_powers(log_decay, steps) - 1
            divisor = lam * jnp.where(short, jnp.expm1(self.length * z), passed)
            # The square of a large divisor, and its derivative, would overflow.
            factor = 1 / power_of_two(divisor)
            divisor = scale(divisor, factor)
            square = jnp.square(jnp.real(divisor)) + jnp.square(jnp.imag(divisor))
            # The epsilon belongs to the square before scaling.
            square += _SOFTMAX_EPS * jnp.square(factor)
            quotient = jnp.expm1(z) * jnp.conj(divisor) / square.astype(z.dtype)
            gain = scale(quotient, factor)

        def weight(name):
            # The gain is in the weights: an input enters all states unscaled.
            return gain * join_complex(params, name)

        modes = SISOModes(
            log_decay=log_decay,
            w=weight("w"),
            feedthrough=params["feedthrough"],
            w_backward=weight("w_backward") if self.bidirectional else None,
        )
        return resample(modes, self.step_scale)

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns optimizer groups for modes, step sizes and weights."""
        group = ParamGroup(weight_decay=False, lr_multiplier=self.lr_multiplier)
        names = ["log_rate", "frequency", "log_dt", *self._weights()]
        return dict.fromkeys(names, group)
