"""The evaluations of ``h_t = a_t h_{t-1} + b_t`` by scans, from a zero state.

Each function takes the decay and returns a solver ``(b, cut, reverse) -> h``; what
depends on the decay alone is computed once, for the recurrence and for its adjoint.
``b`` is ``(*b, l, n)``, ``cut`` ``(*b, l)`` is true where a step forgets the state
before it. A constant decay is never spread over the length nor scanned: what is scanned
is the number of steps, whose powers are exact.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.powers import (
    LogDecay,
    decay_powers,
    n_step_decay,
    two_float_decay,
)
from ssm_jax.types import Array, Bool, Inexact


class InputDependentDecay(NamedTuple):
    """A decay of each state at each step, ``(*b, l, n)``."""

    a: Inexact[Array, "*b l n"]


class TimeInvariantDecay(NamedTuple):
    """A decay of each state, ``(n,)`` leaves; ``real`` drops the imaginary part."""

    log: LogDecay
    real: bool

    def powers_of(self, steps):
        """``lam**steps``, ``(*steps, n)``, in the field the decay was given in."""
        power = decay_powers(self.log, steps)
        return jnp.real(power) if self.real else power


Decay = InputDependentDecay | TimeInvariantDecay
Resets = Bool[Array, "*b l"] | None
Solver = Callable[[Inexact[Array, "*b l n"], Resets, bool], Inexact[Array, "*b l n"]]


# Steps after which the sequential method begins anew from zero, and adds what was
# before: rounding errors that are all alike add up over 1e5 steps, not over 1e3.
_STRETCH = 1024


def sequential(decay: Decay) -> Solver:
    """One step after another with `jax.lax.scan`: the definition."""
    if isinstance(decay, InputDependentDecay):

        def solve_varying(b, cut, reverse):
            def step(h, inputs):
                a_t, b_t = inputs
                h = a_t * h + b_t
                return h, h

            a = jnp.broadcast_to(_forgetting(decay.a, cut), b.shape)
            return _loop(
                step,
                jnp.zeros_like(b[..., 0, :]),
                (_time_first(a), _time_first(b)),
                reverse,
            )

        return solve_varying

    # A decay rounded to one number would drift away from the logarithm that is held.
    hi, lo = two_float_decay(decay.log)
    if decay.real:
        hi, lo = jnp.real(hi), jnp.real(lo)

    def solve_stretch(b, cut, reverse):
        def step(h, inputs):
            cut_t, b_t = inputs
            if cut_t is not None:
                h = jnp.where(cut_t[..., None], 0, h)
            h = hi * h + (lo * h + b_t)
            return h, h

        cut = None if cut is None else jnp.moveaxis(cut, -1, 0)
        return _loop(step, jnp.zeros_like(b[..., 0, :]), (cut, _time_first(b)), reverse)

    def solve_constant(b, cut, reverse):
        length = b.shape[-2]
        if length <= _STRETCH:
            return solve_stretch(b, cut, reverse)
        cut = _nowhere(b) if cut is None else cut
        cuts = _to_chunks(cut[..., None], _STRETCH, reverse)[..., 0]
        power = decay.powers_of(jnp.arange(1, _STRETCH + 1))

        def stretch(h, inputs):
            b, cut = inputs
            seen = jnp.cumsum(cut, axis=-1)[..., None] > 0
            passed = _passed(jnp.where(seen, 0, power), h[..., None, :])
            h = solve_stretch(b, cut, False) + passed
            return h[..., -1, :], h

        stretches = _to_chunks(b, _STRETCH, reverse)
        inputs = jnp.moveaxis(stretches, -3, 0), jnp.moveaxis(cuts, -2, 0)
        _, h = jax.lax.scan(stretch, jnp.zeros_like(b[..., 0, :]), inputs)
        return _from_chunks(jnp.moveaxis(h, 0, -3), length, reverse)

    return solve_constant


def associative(decay: Decay) -> Solver:
    """Parallel prefix with `jax.lax.associative_scan`, depth ``log l``."""
    if isinstance(decay, InputDependentDecay):

        def combine(left, right):
            return right[0] * left[0], right[0] * left[1] + right[1]

        def solve_varying(b, cut, reverse):
            a = jnp.broadcast_to(_forgetting(decay.a, cut), b.shape)
            return jax.lax.associative_scan(combine, (a, b), reverse, b.ndim - 2)[1]

        return solve_varying

    def combine_counts(left, right):
        (n_left, cut_left, b_left), (n_right, cut_right, b_right) = left, right
        passed = _passed(decay.powers_of(n_right), b_left)
        passed = jnp.where(cut_right[..., None], 0, passed)
        return n_left + n_right, cut_left | cut_right, passed + b_right

    def solve_constant(b, cut, reverse):
        axis = b.ndim - 2
        cut = _nowhere(b) if cut is None else cut
        # Batch axes that only the states have: the length is the same axis in all.
        cut = jnp.expand_dims(cut, tuple(range(axis + 1 - cut.ndim)))
        elements = (jnp.ones(cut.shape, jnp.int32), cut, b)
        return jax.lax.associative_scan(combine_counts, elements, reverse, axis)[2]

    return solve_constant


def chunked(decay: Decay, length: int) -> Solver:
    """Sequential inside a chunk, all chunks at once, then across the chunks.

    Depth and number of carried states are both about ``sqrt(l)``.
    """
    size = math.isqrt(length)

    def together(local, passed, carried, reverse):
        """Adds to each chunk what the chunk before it handed on."""
        before = jnp.concatenate(
            [jnp.zeros_like(carried[..., :1, :]), carried[..., :-1, :]], -2
        )
        return _from_chunks(local + passed * before[..., None, :], length, reverse)

    if isinstance(decay, InputDependentDecay):

        def solve_varying(b, cut, reverse):
            a = jnp.broadcast_to(_forgetting(decay.a, cut), b.shape)
            a = _to_chunks(a, size, reverse)
            local = sequential(InputDependentDecay(a))(
                _to_chunks(b, size, reverse), None, False
            )
            passed = jnp.cumprod(a, axis=-2)
            across = sequential(InputDependentDecay(passed[..., -1, :]))
            carried = across(local[..., -1, :], None, False)
            return together(local, passed, carried, reverse)

        return solve_varying

    inside = sequential(decay)
    across = sequential(TimeInvariantDecay(n_step_decay(decay.log, size), decay.real))
    power = decay.powers_of(jnp.arange(1, size + 1))

    def solve_constant(b, cut, reverse):
        cut = _nowhere(b) if cut is None else cut
        cuts = _to_chunks(cut[..., None], size, reverse)[..., 0]
        local = inside(_to_chunks(b, size, reverse), cuts, False)
        seen = jnp.cumsum(cuts, axis=-1) > 0
        carried = across(local[..., -1, :], seen[..., -1], False)
        return together(local, jnp.where(seen[..., None], 0, power), carried, reverse)

    return solve_constant


def _passed(power, h):
    """``power h``; of nothing there is nothing, though the power be infinite."""
    return jnp.where(h == 0, 0, power * h)


def _loop(step, start, inputs, reverse):
    _, h = jax.lax.scan(step, start, inputs, reverse=reverse)
    return jnp.moveaxis(h, 0, -2)


def _to_chunks(values, size, reverse):
    """``(*b, l, n)`` as ``(*b, l / c, c, n)``, filled up with zeros at the far end."""
    if reverse:
        values = jnp.flip(values, -2)
    fill = -values.shape[-2] % size
    values = jnp.pad(values, [(0, 0)] * (values.ndim - 2) + [(0, fill), (0, 0)])
    return values.reshape(*values.shape[:-2], -1, size, values.shape[-1])


def _from_chunks(values, length, reverse):
    """Undoes `_to_chunks`."""
    values = values.reshape(*values.shape[:-3], -1, values.shape[-1])
    values = values[..., :length, :]
    return jnp.flip(values, -2) if reverse else values


def _forgetting(a, cut):
    return a if cut is None else jnp.where(cut[..., None], 0, a)


def _nowhere(b):
    return jnp.zeros(b.shape[-2], bool)


def _time_first(values):
    return jnp.moveaxis(values, -2, 0)
