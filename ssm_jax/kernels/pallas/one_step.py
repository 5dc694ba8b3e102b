"""One step of a recurrence, which the kernels for GPUs and TPUs share."""

from ssm_jax.kernels import parts
from ssm_jax.kernels.parts import Parts


def input_dependent(
    carry: Parts, a: Parts, b: Parts, *, adjoint: bool, has_resets: bool
) -> tuple[Parts, Parts]:
    """Returns what is carried to the next step, and the state; see `solver`."""
    # Decays are 0 at resets, which states that are not finite must not cross either.
    multiply = parts.multiply_carry if has_resets else parts.multiply
    if adjoint:
        h = parts.add(carry, b)
        return multiply(h, parts.conjugate(a)), h
    h = parts.add(multiply(carry, a), b)
    return h, h


def time_invariant(local: Parts, hi: Parts, lo: Parts, b: Parts) -> Parts:
    """Returns the state for the decay ``hi + lo``."""
    # The small terms are added first, so that the correction is not lost.
    small = parts.add(parts.multiply(lo, local), b)
    return parts.add(parts.multiply(hi, local), small)
