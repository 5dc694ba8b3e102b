"""Complex exponential smoothing, the recurrence of ETSMLP, with its ablations."""

import math
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from ssm_jax.fields import check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.powers import LogDecay, two_float_decay
from ssm_jax.kernels.precision import bounded_exp, in_float32, sigmoid
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.recurrences.families.base import Params
from ssm_jax.recurrences.families.initializers import (
    log_damped,
    log_uniform,
    split_complex,
    validate_dt_range,
)
from ssm_jax.recurrences.families.modes import SISOModes
from ssm_jax.recurrences.families.time_invariant import TimeInvariant
from ssm_jax.types import Array, Eigenvalues, Float, Inexact, PRNGKey

Shortcut = Literal["linear", "sigmoid", "none"]

# Factor on log lambda of the variant for very long sequences.
_SMALL_CHANGE = 0.06


def step(
    ces: "CES",
    params: Params,
    state: Inexact[Array, "*b d n"],
    x: Float[Array, "*b d"],
) -> tuple[Inexact[Array, "*b d n"], Float[Array, "*b d"]]:
    """One step of equations 7 to 13 of the paper, as its code has them."""
    if ces.bidirectional:
        raise ValueError(
            "`bidirectional` must be False for a step, got True; the backward "
            "direction depends on future steps, which `apply` takes."
        )
    p, dtype = in_float32(params), x.dtype
    if ces.eigenvalues == "real":
        smoothing, damping = p["logit_smoothing"], p["logit_damping"]
        # mu = 1 - sigmoid(p) sigmoid(a)
        log_mu = LogDecay(log_damped(smoothing, damping))
        gain = sigmoid(smoothing) * p["gain"]
    else:
        # mu = lambda**alpha = exp(alpha exp(lambda')), its modulus bounded.
        log_mu = LogDecay(*ces.log_mu(p))
        gain = _one_minus_exp(*log_mu[:2])
        if ces.beta:
            # exp(beta), as in the code; equations 7 to 10 have beta itself.
            gain = gain * _polar(p["log_gain_re"], p["log_gain_im"])
        if ces.small_change:
            # The normalization of the LRU, in this variant of the code only.
            size = jnp.sqrt(-jnp.expm1(2 * log_mu.log_abs))
            gain = gain * size.astype(gain.dtype)
    # In two floats: over many steps the rounding of mu would add up.
    mu, mu_lo = two_float_decay(log_mu)
    x = jnp.asarray(x, log_mu.log_abs.dtype)
    state = jnp.asarray(state, mu.dtype)[..., 0]
    mu, mu_lo, gain = (promoted_like(v, state) for v in (mu, mu_lo, gain))
    h = mu * state + (mu_lo * state + x.astype(state.dtype))
    # Equation 13 has sigmoid(omega), the code omega: see `shortcut`.
    y = jnp.real(gain * h) + promoted_like(ces.feedthrough(p), x) * x
    return h[..., None], y.astype(dtype)


@dataclass(frozen=True, kw_only=True)
class CES(TimeInvariant):
    r"""Exponential smoothing with a complex factor, one mode per channel (CES).

    .. math::
      h_t = \mu h_{t-1} + x_t, \qquad
      y_t = \operatorname{Re}(e^\beta (1 - \mu) h_t) + \omega x_t, \qquad
      \mu = \lambda^\alpha = \exp(\alpha e^{\lambda'})

    The modulus of ``mu`` is bounded. If bidirectional, each direction has its own
    parameters except ``omega``, and the backward direction depends on future steps
    only.

    Attributes:
      bidirectional: Adds a smoothing of future steps.
      eigenvalues: ``"complex"``, or ``"real"`` for the ablation with real numbers:
        ``mu = 1 - sigmoid(p) sigmoid(a)``, ``y_t = sigmoid(p) b h_t + omega x_t``.
      alpha: Whether there is an exponent ``alpha``; else it is 1.
      beta: Whether there is a gain ``exp(beta)``; else it is 1.
      shortcut: ``"linear"``: ``omega x_t``, as the authors' code has it. ``"sigmoid"``:
        ``sigmoid(omega) x_t``, as the paper has it. ``"none"``: neither.
      small_change: Multiplies ``log mu`` by 0.06 and the readout by ``sqrt(1
        - |mu|**2)``, for sequences as long as Path-X.
      r_min: Minimum initial ``|lambda|``.
      r_max: Maximum initial ``|lambda|``.
      max_phase: Maximum initial phase of ``lambda``, radians.
      stable: Initial ``lambda`` of all channels, as real and imaginary part. None:
        sampled from the ring between ``r_min`` and ``r_max``.
      dt_min: Minimum initial real and imaginary part of ``alpha``.
      dt_max: Maximum initial real and imaginary part of ``alpha``.
      max_modulus: Bound on ``|mu|``.

    Parameters, float32, ``(d,)`` each for inputs of width ``d``; all but ``shortcut``
    once more as ``..._backward`` if bidirectional, 7 or 13 values per channel:
      loglog_re, loglog_im: ``lambda' = log log lambda``.
      log_alpha_re, log_alpha_im: ``alpha = exp(log_alpha_re) + i exp(log_alpha_im)``.
      log_gain_re, log_gain_im: ``beta``, whose exponential is the gain.
      shortcut: ``omega``.
      logit_smoothing, logit_damping, gain: ``p``, ``a`` and ``b`` of the real variant.

    Raises:
      ValueError: A bound of the initialization or ``max_modulus`` is out of its range.

    Example:
      >>> smoothing = CES(bidirectional=True)
      >>> params = smoothing.init(jax.random.key(0), d_in=2)
      >>> sum(leaf.size for leaf in params.values())
      26
      >>> y, _ = jax.jit(smoothing.apply)(params, jnp.ones((8, 2)))
      >>> y.shape
      (8, 2)

    Note:
      Exponents of decay rate, phase and gain are at most 30. The bound is ``Re log mu
      <= log max_modulus``. This equals the authors' division by the modulus where that
      is finite, and is finite where that is NaN.

    References:
      Chu and Lin, `Incorporating Exponential Smoothing into MLP: A Simple but Effective
      Sequence Model <https://arxiv.org/abs/2403.17445>`_, 2024, section 3, equations 7
      to 14; initialization as in Orvieto et al., `Resurrecting Recurrent Neural
      Networks for Long Sequences <https://arxiv.org/abs/2303.06349>`_, 2023, lemma 3.2
    """

    bidirectional: bool = False
    eigenvalues: Eigenvalues = "complex"
    alpha: bool = True
    beta: bool = True
    shortcut: Shortcut = "linear"
    small_change: bool = False
    r_min: float = 0.1
    r_max: float = 0.9
    max_phase: float = 6.28
    stable: tuple[float, float] | None = None
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    max_modulus: float = 0.9999

    # The modulus is at most `max_modulus`, so that an FFT needs no test of the decays.
    bounded_decay = True
    step = step

    def __post_init__(self):
        check_fields(self)
        if not 0 < self.r_min <= self.r_max <= 1:
            raise ValueError(
                "`r_min` must be in (0, r_max] and `r_max` at most 1, got "
                f"{self.r_min} and {self.r_max}; equal values are a circle."
            )
        validate_dt_range(self.dt_min, self.dt_max, "all channels one `alpha`")
        if not 0 < self.max_modulus <= 1:
            raise ValueError(
                f"`max_modulus` must be in (0, 1], got {self.max_modulus}; beyond 1 "
                "the states grow exponentially."
            )
        if self.stable is not None and self.stable in ((0.0, 0.0), (1.0, 0.0)):
            raise ValueError(
                f"`stable` must be neither 0 nor 1, got {self.stable}; the "
                "logarithm of their logarithm is not finite."
            )

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        # Three keys in every variant: an option does not change other parameters.
        key_ahead, key_behind, key_shortcut = jax.random.split(key, 3)
        draw = self._complex if self.eigenvalues == "complex" else _real
        params = dict(draw(key_ahead, d_in))
        if self.bidirectional:
            behind = draw(key_behind, d_in)
            params |= {f"{name}_backward": value for name, value in behind.items()}
        if self.shortcut != "none":
            params["shortcut"] = jax.random.normal(key_shortcut, (d_in,))
        return params

    def _complex(self, key, d):
        key_ring, key_phase, key_dt, key_gain = jax.random.split(key, 4)
        if self.stable is None:
            # Uniform in |lambda|**2, that is, in the area of the ring, as in the LRU.
            low, high = self.r_min**2, self.r_max**2
            square = jax.random.uniform(key_ring, (d,), minval=low, maxval=high)
            # From 0 on, as in the authors' code: initial phases of one sign only.
            phase = jax.random.uniform(key_phase, (d,), maxval=self.max_phase)
            # log |lambda| is half of the logarithm of the square.
            log = jax.lax.complex(0.5 * jnp.log(square), phase)
        else:
            log = jnp.full((d,), jnp.log(jnp.asarray(complex(*self.stable))))
        params = split_complex("loglog", jnp.log(log))
        if self.alpha:
            log_dt = log_uniform(key_dt, (d,), self.dt_min, self.dt_max)
            # Both parts are equal: alpha = dt (1 + i).
            params |= split_complex("log_alpha", jax.lax.complex(log_dt, log_dt))
        if self.beta:
            # Standard deviation 0.2, as in the authors' code.
            gain = 0.2 * jax.random.normal(key_gain, (2, d))
            params |= split_complex("log_gain", jax.lax.complex(*gain))
        return params

    def modes(self, params: Params) -> SISOModes:
        """Returns the modes for the given parameters."""
        params = in_float32(params)
        of_direction = (
            self._complex_mode if self.eigenvalues == "complex" else _real_mode
        )
        # One mode per channel: decays and weights are (d, 1).
        log_decay, w = of_direction(params, "")
        modes = SISOModes(log_decay, w, self.feedthrough(params))
        if not self.bidirectional:
            return modes
        log_decay, w = of_direction(params, "_backward")
        return modes._replace(w_backward=w, log_decay_backward=log_decay)

    def log_mu(
        self, params: Params, suffix: str = ""
    ) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """Returns real and imaginary part of the bounded logarithm of ``mu``.

        Args:
          params: Parameters, as returned by `init`.
          suffix: ``"_backward"`` for the backward direction.
        """
        params = in_float32(params)
        re, im = (params[f"loglog_{part}{suffix}"] for part in ("re", "im"))
        if self.alpha:
            # One exponent for exp(lambda') and alpha: the bound is on their product.
            exponents = (params[f"log_alpha_{part}{suffix}"] for part in ("re", "im"))
            along, across = (bounded_exp(re + exponent) for exponent in exponents)
        else:
            along, across = bounded_exp(re), jnp.zeros_like(re)
        # Real and imaginary part of exp(lambda') alpha, by real products.
        log_abs = along * jnp.cos(im) - across * jnp.sin(im)
        phase = along * jnp.sin(im) + across * jnp.cos(im)
        # The authors divide by |mu|, which may underflow; this has the same value.
        log_abs = jnp.minimum(log_abs, math.log(self.max_modulus))
        # After the bound, as in the authors' code: the modulus is then closer to 1.
        scale = _SMALL_CHANGE if self.small_change else 1.0
        return scale * log_abs, scale * phase

    def _complex_mode(self, params, suffix):
        log_abs, phase = self.log_mu(params, suffix)
        w = _one_minus_exp(log_abs, phase)
        if self.beta:
            re, im = (params[f"log_gain_{part}{suffix}"] for part in ("re", "im"))
            w = w * _polar(re, im)
        if self.small_change:
            # 1 - |mu|**2 by `expm1`, accurate near |mu| = 1. At 1 the derivative of the
            # square root is infinite.
            square = -jnp.expm1(2 * log_abs)
            below_one = square > 0
            size = jnp.sqrt(jnp.where(below_one, square, 1))
            w = w * jnp.where(below_one, size, 0).astype(w.dtype)
        return LogDecay(log_abs[:, None], phase[:, None]), w[:, None]

    def feedthrough(self, params: Params) -> Float[Array, " d"]:
        """Returns ``D``: ``omega``, its sigmoid, or zeros, depending on `shortcut`.

        Args:
          params: Parameters, as returned by `init`.
        """
        if self.shortcut == "none":
            # All parameters are (d,).
            return jnp.zeros_like(next(iter(params.values())))
        omega = params["shortcut"]
        return sigmoid(omega) if self.shortcut == "sigmoid" else omega


def _real(key, d):
    """Initializes one direction of the real variant."""
    names = {"logit_smoothing": 1.0, "logit_damping": 1.0, "gain": 0.0}
    # Means and standard deviations of the authors' code.
    return {
        name: mean + 0.2 * jax.random.normal(key, (d,))
        for (name, mean), key in zip(
            names.items(), jax.random.split(key, 3), strict=True
        )
    }


def _real_mode(params, suffix):
    smoothing = params[f"logit_smoothing{suffix}"]
    log_abs = log_damped(smoothing, params[f"logit_damping{suffix}"])
    w = sigmoid(smoothing) * params[f"gain{suffix}"]
    return LogDecay(log_abs[:, None]), w[:, None]


def _polar(re, im):
    """Returns ``exp(re + i im)`` with a bounded modulus."""
    size = bounded_exp(re)
    return jax.lax.complex(size * jnp.cos(im), size * jnp.sin(im))


def _one_minus_exp(re, im):
    """Returns ``1 - exp(re + i im)``, to float32 rounding also where it is small."""
    # 1 - cos(im) = 2 sin(im / 2)**2; for re <= 0 both terms are positive.
    half = jnp.sin(0.5 * im)
    real = 2 * jnp.square(half) * jnp.exp(re) - jnp.expm1(re)
    return jax.lax.complex(real, -jnp.exp(re) * jnp.sin(im))
