"""Nonlinear recurrences, ``h_t = a h_{t-1} + f(h_{t-1}, x_t)``, parallel in time.

All steps are guessed at once, and a sweep mends them: ``f`` is evaluated at the guess,
and the linear recurrence is solved for the next one. With the decay ``a`` alone these
are Picard's iterations; with the diagonal of the Jacobian beside it, Newton's, as far
as a diagonal can (quasi-DEER). A sweep makes at least one more step right, so that as
many sweeps as steps are always enough; where ``f`` is small or contracts, a handful is.

Why the Fourier recurrent unit takes a handful at any length ``T``: its ``f`` is ``1 /
T`` of a function with a Lipschitz constant ``s`` and its decay at most 1, so an error
of a guess at step ``t`` comes out of a sweep as at most ``s / T`` of the sum of the
errors before ``t``. An error of at most 1 everywhere is thus at most ``s t / T`` after
one sweep, ``(s t / T)**2 / 2`` after two and ``s**k / k!`` after ``k``, which is Picard
and Lindelöf's bound on an interval of length ``s``.

Derivatives are those of the solution, not of the sweeps: the linearized recurrence is
solved by the same sweeps, and its transpose by the transposed ones.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from ssm_jax.kernels.neighbours import after, before
from ssm_jax.kernels.recurrence import as_varying_together, linear_recurrence
from ssm_jax.types import Array, Bool, Float, Int, Method, PyTree, Steps

Drive = Callable[[Any, Any, Any], Array]
"""``(params, h, x) -> f``: states ``(*b, n)`` and inputs with the same leading axes, of
any number, to ``(*b, n)``."""

Solution = Literal["sequential", "picard", "newton"]
"""How a nonlinear recurrence is evaluated."""


class Sweeps(NamedTuple):
    """What an evaluation took.

    Attributes:
      n_sweeps: Sweeps that were made; 0 if it was sequential from the start.
      converged: Whether they met the tolerance; if not, the recurrence was evaluated
        sequentially after all.
    """

    n_sweeps: Int[Array, ""]
    converged: Bool[Array, ""]


def nonlinear_recurrence(
    drive: Drive,
    params: PyTree,
    x: PyTree,
    h0: Float[Array, "*b n"],
    *,
    decay: Float[Array, " n"] | None = None,
    diagonal: Drive | None = None,
    reset: Steps | None = None,
    start: Float[Array, "*b l n"] | None = None,
    method: Solution = "picard",
    inner: Method = "auto",
    damping: float = 0.0,
    tolerance: float = 1e-6,
    max_sweeps: int = 50,
    chunk: int | None = None,
) -> tuple[Float[Array, "*b l n"], Sweeps]:
    """Evaluates ``h_t = decay h_{t-1} + drive(params, h_{t-1}, x_t)``.

    Args:
      drive: The recurrence beside its decay. It sees the state before a step as zeros
        where a segment starts.
      params: What ``drive`` takes first.
      x: What ``drive`` takes last, leaves ``(*b, l, ...)``.
      h0: State before the first step, ``(*b, n)``, float32.
      decay: Constant decay of each state, ``(n,)``. None means zeros.
      diagonal: Derivative of each number of ``drive`` by the same number of the state,
        called like it; only ``"newton"`` needs it.
      reset: True where a segment starts, ``(*b, l)``: the state before such a step is
        zeros.
      start: A guess of all states, ``(*b, l, n)``, as of the parameters a step ago.
        None means zeros.
      method: ``"sequential"``: one step after another, the definition. ``"picard"``:
        sweeps by ``decay``. ``"newton"``: sweeps by ``decay`` and ``diagonal``.
      inner: How the linear recurrence of a sweep is evaluated; ``"fft"`` only without
        ``reset``, by ``"picard"``.
      damping: Part of the Jacobian's diagonal that ``"newton"`` leaves out, from 0 to
        1; against sweeps that grow before they fall.
      tolerance: A sweep that mends less, as a part of the largest state, is the last.
      max_sweeps: After so many the recurrence is evaluated sequentially.
      chunk: Steps that are solved together, each chunk from the last state of the one
        before; bounds the memory of the sweeps. None means all.

    Returns:
      ``(h, sweeps)``: all states, ``(*b, l, n)``, and what they took.

    Raises:
      ValueError: ``method`` is unknown or lacks its ``diagonal``.

    Example:
      >>> x, h0 = jnp.ones((4, 1)), jnp.zeros(1)
      >>> drive = lambda rate, h, x: rate * jnp.sin(h) + x
      >>> h, sweeps = nonlinear_recurrence(drive, 0.5, x, h0)
      >>> print([round(float(value), 3) for value in h[:, 0]], bool(sweeps.converged))
      [1.0, 1.421, 1.494, 1.499] True

    References:
      Lim et al., `Parallelizing non-linear sequential models over the sequence length
      <https://arxiv.org/abs/2309.12252>`_, 2023; Gonzalez et al., `Towards Scalable and
      Stable Parallelization of Nonlinear RNNs <https://arxiv.org/abs/2407.19115>`_,
      2024
    """
    if method not in get_args(Solution):
        raise ValueError(
            f"`method` must be one of {list(get_args(Solution))}, got {method!r}; "
            "'sequential' is the definition."
        )
    if method == "newton" and diagonal is None:
        raise ValueError(
            "`diagonal` must be given for 'newton', got None; 'picard' needs none."
        )
    decay = jnp.zeros(h0.shape[-1], h0.dtype) if decay is None else jnp.asarray(decay)
    how = _How(drive, diagonal, method, inner, damping, tolerance, max_sweeps)
    # Inside shard_map parameters may be the same on all devices where `x` is not.
    params, x, h0, decay = values = as_varying_together(params, x, h0, decay)
    length = jax.tree.leaves(x)[0].shape[h0.ndim - 1]
    reset = None if reset is None else jnp.broadcast_to(reset, (*h0.shape[:-1], length))
    if method == "sequential":
        h = _step_by_step(how, values, reset)
        return h, Sweeps(jnp.zeros((), jnp.int32), jnp.ones((), bool))
    if chunk is None or chunk >= length:
        h, count, converged = _solved(how, values, reset, start)
    else:
        h, count, converged = _in_chunks(how, values, reset, start, chunk)
    return h, Sweeps(count.astype(jnp.int32), converged > 0)


class _How(NamedTuple):
    """What of an evaluation is no array."""

    drive: Drive
    diagonal: Drive | None
    method: Solution
    inner: Method
    damping: float
    tolerance: float
    max_sweeps: int


def _slope(how, values, seen):
    """The diagonal of the drive's Jacobian that sweeps take in, or None for none."""
    if how.method == "picard" or how.diagonal is None:
        return None
    params, x, _, _ = values
    return (1 - how.damping) * jax.lax.stop_gradient(how.diagonal(params, seen, x))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solved(how, values, reset, start):
    params, x, h0, decay = values

    def sweep(h):
        seen = before(h, h0, reset)
        f, slope = how.drive(params, seen, x), _slope(how, values, seen)
        if slope is None:
            return linear_recurrence(decay, f, h0, reset=reset, method=how.inner)[0]
        f = f - slope * seen
        a = jnp.broadcast_to(decay, f.shape) + slope
        return linear_recurrence(a, f, h0, reset=reset, method=how.inner)[0]

    if start is None:
        length = jax.tree.leaves(x)[0].shape[h0.ndim - 1]
        start = jnp.repeat(jnp.zeros_like(h0)[..., None, :], length, -2)
    h, count, converged = _swept(how, sweep, start)
    h = jax.lax.cond(
        converged, lambda h: h, lambda _: _step_by_step(how, values, reset), h
    )
    # As float32, whose tangents are plain zeros.
    return h, count.astype(jnp.float32), converged.astype(jnp.float32)


@_solved.defjvp
def _solved_jvp(how, primals, tangents):
    values, reset, start = primals
    params, x, h0, decay = values
    h, *taken = _solved(how, values, reset, start)

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


def _linear(how, values, h, reset, right, *, transposed):
    """Solves ``v_t - (decay + J_t) v_{t-1} = right_t``, or the transposed system."""
    params, x, h0, decay = values
    seen = before(h, h0, reset)
    slope = _slope(how, values, seen)
    zero = jnp.zeros_like(h0)

    def drive(seen):
        return how.drive(params, seen, x)

    def turned(v):
        """What a sweep adds to the right side: the Jacobian without its slope."""
        if transposed:
            _, back = jax.vjp(drive, seen)
            out = back(v)[0] if slope is None else back(v)[0] - slope * v
            return after(out, reset)
        v = before(v, zero, reset)
        out = jax.jvp(drive, (seen,), (v,))[1]
        return out if slope is None else out - slope * v

    a = decay
    if slope is not None:
        a = jnp.broadcast_to(decay, h.shape) + slope
        a = after(a) if transposed else a

    def sweep(v):
        return linear_recurrence(
            a, right + turned(v), reset=reset, reverse=transposed, method=how.inner
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
    """Sweeps until one changes next to nothing: ``(h, count, converged)``."""

    def once(carry):
        h, count, _ = carry
        mended = sweep(h)
        change = jnp.max(jnp.abs(mended - h))
        converged = change <= how.tolerance * jnp.max(jnp.abs(mended))
        return mended, count + 1, converged

    def goes_on(carry):
        _, count, converged = carry
        return ~converged & (count < how.max_sweeps)

    first = once((start, jnp.zeros((), jnp.int32), None))
    return jax.lax.while_loop(goes_on, once, first)


def _step_by_step(how, values, reset):
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


def _in_chunks(how, values, reset, start, chunk):
    params, x, h0, decay = values
    axis = h0.ndim - 1
    along = x, reset, start
    length = jax.tree.leaves(x)[0].shape[axis]
    whole = length - length % chunk

    def cut(leaf, first, last):
        return jax.lax.slice_in_dim(leaf, first, last, axis=axis)

    def solve(h0, along):
        x, reset, start = along
        h, *taken = _solved(how, (params, x, h0, decay), reset, start)
        return h[..., -1, :], (h, *taken)

    def chunks(leaf):
        leaf = cut(leaf, 0, whole)
        shape = (*leaf.shape[:axis], -1, chunk, *leaf.shape[axis + 1 :])
        return jnp.moveaxis(leaf.reshape(shape), axis, 0)

    h0, (h, count, converged) = jax.lax.scan(solve, h0, jax.tree.map(chunks, along))
    h = jnp.moveaxis(h, 0, axis)
    h = h.reshape(*h.shape[:axis], -1, h.shape[-1])
    count, converged = jnp.max(count), jnp.min(converged)
    if whole == length:
        return h, count, converged
    rest = jax.tree.map(lambda leaf: cut(leaf, whole, length), along)
    _, (h_rest, *last) = solve(h0, rest)
    h = jnp.concatenate([h, h_rest], axis)
    return h, jnp.maximum(count, last[0]), jnp.minimum(converged, last[1])
