"""Recurrences whose states are too many to keep: by chunks of the length."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.kernels.recurrence import linear_recurrence
from ssm_jax.types import Array, Float, Int, Method, Outputs, PyTree, State, Steps

# Most steps whose states exist at once.
CHUNK = 256

Form = Callable[[Any], tuple[Array, Array]]
"""Inputs of a chunk, leaves ``(*b, c, ...)``, to decays and what enters, both ``(*b, c,
n)``."""

Read = Callable[[Any, Array], Array]
"""Inputs of a chunk and its states ``(*b, c, n)`` to outputs ``(*b, c, o)``."""


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
    all else is ``inputs`` and ``y``. Inside shard_map all arguments, and what ``form``
    and ``read`` have around them, must vary over the same axes.

    Args:
      form: Makes decays, and what enters, from the inputs of a chunk.
      read: Makes outputs from the inputs and the states of a chunk.
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


def check_method(method: Method, name: str) -> None:
    """Raises a ValueError for the method that decays which vary cannot have."""
    if method == "fft":
        raise ValueError(
            f"`method` must not be 'fft' where decays vary, as in a {name}; use "
            "'associative' or 'chunked'."
        )
