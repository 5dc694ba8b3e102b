"""Nonlinear recurrences: the base class and their evaluation."""

import abc
import functools
import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ssm_jax.kernels import plan
from ssm_jax.kernels.nonlinear import SolverStats, nonlinear_recurrence
from ssm_jax.kernels.precision import in_float32
from ssm_jax.kernels.sharding import broadcast_to_steps, state_of_rows
from ssm_jax.recurrences.families.base import Params, Recurrence, check
from ssm_jax.recurrences.families.padding import apply_to_valid_steps, state_after
from ssm_jax.types import (
    Activations,
    Array,
    Float,
    Int,
    Method,
    Outputs,
    PRNGKey,
    PyTree,
    Steps,
)

MAX_STEPS = 2**24
"""Number of steps that a float32 entry of a state counts without rounding."""


class Nonlinear(Recurrence, abc.ABC):
    """A recurrence ``h_t = a h_{t-1} + nonlinear_term(h_{t-1}, u_t)``.

    ``u`` is the input projection of ``x``. The state of one sequence is a vector:
    ``h``, `d_hidden` entries, followed by the number of steps since the first if
    `tracks_position` is true. That number is exact up to `MAX_STEPS`, which a segment
    must not exceed.
    """

    tracks_position: bool = False
    solver: Literal["picard", "newton"] = "newton"

    @abc.abstractmethod
    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters for inputs of width ``d_in``."""

    @abc.abstractmethod
    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""

    @abc.abstractmethod
    def d_out(self, d_in: int) -> int:
        """Returns the output width."""

    @property
    @abc.abstractmethod
    def d_hidden(self) -> int:
        """Number of entries of ``h``."""

    @abc.abstractmethod
    def nonlinear_term(
        self, params: PyTree, h: Float[Array, "*b n"], u: PyTree
    ) -> Float[Array, "*b n"]:
        """Returns the nonlinear term for states ``h``; any number of leading axes."""

    def input_projection(self, params: Params, x: Activations) -> PyTree:
        """Returns the input projection of all steps; by default the input."""
        del params
        return x

    def readout(self, params: Params, h: Float[Array, "*b l n"]) -> Outputs:
        """Returns the outputs of all steps; by default the states."""
        del params
        return h

    def decay(self, params: Params) -> Float[Array, " n"] | None:
        """Returns the time-invariant decay of each entry of ``h``; None means zeros."""
        del params

    def diagonal(
        self, params: Params, h: Float[Array, "*b n"], u: PyTree
    ) -> Float[Array, "*b n"]:
        """Returns the diagonal of the Jacobian of `nonlinear_term` by ``h``."""
        raise NotImplementedError

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """Returns zeros, batch axes first."""
        del d_in
        return jnp.zeros((*batch_shape, self.d_hidden + self.tracks_position))

    def apply(
        self,
        params: Params,
        x: Activations,
        state: PyTree = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        method: Method = "auto",
    ) -> tuple[Outputs, PyTree]:
        """Maps a sequence to a sequence; see `Recurrence.apply` for the arguments.

        ``"sequential"`` evaluates one step after another. The other methods solve for
        all steps in parallel by iterations of a linear recurrence, which is evaluated
        by ``method``; ``"fft"`` requires a time-invariant decay and no resets.
        ``"auto"`` is ``"sequential"`` on CPUs, else the method for which
        `ssm_jax.kernels.plan` predicts the shortest time.
        """
        return self.solve(params, x, state, reset=reset, mask=mask, method=method)[:2]

    def solve(
        self,
        params: Params,
        x: Activations,
        state: PyTree = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        method: Method = "auto",
        tolerance: float = 1e-6,
        max_iterations: int = 50,
        chunk: int | None = None,
        damping: float | None = 0.0,
        last_only: bool = False,
    ) -> tuple[Float[Array, "*b k o"], PyTree, SolverStats]:
        """Evaluates as `apply` does; takes solver options and returns statistics.

        Args:
          params: Parameters; this and the next five arguments are those of `apply`.
          x: Input.
          state: State before the first step.
          reset: True where a segment starts.
          mask: True at valid steps.
          method: Evaluation method.
          tolerance: Tolerance; this and the next three arguments are those of
            `nonlinear_recurrence`.
          max_iterations: Maximum number of iterations.
          chunk: Number of steps that are solved together.
          damping: Fraction by which the diagonal of the Jacobian is reduced.
          last_only: Whether only the output of the last valid step is computed.

        Returns:
          ``(y, state, stats)``: outputs, state and `SolverStats`. If ``last_only``,
          ``y`` is ``(*b, 1, d_out)``, zeros for a row without valid steps.
        """
        params = in_float32(params)
        dtype = jax.tree.leaves(params)[0].dtype
        shape, d = (self.d_hidden + self.tracks_position,), self.d_in(params)
        check(x, state, reset, mask, d=d, state_shape=shape, method=method)
        if self.tracks_position and state is not None and reset is None:
            _check_position(state, x.shape[-2] if mask is None else 1)
        if method == "auto":
            n_bytes = 4 * math.prod(x.shape[:-1]) * self.d_hidden
            method = plan.nonlinear_method(
                self.solver, length=x.shape[-2], n_bytes=n_bytes
            )
        # An FFT needs one decay for all steps; Newton linearizes each step separately.
        if method == "fft" and (reset is not None or self.solver == "newton"):
            raise ValueError(
                "`method` must not be 'fft' with `reset` or state-dependent decays, as "
                f"in a {type(self).__name__}; use 'associative' or 'chunked'."
            )

        def run(x, state, reset, lengths):
            x = x.astype(dtype)
            position = (
                state[..., -1] if self.tracks_position and state is not None else None
            )
            steps = _steps(position, x, reset)
            if state is None:
                state = self.initial_state(x.shape[:-2], x.shape[-1])
            state = state_of_rows(state.astype(dtype), x)
            solver = functools.partial(
                nonlinear_recurrence,
                decay=self.decay(params),
                # The linear part of Picard is the decay, of Newton also this diagonal.
                diagonal=self.diagonal if self.solver == "newton" else None,
                reset=reset,
                method="sequential" if method == "sequential" else self.solver,
                inner=method,
                tolerance=tolerance,
                max_iterations=max_iterations,
                chunk=chunk,
                damping=damping,
            )
            h0 = state[..., : self.d_hidden]
            y, last, stats = self.run(
                params,
                x,
                steps,
                h0,
                solver,
                reset=reset,
                lengths=lengths,
                last_only=last_only,
            )
            if self.tracks_position:
                # The position is an entry of the state, so that padding and resets
                # treat it as they treat `h`.
                count = broadcast_to_steps(steps + 1, x)[..., None]
                count = state_after(count.astype(last.dtype), state[..., -1:], lengths)
                last = jnp.concatenate([last, count], -1)
            return y, last, stats

        return apply_to_valid_steps(run, x, state, reset, mask, last_only=last_only)

    def run(
        self,
        params: Params,
        x: Activations,
        steps: Int[Array, "*c l"],
        h0: Float[Array, "*b n"],
        solver: Callable[..., tuple[Array, SolverStats]],
        *,
        reset: Steps | None,
        lengths: Int[Array, "*b"] | None,
        last_only: bool,
    ) -> tuple[Float[Array, "*b k o"], Float[Array, "*b n"], SolverStats]:
        """Evaluates the recurrence on left-aligned rows.

        By default the nonlinear term depends on the whole state; `RunningSums`
        overrides this method because its term depends on a projection of the state.

        Args:
          params: Parameters, float32.
          x: Input.
          steps: Position of each step, with axes of size 1 where rows do not differ.
          h0: State before the first step, without the position.
          solver: `nonlinear_recurrence` with all arguments after ``h0`` bound.
          reset: True where a segment starts.
          lengths: Number of valid steps of each row. None means that all are valid.
          last_only: Whether only the output of the last valid step is computed.

        Returns:
          ``(y, h, stats)``: outputs, the state after the last valid step, and the
          statistics of the solver.
        """
        del steps, reset
        h, stats = solver(
            self.nonlinear_term, params, self.input_projection(params, x), h0
        )
        last = state_after(h, h0, lengths)
        # For the last output alone, the readout of all steps would waste (b, l, d_out).
        y = self.readout(params, last[..., None, :] if last_only else h)
        return y, last, stats


def step_index(position: Float[Array, "*b"]) -> Int[Array, "*b"]:
    """Returns the index of the next step from the position entry of a state.

    Args:
      position: Number of steps so far, ``(*b,)``, a float; gradients with respect to a
        state need all of its entries to be floats.

    Returns:
      int32, ``(*b,)``, in ``[0, MAX_STEPS]``; `MAX_STEPS` also for NaN.
    """
    known = position < MAX_STEPS
    return jnp.where(known, jnp.maximum(jnp.round(position), 0), MAX_STEPS).astype(
        jnp.int32
    )


def _check_position(state, length):
    """Refuses a state whose position would exceed `MAX_STEPS`, where it is known."""
    if isinstance(state, Tracer):
        return
    # By numpy, before an index: in a jitted function `jnp` traces known values, too.
    largest = np.max(np.asarray(state)[..., -1].astype(np.float64))
    if largest + length > MAX_STEPS:
        raise ValueError(
            f"`state` must count at most {MAX_STEPS} steps, got {largest:.0f} with "
            f"{length} to come; a `reset` starts a segment at 0."
        )


def _steps(position, x, reset):
    """Returns the position of each step in its segment, ``(*b, l)``.

    ``(1, ..., l)`` if the positions are the same for all rows.
    """
    # Batch axes of size 1: what depends on equal positions is computed once.
    steps = jnp.arange(x.shape[-2]).reshape((1,) * (x.ndim - 2) + (-1,))
    counted = steps
    if position is not None:
        counted = steps + step_index(position)[..., None]
    if reset is None:
        return counted
    # The running maximum is the latest reset at or before each step, or -1.
    begun = jax.lax.cummax(jnp.where(reset, steps, -1), axis=reset.ndim - 1)
    return jnp.where(begun >= 0, steps - begun, counted)
