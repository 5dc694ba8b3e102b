"""The linear recurrence ``h_t = a_t h_{t-1} + b_t``: entry, checks, derivatives."""

from functools import partial
from typing import get_args

import jax
import jax.numpy as jnp

from ssm_jax.kernels import scan, shift
from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.fft import fft_solver
from ssm_jax.kernels.powers import (
    LogDecay,
    check_log_decay,
    decay_powers,
    to_log_decay,
    two_float_decay,
)
from ssm_jax.types import Bool, Decays, Method, State, States, Steps

# Bound on the logarithm of what a decay above 1 grows to in a convolution by FFT; it
# lets decays pass that exceed 1 by their rounding alone.
GROWTH = 0.1


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

    All methods mean the same and are differentiable any number of times, forwards and
    backwards: the derivative of a recurrence is a recurrence, solved by the same
    method.

    Args:
      a: Decay of each state at each step, ``(*b, l, n)``; or of each state, constant
        in time, ``(n,)``, as numbers or as the logarithm `LogDecay`. Either is exact
        as it stands: a constant decay is neither spread over the length nor scanned.
      b: What enters each state at each step, ``(*b, l, n)``, real or complex.
      h0: State before the first step, ``(*b, n)``. None means zeros.
      reset: True where a segment starts, ``(*b, l)`` or, for all rows, ``(l,)``:
        nothing passes between such a step and the one before it, in either direction.
      reverse: From the last step to the first, ``h_t = a_t h_{t+1} + b_t``; ``h0`` is
        then the state after the last step.
      method: ``"sequential"``: one step after another, the definition, best on CPUs.
        ``"associative"``: `jax.lax.associative_scan`, depth ``log l``, the most memory.
        ``"chunked"``: depth ``sqrt(l)``, two passes over memory. ``"fft"``:
        convolution, constant decay without resets only; where a decay
        exceeds 1 by so much that an FFT would lose digits, which is known at run time,
        it is evaluated as by ``"sequential"``. ``"auto"``: what `chosen_method` says.

    Returns:
      ``(h, h_last)``: all states, ``(*b, l, n)``, and the one after the step that was
      evaluated last, ``(*b, n)``; as the next call's ``h0`` it continues the sequence.
      At least float32; complex if any argument is.

    Raises:
      ValueError: The shapes do not fit, an axis is empty, ``a``, ``b`` or ``h0`` is not
        floating-point or complex, ``reset`` is not boolean, ``method`` is unknown or
        cannot do what is asked.

    Note:
      Inside `jax.shard_map` the length must not be divided over devices: each would
      evaluate its piece alone, and nothing could tell.

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
    method = _resolve(method, a, reset)
    return _solve(a, b, h0, reset, reverse=reverse, method=method)


def chosen_method(
    a: States | Decays | LogDecay,
    *,
    platform: str | None = None,
) -> Method:
    """Says what ``method="auto"`` evaluates a recurrence by.

    Args:
      a: Decay as `linear_recurrence` takes it; only its kind is read.
      platform: ``"cpu"``, ``"gpu"`` or ``"tpu"``. None means where JAX runs.

    Returns:
      ``"sequential"`` on CPUs, where a loop beats every parallel form; elsewhere
      ``"chunked"`` for a constant decay and ``"associative"`` for one that varies.

    Example:
      >>> chosen_method(jnp.array([0.5]), platform="gpu")
      'chunked'
    """
    if (platform or jax.default_backend()) == "cpu":
        return "sequential"
    return "chunked" if _is_constant(a) else "associative"


@partial(jax.jit, static_argnames=("reverse", "method"))
def _solve(a, b, h0, reset, *, reverse, method):
    numbers = [b, *([] if h0 is None else [h0]), *jax.tree.leaves(a)]
    is_wave = isinstance(a, LogDecay) and a.phase is not None
    dtype = jnp.result_type(jnp.float32, *numbers, *[1j] * is_wave)
    b = jnp.asarray(b, dtype)
    if not isinstance(a, LogDecay):
        a = jnp.asarray(a, jnp.result_type(jnp.float32, a))
    # Inside shard_map a parameter may be the same on all devices where `b` is not.
    a, b, cut = match_varying_axes(a, b, reset)
    if cut is not None and reverse:
        # In the order of evaluation the state is forgotten a step earlier.
        cut = shift.shift_left(cut[..., None])[..., 0]
    if h0 is not None:
        b = _enter(a, b, jnp.asarray(h0, dtype), cut, reverse)
    # `custom_linear_solve` derives every derivative from the equation that the states
    # solve, `h - a * before(h) = b`; the transpose is the same recurrence in the other
    # direction, whose link between steps t - 1 and t is the one of step t - 1.
    fixed = jax.lax.stop_gradient(a)
    earlier, later = shift.shift_right, shift.shift_left
    if reverse:
        earlier, later = later, earlier
    cut_links = None if cut is None else later(cut[..., None])[..., 0]
    there = back = _solver(fixed, b.shape[-2], method)
    if not _is_constant(a):
        back = _solver(later(fixed), b.shape[-2], method)

    def residual(h):
        return h - _decay_numbers(a, cut, h.dtype) * earlier(h)

    def solve(_, b):
        return there(b, cut, reverse)

    def solve_transposed(_, g):
        return back(g, cut_links, not reverse)

    h = jax.lax.custom_linear_solve(residual, b, solve, solve_transposed)
    return h, h[..., 0 if reverse else -1, :]


def _solver(a, length, method) -> scan.Solver:
    if not _is_constant(a):
        decay = scan.InputDependentDecay(a)
    elif isinstance(a, LogDecay):
        decay = scan.TimeInvariantDecay(a, real=False)
    else:
        decay = scan.TimeInvariantDecay(to_log_decay(a), real=not jnp.iscomplexobj(a))
    if method == "sequential":
        return scan.sequential(decay)
    if method == "associative":
        return scan.associative(decay)
    if method == "chunked" or isinstance(decay, scan.InputDependentDecay):
        return scan.chunked(decay, length)
    return _by_fft(decay, length)


def _by_fft(decay, length) -> scan.Solver:
    """By FFT, unless a decay above 1 makes its rounding errors grow."""
    convolve = fft_solver(decay.powers_of(jnp.arange(length)))
    step_by_step = scan.sequential(decay)

    def solve(b, cut, reverse):
        def by(solver):
            return lambda b: solver(b, cut, reverse)

        too_fast = grows(decay.log, length)
        return jax.lax.cond(too_fast, by(step_by_step), by(convolve), b)

    return solve


def grows(log_decay: LogDecay, length: int) -> Bool[jax.Array, ""]:
    """Whether a convolution by FFT loses digits, for a decay is too far above 1.

    The errors of an FFT are in proportion to the largest tap, ``|lam|**length``, at all
    steps, the first ones included.

    Args:
      log_decay: Logarithm of the decays.
      length: Steps of the sequence.
    """
    return jnp.max(log_decay.log_abs) * length > GROWTH


def _enter(a, b, h0, cut, reverse):
    """Lets the state before the first step enter with that step's input."""
    first = -1 if reverse else 0
    if not isinstance(a, LogDecay):
        a_first = _decay_numbers(a, cut, b.dtype)
        a_first = a_first[..., first, :] if a_first.ndim > 1 else a_first
        return b.at[..., first, :].add(a_first * h0)
    # Token by token every step is a first one: what rounding leaves over adds up.
    _, lo = two_float_decay(jax.lax.stop_gradient(a))
    hi = decay_powers(a, jnp.ones((), jnp.int32))
    if cut is not None:
        h0 = jnp.where(cut[..., first, None], 0, h0)
    return b.at[..., first, :].set(hi * h0 + (lo * h0 + b[..., first, :]))


def _decay_numbers(a, cut, dtype):
    """The decay as numbers: ``(n,)``, or ``(*b, l, n)`` where it varies or is cut."""
    if isinstance(a, LogDecay):
        modulus = jnp.exp(a.log_abs)
        if a.phase is None:
            a = modulus
        else:
            phase = a.phase if a.phase_lo is None else a.phase + a.phase_lo
            a = jax.lax.complex(modulus * jnp.cos(phase), modulus * jnp.sin(phase))
    a = a.astype(dtype) if jnp.iscomplexobj(jnp.zeros((), dtype)) else a
    return a if cut is None else jnp.where(cut[..., None], 0, a)


def match_varying_axes(*trees):
    """Marks all leaves as varying over every mesh axis that one of them varies over."""
    leaves = jax.tree.leaves(trees)
    axes = frozenset().union(*(_varying_axes(leaf) for leaf in leaves))

    def mark(leaf):
        missing = tuple(axes - _varying_axes(leaf))
        return jax.lax.pcast(leaf, missing, to="varying") if missing else leaf

    return jax.tree.map(mark, trees)


def _varying_axes(leaf):
    return frozenset(jax.typeof(leaf).manual_axis_type.varying)


def _is_constant(a):
    return isinstance(a, LogDecay) or jnp.ndim(a) == 1


def _resolve(method, a, reset):
    if method not in get_args(Method):
        raise ValueError(
            f"`method` must be one of {list(get_args(Method))}, got {method!r}; "
            "'auto' chooses by platform."
        )
    if method == "auto":
        return chosen_method(a)
    if method == "fft" and not _is_constant(a):
        raise ValueError(
            "`method` must not be 'fft' for a decay that varies in time, got "
            f"{jnp.shape(a)}; use 'associative' or 'chunked'."
        )
    if method == "fft" and reset is not None:
        raise ValueError(
            "`method` must not be 'fft' where `reset` is given, got both; use "
            "'chunked'."
        )
    return method


def _check(a, b, h0, reset):
    numbers = {"b": b} if isinstance(a, LogDecay) else {"a": a, "b": b}
    for name, value in (numbers if h0 is None else numbers | {"h0": h0}).items():
        check_floating(name, value, may_be_complex=True)
    if jnp.ndim(b) < 2:
        raise ValueError(
            f"`b` must be (*b, l, n), got shape {jnp.shape(b)}; a single sequence of "
            "single states is `b[:, None]`."
        )
    *batch, length, n = jnp.shape(b)
    if length == 0:
        raise ValueError(
            f"`b` must have at least one step, got shape {jnp.shape(b)}; with no steps "
            "`h_last` is `h0`."
        )
    if 0 in jnp.shape(b):
        raise ValueError(
            f"`b` must have at least one row and one state, got shape {jnp.shape(b)}; "
            "there is nothing to evaluate."
        )
    shape = a.log_abs.shape if isinstance(a, LogDecay) else jnp.shape(a)
    constant = _is_constant(a) and shape == (n,)
    if not constant and (isinstance(a, LogDecay) or shape != jnp.shape(b)):
        raise ValueError(
            f"`a` must be ({n},), constant in time, or {jnp.shape(b)} like `b`, got "
            f"{shape}; `jnp.broadcast_to` spreads it."
        )
    if h0 is not None and jnp.shape(h0) != (*batch, n):
        raise ValueError(
            f"`h0` must be {(*batch, n)}, a state of each row of `b`, got "
            f"{jnp.shape(h0)}; `jnp.broadcast_to` spreads it."
        )
    check_flags("reset", reset, (*batch, length), (length,))
