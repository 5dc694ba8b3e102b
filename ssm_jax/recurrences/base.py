"""What a recurrence is, and all evaluations of those that do not change in time."""

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from ssm_jax.kernels.convolution import (
    causal_convolution,
    final_state,
    modal_kernel,
    two_sided_convolution,
)
from ssm_jax.kernels.powers import LogDecay, combined, powers
from ssm_jax.kernels.recurrence import chosen_method, linear_recurrence
from ssm_jax.recurrences.padding import compact, spread, starts_behind_data
from ssm_jax.types import (
    Activations,
    Array,
    Float,
    Inexact,
    Method,
    Outputs,
    PRNGKey,
    PyTree,
    Readout,
    Steps,
)

Params = Mapping[str, Float[Array, "..."]]

# Bound on the states that exist at once where all states of a sequence are formed:
# 2**24 complex64 are 128 MiB. One mode of every channel and step is the least.
STATES_AT_ONCE = 2**24

# From this length on a convolution beats forming the states, on every platform.
_LONG = 16


@dataclass(frozen=True)
class ParamGroup:
    """How the optimizer treats a parameter.

    Attributes:
      weight_decay: Whether weight decay acts on it.
      lr_multiplier: Factor on the learning rate.
    """

    weight_decay: bool = True
    lr_multiplier: float = 1.0


@runtime_checkable
class Recurrence(Protocol):
    """A map of sequences with a state, as pure functions of its parameters."""

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Draws the parameters for inputs of width ``d_in``: float32 arrays by name."""
        ...

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """The state before the first step, batch axes first."""
        ...

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
        """Maps ``x`` ``(*b, l, d_in)`` to ``(y, state)``, ``y`` ``(*b, l, d_out)``."""
        ...

    def d_out(self, d_in: int) -> int:
        """Width of the output for inputs of width ``d_in``."""
        ...

    def groups(self) -> Mapping[str, ParamGroup]:
        """The parameters that the optimizer treats in their own way."""
        ...


class Modes(NamedTuple):
    """A time-invariant recurrence: every channel's input enters every one of its modes.

    Attributes:
      log_decay: Logarithm of the decays, leaves ``(n,)``, modes that all channels
        share, or ``(d, n)``, modes of each channel.
      w: Weight of each mode in the output, ``(d, n)``, real or complex.
      feedthrough: What goes straight to the output, ``(d,)``.
      w_backward: Weight in the output of what comes after a step, ``(d, n)``. None:
        one direction.
      readout: ``"real"``: the convolution kernel is ``Re k``, ``k_l = sum_n w_n
        lam_n**l``. ``"prod"``: ``Re k Im k``.
    """

    log_decay: LogDecay
    w: Inexact[Array, "d n"]
    feedthrough: Float[Array, " d"]
    w_backward: Inexact[Array, "d n"] | None = None
    readout: Readout = "real"


class TimeInvariant(abc.ABC):
    """A recurrence that says only its modes; every evaluation follows from them."""

    @abc.abstractmethod
    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Draws the parameters for inputs of width ``d_in``."""

    @abc.abstractmethod
    def modes(self, params: Params) -> Modes:
        """The recurrence that the parameters describe."""

    @abc.abstractmethod
    def groups(self) -> Mapping[str, ParamGroup]:
        """The parameters that the optimizer treats in their own way."""

    def d_out(self, d_in: int) -> int:
        """The output is as wide as the input."""
        return d_in

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """Zeros ``(*batch_shape, d_in, n)``; None if it runs in two directions."""

        def one_state():
            modes = recurrent(self.modes(self.init(jax.random.key(0), d_in)))
            if modes.w_backward is not None:
                return None
            return modes.w * powers(modes.log_decay, jnp.zeros((), jnp.int32))

        one = jax.eval_shape(one_state)
        return one and jnp.zeros((*batch_shape, *one.shape), one.dtype)

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
          x: Input, ``(*b, l, d)``. Sums and states are float32 also for bfloat16.
          state: State before the first step, ``(*b, d, n)``. None means zeros.
          reset: True where a segment starts, ``(*b, l)`` or, for all rows, ``(l,)``;
            nothing passes its border.
          mask: True where a step is data, ``(*b, l)`` or ``(l,)``; the others are as if
            they were not there and give zeros. None means all are.
          method: ``"fft"``: convolution with the modes' kernel. Others: through all
            states, by `linear_recurrence`, in slices of the modes, so that at most
            ``max(STATES_AT_ONCE, b l d)`` states exist at once. ``"auto"``: ``"fft"``
            unless the sequence is short or has resets.

        Returns:
          ``(y, state)``: output, ``(*b, l, d)`` in the dtype of ``x``, and the state
          after the last step; as the next call's ``state`` it continues the sequence.
          None in place of the state where the recurrence runs in two directions.

        Raises:
          ValueError: A shape does not fit, a recurrence of two directions is given a
            state, or ``method`` cannot do what is asked.
        """
        modes = self.modes(params)
        _check(modes, x, state, reset, mask)
        dtype = x.dtype
        fresh = starts_behind_data(reset, mask)
        x, reset, lengths, order = compact(x, reset, mask)
        if method == "auto":
            long = x.shape[-2] >= _LONG and reset is None
            method = "fft" if long else chosen_method(modes.log_decay)
        evaluate = _by_convolution if method == "fft" and reset is None else _by_states
        x = x.astype(modes.feedthrough.dtype)
        y, state = evaluate(modes, x, state, reset, lengths, method)
        y = spread(y + modes.feedthrough * x, mask, order)
        if state is not None and fresh is not None:
            state = jnp.where(fresh[..., None, None], 0, state)
        return y.astype(dtype), state


def recurrent(modes: Modes) -> Modes:
    """The same convolution kernel with a real readout, so that it has a state.

    ``Re k Im k = Re(-i k**2 / 2)``, and ``k**2`` is a sum over pairs of modes: a
    product readout of ``n`` modes is a real readout of ``n (n + 1) / 2``.

    Args:
      modes: Modes with either readout.

    Returns:
      Modes with ``readout="real"``.

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, appendix A.2
    """
    if modes.readout == "real":
        return modes
    first, second = jnp.triu_indices(modes.w.shape[-1])
    scale = jnp.where(first == second, -0.5j, -1j).astype(modes.w.dtype)

    def square(w):
        return None if w is None else scale * w[:, first] * w[:, second]

    of_first = jax.tree.map(lambda v: v[..., first], modes.log_decay)
    of_second = jax.tree.map(lambda v: v[..., second], modes.log_decay)
    return modes._replace(
        log_decay=combined(of_first, of_second),
        w=square(modes.w),
        w_backward=square(modes.w_backward),
        readout="real",
    )


def convolution_kernel(modes: Modes, length: int) -> Float[Array, "d l"]:
    """The kernel that a recurrence convolves each channel with, without feed-through.

    Args:
      modes: The recurrence.
      length: Steps ``l`` of the kernel.

    Returns:
      Kernel over the past and the present, ``(d, l)``.
    """
    if modes.readout == "real":
        return modal_kernel(modes.log_decay, modes.w, length)
    kernel = modal_kernel(modes.log_decay, modes.w, length, part="complex")
    return jnp.real(kernel) * jnp.imag(kernel)


def _by_convolution(modes, x, state, reset, lengths, method):
    del reset, method
    length = x.shape[-2]
    kernel = convolution_kernel(modes, length)
    if modes.w_backward is not None:
        backward = convolution_kernel(modes._replace(w=modes.w_backward), length)
        return two_sided_convolution(x, kernel, backward), None
    y = causal_convolution(x, kernel)
    modes = recurrent(modes)
    entered = x
    if lengths is not None:
        # What is counted back from the end of the row starts at its last data.
        shift = jnp.arange(length) - (length - lengths)[..., None]
        entered = jnp.take_along_axis(x, jnp.maximum(shift, 0)[..., None], -2)
        entered = jnp.where(shift[..., None] >= 0, entered, 0)
    last = final_state(modes.log_decay, entered)
    if state is not None:
        one = powers(modes.log_decay, jnp.ones((), jnp.int32))
        y = y + _response(modes, one * state, length)
        steps = jnp.asarray(length if lengths is None else lengths)
        passed = powers(modes.log_decay, steps)
        passed = passed[..., None, :] if passed.ndim == steps.ndim + 1 else passed
        last = last + passed * state
    return y, last


def _response(modes, state, length):
    """Output of what is in the modes at the first step, ``(*b, l, d)``."""
    weights = modes.w * state
    if modes.log_decay.log_abs.ndim == 1:
        kernel = modal_kernel(modes.log_decay, weights, length)
    else:
        rows = weights.reshape(-1, *weights.shape[-2:])
        of_row = jax.vmap(lambda row: modal_kernel(modes.log_decay, row, length))
        kernel = of_row(rows).reshape(*weights.shape[:-1], length)
    return jnp.swapaxes(kernel, -1, -2)


def _by_states(modes, x, state, reset, lengths, method):
    modes = recurrent(modes)
    n = modes.w.shape[-1]
    n_slice = min(n, max(1, STATES_AT_ONCE // math.prod(x.shape)))
    n_slices = -(-n // n_slice)
    modes = modes._replace(feedthrough=None, readout=None)
    if n_slices == 1:
        return _slice_by_states(modes, x, state, reset, lengths, method)

    def cut(values):
        """``(..., n)`` as ``(slices, ..., n / slices)``, filled up with zeros."""
        fill = [(0, 0)] * (values.ndim - 1) + [(0, n_slices * n_slice - n)]
        values = jnp.pad(values, fill)
        values = values.reshape(*values.shape[:-1], n_slices, n_slice)
        return jnp.moveaxis(values, -2, 0)

    # Only a slice's modes are kept for the backward pass; its states are formed again.
    @jax.checkpoint
    def one_slice(y, inputs):
        modes, state = inputs
        y_slice, last = _slice_by_states(modes, x, state, reset, lengths, method)
        return y + y_slice, last

    slices = jax.tree.map(cut, (modes, state))
    y, last = jax.lax.scan(one_slice, jnp.zeros_like(x), slices)
    if last is None:
        return y, None
    last = jnp.moveaxis(last, 0, -2)
    return y, last.reshape(*last.shape[:-2], -1)[..., :n]


def _slice_by_states(modes, x, state, reset, lengths, method):
    def one_channel(log_decay, w, w_backward, x, state):
        states = jnp.broadcast_to(x[..., None], (*x.shape, w.shape[-1]))
        h, last = linear_recurrence(
            log_decay, states, state, reset=reset, method=method
        )
        y = jnp.real(jnp.einsum("...n,n->...", h, w, precision="highest"))
        if w_backward is not None:
            h, _ = linear_recurrence(
                log_decay, states, reset=reset, reverse=True, method=method
            )
            after = jnp.concatenate([h[..., 1:, :], jnp.zeros_like(h[..., :1, :])], -2)
            if reset is not None:
                ends = jnp.roll(reset, -1, axis=-1)
                after = jnp.where(ends[..., None], 0, after)
            y += jnp.real(jnp.einsum("...n,n->...", after, w_backward))
            return y, None
        if lengths is not None:
            last = _state_after(h, state, lengths)
        return y, last

    own = 0 if modes.log_decay.log_abs.ndim == 2 else None
    over_channels = jax.vmap(
        one_channel, in_axes=(own, 0, 0, -1, -2), out_axes=(-1, -2)
    )
    return over_channels(modes.log_decay, modes.w, modes.w_backward, x, state)


def _state_after(h, state, lengths):
    """States after ``lengths`` steps of each row; of no steps, the one before them."""
    index = jnp.maximum(lengths - 1, 0)[..., None, None]
    last = jnp.take_along_axis(h, index, -2)[..., 0, :]
    before = jnp.zeros_like(last) if state is None else state
    return jnp.where(lengths[..., None] > 0, last, before)


def _check(modes, x, state, reset, mask):
    d, n = modes.w.shape
    if x.ndim < 2 or x.shape[-1] != d or x.shape[-2] == 0:
        raise ValueError(
            f"`x` must be (*b, l, {d}) with l > 0, got {x.shape}; the width is the one "
            "that `init` drew parameters for."
        )
    for name, flags in (("reset", reset), ("mask", mask)):
        if flags is not None and flags.shape not in (x.shape[:-1], x.shape[-2:-1]):
            raise ValueError(
                f"`{name}` must be {x.shape[:-1]}, one flag a step, got {flags.shape}; "
                "leave out the axis of the channels."
            )
    if state is None:
        return
    if modes.w_backward is not None:
        raise ValueError(
            "`state` must be None for a recurrence in two directions, got one; the "
            "second direction starts where the sequence ends."
        )
    n = n * (n + 1) // 2 if modes.readout == "prod" else n
    if state.shape != (*x.shape[:-2], d, n):
        raise ValueError(
            f"`state` must be {(*x.shape[:-2], d, n)}, got {state.shape}; "
            "`initial_state` makes one."
        )
