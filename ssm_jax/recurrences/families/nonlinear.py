"""What recurrences whose input depends on their state have in common."""

import abc
import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from ssm_jax.kernels.nonlinear import SolverStats, nonlinear_recurrence
from ssm_jax.kernels.precision import in_float32
from ssm_jax.recurrences.families.base import (
    Params,
    Recurrence,
    apply_to_valid_steps,
    check,
    state_after,
)
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

# Names that a module of a nonlinear recurrence imports.
__all__ = ["Nonlinear", "Params"]


class Nonlinear(Recurrence, abc.ABC):
    """A recurrence ``h_t = a h_{t-1} + drive(h_{t-1}, x_t)``, and every evaluation.

    The state of one sequence is one row of numbers: ``h``, `d_hidden` of them, and
    the number of steps since the start where `counts` is true.
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
        """Width of the output."""

    @property
    @abc.abstractmethod
    def d_hidden(self) -> int:
        """Numbers of ``h``."""

    @abc.abstractmethod
    def nonlinear_term(
        self, params: PyTree, h: Float[Array, "*b n"], entering: PyTree
    ) -> Float[Array, "*b n"]:
        """The recurrence beside its decay; any number of leading axes."""

    def input_projection(self, params: Params, x: Activations) -> PyTree:
        """What a step takes of its input, of all steps at once; the input itself."""
        del params
        return x

    def readout(self, params: Params, h: Float[Array, "*b l n"]) -> Outputs:
        """The outputs, of all steps at once; the states themselves."""
        del params
        return h

    def decay(self, params: Params) -> Float[Array, " n"] | None:
        """Constant decay of each number of ``h``; None for zeros."""
        del params

    def diagonal(
        self, params: Params, h: Float[Array, "*b n"], entering: PyTree
    ) -> Float[Array, "*b n"]:
        """Derivative of each number of `drive` by the same number of ``h``."""
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

        Of the methods ``"sequential"`` goes step by step. The others solve all steps at
        once by sweeps of a linear recurrence, which is evaluated as the method says;
        by ``"fft"`` where its decay is constant and there are no resets. ``"auto"``:
        ``"sequential"`` on CPUs, else ``"associative"``.
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
        """As `apply`, with what the sweeps took, and the numbers that bound them.

        Args:
          params: This and the next five as `apply` takes them.
          x: Input.
          state: State before the first step.
          reset: Where segments start.
          mask: Where data are.
          method: How it is evaluated.
          tolerance: This and the next three as `nonlinear_recurrence` takes them.
          max_iterations: The most sweeps.
          chunk: Steps that are solved together.
          damping: What is left out of the Jacobian's diagonal.
          last_only: Whether only the output of the last step that is data is asked for; the
            outputs of all others are not computed then.

        Returns:
          ``(y, state, sweeps)``; if ``last_only``, ``y`` is ``(*b, 1, d_out)``, zeros for a
          row without data.
        """
        params = in_float32(params)
        dtype = jax.tree.leaves(params)[0].dtype
        shape, d = (self.d_hidden + self.tracks_position,), self.d_in(params)
        check(x, state, reset, mask, d=d, state_shape=shape, method=method)
        if method == "auto":
            on_cpu = jax.default_backend() == "cpu"
            method = "sequential" if on_cpu else "associative"
        if method == "fft" and (reset is not None or self.solver == "newton"):
            raise ValueError(
                "`method` must not be 'fft' where `reset` is given or decays vary, as "
                f"in a {type(self).__name__}; use 'associative' or 'chunked'."
            )

        def run(x, state, reset, lengths):
            x = x.astype(dtype)
            start = (
                state[..., -1] if self.tracks_position and state is not None else None
            )
            steps = _steps(start, x, reset)
            if state is None:
                state = self.initial_state(x.shape[:-2], x.shape[-1])
            state = state.astype(dtype)
            solver = functools.partial(
                nonlinear_recurrence,
                decay=self.decay(params),
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
            y, after, sweeps = self.run(
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
                done = jnp.broadcast_to(steps + 1, x.shape[:-1])[..., None]
                done = state_after(done.astype(after.dtype), state[..., -1:], lengths)
                after = jnp.concatenate([after, done], -1)
            return y, after, sweeps

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
        """Evaluates the recurrence on data that stand at the front of their rows.

        Here steps see the whole state; units whose steps see less of it have their own.

        Args:
          params: This and the next as `solve` takes them, float32.
          x: Input.
          steps: Number of each step, with axes of size 1 where rows do not differ.
          h0: State before the first step, without the count.
          solver: `nonlinear_recurrence` with all that follows its ``h0``.
          reset: True where a segment starts.
          lengths: Data of each row. None means all.
          last_only: Whether only the output after the last data is asked for.

        Returns:
          ``(y, h, sweeps)``: outputs, the state after the data, what it took.
        """
        del steps, reset
        h, sweeps = solver(
            self.nonlinear_term, params, self.input_projection(params, x), h0
        )
        after = state_after(h, h0, lengths)
        return (
            self.readout(params, after[..., None, :] if last_only else h),
            after,
            sweeps,
        )


def _steps(start, x, reset):
    """Number of each step since the start or since its segment's.

    ``(*b, l)``; ``(1, ..., l)`` where it is the same for all rows.
    """
    steps = jnp.arange(x.shape[-2]).reshape((1,) * (x.ndim - 2) + (-1,))
    counted = steps
    if start is not None:
        first = jnp.maximum(jnp.round(start), 0).astype(jnp.int32)
        counted = steps + first[..., None]
    if reset is None:
        return counted
    begun = jax.lax.cummax(jnp.where(reset, steps, -1), axis=reset.ndim - 1)
    return jnp.where(begun >= 0, steps - begun, counted)
