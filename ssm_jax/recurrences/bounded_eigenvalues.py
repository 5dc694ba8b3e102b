"""Time-invariant recurrences with bounded states at every sequence length."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp

from ssm_jax.fields import check_fields
from ssm_jax.kernels.powers import LogDecay
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.modes import MIMOModes, SISOModes
from ssm_jax.recurrences.families.time_invariant import TimeInvariant
from ssm_jax.types import PRNGKey

# Lower limit of the bound on a modulus: 0 has no logarithm.
_MODULUS_MIN = 1e-3


@dataclass(frozen=True, kw_only=True)
class BoundedEigenvalues(TimeInvariant):
    r"""A time-invariant recurrence with eigenvalues bounded by its input projection.

    .. math::
      |\lambda_n| \le 1 - \frac{1}{M} \sum_d |B_{nd}|

    A state of modulus at most ``M`` then remains so if inputs are at most 1: ``|lam h
    + B x|`` is at most ``|lam| M + sum |B|``, which is at most ``M``. With inputs of at
    most ``c`` the bound is ``c M``. States that are carried from batch to batch in
    training are therefore bounded.

    Attributes:
      recurrence: The recurrence to bound; it owns the parameters.
      largest_state: The bound ``M``. Eigenvalues within their bound are not changed;
        the modulus of a larger one is set to the bound, its phase is kept. If the
        inputs of a single step can exceed ``M``, the modulus is 1e-3.

    Raises:
      ValueError: ``largest_state`` is not positive.

    Example:
      >>> import jax
      >>> from ssm_jax.recurrences import S5
      >>> s5 = S5(d_state=8, blocks=2)
      >>> bounded = BoundedEigenvalues(recurrence=s5, largest_state=2.0)
      >>> params = bounded.init(jax.random.key(0), d_in=3)
      >>> _, state = jax.jit(bounded.apply)(params, jnp.ones((1000, 3)))
      >>> bool(jnp.max(jnp.abs(state)) <= 2)
      True

    Note:
      For `SISOModes` ``B`` is 1. The paper bounds the largest eigenvalue by the largest
      sum, and adds the initial state to the inputs without its decay. Here each state
      has its own bound and the initial state decays, so that it needs no extra term.

    References:
      Wang, `LongSSM: On the Length Extension of State-space Models in Language
      Modelling <https://arxiv.org/abs/2406.02080>`_, 2024, inequality 40
    """

    recurrence: TimeInvariant
    largest_state: float

    # A modulus is at most 1 - share, so that an FFT needs no test of the decays.
    bounded_decay = True

    def __post_init__(self):
        check_fields(self)
        if not self.largest_state > 0:
            raise ValueError(
                f"`largest_state` must be positive, got {self.largest_state}; 100 "
                "allows a memory of about a hundred steps."
            )
        # The states of a DLR with a cut kernel are inputs, not those of its modes.
        if self.recurrence.max_kernel_length is not None:
            raise ValueError(
                "`recurrence` must have `max_kernel_length` None, got "
                f"{self.recurrence}; a finite kernel needs no bound."
            )

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters of the recurrence."""
        return self.recurrence.init(key, d_in)

    def modes(self, params: Params) -> SISOModes | MIMOModes:
        """Returns the modes of the recurrence with bounded decays."""
        modes = self.recurrence.modes(params)
        if isinstance(modes, MIMOModes):
            # |lam h + B x| <= |lam| M + sum |B|: a row of B bounds its eigenvalue.
            bound = self._bound(jnp.sum(jnp.abs(modes.B), -1))
            return modes._replace(log_decay=_bounded(modes.log_decay, bound))
        # SISO modes have B = 1; the weights of their inputs are in the readout `w`.
        bound, backward = self._bound(1.0), modes.log_decay_backward
        return modes._replace(
            log_decay=_bounded(modes.log_decay, bound),
            log_decay_backward=backward and _bounded(backward, bound),
        )

    def _bound(self, input_norm):
        """Returns the logarithm of the bound, from the sum of ``|B|`` of each mode."""
        # At most 1 - 1e-3, as a modulus of 0 has no logarithm.
        share = jnp.minimum(input_norm / self.largest_state, 1 - _MODULUS_MIN)
        # `log1p`, as 1 - share would round away a small share, that is, a slow decay.
        return jnp.log1p(-share)

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns the optimizer groups of the recurrence."""
        return self.recurrence.groups()


def _bounded(log_decay: LogDecay, bound) -> LogDecay:
    # Only the modulus is bounded: a mode keeps its frequency.
    return log_decay._replace(log_abs=jnp.minimum(log_decay.log_abs, bound))
