"""Statistical recurrent units: moving averages of what the averages let in."""

from dataclasses import dataclass

import jax.numpy as jnp

from ssm_jax.recurrences.families.running_sums import RunningSums


@dataclass(frozen=True, kw_only=True)
class SRU(RunningSums):
    r"""Statistical recurrent unit: moving averages at several scales.

    The sums of `RunningSums` with ``a`` fixed and ``c = 1 - a``.

    Attributes:
      scales: ``a``, in ``[0, 1)``.

    Parameters, float32, for inputs of width ``d``, ``n = k d_statistic``; matrices
    normal of deviation 0.1, cut at two deviations, biases zeros:
      input_kernel, input_bias: ``(d, d_statistic)``, ``(d_statistic,)``; with the next
        the matrix ``W_2`` and ``b_2``.
      seen_kernel: ``(d_feedback, d_statistic)``.
      feedback_kernel, feedback_bias: ``(n, d_feedback)``, ``(d_feedback,)``.
      output_kernel, output_bias: ``(n, d_output)``, ``(d_output,)``.

    Raises:
      ValueError: A size is not positive, or a scale is out of its range.

    Example:
      >>> import jax
      >>> sru = SRU(d_statistic=4, d_feedback=3, d_output=5)
      >>> params = sru.init(jax.random.key(0), d_in=2)
      >>> y, state = sru.apply(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 5), (20,))

    Note:
      With ``"relu"`` nothing bounds the feedback, and large weights overflow float32.
      ``phi`` has the Lipschitz constant 1 and ``phi(0) = 0``. With ``W_s`` the rows of
      ``W_2`` for ``g``, spectral norms and ``c = 1 - a``, a step therefore multiplies
      the norm of the sums by at most ``rho = max(a) + |c| |W_1| |W_s|`` and adds at
      most ``|c| (|W_2 [x_t; 0] + b_2| + |W_s| |b_1|)``. After ``l`` steps the sums are
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

    def __post_init__(self):
        """Checks the numbers."""
        super().__post_init__()
        if not self.scales or not all(0 <= scale < 1 for scale in self.scales):
            raise ValueError(
                f"`scales` must be numbers in [0, 1), got {self.scales}; a scale of 1 "
                "lets nothing in."
            )

    @property
    def decays(self):
        """The scales."""
        return self.scales

    def weights(self, params, steps):
        """``1 - a`` at every step."""
        del params
        left = 1 - jnp.asarray(self.scales)
        return jnp.broadcast_to(left, (*steps.shape, self.n_sums))
