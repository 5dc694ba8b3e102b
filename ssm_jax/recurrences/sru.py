"""Statistical recurrent units: moving averages of what the averages let in."""

from dataclasses import dataclass

import jax.numpy as jnp

from ssm_jax.recurrences.statistics import Statistics


@dataclass(frozen=True, kw_only=True)
class SRU(Statistics):
    r"""Statistical recurrent unit: moving averages at several scales.

    The sums of `Statistics` with ``a`` fixed and ``c = 1 - a``.

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
