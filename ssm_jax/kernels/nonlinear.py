"""Nonlinear recurrences ``h_t = a h_{t-1} + f(h_{t-1}, x_t)``, parallel in time.

The solver starts from a guess of all states. Each iteration evaluates ``f`` at the
current guess of all steps in parallel, and solves a linear recurrence for the next
guess. With the decay ``a`` alone this is Picard iteration. With the diagonal of the
Jacobian of ``f`` added to the decay it is Newton iteration with a diagonal
approximation (quasi-DEER). Each iteration makes at least one more step exact, so that
``l`` iterations always suffice. If ``f`` is small or contracts, a few are enough.

The number of iterations of the Fourier recurrent unit is independent of the length
``T``. Its ``f`` is ``1 / T`` times a function with Lipschitz constant ``s``, and its
decay is at most 1, so that an iteration reduces the error at step ``t`` to at most ``s
/ T`` times the sum of the errors at previous steps. An initial error of 1 becomes at
most ``s t / T`` after one iteration, ``(s t / T)**2 / 2`` after two, and ``s**k / k!``
after ``k``, which is the Picard-Lindelöf bound on an interval of length ``s``.

Derivatives are obtained by implicit differentiation of the solution. The linearized
recurrence is solved by the same iterations, and its transpose by their transposes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.fields import check_choice, check_size
from ssm_jax.kernels.arguments import check_flags, check_floating, describe, is_array
from ssm_jax.kernels.axes import join_chunks, match_varying_axes, split_chunks
from ssm_jax.kernels.fixed_point import (
    NonlinearTerm,
    SolverConfig,
    SolverInputs,
    SolverMethod,
    prepare_terms,
    solve_nonlinear,
    step_by_step,
)
from ssm_jax.kernels.promotion import common_dtype
from ssm_jax.types import Array, Bool, Float, Int, Method, PyTree, Steps


class SolverStats(NamedTuple):
    """Statistics of the solver.

    Attributes:
      iterations: Number of iterations; 0 with ``method="sequential"``.
      converged: Whether all sequences met the tolerance with finite states. If not, the
        recurrence was evaluated sequentially.
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
    method: SolverMethod = "picard",
    inner: Method = "auto",
    damping: float | None = 0.0,
    tolerance: float = 1e-6,
    max_iterations: int = 50,
    chunk: int | None = None,
) -> tuple[Float[Array, "*b l n"], SolverStats]:
    """Evaluates ``h_t = decay h_{t-1} + nonlinear_term(params, h_{t-1}, x_t)``.

    Args:
      nonlinear_term: Function ``(params, h_prev, x) -> f``, called with zeros as
        ``h_prev`` where ``reset`` is True; ``f`` is cast to the dtype of the states.
      params: First argument of ``nonlinear_term``, a pytree. What ``nonlinear_term``
        closes over may be differentiated, too, but not inside `jax.shard_map`.
      x: Last argument of ``nonlinear_term``, a pytree with leaves ``(*b, l, ...)``,
        whose batch axes may be 1 where rows do not differ.
      h0: State before the first step, ``(*b, n)``. States are computed in the dtype of
        ``h0``, ``decay`` and the floating-point leaves of ``params`` and ``x``
        together, at least float32.
      decay: Time-invariant decay of each state, ``(n,)``. None means zeros.
      diagonal: Diagonal of the Jacobian of ``nonlinear_term`` with respect to the
        state, a function of the same arguments; used by ``"newton"`` only.
      reset: True where a segment starts, ``(*b, l)``; the state before such a step is
        set to zeros.
      initial_guess: Initial guess of all states, ``(*b, l, n)``, for example the states
        at the previous parameters. None means zeros.
      method: ``"sequential"``: `jax.lax.scan`, which defines the result. ``"picard"``:
        Picard iteration. ``"newton"``: Newton iteration with the Jacobian diagonal.
      inner: Method of the linear recurrence of each iteration. ``"fft"`` requires
        ``"picard"`` and no ``reset``.
      damping: Fraction of the Jacobian diagonal that ``"newton"`` omits, in ``[0, 1]``,
        to prevent the updates from growing. None starts at 0 and increases it while the
        updates contract slowly. This is best for trained weights; it is not for larger
        weights, with which all iterations contract slowly.
      tolerance: An iteration has converged when the largest update of each sequence is
        at most this fraction of its largest state.
      max_iterations: Maximum number of iterations before the sequential fallback. The
        iteration is stopped earlier if a state is not finite, if the updates have not
        decreased for a fifth of this number (``"newton"``), or if their growth predicts
        that they will not converge in time (``"picard"``).
      chunk: Number of steps that are solved at once, which bounds the memory; each
        chunk starts from the final state of the previous one. None means all steps.

    Returns:
      ``(h, stats)``: all states, ``(*b, l, n)``, and `SolverStats`.

    Raises:
      ValueError: ``method`` is unknown or requires ``diagonal``, ``h0`` or ``decay``
        is not real and floating-point, ``nonlinear_term`` returns no such array of the
        shape of the state, ``x`` has a leaf that is no array, ``reset`` is not
        boolean, the shapes do not match, or ``tolerance``, ``damping``,
        ``max_iterations`` or ``chunk`` is out of its range.

    Example:
      >>> x, h0 = jnp.ones((4, 1)), jnp.zeros(1)
      >>> term = lambda rate, h, x: rate * jnp.sin(h) + x
      >>> h, stats = nonlinear_recurrence(term, 0.5, x, h0)
      >>> print([round(float(value), 3) for value in h[:, 0]], bool(stats.converged))
      [1.0, 1.421, 1.494, 1.499] True

    References:
      Lim et al., `Parallelizing non-linear sequential models over the sequence length
      <https://arxiv.org/abs/2309.12252>`_, 2023; Gonzalez et al., `Towards Scalable and
      Stable Parallelization of Nonlinear RNNs <https://arxiv.org/abs/2407.19115>`_,
      2024
    """
    check_choice("method", method, SolverMethod, "'sequential' is the reference")
    check_choice("inner", inner, Method, "'auto' chooses by platform")
    if method == "newton" and diagonal is None:
        raise ValueError(
            "`diagonal` must be given for 'newton', got None; use 'picard'."
        )
    check_floating("h0", h0)
    if h0.ndim == 0:
        raise ValueError(
            f"`h0` must be (*b, n), got {h0.shape}; a single state is `h0[None]`."
        )
    if decay is not None:
        check_floating("decay", decay)
    length = _check(x, h0, decay, reset, initial_guess)
    dtype = _state_dtype(h0, decay, params, x)
    h0 = jnp.asarray(h0, dtype)
    if decay is not None:
        decay = jnp.asarray(decay, dtype)
    elif method != "sequential":
        # Sequential steps omit a product with zeros, which XLA may not.
        decay = jnp.zeros(h0.shape[-1], dtype)
    if initial_guess is not None:
        initial_guess = jnp.asarray(initial_guess, h0.dtype)
    check_size("max_iterations", max_iterations)
    if chunk is not None:
        check_size("chunk", chunk)
    for name, value in (("tolerance", tolerance), ("damping", damping)):
        if value is not None and not 0 <= value <= 1:
            raise ValueError(
                f"`{name}` must be in [0, 1], got {value!r}; use the default."
            )
    # In `shard_map`, parameters may be replicated over an axis that `x` varies over.
    solver_inputs = SolverInputs(*match_varying_axes(params, x, h0, decay))
    # Only Newton's method evaluates the diagonal.
    nonlinear_term, diagonal, solver_inputs = prepare_terms(
        nonlinear_term, diagonal if method == "newton" else None, solver_inputs
    )
    config = SolverConfig(
        nonlinear_term, diagonal, method, inner, damping, tolerance, max_iterations
    )
    # Chunks slice `reset` and `x` along the same axis.
    reset = None if reset is None else jnp.broadcast_to(reset, (*h0.shape[:-1], length))
    if method == "sequential":
        # No implicit differentiation: the gradient is that of the scan.
        h = step_by_step(config, solver_inputs, reset)
        return h, SolverStats(jnp.zeros((), jnp.int32), jnp.ones((), bool))
    if chunk is None or chunk >= length:
        h, count, converged = solve_nonlinear(
            config, solver_inputs, reset, initial_guess
        )
    else:
        h, count, converged = _solve_chunks(
            config, solver_inputs, reset, initial_guess, chunk
        )
    return h, SolverStats(count.astype(jnp.int32), converged > 0)


def _check(x, h0, decay, reset, initial_guess):
    """Checks the array arguments and returns the number of steps."""
    leaves = jax.tree.leaves(x)
    for leaf in leaves:
        if not is_array(leaf):
            raise ValueError(
                f"`x` must have arrays as leaves, got {describe(leaf)}; `jnp.asarray` "
                "makes one."
            )
    axis = h0.ndim - 1
    if not leaves or any(leaf.ndim <= axis or 0 in leaf.shape for leaf in leaves):
        raise ValueError(
            f"`x` must have leaves (*b, l, ...) with no axis empty, got "
            f"{[leaf.shape for leaf in leaves]}; `h0` has {axis} batch axes."
        )
    length = leaves[0].shape[axis]
    # Leaves that are equal in all rows have batch axes of 1.
    sizes = [(1, size) for size in h0.shape[:-1]] + [(length,)]
    for leaf in leaves:
        if any(n not in fit for n, fit in zip(leaf.shape, sizes, strict=False)):
            raise ValueError(
                f"`x` must have leaves {(*h0.shape[:-1], length)} + (...), with batch "
                f"axes like `h0` and one length, got {leaf.shape}; an axis of 1 is "
                "shared by all rows."
            )
    if decay is not None and decay.shape != h0.shape[-1:]:
        raise ValueError(
            f"`decay` must be {h0.shape[-1:]}, one decay per state, got {decay.shape}; "
            "use `jnp.broadcast_to`."
        )
    check_flags("reset", reset, (*h0.shape[:-1], length), (length,))
    if initial_guess is not None:
        check_floating("initial_guess", initial_guess)
        states = (*h0.shape[:-1], length, h0.shape[-1])
        if initial_guess.shape != states:
            raise ValueError(
                f"`initial_guess` must be {states}, one state per step, got "
                f"{initial_guess.shape}; use `jnp.broadcast_to`."
            )
    return length


def _state_dtype(*trees):
    """Returns the common dtype of all floating-point leaves, at least float32."""
    dtypes = map(jnp.result_type, jax.tree.leaves(trees))
    floating = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)]
    return common_dtype(jnp.float32, *floating)


def _solve_chunks(config, solver_inputs, reset, initial_guess, chunk):
    """Solves one chunk after another; the statistics are the worst of all chunks."""
    axis = solver_inputs.h0.ndim - 1
    sequences = solver_inputs.x, reset, initial_guess
    length = jax.tree.leaves(solver_inputs.x)[0].shape[axis]
    # The incomplete last chunk is solved separately: padding would need a mask.
    n_whole = length - length % chunk

    def time_slice(leaf, first, last):
        return jax.lax.slice_in_dim(leaf, first, last, axis=axis)

    def split(leaf):
        return split_chunks(time_slice(leaf, 0, n_whole), axis=axis, size=chunk)

    def solve(h0, sequences):
        x, reset, initial_guess = sequences
        chunk_inputs = solver_inputs._replace(x=x, h0=h0)
        h, *stats = solve_nonlinear(config, chunk_inputs, reset, initial_guess)
        return h[..., -1, :], (h, *stats)

    # Each chunk starts from the final state of the previous one.
    h0, (h, count, converged) = jax.lax.scan(
        solve, solver_inputs.h0, jax.tree.map(split, sequences)
    )
    h = join_chunks(h, axis=axis, length=n_whole)
    count, converged = jnp.max(count), jnp.min(converged)
    if n_whole == length:
        return h, count, converged
    rest = jax.tree.map(lambda leaf: time_slice(leaf, n_whole, length), sequences)
    _, (h_rest, *last) = solve(h0, rest)
    h = jnp.concatenate([h, h_rest], axis)
    return h, jnp.maximum(count, last[0]), jnp.minimum(converged, last[1])
