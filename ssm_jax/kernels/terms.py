"""The functions of a nonlinear recurrence, checked and prepared for the solver."""

import functools

import jax
from jax.core import Tracer

from ssm_jax.kernels.arguments import check_floating, is_array
from ssm_jax.kernels.newton import NonlinearTerm, SolverInputs


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
