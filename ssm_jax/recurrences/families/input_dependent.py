"""Recurrences whose states are too many to keep: by chunks of the length."""

import abc
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.recurrence import linear_recurrence, match_varying_axes
from ssm_jax.recurrences.families.base import Params, check
from ssm_jax.recurrences.families.initializers import in_float32
from ssm_jax.recurrences.families.padding import apply_to_valid_steps
from ssm_jax.types import (
    Activations,
    Array,
    Float,
    Int,
    Method,
    Outputs,
    PyTree,
    State,
    Steps,
)

# Most steps whose states exist at once.
CHUNK = 256

Form = Callable[[Any], tuple[Array, Array]]
"""Inputs of a chunk, leaves ``(*b, c, ...)``, to decays and what enters, both ``(*b, c,
n)``."""

Read = Callable[[Any, Array], Array]
"""Inputs of a chunk and its states ``(*b, c, n)`` to outputs ``(*b, c, o)``."""


class ChunkedForm(NamedTuple):
    """A recurrence of one sequence, as `by_chunks` takes it."""

    decay_and_input: Form
    readout: Read
    inputs: PyTree


class InputDependent(abc.ABC):
    """A recurrence whose decays the sequence chooses, of states too many to keep.

    It says how steps are formed from the inputs and how states are read; the state may
    have any shape.
    """

    @abc.abstractmethod
    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Float[jax.Array, "..."]:
        """Zeros, batch axes first."""

    @abc.abstractmethod
    def chunked_form(self, params: Params, x: Activations) -> ChunkedForm:
        """How the steps of ``x``, ``(*b, l, d)`` and float32, are formed and read."""

    @abc.abstractmethod
    def d_in(self, params: Params) -> int:
        """The width that parameters were drawn for."""

    def d_out(self, d_in: int) -> int:
        """The output is as wide as the input."""
        return d_in

    def apply(
        self,
        params: Params,
        x: Activations,
        state: Float[Array, "..."] | None = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        method: Method = "auto",
    ) -> tuple[Outputs, Float[jax.Array, "..."]]:
        """Maps a sequence to a sequence, as `Recurrence.apply` says.

        States are formed by chunks of the length, one chunk after another, and formed
        again for the gradient: of what is kept only one state a chunk has all the
        numbers of a state. Inside a chunk ``method`` is that of `linear_recurrence`;
        ``"fft"`` is none for decays that vary.
        """
        params = in_float32(params)
        dtype = jax.tree.leaves(params)[0].dtype
        d = self.d_in(params)
        shape = jax.eval_shape(lambda: self.initial_state((), d)).shape
        check(x, state, reset, mask, d=d, state_shape=shape, method=method)
        if method == "fft":
            raise ValueError(
                "`method` must not be 'fft' where decays vary, as in a "
                f"{type(self).__name__}; use 'associative' or 'chunked'."
            )

        def run(x, state, reset, lengths):
            if state is None:
                state = self.initial_state(x.shape[:-2], d)
            x, state = x.astype(dtype), state.astype(dtype)
            # In shard_map parameters may be the same on all devices where `x` is not.
            varying = match_varying_axes(params, x, state, reset, lengths)
            of_all, x, state, reset, lengths = varying
            form, read, inputs = self.chunked_form(of_all, x)
            y, last = by_chunks(
                form,
                read,
                inputs,
                state.reshape(*x.shape[:-2], -1),
                reset=reset,
                lengths=lengths,
                size=chunk_size(x.shape[-2], math.prod(shape) // d),
                method=method,
            )
            return y, last.reshape(state.shape)

        return apply_to_valid_steps(run, x, state, reset, mask)


def by_chunks(
    form: Form,
    read: Read,
    inputs: PyTree,
    state: Float[Array, "*b n"],
    *,
    reset: Steps | None,
    lengths: Int[Array, "*b"] | None,
    size: int,
    method: Method,
) -> tuple[Outputs, State]:
    """Evaluates a recurrence by chunks, whose states the gradient forms again.

    Of what is kept for the gradient only the state between chunks has ``n`` numbers;
    all else is ``inputs`` and ``y``. Inside shard_map all arguments, and what ``decay_and_input``
    and ``readout`` have around them, must vary over the same axes.

    Args:
      decay_and_input: Makes decays, and what enters, from the inputs of a chunk.
      readout: Makes outputs from the inputs and the states of a chunk.
      inputs: Leaves ``(*b, l, ...)``.
      state: State before the first step, ``(*b, n)``.
      reset: True where a segment starts, ``(*b, l)``, or None.
      lengths: Steps of each row that are data, ``(*b,)``: those behind leave the state
        as it is. None means all.
      size: Steps of a chunk, ``c``.
      method: How `linear_recurrence` evaluates a chunk.

    Returns:
      ``(y, last)``: outputs, ``(*b, l, o)``, and the state behind the data.
    """
    axis, length = state.ndim - 1, jax.tree.leaves(inputs)[0].shape[state.ndim - 1]
    fill = -length % size
    data = None
    if fill or lengths is not None:
        end = jnp.full((), length) if lengths is None else lengths[..., None]
        data = jnp.arange(length) < end
        data = jnp.broadcast_to(data, (*state.shape[:-1], length))
        # Behind the data nothing happens: the state there is the last one.
        reset = None if reset is None else reset & data

    def cut(values):
        """``(*b, l, ...)`` as ``(l / c, *b, c, ...)``, filled up with zeros."""
        pad = [(0, 0)] * values.ndim
        pad[axis] = (0, fill)
        shape = (*values.shape[:axis], -1, size, *values.shape[axis + 1 :])
        return jnp.moveaxis(jnp.pad(values, pad).reshape(shape), axis, 0)

    # The scan keeps the two passes apart: there is nothing to merge.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def chunk(state, along):
        inputs, reset, data = along
        decay, entering = form(inputs)
        if data is not None:
            decay = jnp.where(data[..., None], decay, 1)
            entering = jnp.where(data[..., None], entering, 0)
        h, last = linear_recurrence(decay, entering, state, reset=reset, method=method)
        return last, read(inputs, h)

    last, y = jax.lax.scan(chunk, state, jax.tree.map(cut, (inputs, reset, data)))
    y = jnp.moveaxis(y, 0, axis)
    y = y.reshape(*y.shape[:axis], -1, y.shape[-1])
    return jax.lax.slice_in_dim(y, 0, length, axis=axis), last


def chunk_size(length: int, n: int) -> int:
    """Steps of a chunk: its states and those between chunks stay few.

    Args:
      length: Steps of the sequence.
      n: Numbers of the state for each number of the input.
    """
    # With l / n steps the states of a chunk are as many numbers as the input has.
    return min(CHUNK, max(math.isqrt(length), -(-length // n)))
