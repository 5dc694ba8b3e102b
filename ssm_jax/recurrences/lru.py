"""LRU: a linear recurrence with eigenvalues initialized on a ring."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ssm_jax.fields import check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.powers import LogDecay
from ssm_jax.kernels.precision import bounded_exp, in_float32
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.initializers import join_complex, split_complex
from ssm_jax.recurrences.families.modes import MIMOModes
from ssm_jax.recurrences.families.time_invariant import TimeInvariant
from ssm_jax.types import PRNGKey

# Lower bound of uniform samples, so that their logarithm is finite.
_UNIFORM_MIN = 2.0**-23


@dataclass(frozen=True, kw_only=True)
class LRU(TimeInvariant):
    r"""Linear recurrent unit: complex states shared by all channels.

    .. math::
      h_t = \lambda h_{t-1} + \gamma B x_t, \qquad
      y_t = \operatorname{Re}(C h_t) + D x_t, \qquad
      \lambda = \exp(-e^\nu + i e^\theta)

    The state is ``(*b, n)``. All channels share the states: ``n`` recurrences are
    evaluated, not ``d n``, by `linear_recurrence` with ``method``.

    Attributes:
      d_state: Number of states, ``N`` in the paper.
      r_min: Minimum initial modulus of an eigenvalue.
      r_max: Maximum initial modulus of an eigenvalue.
      max_phase: Maximum initial phase of an eigenvalue, radians per step; use small
        values for long sequences.
      lr_multiplier: Factor on the learning rate of eigenvalues, gains and ``B``.

    Parameters, float32, for inputs of width ``d``:
      log_rate: ``(n,)``, ``nu``; the modulus ``exp(-exp(nu))`` is initialized as that
        of points distributed uniformly on the ring ``[r_min, r_max]``.
      log_phase: ``(n,)``, ``theta``; the phase is initialized uniform in
        ``[0, max_phase]``.
      log_gain: ``(n,)``, the logarithm of ``gamma``, initialized to ``sqrt(1 -
        abs(lam)**2)``: white noise then gives every state the same variance.
      B_re, B_im: ``(n, d)``, normal with standard deviation ``1 / sqrt(2 d)``.
      C_re, C_im: ``(d, n)``, normal with standard deviation ``1 / sqrt(n)``.
      feedthrough: ``(d,)``, ``D``, standard normal.

    Raises:
      ValueError: ``d_state`` or ``max_phase`` is not positive, or the ring is empty.

    Example:
      >>> lru = LRU(d_state=4, r_min=0.9, r_max=0.999)
      >>> params = lru.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(lru.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 2), (4,))

    Note:
      Rates, phases and gains are at most ``exp(30)``, so that values and gradients are
      finite. The readout is ``Re(C h)`` without a factor 2, as in the paper: states are
      not in conjugate pairs. Gains are parameters of their own. Weight decay is applied
      to ``C`` and ``D`` only; the others have their own learning rate, as in `S5`.

    References:
      Orvieto et al., `Resurrecting Recurrent Neural Networks for Long Sequences
      <https://arxiv.org/abs/2303.06349>`_, 2023, section 3 and appendix A
    """

    d_state: int = 256
    r_min: float = 0.0
    r_max: float = 1.0
    max_phase: float = 2 * math.pi
    lr_multiplier: float = 1.0

    # |lam| = exp(-exp(nu)) <= 1, so that an FFT needs no test of the decays.
    bounded_decay = True

    def __post_init__(self):
        check_fields(self)
        if self.d_state < 1:
            raise ValueError(
                f"`d_state` must be positive, got {self.d_state}; the default is 256."
            )
        if not 0 <= self.r_min < self.r_max <= 1:
            raise ValueError(
                f"`r_min` must be in [0, r_max) with r_max at most 1, got {self.r_min} "
                f"with r_max {self.r_max}; 0 and 1 are the whole disk."
            )
        if not self.max_phase > 0:
            raise ValueError(
                f"`max_phase` must be positive, got {self.max_phase}; 2 pi is the "
                "whole circle."
            )

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        key_ring, key_phase, key_b, key_c, key_through = jax.random.split(key, 5)
        n = self.d_state

        def uniform(key):
            return jax.random.uniform(key, (n,), minval=_UNIFORM_MIN)

        def normal(key, *shape):
            return jax.lax.complex(*jax.random.normal(key, (2, *shape)))

        # 1 - abs(lam)**2, in which moduli near one keep their digits.
        gap = (1 - self.r_max**2) + uniform(key_ring) * (self.r_max**2 - self.r_min**2)
        return {
            # nu = log(-log |lam|), where log |lam| = log1p(-gap) / 2.
            "log_rate": jnp.log(-jnp.log1p(-gap) / 2),
            "log_phase": jnp.log(uniform(key_phase) * self.max_phase),
            # gamma = sqrt(1 - |lam|**2).
            "log_gain": jnp.log(gap) / 2,
            **split_complex("B", normal(key_b, n, d_in) / math.sqrt(2 * d_in)),
            **split_complex("C", normal(key_c, d_in, n) / math.sqrt(n)),
            "feedthrough": jax.random.normal(key_through, (d_in,)),
        }

    def modes(self, params: Params) -> MIMOModes:
        """Returns the modes for the given parameters."""
        params = in_float32(params)
        # exp(theta): positive phases only, as in the paper.
        phase = bounded_exp(params["log_phase"])
        gain, B = bounded_exp(params["log_gain"]), join_complex(params, "B")
        return MIMOModes(
            log_decay=LogDecay(-bounded_exp(params["log_rate"]), phase),
            # gamma scales the rows of B and is independent of the eigenvalues.
            B=gain[:, None].astype(B.dtype) * B,
            C=join_complex(params, "C"),
            feedthrough=params["feedthrough"],
        )

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns optimizer groups for eigenvalues, gains and ``B``."""
        group = ParamGroup(weight_decay=False, lr_multiplier=self.lr_multiplier)
        names = ["log_rate", "log_phase", "log_gain", "B_re", "B_im"]
        return dict.fromkeys(names, group)
