"""Recurrences whose decays depend on the step, evaluated by chunks of the length."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.axes import append_axes, join_chunks, split_chunks, valid_steps
from ssm_jax.kernels.plan import chunk_method, is_symbolic, recomputes_steps
from ssm_jax.kernels.recurrence import linear_recurrence
from ssm_jax.types import (
    Array,
    Dimension,
    Inexact,
    Int,
    Method,
    Outputs,
    PyTree,
    Steps,
)

DecayAndInput = Callable[[Any], tuple[Array, Array]]
"""Maps the inputs of a chunk, leaves ``(*b, c, ...)``, to its decays and projected
inputs, ``(*b, c, *s)`` with the shape ``s`` of a state. Axes of the decays may be 1."""

ReadoutFn = Callable[[Any, Array], Array]
"""Maps inputs of a chunk and its states ``(*b, c, *s)`` to outputs ``(*b, c, o)``."""


class ChunkedForm(NamedTuple):
    """A recurrence on given sequences, as arguments of `evaluate_chunks`.

    Attributes:
      decay_and_input: Maps the inputs of a chunk of ``c`` steps, leaves
        ``(*b, c, ...)``, to its decays and its projected inputs, ``(*b, c, *s)`` with
        the shape ``s`` of a state. Decays are broadcast: those that are the same at all
        steps may be ``s``. None where ``products`` evaluate the recurrence.
      readout: Maps the inputs of a chunk and its states, ``(*b, c, *s)``, to outputs,
        ``(*b, c, o)``. None where ``decay_and_input`` is None.
      inputs: Inputs of all steps, leaves ``(*b, l, ...)``.
      log_decays: Whether ``decay_and_input`` returns the logarithms of decays, as where
        these are exponentials. Their gradient takes fewer operations.
      by_steps: With ``"sequential"``, call both functions in the loop over steps,
        without the axis ``c``; no decays and states of several steps are stored. False
        if they multiply matrices, which is slow there.
      kernel: With ``"pallas"``, evaluates the recurrence instead of `evaluate_chunks`:
        ``(state, reset, lengths) -> (y, last)``. None if it has no kernel of its own.
      products: Evaluates the recurrence by products of matrices instead of states:
        ``(state, reset, valid, method) -> (y, last)``, with the state before the first
        step, or None for zeros, and the valid steps, ``(*b, l)``, or None. None if it
        has no such form.
      swaps: Whether ``decay_and_input`` and ``readout`` have the last two axes of a
        state swapped. On CPUs a step is vectorized over its last axis, which should be
        a long one that is not summed over.
    """

    decay_and_input: DecayAndInput | None
    readout: ReadoutFn | None
    inputs: PyTree
    log_decays: bool = False
    by_steps: bool = True
    kernel: Callable[..., tuple[Array, Array]] | None = None
    products: Callable[..., tuple[Array, Array]] | None = None
    swaps: bool = False


def evaluate_chunks(
    form: ChunkedForm,
    state: Inexact[Array, "..."],
    *,
    axis: int,
    reset: Steps | None,
    lengths: Int[Array, "*b"] | None,
    size: Dimension,
    method: Method,
    from_zeros: bool = False,
) -> tuple[Outputs, Inexact[Array, "..."]]:
    """Evaluates a recurrence by chunks; states are recomputed in the backward pass.

    For the backward pass only ``inputs``, ``y`` and one state per chunk are stored.
    Inside shard_map all arguments, and the variables that the functions of ``form``
    close over, must vary over the same axes.

    Args:
      form: The recurrence.
      state: State before the first step, ``(*b, *s)``.
      axis: Number of batch axes ``b``.
      reset: True where a segment starts, ``(*b, l)``, or None.
      lengths: Number of valid steps of each row, ``(*b,)``; the steps after them do not
        change the state. None means that all steps are valid.
      size: Number of steps of a chunk, ``c``.
      method: Method by which `linear_recurrence` evaluates a chunk.
      from_zeros: Whether ``state`` is zeros, of which XLA would compute everything
        while it compiles.

    Returns:
      ``(y, last)``: outputs, ``(*b, l, o)``, and the state after the last
      valid step.
    """
    decay_and_input, readout, inputs = form.decay_and_input, form.readout, form.inputs
    log_decays, products = form.log_decays, form.products
    if method == "pallas" and form.kernel is not None:
        return form.kernel(state, reset, lengths)
    length, n_axes = jax.tree.leaves(inputs)[0].shape[axis], state.ndim - axis
    if products is not None:
        valid = None if lengths is None else valid_steps(lengths, length)
        # A reset on padding would clear the final state.
        if reset is not None and valid is not None:
            reset &= valid
        return products(None if from_zeros else state, reset, valid, method)
    # What has no products has both.
    assert decay_and_input is not None and readout is not None
    if form.swaps:
        state = jnp.swapaxes(state, -2, -1)
    if method == "auto":
        bytes_per_step = state.dtype.itemsize * state.size
        method = chunk_method(length=length, size=size, bytes_per_step=bytes_per_step)
    # The scan needs chunks of equal length; the added steps count as padding.
    is_one_chunk = is_symbolic(length)
    fill = 0 if is_one_chunk else -length % size
    valid = None
    if fill or lengths is not None:
        ends = jnp.full((), length) if lengths is None else lengths
        valid = valid_steps(ends, length)
        valid = jnp.broadcast_to(valid, (*state.shape[:axis], length))
        # A reset on padding would clear the final state.
        reset = None if reset is None else reset & valid

    def expand_flags(flags):
        return append_axes(flags, flags.ndim + n_axes)

    def valid_form(inputs, valid):
        a, b = decay_and_input(inputs)
        if valid is not None:
            # Padded steps are the identity, so that the last state is the one after
            # the last valid step.
            a = jnp.where(expand_flags(valid), a, 0 if log_decays else 1)
            b = jnp.where(expand_flags(valid), b, 0)
        return a, b

    def one_step(h, step):
        inputs, reset, valid = step
        a, b = valid_form(inputs, valid)
        if reset is not None:
            h = jnp.where(expand_flags(reset), 0, h)
        h = _exp_times(a, h) if log_decays else a * h
        h = (h + b).astype(state.dtype)
        return h, readout(inputs, h)

    leaves = jax.tree.leaves(inputs)
    n_inputs = sum(math.prod(leaf.shape[axis + 1 :]) for leaf in leaves)
    if recomputes_steps(n_inputs=n_inputs, n_states=math.prod(state.shape[axis:])):
        one_step = jax.checkpoint(one_step, prevent_cse=False)

    # Rematerialization stores one state per chunk instead of one per step. The scan
    # already prevents that forward and recomputed operations are merged.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def one_chunk(state, chunk):
        if method == "sequential" and form.by_steps:
            steps = jax.tree.map(lambda v: jnp.moveaxis(v, axis, 0), chunk)
            last, y = jax.lax.scan(one_step, state, steps)
            return last, jnp.moveaxis(y, 0, axis)
        inputs, reset, valid = chunk
        a, b = valid_form(inputs, valid)
        a = jnp.exp(a) if log_decays else a
        a, b = (
            v.reshape(*v.shape[: axis + 1], -1)
            for v in (jnp.broadcast_to(a, b.shape), b)
        )
        h0 = state.reshape(*state.shape[:axis], -1)
        h, last = linear_recurrence(a, b, h0, reset=reset, method=method)
        h = h.reshape(*h.shape[: axis + 1], *state.shape[axis:])
        return last.reshape(state.shape), readout(inputs, h)

    if is_one_chunk:
        last, y = one_chunk(state, (inputs, reset, valid))
    else:
        split = functools.partial(split_chunks, axis=axis, size=size)
        chunks = jax.tree.map(split, (inputs, reset, valid))
        last, y = jax.lax.scan(one_chunk, state, chunks)
        y = join_chunks(y, axis=axis, length=length)
    return y, jnp.swapaxes(last, -2, -1) if form.swaps else last


@jax.custom_jvp
def _exp_times(log_decay, h):
    """The product of a decay and a state."""
    return jnp.exp(log_decay) * h


@_exp_times.defjvp
def _exp_times_jvp(primals, tangents):
    # One product with the decay, not one for the state and one for the logarithm.
    (log_decay, h), (d_log_decay, dh) = primals, tangents
    decay = jnp.exp(log_decay)
    return decay * h, decay * (dh + h * d_log_decay)
