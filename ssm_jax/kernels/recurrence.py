"""The linear recurrence ``h_t = a_t h_{t-1} + b_t``: checks, methods, derivatives."""

import math
from functools import partial
from typing import cast, get_args

import jax
import jax.numpy as jnp

from ssm_jax.kernels import parts, plan, scan, shift
from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.axes import match_varying_axes
from ssm_jax.kernels.fft import fft_solver
from ssm_jax.kernels.plan import chosen_method, is_time_invariant
from ssm_jax.kernels.powers import (
    LogDecay,
    check_log_decay,
    decay_powers,
    two_float_decay,
)
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.kernels.scan import InputDependentDecay, TimeInvariantDecay
from ssm_jax.types import Decays, Method, State, States, Steps


def linear_recurrence(
    a: States | Decays | LogDecay,
    b: States,
    h0: State | None = None,
    *,
    reset: Steps | None = None,
    reverse: bool = False,
    method: Method = "auto",
) -> tuple[States, State]:
    """Evaluates ``h_t = a_t h_{t-1} + b_t`` elementwise over the length axis.

    All methods compute the same result and are differentiable any number of times in
    forward and reverse mode. The derivative of a recurrence is a recurrence, which is
    evaluated by the same method.

    Args:
      a: Input-dependent decay of each state, ``(*b, l, n)``; or time-invariant decay of
        each state, ``(n,)``, as numbers or as a `LogDecay`. A time-invariant decay is
        never broadcast over time; its powers are accurate to float32 rounding up to
        ``2**24`` steps.
      b: Input of each state, ``(*b, l, n)``, real or complex.
      h0: State before the first step, ``(*b, n)``. None means zeros.
      reset: True where a segment starts, ``(*b, l)``, or ``(l,)`` for all sequences.
        No state is passed between such a step and the previous one, in either
        direction, also if it is not finite. None means one segment.
      reverse: If True, evaluates ``h_t = a_t h_{t+1} + b_t`` from the last step to the
        first, and ``h0`` is the state after the last step.
      method: ``"sequential"``: `jax.lax.scan`, which defines the result; fastest on
        CPUs. ``"associative"``: `jax.lax.associative_scan`, of depth ``log l``, with
        the most memory; of an input-dependent decay it forms products, which give NaN
        where they overflow, even for states of zero. ``"chunked"``: depth ``sqrt(l)``,
        two passes over memory.
        ``"fft"``: convolution, for a time-invariant decay without resets; if a decay
        exceeds 1 by so much that the FFT would lose precision, falls back to
        ``"sequential"`` at run time. ``"pallas"``: a kernel for TPUs, and with JAX 0.11
        for NVIDIA GPUs from Hopper on, which steps through the sequence within the
        chip and reads and writes each array once; of complex numbers the real and the
        imaginary parts. On CPUs it is interpreted, for tests.
        ``"auto"``: the result of `chosen_method`.

    Returns:
      ``(h, h_last)``: all states, ``(*b, l, n)``, and the state after the step that is
      evaluated last, ``(*b, n)``, which is the ``h0`` of a following call. The dtype is
      at least float32, and complex if any argument is.

    Raises:
      ValueError: The shapes do not match, an axis is empty, ``a``, ``b`` or ``h0`` is
        not floating-point or complex, ``reset`` is not boolean, or ``method`` is
        unknown or does not support the arguments.

    Note:
      In `jax.shard_map` the time axis must not be sharded: each device would evaluate
      its part as a separate sequence, without an error. `LengthSharded` shards it.

    Example:
      >>> h, h_last = linear_recurrence(jnp.array([0.5]), jnp.ones((3, 1)))
      >>> print(h[:, 0], h_last)
      [1.   1.5  1.75] [1.75]

    References:
      Blelloch, `Prefix Sums and Their Applications
      <https://www.cs.cmu.edu/~guyb/papers/Ble93.pdf>`_, 1990
    """
    if isinstance(a, LogDecay):
        a = check_log_decay(a, "a")
    _check(a, b, h0, reset)
    method = _resolve(method, a, b, reset)
    return _solve(a, b, h0, reset, reverse=reverse, method=method)


@partial(jax.jit, static_argnames=("reverse", "method"))
def _solve(a, b, h0, reset, *, reverse, method):
    # At least float32: in bfloat16 a sum of ones would stop at 256.
    arrays = [b, *([] if h0 is None else [h0]), *jax.tree.leaves(a)]
    has_phase = isinstance(a, LogDecay) and a.phase is not None
    dtype = common_dtype(jnp.float32, *arrays, *[1j] * has_phase)
    b = jnp.asarray(b, dtype)
    # Powers in float32 would leave float64 states with the digits of float32.
    width = jnp.finfo(dtype).dtype
    a = jax.tree.map(lambda leaf: jnp.asarray(leaf, common_dtype(width, leaf)), a)
    # In `shard_map`, a parameter may be replicated over an axis that `b` varies over.
    a, b, h0, reset = match_varying_axes(a, b, h0, reset)
    reset_in_scan_order = reset
    if reset_in_scan_order is not None and reverse:
        # The last step of a segment does not depend on the step evaluated before it.
        reset_in_scan_order = shift.shift_left(reset_in_scan_order[..., None])[..., 0]
    # Kernels in Pallas work on real and imaginary parts, all else on one array.
    split = parts.split if method == "pallas" else _one_part
    invariant = is_time_invariant(a)
    numbers, b = split(_to_numbers(a) if invariant else a), split(b)
    if h0 is not None:
        first = -1 if reverse else 0

        def at_first(values):
            return parts.join(tuple(part[..., first, :] for part in values))

        h_first = _first_state(
            a if invariant else at_first(numbers),
            at_first(b),
            jnp.asarray(h0, dtype),
            None
            if reset_in_scan_order is None
            else reset_in_scan_order[..., first, None],
        )
        b = tuple(
            part.at[..., first, :].set(value)
            for part, value in zip(b, split(h_first), strict=True)
        )
    # `custom_linear_solve` derives derivatives of every order from the linear system of
    # the states, `h - a * shift_right(h) = b`. Its transpose is a recurrence in the
    # other direction whose decay at step t is that of step t + 1 (t - 1 if reversed).
    # The solvers need no gradient in `a`, which `system` provides.
    fixed, fixed_numbers = jax.lax.stop_gradient((a, numbers))
    decay = TimeInvariantDecay.from_value(fixed) if invariant else fixed_numbers
    shift_previous, shift_next = shift.shift_right, shift.shift_left
    if reverse:
        shift_previous, shift_next = shift_next, shift_previous
    reset_transposed = reset_in_scan_order
    if reset_transposed is not None and (invariant or method != "pallas"):
        reset_transposed = shift_next(reset_transposed[..., None])[..., 0]
    if method == "pallas":
        # The adjoint of an input-dependent decay needs no shifted decays and resets.
        solver, solver_transposed = _pallas_solvers(decay)
    else:
        length = b[0].shape[-2]
        solver = solver_transposed = _solver(decay, length, method)
        if not invariant:
            shifted = tuple(shift_next(part) for part in fixed_numbers)
            solver_transposed = _solver(shifted, length, method)

    def system(h):
        factor = numbers
        if reset_in_scan_order is not None:
            factor = parts.zero_unless(~reset_in_scan_order[..., None], factor)
        # Broadcast here, the gradient of a time-invariant decay is one sum over batch
        # and steps. XLA stores no array of this shape.
        factor = tuple(
            jnp.broadcast_to(part.astype(h[0].dtype), h[0].shape) for part in factor
        )
        previous = tuple(shift_previous(part, reset=reset) for part in h)
        return tuple(map(jnp.subtract, h, parts.multiply(factor, previous)))

    def solve(_, b):
        return solver(b, reset_in_scan_order, reverse)

    def solve_transposed(_, g):
        return solver_transposed(g, reset_transposed, not reverse)

    h = jax.lax.custom_linear_solve(system, b, solve, solve_transposed)
    h = cast(parts.Parts, h)  # Pyright infers `NoReturn` from JAX 0.12.
    last = tuple(part[..., 0 if reverse else -1, :] for part in h)
    return parts.join(h), parts.join(last)


def _one_part(x):
    return (x,)


def _solver(decay, length, method):
    """Returns the solver of a method, from a zero state; arrays have one part."""
    if not isinstance(decay, TimeInvariantDecay):
        decay = InputDependentDecay(*decay)
    if method == "sequential":
        solver = scan.sequential(decay)
    elif method == "associative":
        solver = scan.associative(decay)
    elif method == "chunked" or isinstance(decay, InputDependentDecay):
        solver = scan.chunked(decay, length)
    else:
        solver = _fft_or_sequential(decay, length)
    return lambda b, *options: (solver(*b, *options),)


def _pallas_solvers(decay):
    """Returns the solver, from a zero state, and that of the adjoint."""
    # Imported where it is used: Pallas takes longer to import than all kernels.
    from ssm_jax.kernels import pallas

    return pallas.solver(decay), pallas.solver(decay, adjoint=True)


def _fft_or_sequential(decay, length) -> scan.Solver:
    convolve = fft_solver(decay.powers_of(jnp.arange(length)))
    sequential = scan.sequential(decay)

    def solve(b, reset_in_scan_order, reverse):
        def by(solver):
            return lambda b: solver(b, reset_in_scan_order, reverse)

        return plan.fft_unless_growing(
            [decay.log], length, by(convolve), by(sequential), b
        )

    return solve


def _first_state(a, b, h0, reset):
    """Returns ``a h0 + b`` of the first step, so that solvers start from zero."""
    if reset is not None:
        h0 = jnp.where(reset, 0, h0)
    if not isinstance(a, LogDecay):
        a = promoted_like(a, h0)
        return b + (a if reset is None else jnp.where(reset, 0, a)) * h0
    # In token-by-token decoding every step is a first step, and the rounding error of
    # the decay would accumulate. It has no gradient of its own.
    _, lo = two_float_decay(jax.lax.stop_gradient(a))
    hi = promoted_like(decay_powers(a, jnp.ones((), jnp.int32)), h0)
    lo = promoted_like(lo, h0)
    return hi * h0 + (lo * h0 + b)


def _to_numbers(a):
    """Returns a time-invariant decay as numbers, ``(n,)``."""
    if not isinstance(a, LogDecay):
        return a
    modulus = jnp.exp(a.log_abs)
    if a.phase is None:
        return modulus
    phase = a.phase if a.phase_lo is None else a.phase + a.phase_lo
    return jax.lax.complex(modulus * jnp.cos(phase), modulus * jnp.sin(phase))


def _resolve(method, a, b, reset):
    if method not in get_args(Method):
        raise ValueError(
            f"`method` must be one of {list(get_args(Method))}, got {method!r}; "
            "'auto' chooses by platform."
        )
    if method == "auto":
        shape = jnp.shape(b)
        size = max(4, jnp.result_type(b).itemsize)
        return chosen_method(a, length=shape[-2], n_bytes=size * math.prod(shape))
    if method == "fft" and not is_time_invariant(a):
        raise ValueError(
            "`method` must not be 'fft' for an input-dependent decay, got "
            f"{jnp.shape(a)}; use 'associative' or 'chunked'."
        )
    if method == "fft" and reset is not None:
        raise ValueError(
            "`method` must not be 'fft' if `reset` is given, got both; use 'chunked'."
        )
    return method


def _check(a, b, h0, reset):
    arrays = {"b": b} if isinstance(a, LogDecay) else {"a": a, "b": b}
    for name, value in (arrays if h0 is None else arrays | {"h0": h0}).items():
        check_floating(name, value, may_be_complex=True)
    if jnp.ndim(b) < 2:
        raise ValueError(
            f"`b` must be (*b, l, n), got shape {jnp.shape(b)}; a single sequence of "
            "scalars is `b[:, None]`."
        )
    *batch, length, n = jnp.shape(b)
    if 0 in jnp.shape(b):
        raise ValueError(
            "`b` must have at least one sequence, one step and one state, got shape "
            f"{jnp.shape(b)}; no axis may be empty."
        )
    shape = a.log_abs.shape if isinstance(a, LogDecay) else jnp.shape(a)
    time_invariant = is_time_invariant(a) and shape == (n,)
    if not time_invariant and (isinstance(a, LogDecay) or shape != jnp.shape(b)):
        raise ValueError(
            f"`a` must be ({n},), time-invariant, or {jnp.shape(b)} like `b`, got "
            f"{shape}; use `jnp.broadcast_to`."
        )
    if h0 is not None and jnp.shape(h0) != (*batch, n):
        raise ValueError(
            f"`h0` must be {(*batch, n)}, one state per sequence of `b`, got "
            f"{jnp.shape(h0)}; use `jnp.broadcast_to`."
        )
    check_flags("reset", reset, (*batch, length), (length,))
