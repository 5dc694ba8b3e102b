"""Time-invariant recurrences with bounded states at every sequence length."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp

from ssm_jax.fields import check_fields
from ssm_jax.kernels.powers import LogDecay
from ssm_jax.recurrences.families.time_invariant import (
    MIMOModes,
    ParamGroup,
    Params,
    SISOModes,
    TimeInvariant,
)
from ssm_jax.types import PRNGKey

# Lower limit of the bound on a modulus: 0 has no logarithm.
_MODULUS_MIN = 1e-3


@dataclass(frozen=True, kw_only=True)
class BoundedEigenvalues(TimeInvariant):
    r"""A time-invariant recurrence with eigenvalues bounded by its input projection.

    .. math::
      |\lambda_n| \le 1 - \frac{1}{M} \sum_d |B_{nd}|

    A state within ``M`` then stays there while inputs stay within 1: ``|lam h + B x|``
    is at most ``|lam| M + sum |B|``, which is at most ``M``. Inputs within ``c`` keep
    it within ``c M``. States that are carried from batch to batch in training
    therefore stay bounded.

    Attributes:
      recurrence: The recurrence to bound; it owns the parameters.
      largest_state: The bound ``M``. Eigenvalues that are small enough stay as they
        are; a larger one has the modulus of its bound and its own phase. If the inputs
        of one step exceed ``M`` alone, the modulus is 1e-3.

    Raises:
      ValueError: ``largest_state`` is not positive.

    Example:
      >>> import jax
      >>> from ssm_jax.recurrences import S5
      >>> s5 = S5(d_state=8, blocks=2)
      >>> bounded = BoundedEigenvalues(recurrence=s5, largest_state=2.0)
      >>> params = bounded.init(jax.random.key(0), d_in=3)
      >>> _, state = bounded.apply(params, jnp.ones((1000, 3)))
      >>> bool(jnp.max(jnp.abs(state)) <= 2)
      True

    Note:
      Where each channel has its own modes ``B`` is 1. The paper bounds the largest
      eigenvalue by the largest sum and keeps room for a first state beside the inputs,
      which its sum does not let decay; with each state for itself, and decaying, the
      inputs' room is all that is needed.

    References:
      Wang, `LongSSM: On the Length Extension of State-space Models in Language
      Modelling <https://arxiv.org/abs/2406.02080>`_, 2024, inequality 40
    """

    recurrence: TimeInvariant
    largest_state: float

    bounded_decay = True

    def __post_init__(self):
        """Validates the fields."""
        check_fields(self)
        if not self.largest_state > 0:
            raise ValueError(
                f"`largest_state` must be positive, got {self.largest_state}; 100 "
                "leaves room for a memory of some hundred steps."
            )

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Draws the parameters of the recurrence."""
        return self.recurrence.init(key, d_in)

    def modes(self, params: Params) -> SISOModes | MIMOModes:
        """Its modes, the decays bounded."""
        modes = self.recurrence.modes(params)
        if isinstance(modes, MIMOModes):
            bound = self._bound(jnp.sum(jnp.abs(modes.B), -1))
            return modes._replace(log_decay=_bounded(modes.log_decay, bound))
        bound, backward = self._bound(1.0), modes.log_decay_backward
        return modes._replace(
            log_decay=_bounded(modes.log_decay, bound),
            log_decay_backward=backward and _bounded(backward, bound),
        )

    def _bound(self, input_norm):
        """Logarithm of the largest modulus, by the sum of ``|B|`` of each mode."""
        share = jnp.minimum(input_norm / self.largest_state, 1 - _MODULUS_MIN)
        return jnp.log1p(-share)

    def groups(self) -> Mapping[str, ParamGroup]:
        """Those of the recurrence."""
        return self.recurrence.groups()


def _bounded(log_decay: LogDecay, bound) -> LogDecay:
    return log_decay._replace(log_abs=jnp.minimum(log_decay.log_abs, bound))
