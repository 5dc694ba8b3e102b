"""Statistical recurrent units: moving averages of a statistic with feedback."""

from dataclasses import dataclass

import jax.numpy as jnp

from ssm_jax.kernels.precision import affine_f32, in_float32, matmul_f32
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.recurrences.families.base import Params
from ssm_jax.recurrences.families.running_sums import ACTIVATIONS, Letters, RunningSums
from ssm_jax.types import Array, Float, State


def step(
    sru: "SRU", params: Params, state: State, x: Float[Array, "*b d"]
) -> tuple[State, Float[Array, "*b o"]]:
    """One step of the paper's equations; `SRU.apply` is its scan over time."""
    f, p = ACTIVATIONS[sru.activation], in_float32(params)
    dtype = x.dtype
    state, x = (jnp.asarray(value, p["W_x"].dtype) for value in (state, x))
    phi = affine_f32(x, p["W_x"], p["b_phi"])
    if sru.d_feedback:
        r = f(affine_f32(state, p["W_r"], p["b_r"]))
        phi = phi + matmul_f32(r, p["W_phi"])
    # One average per scale, (k, d_statistic).
    mu = state.reshape(*state.shape[:-1], len(sru.scales), -1)
    alpha = promoted_like(jnp.asarray(sru.scales)[:, None], mu)
    # Weights that sum to 1: an average stays within the range of the statistic.
    mu = alpha * mu + (1 - alpha) * f(phi)[..., None, :]
    mu = mu.reshape(state.shape)
    return mu, f(affine_f32(mu, p["W_o"], p["b_o"])).astype(dtype)


@dataclass(frozen=True, kw_only=True)
class SRU(RunningSums):
    r"""Statistical recurrent unit: moving averages at several scales.

    .. math::
      r_t = f(W^r \mu_{t-1} + b^r), \quad
      \varphi_t = f(W^\varphi r_t + W^x x_t + b^\varphi), \quad
      \mu_t^\alpha = \alpha \mu_{t-1}^\alpha + (1 - \alpha) \varphi_t, \quad
      o_t = f(W^o \mu_t + b^o)

    The state is ``mu`` of all scales; ``r`` has ``d_feedback`` entries, ``varphi``
    ``d_statistic``.

    Attributes:
      scales: ``alpha``, in ``[0, 1)``.

    Parameters, float32, for inputs of width ``d``, ``n = k d_statistic``; matrices
    normal with standard deviation 0.1, truncated at twice that, biases zeros:
      W_r, b_r: ``(n, d_feedback)``, ``(d_feedback,)``.
      W_phi, W_x, b_phi: ``(d_feedback, d_statistic)``, ``(d, d_statistic)`` and
        ``(d_statistic,)``.
      W_o, b_o: ``(n, d_output)``, ``(d_output,)``.

    Raises:
      ValueError: A size is not positive, or a scale is out of its range.

    Example:
      >>> import jax
      >>> sru = SRU(d_statistic=4, d_feedback=3, d_output=5)
      >>> params = sru.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(sru.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 5), (20,))

    Note:
      With ``"relu"`` nothing bounds the feedback, and large weights overflow float32.
      ``f`` has the Lipschitz constant 1 and ``f(0) = 0``. With spectral norms and ``c =
      1 - alpha``, a step therefore multiplies the norm of the sums by at most ``rho =
      max(alpha) + |c| |W_r| |W_phi|`` and adds at most ``|c| (|W_x x_t + b_phi| +
      |W_phi| |b_r|)``. After ``l`` steps the sums are
      at most ``l rho**l`` times what is added; so are gradients, by the transposes of
      the same maps. A float32 holds ``exp(88)``. With ``exp(28)`` left for what is
      added, for ``W_o`` and for the products in a gradient, values and gradients are
      finite where ``l log(rho) <= 60``; positive weights reach this bound. Normal
      weights of std ``s`` have norms of about ``s (sqrt(n) + sqrt(r))`` and ``s
      (sqrt(r) + sqrt(d))``, ``r = d_feedback`` and ``d = d_statistic``: at 32 steps
      and the published sizes the bound holds for ``s <= 0.06``. As ``relu`` drops half
      of its input, the typical growth of a step is ``s**2 sqrt(r d) |c| / 2``, which
      is within it for ``s <= 0.29``. ``"tanh"`` bounds the feedback.

    References:
      Oliva, Póczos and Schneider, `The Statistical Recurrent Unit
      <https://arxiv.org/abs/1703.00381>`_, 2017, section 2
    """

    scales: tuple[float, ...] = (0.0, 0.25, 0.5, 0.9, 0.99)

    letters = Letters("W_r", "b_r", "W_phi", "W_x", "b_phi", "W_o", "b_o")
    step = step

    def __post_init__(self):
        super().__post_init__()
        if not self.scales or not all(0 <= scale < 1 for scale in self.scales):
            raise ValueError(
                f"`scales` must be numbers in [0, 1), got {self.scales}; with a scale "
                "of 1 an average ignores its input."
            )

    @property
    def decays(self):
        """Decay of each average, its scale."""
        return self.scales

    def weights(self, params, steps):
        """Returns ``1 - alpha`` at every step."""
        del params
        # Broadcast, as the weights do not depend on the step.
        input_weights = 1 - jnp.asarray(self.scales)
        return jnp.broadcast_to(input_weights, (*steps.shape, self.n_sums))
