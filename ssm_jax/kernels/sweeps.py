"""Sweeps that solve a nonlinear recurrence, and the derivative of what they end at.

What `ssm_jax.kernels.fixed_point` says of the sweeps is done here.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.neighbours import after, before
from ssm_jax.kernels.recurrence import linear_recurrence
from ssm_jax.types import Array, Float, Method, PyTree, Steps

Drive = Callable[[Any, Any, Any], Array]
"""``(params, h, x) -> f``: states ``(*b, n)`` and inputs with the same leading axes, of
any number, to ``(*b, n)``."""

Solution = Literal["sequential", "picard", "newton"]
"""How a nonlinear recurrence is evaluated."""


class Values(NamedTuple):
    """What an evaluation depends on, as `nonlinear_recurrence` takes it."""

    params: PyTree
    x: PyTree
    h0: Float[Array, "*b n"]
    decay: Float[Array, " n"]


class How(NamedTuple):
    """What of an evaluation is no array, as `nonlinear_recurrence` takes it."""

    drive: Drive
    diagonal: Drive | None
    method: Solution
    inner: Method
    damping: float | None
    tolerance: float
    max_sweeps: int


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def solved(
    how: How,
    values: Values,
    reset: Steps | None,
    start: Float[Array, "*b l n"] | None,
) -> tuple[Float[Array, "*b l n"], Float[Array, ""], Float[Array, ""]]:
    """Solves all steps by sweeps, or one after another where they do not end.

    Args:
      how: Of the sweeps.
      values: What they depend on.
      reset: True where a segment starts, ``(*b, l)``, or None.
      start: A guess of all states. None means zeros.

    Returns:
      ``(h, count, converged)``: the states, the sweeps made, and 1 if they ended. All
      are float32, whose tangents are plain zeros.
    """
    params, x, h0, decay = values

    def sweep(h, damping):
        seen = before(h, h0, reset)
        f, slope = how.drive(params, seen, x), _slope(how, values, seen)
        if slope is None:
            return linear_recurrence(decay, f, h0, reset=reset, method=how.inner)[0]
        slope = (1 - damping) * slope
        f = f - slope * seen
        a = jnp.broadcast_to(decay, f.shape) + slope
        return linear_recurrence(a, f, h0, reset=reset, method=how.inner)[0]

    if start is None:
        length = jax.tree.leaves(x)[0].shape[h0.ndim - 1]
        start = jnp.repeat(jnp.zeros_like(h0)[..., None, :], length, -2)
    h, count, converged = _swept(how, sweep, start)
    h = jax.lax.cond(
        converged, lambda h: h, lambda _: step_by_step(how, values, reset), h
    )
    return h, count.astype(jnp.float32), converged.astype(jnp.float32)


def step_by_step(
    how: How, values: Values, reset: Steps | None
) -> Float[Array, "*b l n"]:
    """All states, one step after another: the definition."""
    params, x, h0, decay = values
    axis = h0.ndim - 1

    def step(h, inputs):
        x, starts = inputs
        h = h if starts is None else jnp.where(starts[..., None], 0, h)
        h = decay * h + how.drive(params, h, x)
        return h, h

    inputs = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), (x, reset))
    _, h = jax.lax.scan(step, h0, inputs)
    return jnp.moveaxis(h, 0, axis)


@solved.defjvp
def _solved_jvp(how, primals, tangents):
    values, reset, start = primals
    params, x, h0, decay = values
    h, *taken = solved(how, values, reset, start)

    def advanced(values, h):
        params, x, h0, decay = values
        seen = before(h, h0, reset)
        return decay * seen + how.drive(params, seen, x)

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
    seen = before(h, h0, reset)
    slope = _slope(how, values, seen)
    zero = jnp.zeros_like(h0)

    def drive(seen):
        return how.drive(params, seen, x)

    def turned(v, slope):
        """What a sweep adds to the right side: the Jacobian without this slope."""
        if transposed:
            _, back = jax.vjp(drive, seen)
            out = back(v)[0] if slope is None else back(v)[0] - slope * v
            return after(out, reset)
        v = before(v, zero, reset)
        out = jax.jvp(drive, (seen,), (v,))[1]
        return out if slope is None else out - slope * v

    def sweep(v, damping):
        a, kept = decay, None
        if slope is not None:
            kept = (1 - damping) * slope
            a = jnp.broadcast_to(decay, h.shape) + kept
            a = after(a) if transposed else a
        right_of_sweep = right + turned(v, kept)
        return linear_recurrence(
            a, right_of_sweep, reset=reset, reverse=transposed, method=how.inner
        )[0]

    v, _, converged = _swept(how, sweep, jnp.zeros_like(right))

    def one_by_one(_):
        def step(v, inputs):
            seen, x, keep, right = inputs

            def advance(h):
                return decay * h + how.drive(params, h, x)

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
    """Sweeps until one changes next to nothing: ``(h, count, converged)``.

    Where nothing is said of damping, it goes halfway to 1 after a sweep that changed
    more than half of what the last one did, and as far back after others.
    """

    def once(carry):
        h, count, _, last, damping = carry
        mended = sweep(h, damping)
        change = jnp.max(jnp.abs(mended - h))
        converged = change <= how.tolerance * jnp.max(jnp.abs(mended))
        if how.damping is None:
            more, less = (1 + damping) / 2, jnp.maximum(2 * damping - 1, 0)
            damping = jnp.where(change > last / 2, more, less)
        return mended, count + 1, converged, change, damping

    def goes_on(carry):
        _, count, converged, _, _ = carry
        return ~converged & (count < how.max_sweeps)

    none, damping = jnp.zeros((), jnp.int32), jnp.float32(how.damping or 0)
    first = once((start, none, None, jnp.inf, damping))
    return jax.lax.while_loop(goes_on, once, first)[:3]
