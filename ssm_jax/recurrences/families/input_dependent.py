"""Input-dependent recurrences, evaluated by chunks of the length to save memory."""

import abc
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.precision import in_float32
from ssm_jax.kernels.recurrence import linear_recurrence, match_varying_axes
from ssm_jax.recurrences.families.base import (
    ParamGroup,
    Params,
    Recurrence,
    apply_to_valid_steps,
    check,
)
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

# Names that a module of an input-dependent recurrence imports.
__all__ = ["InputDependent", "ParamGroup", "Params", "ChunkedForm"]

# Maximum number of steps whose states exist at the same time.
CHUNK = 256

DecayAndInput = Callable[[Any], tuple[Array, Array]]
"""Maps the inputs of a chunk, leaves ``(*b, c, ...)``, to its decays and
projected inputs, both ``(*b, c, n)``."""

ReadoutFn = Callable[[Any, Array], Array]
"""Maps inputs of a chunk and its states ``(*b, c, n)`` to outputs ``(*b, c, o)``."""


class ChunkedForm(NamedTuple):
    """A recurrence on given sequences, as arguments of `by_chunks`.

    Attributes:
      decay_and_input: Computes decays and projected inputs of a chunk.
      readout: Computes outputs from the inputs and the states of a chunk.
      inputs: Inputs of all steps, leaves ``(*b, l, ...)``.
    """

    decay_and_input: DecayAndInput
    readout: ReadoutFn
    inputs: PyTree


class InputDependent(Recurrence, abc.ABC):
    """A recurrence whose decays depend on the input.

    A subclass defines `chunked_form`: the decays and inputs of the recurrence, and its
    readout. The state may have any shape.
    """

    @abc.abstractmethod
    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Float[jax.Array, "..."]:
        """Returns zeros, batch axes first."""

    @abc.abstractmethod
    def chunked_form(self, params: Params, x: Activations) -> ChunkedForm:
        """Returns decays, inputs and readout for ``x``, ``(*b, l, d)``, float32."""

    @abc.abstractmethod
    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""

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
        """Maps a sequence to a sequence; see `Recurrence.apply` for the arguments.

        States are computed one chunk of the length after another and recomputed in the
        backward pass: only one state per chunk is stored. Within a chunk ``method`` is
        the method of `linear_recurrence`; ``"fft"`` does not support input-dependent
        decays.
        """
        params = in_float32(params)
        dtype = jax.tree.leaves(params)[0].dtype
        d = self.d_in(params)
        # The shape of one state, without allocating it.
        shape = jax.eval_shape(lambda: self.initial_state((), d)).shape
        check(x, state, reset, mask, d=d, state_shape=shape, method=method)
        if method == "fft":
            raise ValueError(
                "`method` must not be 'fft' for input-dependent decays, as in "
                f"{type(self).__name__}; use 'associative' or 'chunked'."
            )

        def run(x, state, reset, lengths):
            if state is None:
                state = self.initial_state(x.shape[:-2], d)
            x, state = x.astype(dtype), state.astype(dtype)
            # In shard_map parameters may be replicated where `x` is sharded, but all
            # operands of a scan must vary over the same axes.
            varying = match_varying_axes(params, x, state, reset, lengths)
            varying_params, x, state, reset, lengths = varying
            chunked = self.chunked_form(varying_params, x)
            y, last = by_chunks(
                *chunked,
                state.reshape(*x.shape[:-2], -1),
                reset=reset,
                lengths=lengths,
                size=chunk_size(x.shape[-2], math.prod(shape) // d),
                method=method,
            )
            return y, last.reshape(state.shape)

        return apply_to_valid_steps(run, x, state, reset, mask)


def by_chunks(
    decay_and_input: DecayAndInput,
    readout: ReadoutFn,
    inputs: PyTree,
    state: Float[Array, "*b n"],
    *,
    reset: Steps | None,
    lengths: Int[Array, "*b"] | None,
    size: int,
    method: Method,
) -> tuple[Outputs, State]:
    """Evaluates a recurrence by chunks; states are recomputed in the backward pass.

    For the backward pass only ``inputs``, ``y`` and one state per chunk are stored.
    Inside shard_map all arguments, and the variables that ``decay_and_input`` and
    ``readout`` close over, must vary over the same axes.

    Args:
      decay_and_input: Computes decays and projected inputs from the inputs of a chunk.
      readout: Computes outputs from the inputs and the states of a chunk.
      inputs: Leaves ``(*b, l, ...)``.
      state: State before the first step, ``(*b, n)``.
      reset: True where a segment starts, ``(*b, l)``, or None.
      lengths: Number of valid steps of each row, ``(*b,)``; the steps after them do not
        change the state. None means that all steps are valid.
      size: Number of steps of a chunk, ``c``.
      method: Method by which `linear_recurrence` evaluates a chunk.

    Returns:
      ``(y, last)``: outputs, ``(*b, l, o)``, and the state after the last
      valid step.
    """
    axis, length = state.ndim - 1, jax.tree.leaves(inputs)[0].shape[state.ndim - 1]
    # The scan needs chunks of equal length; the added steps count as padding.
    fill = -length % size
    valid = None
    if fill or lengths is not None:
        end = jnp.full((), length) if lengths is None else lengths[..., None]
        valid = jnp.arange(length) < end
        valid = jnp.broadcast_to(valid, (*state.shape[:-1], length))
        # A reset on padding would clear the final state.
        reset = None if reset is None else reset & valid

    def split_chunks(values):
        """Reshapes ``(*b, l, ...)`` to ``(l / c, *b, c, ...)``, padded with zeros."""
        pad = [(0, 0)] * values.ndim
        pad[axis] = (0, fill)
        shape = (*values.shape[:axis], -1, size, *values.shape[axis + 1 :])
        return jnp.moveaxis(jnp.pad(values, pad).reshape(shape), axis, 0)

    # Rematerialization stores one state per chunk instead of one per step. The scan
    # already prevents that forward and recomputed operations are merged.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def one_chunk(state, chunk):
        inputs, reset, valid = chunk
        a, b = decay_and_input(inputs)
        if valid is not None:
            # Padded steps are the identity, so that the last state is the one after
            # the last valid step.
            a = jnp.where(valid[..., None], a, 1)
            b = jnp.where(valid[..., None], b, 0)
        h, last = linear_recurrence(a, b, state, reset=reset, method=method)
        return last, readout(inputs, h)

    chunks = jax.tree.map(split_chunks, (inputs, reset, valid))
    last, y = jax.lax.scan(one_chunk, state, chunks)
    y = jnp.moveaxis(y, 0, axis)
    y = y.reshape(*y.shape[:axis], -1, y.shape[-1])
    return jax.lax.slice_in_dim(y, 0, length, axis=axis), last


def chunk_size(length: int, n: int) -> int:
    """Returns the number of steps of a chunk, which balances the memory of two kinds.

    Args:
      length: Number of steps of the sequence.
      n: Number of state entries per input channel.
    """
    # Shorter chunks store more states between chunks, longer ones more states within a
    # chunk. With l / n steps the states of a chunk have the size of the input.
    return min(CHUNK, max(math.isqrt(length), -(-length // n)))
