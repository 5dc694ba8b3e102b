"""Fourier recurrent units: running sums with Fourier weights of fixed frequencies."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.powers import LogDecay, decay_powers
from ssm_jax.kernels.precision import affine_f32, in_float32, matmul_f32
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.recurrences.families.base import Params
from ssm_jax.recurrences.families.nonlinear import MAX_STEPS, step_index
from ssm_jax.recurrences.families.projected import outer
from ssm_jax.recurrences.families.running_sums import (
    ACTIVATIONS,
    Letters,
    RunningSums,
    truncated_normal,
)
from ssm_jax.types import Array, Float, PRNGKey, State


def step(
    fru: "FRU", params: Params, state: State, x: Float[Array, "*b d"]
) -> tuple[State, Float[Array, "*b o"]]:
    """One step of equation 4 of the paper; `FRU.apply` is its scan over time."""
    phi, p = ACTIVATIONS[fru.activation], in_float32(params)
    dtype = x.dtype
    state, x = (jnp.asarray(value, p["U"].dtype) for value in (state, x))
    u, t = state[..., :-1], step_index(state[..., -1])
    # The code has one matrix W_2 for (x, g); here its rows for x are U.
    h = affine_f32(x, p["U"], p["b_2"])
    if fru.d_feedback:
        g = phi(affine_f32(u, p["W_1"], p["b_1"]))
        h = h + matmul_f32(g, p["W_2"])
    # cos(2 pi (f t / T + theta)) / T, with theta in turns as in the code; the paper has
    # radians.
    cos = fru.weights(p, t)
    a = jnp.repeat(jnp.asarray(fru.decays, u.dtype), fru.d_statistic)
    u = promoted_like(a, u) * u + outer(cos, phi(h))
    # The output passes through phi in the code; it is linear in the paper.
    y = phi(affine_f32(u, p["Y"], p["b_y"]))
    count = jnp.asarray(t + 1, u.dtype)[..., None]
    return jnp.concatenate([u, count], -1), y.astype(dtype)


@dataclass(frozen=True, kw_only=True)
class FRU(RunningSums):
    r"""Fourier recurrent unit: running sums of a statistic with Fourier weights.

    .. math::
      g_t = \phi(W_1 u_{t-1} + b_1), \quad
      h_t = \phi(W_2 g_t + U x_t + b_2), \quad
      y_t = \phi(Y u_t + b_y)

    .. math::
      u_t^k = a_k u_{t-1}^k + \tfrac 1 T \cos(2 \pi f_k t / T + 2 \pi \theta_k) h_t,
      \qquad a_k = 1,

    where ``t`` is the index of a step, counted from 0. ``t`` is the last entry of the
    state. A float32 counts up to ``2**24``: from there on outputs are NaN, and a state
    that would get there is refused where its values are known.

    Attributes:
      frequencies: ``f``, number of periods in the horizon, fixed; `log_spaced` returns
        the published ones.
      horizon: ``T``, number of steps, the length of a training sequence.
      zero_frequency: Treatment of frequency 0 if there are other frequencies.
        ``"held"``: its ``a`` is 0, so that its sum is that of the last step only, as in
        the authors' code. ``"summed"``: its ``a`` is 1, as in the paper. A single
        frequency 0 is always summed.

    Parameters, float32, for inputs of width ``d``, ``n = k d_statistic``; matrices
    normal with std 0.1, truncated at two std, biases zeros:
      W_1, b_1: ``(n, d_feedback)``, ``(d_feedback,)``.
      W_2, U, b_2: ``(d_feedback, d_statistic)``, ``(d, d_statistic)`` and
        ``(d_statistic,)``.
      Y, b_y: ``(n, d_output)``, ``(d_output,)``.
      theta: ``(k,)``, phases in turns, initialized like the matrices.

    Raises:
      ValueError: A size is not positive, there is no frequency, or one is negative.

    Example:
      >>> fru = FRU(frequencies=log_spaced(5, 8.0), horizon=8, d_statistic=4)
      >>> params = fru.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(fru.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape, float(state[-1])
      ((8, 200), (21,), 8.0)

    Note:
      The paper counts steps from 1, and its statistic depends on the previous input.
      In its code, as here, steps are counted from 0, and it depends on the current one.

      With ``"relu"`` the range of weights follows as in `SRU`: ``max(a) = 1`` and
      ``|c_t| <= sqrt(k) / T``, so that over a horizon, ``l <= T``, the sums and the
      gradients grow by at most ``(1 + sqrt(k) |W_1| |W_2| / T)**l <= exp(sqrt(k) |W_1|
      |W_2|)`` for every ``T``. Values and gradients are finite where the logarithm
      of this factor is at most 60; far beyond it the sums themselves exceed float32.

    References:
      Zhang, Lin, Song and Dhillon, `Learning Long Term Dependencies via Fourier
      Recurrent Units <https://arxiv.org/abs/1803.06585>`_, 2018, equations 3 to 5
    """

    frequencies: tuple[float, ...]
    horizon: int
    zero_frequency: Literal["held", "summed"] = "held"
    d_statistic: int = 10
    # The Fourier weights depend on the index of the step.
    tracks_position = True
    letters = Letters("W_1", "b_1", "W_2", "U", "b_2", "Y", "b_y")
    step = step

    def __post_init__(self):
        super().__post_init__()
        if self.horizon < 1 or not self.frequencies or min(self.frequencies) < 0:
            raise ValueError(
                "`frequencies` must be at least 0 and `horizon` positive, got "
                f"{self.frequencies} and {self.horizon}; `log_spaced` returns some."
            )

    @property
    def decays(self):
        """Decay of each sum: 1, or 0 for a frequency of 0 that is held."""
        # With other frequencies the authors' code masks the sum of frequency 0.
        held = self.zero_frequency == "held" and len(self.frequencies) > 1
        return tuple(float(not (held and f == 0)) for f in self.frequencies)

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        # The phases are learned in the code; the paper has them fixed.
        key, key_phase = jax.random.split(key)
        return dict(super().init(key, d_in)) | {
            "theta": truncated_normal(key_phase, (self.n_sums,))
        }

    def weights(self, params, steps):
        """Returns the Fourier weights, accurate to float32 rounding at every step.

        NaN from step `MAX_STEPS` on, which the position in a state does not reach.
        """
        # cos(2 pi f t / T + 2 pi theta) as the real part of a product: `decay_powers`
        # keeps the phase f t / T accurate, which float32 would round for large t.
        angle = 2 * np.pi * params["theta"]
        rotation = jax.lax.complex(jnp.cos(angle), jnp.sin(angle))
        powers = decay_powers(_waves(self, angle.dtype), steps)
        waves = jnp.real(powers * promoted_like(rotation, powers))
        return jnp.where(steps[..., None] < MAX_STEPS, waves / self.horizon, jnp.nan)


def log_spaced(n: int, maximum: float, minimum: float = 0.25) -> tuple[float, ...]:
    """Returns the published frequencies: 0, and others evenly spaced in log space.

    Args:
      n: Number of frequencies, including 0.
      maximum: The last one; as published, the length of a sequence or a third of it.
      minimum: The first one after 0.

    Returns:
      ``n`` frequencies, ascending.

    Raises:
      ValueError: ``n`` or ``minimum`` is not positive, or ``maximum`` less than
        ``minimum``.

    Example:
      >>> [round(f, 2) for f in log_spaced(5, 100.0)]
      [0.0, 0.25, 1.84, 13.57, 100.0]
    """
    if n < 1 or not 0 < minimum <= maximum:
        raise ValueError(
            f"`n` and `minimum` must be positive and `maximum` at least `minimum`, got "
            f"{n}, {minimum} and {maximum}; the frequency 0 is always included."
        )
    # Base 2, for the same rounding as in the authors' code.
    waves = np.logspace(np.log2(minimum), np.log2(maximum), n - 1, base=2)
    return (0.0, *map(float, waves))


def rotating(fru: FRU) -> LogDecay:
    """Returns the decays of the same sums in rotating coordinates.

    ``u_t^k = Re(e^{i (2 pi f_k t / T + 2 pi theta_k)} v_t^k) / T`` with ``v_t =
    e^{-2 pi i f_k / T} v_{t-1} + s_t``: the input is then the statistic itself, and
    the decay is time-invariant, on the unit circle.

    Args:
      fru: The unit; only its frequencies and its horizon are used.

    Returns:
      Logarithm of the decays, leaves ``(k,)``.
    """
    return jax.tree.map(jnp.negative, _waves(fru, jnp.float32))


def _waves(fru, dtype):
    """Returns the logarithm of ``e^{2 pi i f / T}``, its phase in two floats."""
    angle = 2 * np.pi * np.asarray(fru.frequencies) / fru.horizon
    if dtype == jnp.float64:
        return LogDecay(jnp.zeros_like(angle), jnp.asarray(angle))
    # One float32 would err by up to 4e-7 f radians over the horizon.
    high = np.float32(angle)
    return LogDecay(*map(jnp.asarray, (0 * high, high, np.float32(angle - high))))
