"""Statistical recurrent units: moving averages of what the averages let in."""

import abc
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from ssm_jax.recurrences.base import Params
from ssm_jax.recurrences.nonlinear import Nonlinear
from ssm_jax.recurrences.parameters import product
from ssm_jax.types import Array, Float, PRNGKey

Activation = Literal["relu", "tanh", "identity"]
ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "identity": lambda x: x}

# Deviation of the normal numbers, cut at two deviations, that every matrix starts from.
DEVIATION = 0.1


@dataclass(frozen=True, kw_only=True)
class Statistics(Nonlinear):
    r"""Several sums of one statistic, which sees the sums before it.

    .. math::
      g_t = \phi(W_1 u_{t-1} + b_1), \quad
      s_t = \phi(W_2 [x_t; g_t] + b_2), \quad
      u_t^k = a_k u_{t-1}^k + c_t^k s_t, \quad
      o_t = \phi(W_o u_t + b_o)

    What `SRU` and `FRU` share; they say ``a`` and ``c``.

    Attributes:
      d_statistic: Numbers of ``s``, and of each sum.
      d_feedback: Numbers of ``g``. 0: the statistic does not see the sums.
      d_output: Numbers of ``o``.
      activation: ``phi``.
    """

    d_statistic: int = 200
    d_feedback: int = 60
    d_output: int = 200
    activation: Activation = "relu"
    sweeps = "picard"

    def __post_init__(self):
        """Checks the numbers."""
        sizes = self.d_statistic, self.d_feedback + 1, self.d_output
        if min(sizes) < 1:
            raise ValueError(
                "`d_statistic` and `d_output` must be positive and `d_feedback` at "
                f"least 0, got {self.d_statistic}, {self.d_output} and "
                f"{self.d_feedback}; the published sizes are 200 (10 in an FRU), 200 "
                "and 60."
            )

    @property
    @abc.abstractmethod
    def n_sums(self) -> int:
        """Number of sums, ``k``."""

    @abc.abstractmethod
    def weights(self, params: Params, steps: Array) -> Float[Array, "*b l k"]:
        """How a statistic enters each sum, ``c``."""

    @property
    def d_hidden(self) -> int:
        """Numbers of all sums."""
        return self.n_sums * self.d_statistic

    def d_out(self, d_in: int) -> int:
        """``d_output``, whatever ``d_in``."""
        del d_in
        return self.d_output

    def d_in(self, params: Params) -> int:
        """The width that parameters were drawn for."""
        return len(params["input_kernel"])

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Draws the parameters; see the class for each name's shape and start."""
        key_in, key_feedback, key_seen, key_out = jax.random.split(key, 4)
        n, d, r = self.d_hidden, self.d_statistic, self.d_feedback
        params = {
            "input_kernel": truncated(key_in, (d_in, d)),
            "input_bias": jnp.zeros(d),
            "output_kernel": truncated(key_out, (n, self.d_output)),
            "output_bias": jnp.zeros(self.d_output),
        }
        if r:
            params["feedback_kernel"] = truncated(key_feedback, (n, r))
            params["feedback_bias"] = jnp.zeros(r)
            params["seen_kernel"] = truncated(key_seen, (r, d))
        return params

    def entering(self, params, x, steps):
        """The part of the statistic before ``phi`` that is the input's, and ``c``."""
        own = product(x, params["input_kernel"]) + params["input_bias"]
        return own, self.weights(params, steps)

    def drive(self, params, h, entering):
        """``c s``."""
        phi = ACTIVATIONS[self.activation]
        statistic, weights = entering
        if self.d_feedback:
            g = product(h, params["feedback_kernel"]) + params["feedback_bias"]
            statistic = statistic + product(phi(g), params["seen_kernel"])
        sums = weights[..., :, None] * phi(statistic)[..., None, :]
        return sums.reshape(*sums.shape[:-2], -1)

    def leaving(self, params, h):
        """``o``."""
        o = product(h, params["output_kernel"]) + params["output_bias"]
        return ACTIVATIONS[self.activation](o)


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
    def n_sums(self) -> int:
        """Number of scales."""
        return len(self.scales)

    def decay(self, params):
        """Each scale, for all numbers of its sum."""
        del params
        return jnp.repeat(jnp.asarray(self.scales), self.d_statistic)

    def weights(self, params, steps):
        """``1 - a`` at every step."""
        del params
        left = 1 - jnp.asarray(self.scales)
        return jnp.broadcast_to(left, (*steps.shape, self.n_sums))


def truncated(key: PRNGKey, shape: tuple[int, ...]) -> Float[jax.Array, "..."]:
    """Normal numbers of deviation 0.1 before the cut at two deviations."""
    return DEVIATION * jax.random.truncated_normal(key, -2, 2, shape)
