"""What recurrences whose input depends on their state have in common."""

import abc
from collections.abc import Mapping
from typing import Literal

import jax
import jax.numpy as jnp

from ssm_jax.kernels.fixed_point import Sweeps, nonlinear_recurrence
from ssm_jax.recurrences.base import ParamGroup, Params, check
from ssm_jax.recurrences.padding import on_data
from ssm_jax.types import (
    Activations,
    Array,
    Bool,
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

    The state of one sequence is one row of numbers, `d_state` of them: ``h``, and the
    number of steps since the start where `counts` is true.
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
        """Maps a sequence to a sequence.

        Args:
          params: What `init` draws.
          x: Input, ``(*b, l, d)``. States are float32 also for bfloat16.
          state: State before the first step, ``(*b, n)``. None means zeros.
          reset: True where a segment starts, ``(*b, l)`` or, for all rows, ``(l,)``;
            nothing passes its border.
          mask: True where a step is data, ``(*b, l)`` or ``(l,)``; the others are as if
            they were not there and give zeros. None means all are.
          method: ``"sequential"``: step after step. Others: all steps at once, mended
            by sweeps of a linear recurrence, which is evaluated as the method says;
            ``"fft"`` where its decay is constant and there are no resets. ``"auto"``:
            ``"sequential"`` on CPUs, else ``"associative"``.

        Returns:
          ``(y, state)``: output, ``(*b, l, d_out)`` in the dtype of ``x``, and the
          state after the last step.

        Raises:
          ValueError: A shape does not fit, or ``method`` cannot do what is asked.
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
    ) -> tuple[Outputs, PyTree, Sweeps]:
        """As `apply`, with what the sweeps took, and the numbers that bound them.

        Args:
          params: As `apply` takes it.
          x: Likewise.
          state: Likewise.
          reset: Likewise.
          mask: Likewise.
          method: Likewise.
          tolerance: As `nonlinear_recurrence` takes it.
          max_sweeps: Likewise.
          chunk: Likewise.

        Returns:
          ``(y, state, sweeps)``.
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
        taken = []

        def run(x, state, reset, lengths):
            x = x.astype(jnp.float32)
            if state is None:
                state = self.initial_state(x.shape[:-2], x.shape[-1])
            if reset is not None:
                reset = jnp.broadcast_to(reset, x.shape[:-1])
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
            )
            taken.append(sweeps)
            after = h
            if self.counts:
                done = (steps + 1).astype(h.dtype)
                after = jnp.concatenate([h, done[..., None]], -1)
            return self.leaving(params, h), _last(after, state, lengths)

        y, state = on_data(run, x, state, reset, mask)
        return y, state, taken[0]

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


def _last(after, before, lengths: Int[Array, "*b"] | None):
    """The state after the data of each row; of no data, the one before them."""
    if lengths is None:
        return after[..., -1, :]
    index = jnp.maximum(lengths - 1, 0)[..., None, None]
    last = jnp.take_along_axis(after, index, -2)[..., 0, :]
    empty: Bool[Array, "*b"] = lengths == 0
    return jnp.where(empty[..., None], before, last)
