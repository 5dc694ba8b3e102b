"""The solver of ``h_t = a_t h_{t-1} + b_t`` for a method, from a zero state."""

import jax
import jax.numpy as jnp

from ssm_jax.kernels import scan
from ssm_jax.kernels.decays import Decay, InputDependentDecay, TimeInvariantDecay
from ssm_jax.kernels.fft import fft_solver
from ssm_jax.kernels.powers import LogDecay
from ssm_jax.types import Bool, Decays, Method, States

# Bound on `log(|lam|**length)` in a convolution by FFT. It admits decays that exceed 1
# by rounding only.
GROWTH = 0.1


def solver_of(
    a: States | Decays | LogDecay, length: int, method: Method
) -> scan.Solver:
    """Returns the solver of a method.

    Args:
      a: Decay of `linear_recurrence`.
      length: Number of steps.
      method: A method other than ``"auto"``.
    """
    if isinstance(a, LogDecay) or jnp.ndim(a) == 1:
        decay = TimeInvariantDecay.of(a)
    else:
        decay = InputDependentDecay(a)
    if method == "sequential":
        return scan.sequential(decay)
    if method == "associative":
        return scan.associative(decay)
    if method == "pallas":
        return pallas_solver(decay)
    if method == "chunked" or isinstance(decay, InputDependentDecay):
        return scan.chunked(decay, length)
    return _fft_or_sequential(decay, length)


def is_time_invariant(a: States | Decays | LogDecay) -> bool:
    """Returns whether a decay is one of each state."""
    return isinstance(a, LogDecay) or jnp.ndim(a) == 1


def pallas_solver(decay: Decay, *, adjoint: bool = False) -> scan.Solver:
    """Returns `ssm_jax.kernels.pallas.solver`."""
    # Imported where it is used: Pallas takes longer to import than all kernels.
    from ssm_jax.kernels import pallas

    return pallas.solver(decay, adjoint=adjoint)


def _fft_or_sequential(decay, length) -> scan.Solver:
    """Returns a solver by FFT with a sequential fallback for growing states."""
    convolve = fft_solver(decay.powers_of(jnp.arange(length)))
    sequential = scan.sequential(decay)

    def solve(b, reset_in_scan_order, reverse):
        def by(solver):
            return lambda b: solver(b, reset_in_scan_order, reverse)

        # The decay is known at run time only, so both branches are compiled.
        return jax.lax.cond(grows(decay.log, length), by(sequential), by(convolve), b)

    return solve


def grows(log_decay: LogDecay, length: int) -> Bool[jax.Array, ""]:
    """Returns whether a decay exceeds 1 by too much for a convolution by FFT.

    The rounding errors of an FFT at every step, including the first ones, are
    proportional to the largest tap, ``|lam|**length``.
    """
    return jnp.max(log_decay.log_abs) * length > GROWTH
