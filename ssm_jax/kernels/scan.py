"""Solvers of ``h_t = a_t h_{t-1} + b_t`` by scans, from a zero initial state.

Each function takes the decay and returns a solver ``(b, reset_in_scan_order, reverse)
-> h``. Values that depend on the decay alone are computed once and are shared by the
recurrence and its adjoint. ``b`` and ``h`` have shape ``(*b, l, n)``.

``reset_in_scan_order``, ``(*b, l)``, is True at steps that do not depend on the step
evaluated before them. Without ``reverse`` these are the first steps of segments; with
``reverse`` they are the last ones, which is ``reset`` shifted by one step.

A time-invariant decay is never broadcast over time. The associative scan multiplies by
one power of each decay per level of its tree; powers are accurate to float32 rounding
up to ``2**24`` steps.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.axes import join_axis, split_axis
from ssm_jax.kernels.plan import is_symbolic
from ssm_jax.kernels.powers import (
    LogDecay,
    decay_powers,
    n_step_decay,
    to_log_decay,
    two_float_decay,
)
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.types import Array, Bool, Float, Inexact

ResetFlags = Bool[Array, "*b l"] | None
Solver = Callable[
    [Inexact[Array, "*b l n"], ResetFlags, bool], Inexact[Array, "*b l n"]
]

# Longer sequences with a time-invariant decay are scanned in stretches that start from
# zero, to which the state before them is added through accurate powers: a rounding
# error that repeats itself accumulates over the steps of a stretch only.
_STRETCH_FROM = 1024


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
    def from_value(cls, a: LogDecay | Inexact[Array, " n"]) -> "TimeInvariantDecay":
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

    def n_step(self, count: int) -> "TimeInvariantDecay":
        """Returns the decay over several steps."""
        sign = None if self.sign is None else self.sign ** (count % 2)
        return TimeInvariantDecay(n_step_decay(self.log, count), sign)


Decay = InputDependentDecay | TimeInvariantDecay


def sequential(decay: Decay) -> Solver:
    """Returns a solver by `jax.lax.scan`, which defines the recurrence."""
    return _step_by_step(decay, _product)


def _step_by_step(decay, multiply):
    """`sequential` with a product of decays and states: `_multiply` of powers."""
    if isinstance(decay, InputDependentDecay):

        def solve_input_dependent(b, reset_in_scan_order, reverse):
            def step(h, inputs):
                reset_t, a_t, b_t = inputs
                h = _zero_at_resets(multiply(a_t, h), reset_t) + b_t
                return h, h

            a = jnp.broadcast_to(decay.a, b.shape)
            flags = _flags_time_first(b, reset_in_scan_order)
            inputs = flags, _time_first(a), _time_first(b)
            zero = jnp.zeros_like(b[..., 0, :])
            _, h = jax.lax.scan(step, zero, inputs, reverse=reverse)
            return jnp.moveaxis(h, 0, -2)

        return solve_input_dependent

    add_step = _step_of(decay, multiply)

    def step(h, inputs):
        reset_t, b_t = inputs
        h = add_step(_zero_at_resets(h, reset_t), b_t)
        return h, h

    def solve_time_invariant(b, reset_in_scan_order, reverse):
        reset, b = _flags_time_first(b, reset_in_scan_order), _time_first(b)
        if not is_symbolic(b.shape[0]) and len(b) > _STRETCH_FROM:
            h = _scan_stretches(decay, step, b, reset, reverse)
        else:
            _, h = jax.lax.scan(step, jnp.zeros_like(b[0]), (reset, b), reverse=reverse)
        return jnp.moveaxis(h, 0, -2)

    return solve_time_invariant


def _step_of(decay, multiply):
    """Returns a step of a time-invariant decay, ``(h, b_t) -> h``."""
    # A decay that is rounded to one float would drift away from the given logarithm.
    hi, lo = decay.two_float()
    if lo is None:
        return lambda h, b: multiply(hi, h) + b
    # The small terms are added first, so that the correction is not rounded away.
    return lambda h, b: multiply(hi, h) + (multiply(lo, h) + b)


def _scan_stretches(decay, step, b, reset, reverse):
    """Scans stretches from zero, and adds to each state that before its stretch.

    Args:
      decay: A time-invariant decay.
      step: Step of a scan, ``(h, (reset, b)) -> (h, h)``.
      b: Inputs, ``(l, *b, n)``.
      reset: True at steps that do not depend on the previous one, ``(l, *b)``, or None.
      reverse: Whether the last step is evaluated first.

    Returns:
      The states, ``(l, *b, n)``.
    """
    length, zero = len(b), jnp.zeros_like(b[0])
    size = math.isqrt(length)
    power = decay.powers_of(jnp.arange(1, size + 1))
    add_stretch = _step_of(decay.n_step(size), _multiply)

    # Each operation on an index would be a kernel of each step on accelerators.
    nonnegative = {"axis": 0, "allow_negative_indices": False}

    def at_index(t, values):
        return jax.lax.dynamic_index_in_dim(values, t, keepdims=False, **nonnegative)

    # All states are written to one array: stacked results of a scan would be copied.
    def scan_stretch(begin, steps, h, before):
        begin = length - begin - steps if reverse else begin
        was_reset = None
        if reset is not None:
            # The state before a stretch does not reach steps from its first reset on.
            flags = jax.lax.dynamic_slice_in_dim(reset, begin, steps, **nonnegative)
            flags = jax.lax.cumsum(flags.astype(jnp.int32), 0, reverse=reverse)
            was_reset = flags[..., None] > 0

        def one_step(i, carry):
            h, state = carry
            k = steps - 1 - i if reverse else i
            inputs = jax.tree.map(partial(at_index, begin + k), (reset, b))
            state, _ = step(state, inputs)
            carried = before
            if was_reset is not None:
                carried = jnp.where(at_index(k, was_reset), 0, before)
            whole = state + _multiply(at_index(i, power), carried)
            h = jax.lax.dynamic_update_index_in_dim(h, whole, begin + k, **nonnegative)
            return h, state

        # The steps are small: half as many iterations of the loop.
        h, last = jax.lax.fori_loop(0, steps, one_step, (h, zero), unroll=2)
        if was_reset is not None:
            before = jnp.where(was_reset[0 if reverse else -1], 0, before)
        return h, add_stretch(before, last)

    n_whole = (length - 1) // size  # the last stretch may be shorter

    def one_stretch(k, carry):
        return scan_stretch(k * size, size, *carry)

    carry = jax.lax.fori_loop(0, n_whole, one_stretch, (jnp.zeros_like(b), zero))
    return scan_stretch(n_whole * size, length - n_whole * size, *carry)[0]


def associative(decay: Decay) -> Solver:
    """Returns a solver by `jax.lax.associative_scan`, of depth ``log l``."""
    if isinstance(decay, InputDependentDecay):

        def combine(left, right):
            (reset_left, a_left, b_left), (reset_right, a_right, b_right) = left, right
            carried = _zero_at_resets(_product(a_right, b_left), reset_right)
            reset = None if reset_right is None else reset_left | reset_right
            return reset, a_right * a_left, carried + b_right

        def solve_input_dependent(b, reset_in_scan_order, reverse):
            a = jnp.broadcast_to(decay.a, b.shape)
            elements = _as_rank_of(b, reset_in_scan_order), a, b
            return jax.lax.associative_scan(combine, elements, reverse, b.ndim - 2)[2]

        return solve_input_dependent

    # Products of decays would accumulate their rounding errors. Elements of a level of
    # the tree span the same number of steps, whose power is computed from that number.
    def solve_time_invariant(b, reset_in_scan_order, reverse):
        axis, length = b.ndim - 2, b.shape[-2]
        spans = 2 ** jnp.arange(length.bit_length(), dtype=jnp.int32)
        # A loop, because XLA would compute a power anew for each element it multiplies.
        powers = jax.lax.map(decay.powers_of, spans)
        calls = iter(_calls(length))

        def combine(left, right):
            (reset_left, b_left), (reset_right, b_right) = left, right
            level, size = next(calls)
            if b_right.shape[axis] != size:
                raise RuntimeError(
                    "`jax.lax.associative_scan` must combine all pairs of a level at "
                    f"once, got {b_right.shape[axis]} of {size} pairs; use the JAX of "
                    "pyproject.toml."
                )
            carried = _zero_at_resets(_multiply(powers[level], b_left), reset_right)
            if reset is not None:
                reset_right = reset_left | reset_right
            return reset_right, carried + b_right

        reset = _as_rank_of(b, reset_in_scan_order)
        return jax.lax.associative_scan(combine, (reset, b), reverse, axis)[1]

    return solve_time_invariant


def _calls(length):
    """Level and number of pairs of each call by `jax.lax.associative_scan`.

    It combines neighbours level by level, each of half the size, and on the way back
    the states before the elements of each level with these, but for the first one.
    """
    sizes = [length >> level for level in range(length.bit_length() - 1)]
    down = [(level, size // 2) for level, size in enumerate(sizes)]
    up = [(level, (size - 1) // 2) for level, size in enumerate(sizes)]
    return [*down, *reversed(up)]


def chunked(decay: Decay, length: int) -> Solver:
    """Returns a solver that scans within all chunks in parallel, then across chunks.

    Both the depth and the number of carried states are about ``sqrt(l)``.
    """
    size = math.isqrt(length)

    def add_carried(local, weight, last, was_reset, reverse):
        """Adds the weighted state before each chunk to the local states."""
        h_prev = jnp.concatenate(
            [jnp.zeros_like(last[..., :1, :]), last[..., :-1, :]], -2
        )
        carried = _zero_at_resets(_multiply(weight, h_prev[..., None, :]), was_reset)
        return _join_chunks(local + carried, length, reverse)

    def split_flags(reset, reverse):
        """Returns the flags of chunks, and at each step if one was True before it."""
        flags = _split_chunks(reset[..., None], size, reverse)[..., 0]
        # The state before a chunk does not reach steps from the first reset on.
        return flags, jnp.cumsum(flags, axis=-1) > 0

    if isinstance(decay, InputDependentDecay):

        def solve_input_dependent(b, reset_in_scan_order, reverse):
            a = _split_chunks(jnp.broadcast_to(decay.a, b.shape), size, reverse)
            flags = was_reset = ends = None
            if reset_in_scan_order is not None:
                flags, was_reset = split_flags(reset_in_scan_order, reverse)
                ends = was_reset[..., -1]
            within = sequential(InputDependentDecay(a))
            local = within(_split_chunks(b, size, reverse), flags, False)
            # Weight of the state before the chunk at each of its steps.
            weight = jnp.cumprod(a, axis=-2)
            across = _step_by_step(InputDependentDecay(weight[..., -1, :]), _multiply)
            last = across(local[..., -1, :], ends, False)
            return add_carried(local, weight, last, was_reset, reverse)

        return solve_input_dependent

    within_chunks = sequential(decay)
    across_chunks = _step_by_step(decay.n_step(size), _multiply)
    power = decay.powers_of(jnp.arange(1, size + 1))

    def solve_time_invariant(b, reset_in_scan_order, reverse):
        reset = reset_in_scan_order
        reset = jnp.zeros(length, bool) if reset is None else reset
        flags, was_reset = split_flags(reset, reverse)
        local = within_chunks(_split_chunks(b, size, reverse), flags, False)
        last = across_chunks(local[..., -1, :], was_reset[..., -1], False)
        return add_carried(local, power, last, was_reset, reverse)

    return solve_time_invariant


def _product(decay, h):
    return promoted_like(decay, h) * h


def _multiply(power, h):
    """Returns ``power * h``, and 0 where ``h`` is 0 even if the power is infinite."""
    return jnp.where(h == 0, 0, _product(power, h))


def _split_chunks(values, size, reverse):
    """Reshapes ``(*b, l, n)`` to ``(*b, l / c, c, n)`` in scan order, zero-padded."""
    if reverse:
        values = jnp.flip(values, -2)
    return split_axis(values, -2, size)


def _join_chunks(values, length, reverse):
    """Inverts `_split_chunks`."""
    values = join_axis(values, values.ndim - 3, length)
    return jnp.flip(values, -2) if reverse else values


def _zero_at_resets(values, reset):
    # Select, not multiply: a value that is not finite must not cross a reset.
    return values if reset is None else jnp.where(reset[..., None], 0, values)


def _as_rank_of(b, reset):
    # Resets that all sequences share have fewer axes than the inputs.
    if reset is None:
        return None
    return jnp.expand_dims(reset, tuple(range(b.ndim - 1 - reset.ndim)))


def _time_first(values):
    return jnp.moveaxis(values, -2, 0)


def _flags_time_first(b, reset):
    reset = _as_rank_of(b, reset)
    return None if reset is None else jnp.moveaxis(reset, -1, 0)
