"""The decays of ``h_t = a_t h_{t-1} + b_t``, as the solvers take them."""

from typing import NamedTuple

import jax.numpy as jnp

from ssm_jax.kernels.powers import (
    LogDecay,
    decay_powers,
    n_step_decay,
    to_log_decay,
    two_float_decay,
)
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.types import Array, Float, Inexact


class InputDependentDecay(NamedTuple):
    """A decay of each state at each step, ``(*b, l, n)``."""

    a: Inexact[Array, "*b l n"]


class TimeInvariantDecay(NamedTuple):
    """A decay of each state, with leaves ``(n,)``.

    Attributes:
      log: Logarithm of the decay, or of its absolute value if ``sign`` is given.
      sign: Sign of a real decay, which needs no complex powers. None for the others.
      number: The decay itself if it was given as numbers. None if by its logarithm.
    """

    log: LogDecay
    sign: Float[Array, " n"] | None = None
    number: Inexact[Array, " n"] | None = None

    @classmethod
    def of(cls, a: LogDecay | Inexact[Array, " n"]) -> "TimeInvariantDecay":
        """Returns the decay given as numbers or as a logarithm."""
        if isinstance(a, LogDecay):
            return cls(a)
        if jnp.iscomplexobj(a):
            return cls(to_log_decay(a), number=a)
        # Of a positive number only the modulus remains.
        log_abs = to_log_decay(jnp.abs(a)).log_abs
        return cls(LogDecay(log_abs), jnp.where(a < 0, -1, 1).astype(a.dtype), a)

    def powers_of(self, steps):
        """Returns ``lam**steps``, ``(*steps, n)``, real if the decay is."""
        power = decay_powers(self.log, steps)
        if self.sign is None:
            return power
        signed = promoted_like(self.sign, power) * power
        return jnp.where(steps[..., None] % 2 == 1, signed, power)

    def two_float(self):
        """Returns the decay and its rounding error, ``(n,)``; None of exact numbers."""
        if self.number is not None:
            return self.number, None
        hi, lo = two_float_decay(self.log)
        return (hi, lo) if self.sign is None else (self.sign * hi, self.sign * lo)

    def over(self, count: int) -> "TimeInvariantDecay":
        """Returns the decay over several steps."""
        sign = None if self.sign is None else self.sign ** (count % 2)
        return TimeInvariantDecay(n_step_decay(self.log, count), sign)


Decay = InputDependentDecay | TimeInvariantDecay
