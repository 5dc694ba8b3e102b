"""Solvers of ``h_t = a_t h_{t-1} + b_t`` by scans, from a zero initial state.

Each function takes the decay and returns a solver ``(b, reset_in_scan_order, reverse)
-> h``. Values that depend on the decay alone are computed once and are shared by the
recurrence and its adjoint. ``b`` and ``h`` have shape ``(*b, l, n)``.

``reset_in_scan_order``, ``(*b, l)``, is True at steps that do not depend on the step
evaluated before them. Without ``reverse`` these are the first steps of segments; with
``reverse`` they are the last ones, which is ``reset`` shifted by one step.

A time-invariant decay is never broadcast over time. The associative scan runs over
numbers of steps instead, whose powers are accurate to float32 rounding up to ``2**24``
steps.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.kernels.powers import (
    LogDecay,
    decay_powers,
    n_step_decay,
    to_log_decay,
    two_float_decay,
)
from ssm_jax.types import Array, Bool, Float, Inexact


class InputDependentDecay(NamedTuple):
    """A decay of each state at each step, ``(*b, l, n)``."""

    a: Inexact[Array, "*b l n"]


class TimeInvariantDecay(NamedTuple):
    """A decay of each state, with leaves ``(n,)``.

    Attributes:
      log: Logarithm of the decay, or of its absolute value if ``sign`` is given.
      sign: Sign of a real decay, which needs no complex powers. None for the others.
    """

    log: LogDecay
    sign: Float[Array, " n"] | None = None

    @classmethod
    def of(cls, a: LogDecay | Inexact[Array, " n"]) -> "TimeInvariantDecay":
        """Returns the decay given as numbers or as a logarithm."""
        if isinstance(a, LogDecay):
            return cls(a)
        if jnp.iscomplexobj(a):
            return cls(to_log_decay(a))
        # Of a positive number only the modulus remains.
        log_abs = to_log_decay(jnp.abs(a)).log_abs
        return cls(LogDecay(log_abs), jnp.where(a < 0, -1, 1).astype(a.dtype))

    def powers_of(self, steps):
        """Returns ``lam**steps``, ``(*steps, n)``, real if the decay is."""
        power = decay_powers(self.log, steps)
        if self.sign is None:
            return power
        return jnp.where(steps[..., None] % 2 == 1, self.sign * power, power)

    def two_float(self):
        """Returns the decay and its rounding error, both ``(n,)``."""
        hi, lo = two_float_decay(self.log)
        return (hi, lo) if self.sign is None else (self.sign * hi, self.sign * lo)

    def over(self, count: int) -> "TimeInvariantDecay":
        """Returns the decay over several steps."""
        sign = None if self.sign is None else self.sign ** (count % 2)
        return TimeInvariantDecay(n_step_decay(self.log, count), sign)


Decay = InputDependentDecay | TimeInvariantDecay
ResetFlags = Bool[Array, "*b l"] | None
Solver = Callable[
    [Inexact[Array, "*b l n"], ResetFlags, bool], Inexact[Array, "*b l n"]
]


# Longer sequences with a time-invariant decay are scanned in stretches that start from
# zero, to which the state before them is added through accurate powers: a rounding
# error that repeats itself accumulates over the steps of a stretch only.
_STRETCH_FROM = 1024


def sequential(decay: Decay) -> Solver:
    """Returns a solver by `jax.lax.scan`, which defines the recurrence."""
    if isinstance(decay, InputDependentDecay):

        def solve_input_dependent(b, reset_in_scan_order, reverse):
            def step(h, inputs):
                a_t, b_t = inputs
                h = a_t * h + b_t
                return h, h

            a = jnp.broadcast_to(_zero_at_resets(decay.a, reset_in_scan_order), b.shape)
            inputs = _time_first(a), _time_first(b)
            zero = jnp.zeros_like(b[..., 0, :])
            _, h = jax.lax.scan(step, zero, inputs, reverse=reverse)
            return jnp.moveaxis(h, 0, -2)

        return solve_input_dependent

    # A decay that is rounded to one float would drift away from the given logarithm.
    hi, lo = decay.two_float()

    def step(h, inputs):
        reset_t, b_t = inputs
        if reset_t is not None:
            h = jnp.where(reset_t[..., None], 0, h)
        # The small terms are added first, so that the correction is not rounded away.
        h = hi * h + (lo * h + b_t)
        return h, h

    def solve_time_invariant(b, reset_in_scan_order, reverse):
        length, b = b.shape[-2], _time_first(b)
        starts = reset = reset_in_scan_order
        if reset is not None:
            starts = jnp.moveaxis(reset, -1, 0)
        stretch = math.isqrt(length) if length > _STRETCH_FROM else length
        if stretch < length:
            first = jnp.arange(length) % stretch == 0
            first = jnp.flip(first) if reverse else first
            first = jnp.expand_dims(first, tuple(range(1, b.ndim - 1)))
            starts = first if reset is None else first | starts
        _, h = jax.lax.scan(step, jnp.zeros_like(b[0]), (starts, b), reverse=reverse)
        if stretch < length:
            h = _join_stretches(decay, h, reset, stretch, reverse)
        return jnp.moveaxis(h, 0, -2)

    return solve_time_invariant


def _join_stretches(decay, h, reset, size, reverse):
    """Adds the state before each stretch to its states, which started from zero.

    Args:
      decay: A time-invariant decay.
      h: States, ``(l, *b, n)``.
      reset: True at steps that do not depend on the previous one, ``(*b, l)``, or None.
      size: Number of steps of a stretch.
      reverse: Whether stretches are counted from the last step.
    """
    length = len(h)
    count, rest = divmod(length, size)
    power = decay.powers_of(jnp.arange(1, size + 1))
    power = jnp.expand_dims(power, tuple(range(1, h.ndim - 1)))
    was_reset = None
    if reset is not None:
        # The state before a stretch does not reach steps from its first reset on.
        was_reset = _split_chunks(reset[..., None], size, reverse)[..., 0]
        was_reset = jnp.cumsum(was_reset, axis=-1) > 0
    across_stretches = sequential(decay.over(size))
    ends = jnp.moveaxis((jnp.flip(h, 0) if reverse else h)[size - 1 :: size], 0, -2)
    reset_by_end = None if was_reset is None else was_reset[..., :count, -1]
    before = _time_first(across_stretches(ends, reset_by_end, False))

    # Slices are updated in place: the whole array at once would need its memory again.
    def add_to_stretch(k, h, steps=size):
        kept = power[:steps]
        if was_reset is not None:
            flags = jnp.moveaxis(was_reset[..., k, :steps, None], -2, 0)
            kept = jnp.where(flags, 0, kept)
        carried = _multiply(kept, before[k - 1])
        begin = k * size
        if reverse:
            begin, carried = length - begin - steps, jnp.flip(carried, 0)
        local = jax.lax.dynamic_slice_in_dim(h, begin, steps)
        return jax.lax.dynamic_update_slice_in_dim(h, local + carried, begin, 0)

    h = jax.lax.fori_loop(1, count, add_to_stretch, h)
    return add_to_stretch(count, h, rest) if rest else h


def associative(decay: Decay) -> Solver:
    """Returns a solver by `jax.lax.associative_scan`, of depth ``log l``."""
    if isinstance(decay, InputDependentDecay):

        def combine(left, right):
            return right[0] * left[0], right[0] * left[1] + right[1]

        def solve_input_dependent(b, reset_in_scan_order, reverse):
            a = jnp.broadcast_to(_zero_at_resets(decay.a, reset_in_scan_order), b.shape)
            return jax.lax.associative_scan(combine, (a, b), reverse, b.ndim - 2)[1]

        return solve_input_dependent

    # Products of decays would accumulate their rounding errors. The elements hold the
    # number of steps instead, and each power is computed from that number.
    def solve_time_invariant(b, reset_in_scan_order, reverse):
        axis, length = b.ndim - 2, b.shape[-2]
        spans = 2 ** np.arange(length.bit_length())
        # A loop, because XLA would compute a power anew for each element it multiplies.
        powers = jax.lax.map(decay.powers_of, jnp.asarray(spans, jnp.int32))

        def combine(left, right):
            (n_left, reset_left, b_left), (n_right, reset_right, b_right) = left, right
            # The right elements of a call are of one level of the tree.
            (span,) = np.unique(n_right) if n_right.size else spans[:1]
            carried = _multiply(powers[int(span).bit_length() - 1], b_left)
            if reset is not None:
                carried = jnp.where(reset_right[..., None], 0, carried)
                reset_right = reset_left | reset_right
            return n_left + n_right, reset_right, carried + b_right

        reset = reset_in_scan_order
        if reset is not None:
            # All elements need the same rank, because they share the scanned axis.
            reset = jnp.expand_dims(reset, tuple(range(axis + 1 - reset.ndim)))
        counts = np.ones((1,) * axis + (length,), np.int32)
        # The counts are numbers while the rest is traced.
        with jax.ensure_compile_time_eval():
            elements = (jnp.asarray(counts), reset, b)
            return jax.lax.associative_scan(combine, elements, reverse, axis)[2]

    return solve_time_invariant


def chunked(decay: Decay, length: int) -> Solver:
    """Returns a solver that scans within all chunks in parallel, then across chunks.

    Both the depth and the number of carried states are about ``sqrt(l)``.
    """
    size = math.isqrt(length)

    def add_carried(local, weight, last, reverse):
        """Adds the weighted state before each chunk to the local states."""
        h_prev = jnp.concatenate(
            [jnp.zeros_like(last[..., :1, :]), last[..., :-1, :]], -2
        )
        return _join_chunks(local + weight * h_prev[..., None, :], length, reverse)

    if isinstance(decay, InputDependentDecay):

        def solve_input_dependent(b, reset_in_scan_order, reverse):
            a = jnp.broadcast_to(_zero_at_resets(decay.a, reset_in_scan_order), b.shape)
            a = _split_chunks(a, size, reverse)
            local = sequential(InputDependentDecay(a))(
                _split_chunks(b, size, reverse), None, False
            )
            # Weight of the state before the chunk at each of its steps.
            weight = jnp.cumprod(a, axis=-2)
            across_chunks = sequential(InputDependentDecay(weight[..., -1, :]))
            last = across_chunks(local[..., -1, :], None, False)
            return add_carried(local, weight, last, reverse)

        return solve_input_dependent

    within_chunks = sequential(decay)
    across_chunks = sequential(decay.over(size))
    power = decay.powers_of(jnp.arange(1, size + 1))

    def solve_time_invariant(b, reset_in_scan_order, reverse):
        reset = _no_resets(b) if reset_in_scan_order is None else reset_in_scan_order
        resets = _split_chunks(reset[..., None], size, reverse)[..., 0]
        local = within_chunks(_split_chunks(b, size, reverse), resets, False)
        # The state before a chunk does not reach steps from the first reset on.
        was_reset = jnp.cumsum(resets, axis=-1) > 0
        last = across_chunks(local[..., -1, :], was_reset[..., -1], False)
        weight = jnp.where(was_reset[..., None], 0, power)
        return add_carried(local, weight, last, reverse)

    return solve_time_invariant


def _multiply(power, h):
    """Returns ``power * h``, and 0 where ``h`` is 0 even if the power is infinite."""
    return jnp.where(h == 0, 0, power * h)


def _split_chunks(values, size, reverse):
    """Reshapes ``(*b, l, n)`` to ``(*b, l / c, c, n)`` in scan order, zero-padded."""
    if reverse:
        values = jnp.flip(values, -2)
    fill = -values.shape[-2] % size
    values = jnp.pad(values, [(0, 0)] * (values.ndim - 2) + [(0, fill), (0, 0)])
    return values.reshape(*values.shape[:-2], -1, size, values.shape[-1])


def _join_chunks(values, length, reverse):
    """Inverts `_split_chunks`."""
    values = values.reshape(*values.shape[:-3], -1, values.shape[-1])
    values = values[..., :length, :]
    return jnp.flip(values, -2) if reverse else values


def _zero_at_resets(a, reset):
    # A decay of zero is a reset: the step does not depend on the state before it.
    return a if reset is None else jnp.where(reset[..., None], 0, a)


def _no_resets(b):
    return jnp.zeros(b.shape[-2], bool)


def _time_first(values):
    return jnp.moveaxis(values, -2, 0)
