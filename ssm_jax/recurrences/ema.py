"""Exponential moving averages: simple smoothing and the damped EMA of Mega."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.powers import LogDecay
from ssm_jax.kernels.precision import in_float32, sigmoid
from ssm_jax.recurrences.families.base import Params
from ssm_jax.recurrences.families.initializers import log_damped, log_uniform
from ssm_jax.recurrences.families.modes import SISOModes
from ssm_jax.recurrences.families.time_invariant import TimeInvariant
from ssm_jax.types import PRNGKey


@dataclass(frozen=True, kw_only=True)
class ExponentialSmoothing(TimeInvariant):
    r"""Simple exponential smoothing with a learned factor, one state per channel.

    .. math::
      y_t = \lambda x_t + (1 - \lambda) y_{t-1}

    The state is ``y / lambda``, ``(*b, d, 1)``.

    Attributes:
      bidirectional: Adds the backward direction over future steps, with its own factor.
      decay_min: Minimum initial ``lambda``.
      decay_max: Maximum initial ``lambda``.

    Parameters, float32, for inputs of width ``d``:
      logit_smoothing: ``(d,)``, ``lambda = sigmoid(logit_smoothing)``, initialized
        log-uniform in ``[decay_min, decay_max]``.
      logit_smoothing_backward: Likewise, only if bidirectional.

    Raises:
      ValueError: The bounds are not in ``(0, 1)`` or out of order.

    Example:
      >>> ema = ExponentialSmoothing(decay_min=0.5, decay_max=0.5)
      >>> params = ema.init(jax.random.key(0), d_in=1)
      >>> y, _ = jax.jit(ema.apply)(params, jnp.ones((3, 1)))
      >>> print(y[:, 0])
      [0.5   0.75  0.875]

    References:
      Chu and Lin, `Incorporating Exponential Smoothing into MLP: A Simple but Effective
      Sequence Model <https://arxiv.org/abs/2403.17445>`_, 2024, equation 6
    """

    bidirectional: bool = False
    decay_min: float = 1e-3
    decay_max: float = 1e-1

    # 1 - lambda is in (0, 1), so that an FFT needs no test of the decays.
    bounded_decay = True

    def __post_init__(self):
        check_fields(self)
        if not 0 < self.decay_min <= self.decay_max < 1:
            raise ValueError(
                "`decay_min` and `decay_max` must be in (0, 1) and in order, got "
                f"{self.decay_min} and {self.decay_max}; equal values give all "
                "channels one factor."
            )

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        # Two keys in any case: a backward direction does not change the forward one.
        directions = zip(_suffixes(self), jax.random.split(key), strict=False)
        params = {}
        for suffix, key_direction in directions:
            log = log_uniform(key_direction, (d_in,), self.decay_min, self.decay_max)
            # The logit, log p - log(1 - p), by `expm1` without cancellation.
            params[f"logit_smoothing{suffix}"] = log - jnp.log(-jnp.expm1(log))
        return params

    def modes(self, params: Params) -> SISOModes:
        """Returns the modes for the given parameters."""
        params = in_float32(params)

        def mode(suffix):
            logit = params[f"logit_smoothing{suffix}"][:, None]
            # log(1 - lambda) = log sigmoid(-logit), accurate for small lambda.
            return LogDecay(jax.nn.log_sigmoid(-logit)), sigmoid(logit)

        log_decay, w = mode("")
        # Equation 6 has no shortcut.
        modes = SISOModes(log_decay, w, feedthrough=jnp.zeros_like(w[:, 0]))
        if not self.bidirectional:
            return modes
        log_decay, w = mode("_backward")
        return modes._replace(w_backward=w, log_decay_backward=log_decay)


@dataclass(frozen=True, kw_only=True)
class DampedEMA(TimeInvariant):
    r"""Multi-dimensional damped exponential moving average, the recurrence of Mega.

    .. math::
      h_t = \alpha \beta x_t + (1 - \alpha \delta) h_{t-1}, \qquad
      y_t = \eta^T h_t / \sqrt{n} + \omega x_t

    with ``n`` states per channel. The state is stored divided by ``alpha beta``.

    Attributes:
      d_state: Number of states per channel, ``h`` in the paper.
      bidirectional: Adds the backward direction over future steps, with its own
        parameters; ``omega`` is shared.

    Parameters, float32, for inputs of width ``d``; all but ``feedthrough`` once more as
    ``..._backward`` if bidirectional:
      logit_smoothing: ``(d, n)``, ``alpha = sigmoid(logit_smoothing)``, normal with
        standard deviation 0.2.
      logit_damping: ``(d, n)``, ``delta`` likewise.
      expansion: ``(d, n)``, ``beta``, normal with standard deviation 0.02 around 1, -1,
        1, ...
      projection: ``(d, n)``, ``eta``, standard normal.
      feedthrough: ``(d,)``, ``omega``, standard normal.

    Raises:
      ValueError: ``d_state`` is not positive.

    Example:
      >>> ema = DampedEMA(d_state=4, bidirectional=True)
      >>> params = ema.init(jax.random.key(0), d_in=2)
      >>> jax.jit(ema.apply)(params, jnp.ones((8, 2)))[0].shape
      (8, 2)

    Note:
      ``1 / sqrt(n)``, ``omega`` and the initialization are those of the authors' code,
      whose SiLU after the sum is left to the layer. The backward kernel starts with
      ``(1 - alpha delta)``, so that the present step is counted once.

    References:
      Ma et al., `Mega: Moving Average Equipped Gated Attention
      <https://arxiv.org/abs/2209.10655>`_, 2022, section 3.1
    """

    d_state: int = 16
    bidirectional: bool = False

    # 1 - alpha delta is in (0, 1).
    bounded_decay = True

    def __post_init__(self):
        check_fields(self)
        if self.d_state < 1:
            raise ValueError(
                f"`d_state` must be positive, got {self.d_state}; the published size "
                "is 16."
            )

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        key_through, *keys = jax.random.split(key, 3)
        params = {"feedthrough": jax.random.normal(key_through, (d_in,))}
        # Signs of beta alternate, as in the authors' code.
        signs = jnp.asarray((-1.0) ** np.arange(self.d_state), jnp.float32)
        for suffix, key_direction in zip(_suffixes(self), keys, strict=False):
            drawn = jax.random.normal(key_direction, (4, d_in, self.d_state))
            params |= {
                f"logit_smoothing{suffix}": 0.2 * drawn[0],
                f"logit_damping{suffix}": 0.2 * drawn[1],
                f"expansion{suffix}": signs[None] + 0.02 * drawn[2],
                f"projection{suffix}": drawn[3],
            }
        return params

    def modes(self, params: Params) -> SISOModes:
        """Returns the modes for the given parameters."""
        params = in_float32(params)

        def mode(suffix):
            smoothing = params[f"logit_smoothing{suffix}"]
            log_abs = log_damped(smoothing, params[f"logit_damping{suffix}"])
            # alpha beta of the input and eta / sqrt(n) of the output in one weight.
            w = params[f"expansion{suffix}"] * params[f"projection{suffix}"]
            w = w * sigmoid(smoothing) / np.sqrt(self.d_state)
            return LogDecay(log_abs), w

        log_decay, w = mode("")
        modes = SISOModes(log_decay, w, params["feedthrough"])
        if not self.bidirectional:
            return modes
        log_decay, w = mode("_backward")
        # Lag 1 is the first of the backward kernel: one decay.
        w = w * jnp.exp(log_decay.log_abs)
        return modes._replace(w_backward=w, log_decay_backward=log_decay)


def _suffixes(ema):
    return ["", "_backward"] if ema.bidirectional else [""]
