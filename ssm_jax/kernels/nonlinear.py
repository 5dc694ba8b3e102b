"""Nonlinear recurrences, ``h_t = a h_{t-1} + f(h_{t-1}, x_t)``, parallel in time.

All steps are guessed at once, and a sweep mends them: ``f`` is evaluated at the guess,
and the linear recurrence is solved for the next one. With the decay ``a`` alone these
are Picard's iterations; with the diagonal of the Jacobian beside it, Newton's, as far
as a diagonal can (quasi-DEER), or with less of it where that is no guide. A sweep makes
at least one more step right, so that as many sweeps as steps are always enough; where
``f`` is small or contracts, a handful is.

Why the Fourier recurrent unit takes a handful at any length ``T``: its ``f`` is ``1 /
T`` of a function with a Lipschitz constant ``s`` and its decay at most 1, so an error
of a guess at step ``t`` comes out of a sweep as at most ``s / T`` of the sum of the
errors before ``t``. An error of at most 1 everywhere is thus at most ``s t / T`` after
one sweep, ``(s t / T)**2 / 2`` after two and ``s**k / k!`` after ``k``, which is Picard
and Lindelöf's bound on an interval of length ``s``.

Derivatives are those of the solution, not of the sweeps: the linearized recurrence is
solved by the same sweeps, and its transpose by the transposed ones.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.fields import check_choice, check_size
from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.newton import (
    NonlinearTerm,
    Solution,
    SolverConfig,
    Values,
    solve_nonlinear,
    step_by_step,
)
from ssm_jax.kernels.recurrence import match_varying_axes
from ssm_jax.types import Array, Bool, Float, Int, Method, PyTree, Steps


class SolverStats(NamedTuple):
    """What an evaluation took.

    Attributes:
      iterations: Sweeps that were made; 0 if it was sequential from the start.
      converged: Whether every sequence met the tolerance with finite states; if not,
        the recurrence was evaluated sequentially after all.
    """

    iterations: Int[Array, ""]
    converged: Bool[Array, ""]


def nonlinear_recurrence(
    nonlinear_term: NonlinearTerm,
    params: PyTree,
    x: PyTree,
    h0: Float[Array, "*b n"],
    *,
    decay: Float[Array, " n"] | None = None,
    diagonal: NonlinearTerm | None = None,
    reset: Steps | None = None,
    initial_guess: Float[Array, "*b l n"] | None = None,
    method: Solution = "picard",
    inner: Method = "auto",
    damping: float | None = 0.0,
    tolerance: float = 1e-6,
    max_iterations: int = 50,
    chunk: int | None = None,
) -> tuple[Float[Array, "*b l n"], SolverStats]:
    """Evaluates ``h_t = decay h_{t-1} + drive(params, h_{t-1}, x_t)``.

    Args:
      nonlinear_term: The recurrence beside its decay. It sees the state before a step as zeros
        where a segment starts.
      params: What ``nonlinear_term`` takes first.
      x: What ``nonlinear_term`` takes last, leaves ``(*b, l, ...)``.
      h0: State before the first step, ``(*b, n)``, float32.
      decay: Constant decay of each state, ``(n,)``. None means zeros.
      diagonal: Derivative of each number of ``nonlinear_term`` by the same number of the state,
        called like it; only ``"newton"`` needs it.
      reset: True where a segment starts, ``(*b, l)``: the state before such a step is
        zeros.
      initial_guess: A guess of all states, ``(*b, l, n)``, as of the parameters a step ago.
        None means zeros.
      method: ``"sequential"``: one step after another, the definition. ``"picard"``:
        sweeps by ``decay``. ``"newton"``: sweeps by ``decay`` and ``diagonal``.
      inner: How the linear recurrence of a sweep is evaluated; ``"fft"`` only without
        ``reset``, by ``"picard"``.
      damping: Part of the Jacobian's diagonal that ``"newton"`` leaves out, from 0 to
        1; against sweeps that grow before they fall. None: none at first, and more
        for as long as sweeps hardly contract, which for trained units is best, and not
        where greater weights make all sweeps contract slowly.
      tolerance: The iterations end when the largest change of each sequence is at most
        this part of its largest state.
      max_iterations: After so many iterations without convergence the recurrence is
        evaluated sequentially; sooner, when a state is not finite, when the changes
        have not become smaller for a fifth of this number (``"newton"``), or when their
        growth so far says that they will not converge in time (``"picard"``).
      chunk: Steps that are solved together, each chunk from the last state of the one
        before; bounds the memory of the sweeps. None means all.

    Returns:
      ``(h, sweeps)``: all states, ``(*b, l, n)``, and what they took.

    Raises:
      ValueError: ``method`` is unknown or lacks its ``diagonal``, ``h0`` or ``decay``
        is not real and floating-point, ``reset`` is not boolean, a shape does not fit,
        or ``tolerance``, ``damping``, ``max_iterations`` or ``chunk`` is out of its range.

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
    check_choice("method", method, Solution, "'sequential' is the definition")
    check_choice("inner", inner, Method, "'auto' chooses by platform")
    if method == "newton" and diagonal is None:
        raise ValueError(
            "`diagonal` must be given for 'newton', got None; 'picard' needs none."
        )
    check_floating("h0", h0)
    if decay is not None:
        check_floating("decay", decay)
    decay = jnp.zeros(h0.shape[-1], h0.dtype) if decay is None else jnp.asarray(decay)
    length = _checked_length(x, h0, decay, reset, initial_guess)
    check_size("max_iterations", max_iterations)
    if chunk is not None:
        check_size("chunk", chunk)
    for name, value, top in (("tolerance", tolerance, 1), ("damping", damping, 1)):
        if value is not None and not 0 <= value <= top:
            raise ValueError(
                f"`{name}` must be in [0, {top}], got {value!r}; the default suits "
                "most units."
            )
    how = SolverConfig(
        nonlinear_term, diagonal, method, inner, damping, tolerance, max_iterations
    )
    # Inside shard_map parameters may be the same on all devices where `x` is not.
    values = Values(*match_varying_axes(params, x, h0, decay))
    reset = None if reset is None else jnp.broadcast_to(reset, (*h0.shape[:-1], length))
    if method == "sequential":
        h = step_by_step(how, values, reset)
        return h, SolverStats(jnp.zeros((), jnp.int32), jnp.ones((), bool))
    if chunk is None or chunk >= length:
        h, count, converged = solve_nonlinear(how, values, reset, initial_guess)
    else:
        h, count, converged = _in_chunks(how, values, reset, initial_guess, chunk)
    return h, SolverStats(count.astype(jnp.int32), converged > 0)


def _checked_length(x, h0, decay, reset, start):
    """The number of steps, once the arrays are found to fit each other."""
    leaves = jax.tree.leaves(x)
    axis = h0.ndim - 1
    if not leaves or any(leaf.ndim <= axis or 0 in leaf.shape for leaf in leaves):
        raise ValueError(
            f"`x` must have leaves (*b, l, ...) with no axis empty, got "
            f"{[leaf.shape for leaf in leaves]}; `h0` has {axis} axes of rows."
        )
    length = leaves[0].shape[axis]
    if decay.shape != h0.shape[-1:]:
        raise ValueError(
            f"`decay` must be {h0.shape[-1:]}, one number a state, got {decay.shape}; "
            "`jnp.broadcast_to` spreads it."
        )
    check_flags("reset", reset, (*h0.shape[:-1], length), (length,))
    if start is not None:
        check_floating("initial_guess", start)
    return length


def _in_chunks(how, values, reset, start, chunk):
    axis = values.h0.ndim - 1
    along = values.x, reset, start
    length = jax.tree.leaves(values.x)[0].shape[axis]
    whole = length - length % chunk

    def cut(leaf, first, last):
        return jax.lax.slice_in_dim(leaf, first, last, axis=axis)

    def solve(h0, along):
        x, reset, start = along
        h, *taken = solve_nonlinear(how, values._replace(x=x, h0=h0), reset, start)
        return h[..., -1, :], (h, *taken)

    def chunks(leaf):
        leaf = cut(leaf, 0, whole)
        shape = (*leaf.shape[:axis], -1, chunk, *leaf.shape[axis + 1 :])
        return jnp.moveaxis(leaf.reshape(shape), axis, 0)

    of_chunks = jax.tree.map(chunks, along)
    h0, (h, count, converged) = jax.lax.scan(solve, values.h0, of_chunks)
    h = jnp.moveaxis(h, 0, axis)
    h = h.reshape(*h.shape[:axis], -1, h.shape[-1])
    count, converged = jnp.max(count), jnp.min(converged)
    if whole == length:
        return h, count, converged
    rest = jax.tree.map(lambda leaf: cut(leaf, whole, length), along)
    _, (h_rest, *last) = solve(h0, rest)
    h = jnp.concatenate([h, h_rest], axis)
    return h, jnp.maximum(count, last[0]), jnp.minimum(converged, last[1])
