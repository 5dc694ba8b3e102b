"""Every evaluation of a time-invariant recurrence, from its modes."""

import math

import jax
import jax.numpy as jnp

from ssm_jax.kernels.blocked import block_convolution, block_length
from ssm_jax.kernels.fft import (
    bidirectional_convolution,
    causal_convolution,
    final_state,
    modal_kernel,
)
from ssm_jax.kernels.powers import decay_powers
from ssm_jax.kernels.recurrence import GROWTH, chosen_method, grows, linear_recurrence
from ssm_jax.kernels.shift import shift_left
from ssm_jax.recurrences.families.modes import (
    Modes,
    convolution_kernel,
    to_real_readout,
)
from ssm_jax.recurrences.families.padding import state_after
from ssm_jax.types import Activations, Array, Int, Method, PyTree, Steps

# Bound on the states that exist at once where all states of a sequence are formed:
# 2**24 complex64 are 128 MiB. One mode of every channel and step is the least.
STATES_AT_ONCE = 2**24

# From this length on a convolution beats forming the states, on every platform; with
# up to so many modes a channel, on CPUs, blocks beat the FFT.
_LONG = 16
_FEW = 8


def evaluate(
    modes: Modes,
    x: Activations,
    state: PyTree,
    reset: Steps | None,
    lengths: Int[Array, "*b"] | None,
    method: Method,
    *,
    bounded: bool = False,
) -> tuple[Activations, PyTree]:
    """Evaluates a recurrence.

    Args:
      modes: The recurrence.
      x: Input, ``(*b, l, d)``, float32; data first, zeros behind them.
      state: State before the first step, ``(*b, d, n)``, or ``(*b, n)`` where channels
        share it. None means zeros.
      reset: True where a segment starts, ``(*b, l)``, or None.
      lengths: Steps of each row that are data, ``(*b,)``. None means all.
      method: As `TimeInvariant.apply` takes it.
      bounded: Whether no decay can exceed 1.

    Returns:
      ``(y, state)``, as `TimeInvariant.apply` gives them.
    """
    shared = modes.B is not None
    if method == "auto" and not shared:
        method = _chosen(modes, x, reset)
    if reset is None and not shared and _convolved(modes, x, method):
        if method == "fft" and not bounded:
            return _by_fft_if_bounded(modes, x, state, lengths)
        return _by_convolution(modes, x, state, lengths, method)
    through = _by_shared_states if shared else _by_states
    y, state = through(modes, x, state, reset, lengths, method)
    return y + modes.feedthrough * x, state


def _chosen(modes, x, reset):
    """What ``method="auto"`` evaluates by."""
    if x.shape[-2] < _LONG or reset is not None:
        return chosen_method(modes.log_decay)
    few = modes.w.shape[-1] <= _FEW and modes.readout == "real"
    return "chunked" if few and jax.default_backend() == "cpu" else "fft"


def _convolved(modes, x, method):
    """Whether it is a convolution: by blocks where their states are few enough."""
    states = math.prod(x.shape) // block_length(x.shape[-2]) * modes.state_shape[-1]
    fit = states <= max(STATES_AT_ONCE, math.prod(x.shape))
    return method == "fft" or (method == "chunked" and fit)


def _by_convolution(modes, x, state, lengths, method):
    length = x.shape[-2]
    if method == "chunked":
        y = _by_blocks(to_real_readout(modes), x)
    elif modes.w_backward is None:
        y = causal_convolution(x, convolution_kernel(modes, length))
    else:
        kernels = (convolution_kernel(m, length) for m in (modes, modes.backward()))
        y = bidirectional_convolution(x, *kernels)
    if method != "chunked":  # whose blocks have it among their weights
        y += modes.feedthrough * x
    if modes.w_backward is not None:
        return y, None
    modes = to_real_readout(modes)
    entered = x
    if lengths is not None:
        # What is counted back from the end of the row starts at its last data.
        shift = jnp.arange(length) - (length - lengths)[..., None]
        entered = jnp.take_along_axis(x, jnp.maximum(shift, 0)[..., None], -2)
        entered = jnp.where(shift[..., None] >= 0, entered, 0)
    last = final_state(modes.log_decay, entered)
    if state is not None:
        one = decay_powers(modes.log_decay, jnp.ones((), jnp.int32))
        y = y + _response(modes, one * state, length)
        steps = jnp.asarray(length if lengths is None else lengths)
        passed = decay_powers(modes.log_decay, steps)
        passed = passed[..., None, :] if passed.ndim == steps.ndim + 1 else passed
        last = last + passed * state
    return y, last


def _by_fft_if_bounded(modes, x, state, lengths):
    """By FFT, unless a decay above 1 makes its errors grow: then step by step."""
    length = x.shape[-2]
    behind = modes.log_decay_backward or modes.log_decay
    too_fast = grows(modes.log_decay, length) | grows(behind, length)

    # Of the branch that is rarely taken nothing is kept for the gradient.
    @jax.checkpoint
    def by_states():
        y, last = _by_states(modes, x, state, None, lengths, "sequential")
        return y + modes.feedthrough * x, last

    def by_fft():
        # Under vmap both branches are evaluated: an overflow here, though not selected,
        # would make the gradient NaN.
        def tamed(log_decay):
            log_abs = jnp.minimum(log_decay.log_abs, GROWTH / length)
            return log_decay._replace(log_abs=log_abs)

        tame = modes._replace(
            log_decay=tamed(modes.log_decay), log_decay_backward=tamed(behind)
        )
        return _by_convolution(tame, x, state, lengths, "fft")

    return jax.lax.cond(too_fast, by_states, by_fft)


def _by_blocks(modes, x):
    def of_channels(log_decay):
        return jax.tree.map(lambda v: jnp.broadcast_to(v, modes.w.shape), log_decay)

    ahead = of_channels(modes.log_decay), modes.w
    if modes.w_backward is None:
        return block_convolution(x, *ahead, feedthrough=modes.feedthrough)
    behind = modes.backward()
    return block_convolution(
        x, *ahead, of_channels(behind.log_decay), behind.w, modes.feedthrough
    )


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
    modes = to_real_readout(modes)
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
    def one_channel(modes, x, state):
        entering = jnp.broadcast_to(x[..., None], (*x.shape, modes.w.shape[-1]))
        return _through_states(modes, entering, state, reset, lengths, method)

    own = 0 if modes.log_decay.log_abs.ndim == 2 else None
    axes = modes._replace(log_decay=own, w=0, w_backward=0, log_decay_backward=own)
    over_channels = jax.vmap(one_channel, in_axes=(axes, -1, -2), out_axes=(-1, -2))
    return over_channels(modes, x, state)


def _by_shared_states(modes, x, state, reset, lengths, method):
    """No more states than modes for all channels: all of them exist at once."""
    parts = (jnp.real(modes.B), jnp.imag(modes.B))
    entering = jax.lax.complex(*(_product(x, part) for part in parts))
    return _through_states(modes, entering, state, reset, lengths, method)


def _through_states(modes, entering, state, reset, lengths, method):
    """What enters ``(*b, l, n)`` leaves as ``(*b, l, *o)`` by ``w``, ``(*o, n)``."""
    h, last = linear_recurrence(
        modes.log_decay, entering, state, reset=reset, method=method
    )
    y = _leaving(h, modes.w)
    if modes.w_backward is None:
        return y, last if lengths is None else state_after(h, state, lengths)
    behind = modes.log_decay_backward or modes.log_decay
    h, _ = linear_recurrence(behind, entering, reset=reset, reverse=True, method=method)
    if modes.B is None:
        h = shift_left(h, reset)
    return y + _leaving(h, modes.w_backward), None


def _leaving(h, w):
    """``Re sum_n w_n h_n``, ``(*b, l, *o)``, by real products only."""
    y = _product(jnp.real(h), jnp.real(w))
    return y - _product(jnp.imag(h), jnp.imag(w)) if jnp.iscomplexobj(w) else y


def _product(values, weights):
    return jnp.tensordot(values, weights, (-1, -1), precision="highest")
