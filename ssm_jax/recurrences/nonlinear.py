"""What recurrences whose input depends on their state have in common."""

import abc
from collections.abc import Mapping
from typing import Literal

import jax
import jax.numpy as jnp

from ssm_jax.kernels.fixed_point import Sweeps, nonlinear_recurrence
from ssm_jax.recurrences.base import ParamGroup, Params, check
from ssm_jax.recurrences.padding import on_data, state_after
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


class Nonlinear(abc.ABC):
    """A recurrence ``h_t = a h_{t-1} + drive(h_{t-1}, x_t)``, and every evaluation.

    The state of one sequence is one row of numbers: ``h``, `d_hidden` of them, and
    the number of steps since the start where `counts` is true.
    """

    counts: bool = False
    sweeps: Literal["picard", "newton"] = "newton"

    @abc.abstractmethod
    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Draws the parameters for inputs of width ``d_in``."""

    @abc.abstractmethod
    def d_in(self, params: Params) -> int:
        """The width that parameters were drawn for."""

    @abc.abstractmethod
    def d_out(self, d_in: int) -> int:
        """Width of the output."""

    @property
    @abc.abstractmethod
    def d_hidden(self) -> int:
        """Numbers of ``h``."""

    @abc.abstractmethod
    def entering(
        self, params: Params, x: Activations, steps: Int[Array, "*b l"]
    ) -> PyTree:
        """What a step takes of its input and its number, of all steps at once."""

    @abc.abstractmethod
    def drive(
        self, params: Params, h: Float[Array, "*b n"], entering: PyTree
    ) -> Float[Array, "*b n"]:
        """The recurrence beside its decay; any number of leading axes."""

    @abc.abstractmethod
    def leaving(self, params: Params, h: Float[Array, "*b l n"]) -> Outputs:
        """The outputs, of all steps at once."""

    def decay(self, params: Params) -> Float[Array, " n"] | None:
        """Constant decay of each number of ``h``; None for zeros."""
        del params

    def diagonal(
        self, params: Params, h: Float[Array, "*b n"], entering: PyTree
    ) -> Float[Array, "*b n"]:
        """Derivative of each number of `drive` by the same number of ``h``."""
        raise NotImplementedError

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """Zeros, batch axes first."""
        del d_in
        return jnp.zeros((*batch_shape, self.d_hidden + self.counts))

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
        """Maps a sequence to a sequence, as `Recurrence.apply` says.

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
        max_sweeps: int = 50,
        chunk: int | None = None,
        damping: float | None = 0.0,
        last: bool = False,
    ) -> tuple[Float[Array, "*b k o"], PyTree, Sweeps]:
        """As `apply`, with what the sweeps took, and the numbers that bound them.

        Args:
          params: This and the next five as `apply` takes them.
          x: Input.
          state: State before the first step.
          reset: Where segments start.
          mask: Where data are.
          method: How it is evaluated.
          tolerance: This and the next three as `nonlinear_recurrence` takes them.
          max_sweeps: The most sweeps.
          chunk: Steps that are solved together.
          damping: What is left out of the Jacobian's diagonal.
          last: Whether only the output of the last step that is data is asked for; the
            outputs of all others are not computed then.

        Returns:
          ``(y, state, sweeps)``; if ``last``, ``y`` is ``(*b, 1, d_out)``, zeros for a
          row without data.
        """
        shape = (self.d_hidden + self.counts,)
        check(x, state, reset, mask, d=self.d_in(params), state_shape=shape)
        if method == "auto":
            on_cpu = jax.default_backend() == "cpu"
            method = "sequential" if on_cpu else "associative"
        if method == "fft" and (reset is not None or self.sweeps == "newton"):
            raise ValueError(
                "`method` must not be 'fft' where `reset` is given or decays vary, as "
                f"in a {type(self).__name__}; use 'associative' or 'chunked'."
            )

        def run(x, state, reset, lengths):
            x = x.astype(jnp.float32)
            if state is None:
                state = self.initial_state(x.shape[:-2], x.shape[-1])
            h0 = state[..., : self.d_hidden]
            steps = _steps(state[..., -1] if self.counts else None, x, reset)
            h, sweeps = nonlinear_recurrence(
                self.drive,
                params,
                self.entering(params, x, steps),
                h0,
                decay=self.decay(params),
                diagonal=self.diagonal if self.sweeps == "newton" else None,
                reset=reset,
                method="sequential" if method == "sequential" else self.sweeps,
                inner=method,
                tolerance=tolerance,
                max_sweeps=max_sweeps,
                chunk=chunk,
                damping=damping,
            )
            states = h
            if self.counts:
                done = (steps + 1).astype(h.dtype)
                states = jnp.concatenate([h, done[..., None]], -1)
            after = state_after(states, state, lengths)
            seen = after[..., None, : self.d_hidden] if last else h
            return self.leaving(params, seen), after, sweeps

        return on_data(run, x, state, reset, mask, last=last)

    def groups(self) -> Mapping[str, ParamGroup]:
        """All parameters are treated alike."""
        return {}


def _steps(start, x, reset):
    """Number of each step since the start or since its segment's, ``(*b, l)``."""
    steps = jnp.broadcast_to(jnp.arange(x.shape[-2]), x.shape[:-1])
    counted = steps
    if start is not None:
        first = jnp.maximum(jnp.round(start), 0).astype(jnp.int32)
        counted = steps + first[..., None]
    if reset is None:
        return counted
    begun = jax.lax.cummax(jnp.where(reset, steps, -1), axis=steps.ndim - 1)
    return jnp.where(begun >= 0, steps - begun, counted)
