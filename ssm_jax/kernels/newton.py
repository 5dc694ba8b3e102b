"""Sweeps that solve a nonlinear recurrence, and the derivative of what they end at.

What `ssm_jax.kernels.nonlinear` says of the sweeps is done here.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.recurrence import linear_recurrence
from ssm_jax.kernels.shift import shift_left, shift_right
from ssm_jax.types import Array, Float, Method, PyTree, Steps

NonlinearTerm = Callable[[Any, Any, Any], Array]
"""``(params, h, x) -> f``: states ``(*b, n)`` and inputs with the same leading axes, of
any number, to ``(*b, n)``."""

Solution = Literal["sequential", "picard", "newton"]
"""How a nonlinear recurrence is evaluated."""


# Part of all iterations in which the changes may stay as large as they are, or grow.
_PATIENCE = 0.2


class Values(NamedTuple):
    """What an evaluation depends on, as `nonlinear_recurrence` takes it."""

    params: PyTree
    x: PyTree
    h0: Float[Array, "*b n"]
    decay: Float[Array, " n"]


class SolverConfig(NamedTuple):
    """What of an evaluation is no array, as `nonlinear_recurrence` takes it."""

    nonlinear_term: NonlinearTerm
    diagonal: NonlinearTerm | None
    method: Solution
    inner: Method
    damping: float | None
    tolerance: float
    max_iterations: int


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def solve_nonlinear(
    how: SolverConfig,
    values: Values,
    reset: Steps | None,
    initial_guess: Float[Array, "*b l n"] | None,
) -> tuple[Float[Array, "*b l n"], Float[Array, ""], Float[Array, ""]]:
    """Solves all steps by sweeps, or one after another where they do not end.

    Args:
      how: Of the sweeps.
      values: What they depend on.
      reset: True where a segment starts, ``(*b, l)``, or None.
      initial_guess: A guess of all states. None means zeros.

    Returns:
      ``(h, count, converged)``: the states, the sweeps made, and 1 if they ended. All
      are float32, whose tangents are plain zeros.
    """
    params, x, h0, decay = values

    def sweep(h, damping):
        seen = shift_right(h, h0, reset)
        f, slope = how.nonlinear_term(params, seen, x), _slope(how, values, seen)
        if slope is None:
            return linear_recurrence(decay, f, h0, reset=reset, method=how.inner)[0]
        slope = (1 - damping) * slope
        f = f - slope * seen
        a = jnp.broadcast_to(decay, f.shape) + slope
        return linear_recurrence(a, f, h0, reset=reset, method=how.inner)[0]

    if initial_guess is None:
        length = jax.tree.leaves(x)[0].shape[h0.ndim - 1]
        initial_guess = jnp.repeat(jnp.zeros_like(h0)[..., None, :], length, -2)
    h, count, converged = _swept(how, sweep, initial_guess)
    h = jax.lax.cond(
        converged, lambda h: h, lambda _: step_by_step(how, values, reset), h
    )
    return h, count.astype(jnp.float32), converged.astype(jnp.float32)


def step_by_step(
    how: SolverConfig, values: Values, reset: Steps | None
) -> Float[Array, "*b l n"]:
    """All states, one step after another: the definition."""
    params, x, h0, decay = values
    axis = h0.ndim - 1

    def step(h, inputs):
        x, starts = inputs
        h = h if starts is None else jnp.where(starts[..., None], 0, h)
        h = decay * h + how.nonlinear_term(params, h, x)
        return h, h

    inputs = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), (x, reset))
    _, h = jax.lax.scan(step, h0, inputs)
    return jnp.moveaxis(h, 0, axis)


@solve_nonlinear.defjvp
def _solved_jvp(how, primals, tangents):
    values, reset, start = primals
    params, x, h0, decay = values
    h, *taken = solve_nonlinear(how, values, reset, start)

    def advanced(values, h):
        params, x, h0, decay = values
        seen = shift_right(h, h0, reset)
        return decay * seen + how.nonlinear_term(params, seen, x)

    _, right = jax.jvp(lambda values: advanced(values, h), (values,), (tangents[0],))
    fixed = jax.lax.stop_gradient((values, h))

    def system(v):
        return v - jax.jvp(lambda h: advanced(values, h), (h,), (v,))[1]

    def solve(_, right):
        return _linear(how, *fixed, reset, right, transposed=False)

    def solve_transposed(_, right):
        return _linear(how, *fixed, reset, right, transposed=True)

    h_dot = jax.lax.custom_linear_solve(system, right, solve, solve_transposed)
    return (h, *taken), (h_dot, *map(jnp.zeros_like, taken))


def _slope(how, values, seen):
    """The diagonal of the drive's Jacobian, or None where sweeps take none in."""
    if how.method == "picard" or how.diagonal is None:
        return None
    params, x, _, _ = values
    return jax.lax.stop_gradient(how.diagonal(params, seen, x))


def _linear(how, values, h, reset, right, *, transposed):
    """Solves ``v_t - (decay + J_t) v_{t-1} = right_t``, or the transposed system."""
    params, x, h0, decay = values
    seen = shift_right(h, h0, reset)
    slope = _slope(how, values, seen)
    zero = jnp.zeros_like(h0)

    def drive(seen):
        return how.nonlinear_term(params, seen, x)

    def turned(v, slope):
        """What a sweep adds to the right side: the Jacobian without this slope."""
        if transposed:
            _, back = jax.vjp(drive, seen)
            out = back(v)[0] if slope is None else back(v)[0] - slope * v
            return shift_left(out, reset)
        v = shift_right(v, zero, reset)
        out = jax.jvp(drive, (seen,), (v,))[1]
        return out if slope is None else out - slope * v

    def sweep(v, damping):
        a, kept = decay, None
        if slope is not None:
            kept = (1 - damping) * slope
            a = jnp.broadcast_to(decay, h.shape) + kept
            a = shift_left(a) if transposed else a
        right_of_sweep = right + turned(v, kept)
        return linear_recurrence(
            a, right_of_sweep, reset=reset, reverse=transposed, method=how.inner
        )[0]

    v, _, converged = _swept(how, sweep, jnp.zeros_like(right))

    def one_by_one(_):
        def step(v, inputs):
            seen, x, keep, right = inputs

            def advance(h):
                return decay * h + how.nonlinear_term(params, h, x)

            if transposed:
                g = right + v
                return jax.vjp(advance, seen)[1](g)[0] * keep, g
            v = right + jax.jvp(advance, (seen,), (v * keep,))[1]
            return v, v

        keep = jnp.ones(right.shape[:-1]) if reset is None else ~reset
        inputs = seen, x, keep[..., None].astype(right.dtype), right
        inputs = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, h0.ndim - 1, 0), inputs)
        _, v = jax.lax.scan(step, zero, inputs, reverse=transposed)
        return jnp.moveaxis(v, 0, h0.ndim - 1)

    return jax.lax.cond(converged, lambda v: v, one_by_one, v)


def _swept(how, sweep, start):
    """Iterates until the largest change is within tolerance: ``(h, count, converged)``.

    Each sequence, all axes but the last two, must meet the tolerance by its own largest
    state, so that a sequence of large states hides no error of another. States that are
    not finite have not converged, and end the iterations; so does `_hopeless`.

    Where no damping is given, it goes halfway to 1 after an iteration that changed more
    than half of what the one before it did, and as far back after others.
    """

    def once(carry):
        h, count, progress, damping = carry
        updated = sweep(h, damping)
        size = jnp.max(jnp.abs(updated), (-2, -1))
        changes = jnp.max(jnp.abs(updated - h), (-2, -1))
        change = jnp.max(changes)
        # `inf <= inf` is true, so that only finite numbers may be compared.
        finite = jnp.all(jnp.isfinite(size))
        converged = finite & jnp.all(changes <= how.tolerance * size)
        if how.damping is None:
            more, less = (1 + damping) / 2, jnp.maximum(2 * damping - 1, 0)
            damping = jnp.where(change > progress.change / 2, more, less)
        progress = _Progress(
            converged=converged,
            finite=finite,
            change=change,
            first=jnp.where(count == 0, change, progress.first),
            best=jnp.minimum(progress.best, change),
            since_best=jnp.where(change < progress.best, 0, progress.since_best + 1),
            target=how.tolerance * jnp.max(size),
        )
        return updated, count + 1, progress, damping

    def goes_on(carry):
        _, count, progress, _ = carry
        possible = progress.finite & ~_hopeless(how, count, progress)
        return ~progress.converged & possible & (count < how.max_iterations)

    none, large = jnp.zeros((), jnp.int32), jnp.inf
    progress = _Progress(False, True, large, large, large, none, 0.0)
    first = once((start, none, progress, jnp.float32(how.damping or 0)))
    h, count, progress, _ = jax.lax.while_loop(goes_on, once, first)
    return h, count, progress.converged


class _Progress(NamedTuple):
    """What the iterations have come to."""

    converged: Any
    finite: Any
    change: Any  # the largest of the last iteration
    first: Any  # that of the first
    best: Any  # the smallest so far
    since_best: Any  # iterations since then
    target: Any  # the change that would be small enough


def _hopeless(how, count, progress):
    """Whether the iterations will not converge within their number.

    Picard's errors are ``c s**k / k!`` where they converge: the changes so far give
    ``c`` and ``s``, and these predict the change of the last iteration. Newton's
    changes often grow before they fall; after a fifth of all iterations without a
    smaller one than before, they are taken not to fall at all.
    """
    patience = _PATIENCE * how.max_iterations
    if how.method != "picard":
        return progress.since_best >= patience
    k, last = count.astype(progress.change.dtype), float(how.max_iterations)
    # The first change is `c`: after `k` iterations the power of `s` is `k - 1`.
    growth = jnp.log(progress.change / progress.first) + jax.lax.lgamma(k)
    log_s = growth / jnp.maximum(k - 1, 1)
    at_last = jnp.log(progress.first) + (last - 1) * log_s - math.lgamma(last)
    return (k > patience) & (at_last > jnp.log(progress.target))
