"""Fixed-point iteration of nonlinear recurrences, and the derivative of the solution.

Implements the Picard and Newton iterations that `ssm_jax.kernels.nonlinear` describes.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from ssm_jax.kernels.arguments import check_floating, is_array
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.recurrence import linear_recurrence
from ssm_jax.kernels.shift import shift_left, shift_right
from ssm_jax.types import Array, Float, Method, PyTree, Steps

NonlinearTerm = Callable[[Any, Any, Any], Array]
"""Function ``(params, h, x) -> f`` of states ``(*b, n)`` and inputs with the same
leading axes, which returns ``(*b, n)``. It must accept any number of leading axes."""

SolverMethod = Literal["sequential", "picard", "newton"]
"""Evaluation method of a nonlinear recurrence."""


# Fraction of `max_iterations` for which the updates need not decrease.
_PATIENCE = 0.2


class SolverInputs(NamedTuple):
    """Differentiable arguments of `nonlinear_recurrence`."""

    params: PyTree
    x: PyTree
    h0: Float[Array, "*b n"]
    decay: Any  # (n,); None means zeros, for `step_by_step` only


class SolverConfig(NamedTuple):
    """Static arguments of `nonlinear_recurrence`."""

    nonlinear_term: NonlinearTerm
    diagonal: NonlinearTerm | None
    method: SolverMethod
    inner: Method
    damping: float | None
    tolerance: float
    max_iterations: int


def prepare_terms(
    nonlinear_term: NonlinearTerm,
    diagonal: NonlinearTerm | None,
    solver_inputs: SolverInputs,
) -> tuple[NonlinearTerm, NonlinearTerm | None, SolverInputs]:
    """Prepares both functions of a recurrence: values are cast, closures opened.

    Values have the dtype of the states, as the carry of a loop must. The derivative
    rule of the solver differentiates its arguments only, so that traced values which
    the functions close over become parameters.

    Args:
      nonlinear_term: Function of `nonlinear_recurrence`.
      diagonal: Function of `nonlinear_recurrence`, or None.
      solver_inputs: Arguments of the solver.

    Returns:
      ``(nonlinear_term, diagonal, solver_inputs)``, which define the same recurrence.

    Raises:
      ValueError: ``nonlinear_term`` does not return a real floating-point array of the
        shape of the state.
    """
    params, x, h0, _ = solver_inputs
    axis = h0.ndim - 1

    def both(params, h, x):
        f = nonlinear_term(params, h, x)
        _check_value(f, h)
        return f, None if diagonal is None else diagonal(params, h, x)

    first = jax.tree.map(lambda v: jax.lax.index_in_dim(v, 0, axis, keepdims=False), x)
    # Tracing one step checks the value and lists what both functions close over.
    constants = jax.make_jaxpr(both)(params, h0, first).consts
    terms = nonlinear_term, diagonal
    # `closure_convert` caches its function, and with it the arrays that it closes over.
    if any(isinstance(constant, Tracer) for constant in constants):
        converted, closed_over = jax.closure_convert(both, params, h0, first)
        solver_inputs = solver_inputs._replace(params=(params, closed_over))

        def term(index, params, h, x):
            def step(h, x):
                return converted(params[0], h, x, *params[1])[index]

            # `converted` has the axes of one step.
            return (step if h.ndim == h0.ndim else jax.vmap(step, axis, axis))(h, x)

        terms = functools.partial(term, 0), functools.partial(term, 1)
    nonlinear_term, cast_diagonal = (functools.partial(_cast, term) for term in terms)
    return nonlinear_term, None if diagonal is None else cast_diagonal, solver_inputs


def _cast(term, params, h, x):
    return term(params, h, x).astype(h.dtype)


def _check_value(f, h):
    if not is_array(f) or f.shape != h.shape:
        raise ValueError(
            f"`nonlinear_term` must return {h.shape} for one step, the shape of `h0`, "
            f"got {f.shape if is_array(f) else type(f).__name__}; `h0` has the batch "
            "axes of `x` and one entry per state."
        )
    check_floating("nonlinear_term(...)", f)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def solve_nonlinear(
    config: SolverConfig,
    solver_inputs: SolverInputs,
    reset: Steps | None,
    initial_guess: Float[Array, "*b l n"] | None,
) -> tuple[Float[Array, "*b l n"], Float[Array, ""], Float[Array, ""]]:
    """Solves for all states by iterations, or sequentially if they do not converge.

    Args:
      config: Static arguments of the solver.
      solver_inputs: Differentiable arguments of the solver.
      reset: True where a segment starts, ``(*b, l)``. None means one segment.
      initial_guess: Initial guess of all states. None means zeros.

    Returns:
      ``(h, iterations, converged)``: the states, the number of iterations, and 1 if
      they converged, else 0. All are float32, so that their tangents are plain zeros.
    """
    params, x, h0, decay = solver_inputs

    def iteration(h, damping):
        h_prev = shift_right(h, h0, reset)
        b = config.nonlinear_term(params, h_prev, x)
        jacobian_diagonal = _jacobian_diagonal(config, solver_inputs, h_prev)
        if jacobian_diagonal is None:
            # Picard: f is evaluated at the previous iterate.
            return linear_recurrence(decay, b, h0, reset=reset, method=config.inner)[0]
        # Newton (quasi-DEER): f is linearized, and its Jacobian diagonal is added to
        # the decay. Damping reduces the diagonal where the updates diverge; ELK uses a
        # trust region for this purpose.
        jacobian_diagonal = (1 - damping) * jacobian_diagonal
        b = b - jacobian_diagonal * h_prev
        a = jnp.broadcast_to(decay, b.shape) + jacobian_diagonal
        return linear_recurrence(a, b, h0, reset=reset, method=config.inner)[0]

    if initial_guess is None:
        length = jax.tree.leaves(x)[0].shape[h0.ndim - 1]
        initial_guess = jnp.repeat(jnp.zeros_like(h0)[..., None, :], length, -2)
    h, count, converged = _iterate(config, iteration, initial_guess)
    h = jax.lax.cond(
        converged,
        lambda h: h,
        lambda _: step_by_step(config, solver_inputs, reset),
        h,
    )
    return h, count.astype(jnp.float32), converged.astype(jnp.float32)


def step_by_step(
    config: SolverConfig, solver_inputs: SolverInputs, reset: Steps | None
) -> Float[Array, "*b l n"]:
    """Evaluates the recurrence sequentially, which defines the result."""
    params, x, h0, decay = solver_inputs
    axis = h0.ndim - 1

    def step(h, inputs):
        x, reset = inputs
        h = h if reset is None else jnp.where(reset[..., None], 0, h)
        f = config.nonlinear_term(params, h, x)
        h = f if decay is None else promoted_like(decay, h) * h + f
        return h, h

    inputs = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), (x, reset))
    _, h = jax.lax.scan(step, h0, inputs)
    return jnp.moveaxis(h, 0, axis)


@solve_nonlinear.defjvp
def _solve_nonlinear_jvp(config, primals, tangents):
    solver_inputs, reset, initial_guess = primals
    h, *stats = solve_nonlinear(config, solver_inputs, reset, initial_guess)

    def advance(solver_inputs, h):
        params, x, h0, decay = solver_inputs
        h_prev = shift_right(h, h0, reset)
        f = config.nonlinear_term(params, h_prev, x)
        return promoted_like(decay, h_prev) * h_prev + f

    # Implicit differentiation of h = advance(solver_inputs, h): the tangent solves
    # h_dot = advance_h h_dot + rhs. The iterations are not differentiated, and the
    # derivative does not depend on the initial guess.
    _, rhs = jax.jvp(
        lambda solver_inputs: advance(solver_inputs, h),
        (solver_inputs,),
        (tangents[0],),
    )
    fixed = jax.lax.stop_gradient((solver_inputs, h))

    def system(v):
        return v - jax.jvp(lambda h: advance(solver_inputs, h), (h,), (v,))[1]

    def solve(_, rhs):
        return _solve_linearized(config, *fixed, reset, rhs, transposed=False)

    def solve_transposed(_, rhs):
        return _solve_linearized(config, *fixed, reset, rhs, transposed=True)

    h_dot = jax.lax.custom_linear_solve(system, rhs, solve, solve_transposed)
    return (h, *stats), (h_dot, *map(jnp.zeros_like, stats))


def _jacobian_diagonal(config, solver_inputs, h_prev):
    """Returns the Jacobian diagonal of the nonlinear term, or None for Picard."""
    if config.method == "picard" or config.diagonal is None:
        return None
    params, x, _, _ = solver_inputs
    # The diagonal affects convergence only, not the solution, so it needs no gradient.
    return jax.lax.stop_gradient(config.diagonal(params, h_prev, x))


def _solve_linearized(config, solver_inputs, h, reset, rhs, *, transposed):
    """Solves ``v_t - (decay + J_t) v_{t-1} = rhs_t``, or the transposed system."""
    params, x, h0, decay = solver_inputs
    h_prev = shift_right(h, h0, reset)
    jacobian_diagonal = _jacobian_diagonal(config, solver_inputs, h_prev)
    zero = jnp.zeros_like(h0)

    def nonlinear_term(h_prev):
        return config.nonlinear_term(params, h_prev, x)

    def off_diagonal(v, diagonal):
        """Applies the Jacobian of the nonlinear term minus the given diagonal."""
        if transposed:
            _, vjp = jax.vjp(nonlinear_term, h_prev)
            out = vjp(v)[0] if diagonal is None else vjp(v)[0] - diagonal * v
            return shift_left(out, reset)
        v = shift_right(v, zero, reset)
        out = jax.jvp(nonlinear_term, (h_prev,), (v,))[1]
        return out if diagonal is None else out - diagonal * v

    def iteration(v, damping):
        a, diagonal = decay, None
        if jacobian_diagonal is not None:
            undamped = (1 - damping).astype(jacobian_diagonal.dtype)
            diagonal = undamped * jacobian_diagonal
            a = jnp.broadcast_to(decay, h.shape) + diagonal
            # The transposed recurrence runs in reverse, with the decay of step t + 1.
            a = shift_left(a) if transposed else a
        b = rhs + off_diagonal(v, diagonal)
        return linear_recurrence(
            a, b, reset=reset, reverse=transposed, method=config.inner
        )[0]

    v, _, converged = _iterate(config, iteration, jnp.zeros_like(rhs))

    def solve_sequentially(_):
        def step(v, inputs):
            h_prev, x, keep, rhs = inputs

            def advance(h):
                f = config.nonlinear_term(params, h, x)
                return promoted_like(decay, h) * h + f

            if transposed:
                g = rhs + v
                return jax.vjp(advance, h_prev)[1](g)[0] * keep, g
            v = rhs + jax.jvp(advance, (h_prev,), (v * keep,))[1]
            return v, v

        keep = jnp.ones(rhs.shape[:-1]) if reset is None else ~reset
        inputs = h_prev, x, keep[..., None].astype(rhs.dtype), rhs
        inputs = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, h0.ndim - 1, 0), inputs)
        _, v = jax.lax.scan(step, zero, inputs, reverse=transposed)
        return jnp.moveaxis(v, 0, h0.ndim - 1)

    return jax.lax.cond(converged, lambda v: v, solve_sequentially, v)


def _iterate(config, iteration, initial_guess):
    """Iterates until convergence; returns ``(h, count, converged)``.

    Each sequence, which is all axes but the last two, must meet the tolerance relative
    to its own largest state, so that a sequence with large states does not hide the
    error of another one. States that are not finite have not converged and end the
    iterations, as does `_is_diverging`.

    If ``config.damping`` is None, it moves halfway to 1 after an iteration whose update
    is larger than half of the previous one, and back by as much after other iterations.
    """

    def body(carry):
        h, count, progress, damping = carry
        h_next = iteration(h, damping)
        size = jnp.max(jnp.abs(h_next), (-2, -1))
        updates = jnp.max(jnp.abs(h_next - h), (-2, -1))
        update = jnp.max(updates)
        # `inf <= inf` is true, so finiteness must be checked before convergence.
        finite = jnp.all(jnp.isfinite(size))
        converged = finite & jnp.all(updates <= config.tolerance * size)
        if config.damping is None:
            more, less = (1 + damping) / 2, jnp.maximum(2 * damping - 1, 0)
            damping = jnp.where(update > progress.update / 2, more, less)
        progress = _Progress(
            converged=converged,
            finite=finite,
            update=update,
            first=jnp.where(count == 0, update, progress.first),
            best=jnp.minimum(progress.best, update),
            since_best=jnp.where(update < progress.best, 0, progress.since_best + 1),
            target=config.tolerance * jnp.max(size),
        )
        return h_next, count + 1, progress, damping

    def condition(carry):
        _, count, progress, _ = carry
        possible = progress.finite & ~_is_diverging(config, count, progress)
        return ~progress.converged & possible & (count < config.max_iterations)

    zero, infinity = jnp.zeros((), jnp.int32), jnp.inf
    progress = _Progress(False, True, infinity, infinity, infinity, zero, 0.0)
    # The first iteration runs outside of the loop, so that the carry has its final
    # dtypes and `shard_map` axes.
    first = body((initial_guess, zero, progress, jnp.float32(config.damping or 0)))
    h, count, progress, _ = jax.lax.while_loop(condition, body, first)
    return h, count, progress.converged


class _Progress(NamedTuple):
    """Convergence of the iterations; an update is the largest change of a state."""

    converged: Any
    finite: Any
    update: Any  # of the last iteration
    first: Any  # update of the first iteration
    best: Any  # smallest update so far
    since_best: Any  # iterations since the smallest update
    target: Any  # update that meets the tolerance


def _is_diverging(config, count, progress):
    """Predicts whether the iterations will not converge within `max_iterations`.

    The errors of a convergent Picard iteration are ``c s**k / k!``. ``c`` and ``s`` are
    estimated from the updates so far and predict the update of the last iteration. The
    updates of Newton often increase before they decrease; the iteration is stopped if
    the smallest update has not improved for a fifth of `max_iterations`.
    """
    patience = _PATIENCE * config.max_iterations
    if config.method != "picard":
        return progress.since_best.astype(progress.update.dtype) >= patience
    k, last = count.astype(progress.update.dtype), float(config.max_iterations)
    # The first update is `c`, so that of iteration `k` has the power `s**(k - 1)`.
    # Logarithms keep the power and the factorial from overflow.
    growth = jnp.log(progress.update / progress.first) + jax.lax.lgamma(k)
    log_s = growth / jnp.maximum(k - 1, 1)
    at_last = jnp.log(progress.first) + (last - 1) * log_s - math.lgamma(last)
    return (k > patience) & (at_last > jnp.log(progress.target))
