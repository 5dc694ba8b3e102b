"""Time-invariant recurrences: the base class and the evaluation of their modes."""

import abc
import functools
import math

import jax
import jax.numpy as jnp

from ssm_jax.kernels import plan
from ssm_jax.kernels.axes import split_axis
from ssm_jax.kernels.blocked import block_length
from ssm_jax.kernels.blocks import block_size, in_blocks
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.kernels.powers import check_log_decay
from ssm_jax.kernels.precision import in_float32, project_in, read_out
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.recurrence import chosen_method, linear_recurrence
from ssm_jax.kernels.sharding import reshard, state_of_rows
from ssm_jax.kernels.shift import shift_left
from ssm_jax.kernels.solvers import GROWTH, grows
from ssm_jax.recurrences.families.base import (
    ParamGroup,
    Params,
    Recurrence,
    apply_to_valid_steps,
    check,
    state_after,
)
from ssm_jax.recurrences.families.modal_convolution import (
    by_convolution,
    convolve_modes,
    last_inputs,
)
from ssm_jax.recurrences.families.modes import (
    MIMOModes,
    SISOModes,
    resample,
    to_real_readout,
    zero_state,
)
from ssm_jax.types import Activations, Method, Outputs, PRNGKey, PyTree, Steps

# Names that a module of a time-invariant recurrence imports.
__all__ = [
    "MIMOModes",
    "ParamGroup",
    "Params",
    "SISOModes",
    "TimeInvariant",
    "resample",
]

# Bound on the number of states in memory where all states of a sequence are computed:
# 2**24 complex64 are 128 MiB. At least one mode of every channel and step is computed.
STATES_AT_ONCE = 2**24


class TimeInvariant(Recurrence, abc.ABC):
    """A recurrence defined by its modes, from which every evaluation is derived.

    Attributes:
      bounded_decay: Whether the modulus of every decay is at most 1 for all parameters.
        If not, ``"fft"`` tests the decays at run time and falls back to sequential
        evaluation if they are too large for an FFT.
      max_kernel_length: Number of taps of the kernel of each direction. None: no limit.
    """

    bounded_decay: bool = False
    max_kernel_length: int | None = None

    @abc.abstractmethod
    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters for inputs of width ``d_in``."""

    @abc.abstractmethod
    def modes(self, params: Params) -> SISOModes | MIMOModes:
        """Returns the modes for the given parameters."""

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """Returns zeros, batch axes first; None if bidirectional."""

        def state():
            modes = self.modes(self.init(jax.random.key(0), d_in))
            if modes.bidirectional:
                return None
            if (longest := self.max_kernel_length) is not None:
                return last_inputs(batch_shape, longest, d_in)
            return jnp.zeros((*batch_shape, *modes.state_shape), modes.state_dtype)

        # Shapes and dtypes only: no parameters are drawn.
        zeros = jax.eval_shape(state)
        return zeros and jnp.zeros(zeros.shape, zeros.dtype)

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

        The state is ``(*b, d, n)``, or ``(*b, n)`` for `MIMOModes`. The method
        ``"fft"`` convolves with the kernel of the modes; its rounding errors at each
        step are relative to the largest input of the sequence, as of
        `causal_convolution`. ``"chunked"`` computes the same convolution without
        resets: up to 32 steps by one matrix product; longer sequences by blocks, if the
        states of all blocks fit in memory, without a forward-mode derivative, which all
        other methods have. The other methods compute all states by
        `linear_recurrence`, in slices of the modes, so that at most
        ``max(STATES_AT_ONCE, b l d)`` states exist at once. ``"auto"`` computes the
        states of a single step and with resets; otherwise it chooses by
        `ssm_jax.kernels.plan`: ``"chunked"`` up to 32 steps, and on CPUs for few modes
        of long sequences; ``"associative"`` on accelerators for one or two modes per
        channel; else ``"fft"``. By all methods but ``"fft"`` outputs do not depend on
        later inputs; by ``"fft"`` neither, if these are not finite. The states of
        `MIMOModes` are always computed. On CPUs
        long sequences are evaluated in blocks, with states between them: ``"fft"`` with
        up to 64 modes per channel, and ``"sequential"`` of `MIMOModes`. With
        ``max_kernel_length`` the methods are those of `convolve`.
        """
        modes = self.modes(in_float32(params))
        check_log_decay(modes.log_decay)
        if isinstance(modes, SISOModes) and modes.log_decay_backward is not None:
            check_log_decay(modes.log_decay_backward, "log_decay_backward")
        if (longest := self.max_kernel_length) is not None:
            assert isinstance(modes, SISOModes)
            return convolve_modes(modes, x, state, reset, mask, longest, method)
        check(
            x,
            state,
            reset,
            mask,
            d=len(modes.feedthrough),
            state_shape=None if modes.bidirectional else modes.state_shape,
            complex_state=modes.log_decay.phase is not None,
            method=method,
        )
        bounded = self.bounded_decay
        run = functools.partial(_evaluate, modes=modes, method=method, bounded=bounded)
        per_channel = isinstance(modes, SISOModes)
        return apply_to_valid_steps(run, x, state, reset, mask, per_channel=per_channel)


def _evaluate(x, state, reset, lengths, *, modes, method, bounded):
    """Evaluates left-aligned rows with ``lengths`` valid steps; None means all."""
    # Sums are formed in the dtype of the parameters, also for inputs in bfloat16.
    x = x.astype(modes.feedthrough.dtype)
    if state is not None:
        state = state_of_rows(state, x, per_channel=isinstance(modes, SISOModes))
    if isinstance(modes, MIMOModes):
        # The channels share the states, so that no slicing is needed to bound memory.
        size, length = _steps_of_block(modes, x, method), x.shape[-2]
        through = functools.partial(_through_states, modes, method=method)
        if size < length:
            state = zero_state(modes, x) if state is None else state
            options = {"size": size, "params": modes}
            y, state = in_blocks(through, x, state, reset, lengths, **options)
        else:
            y, state = through(x, state, reset, lengths)
        return y + promoted_like(modes.feedthrough, x) * x, state
    if method == "auto":
        method = _chosen(modes, x, reset)
    if reset is None and _convolved(modes, x, method):
        if method == "fft" and not bounded:
            return _by_fft_if_bounded(modes, x, state, lengths)
        return by_convolution(modes, x, state, lengths, method)
    y, state = _by_states(modes, x, state, reset, lengths, method)
    return y + promoted_like(modes.feedthrough, x) * x, state


def _steps_of_block(modes, x, method):
    """Steps that `MIMOModes` are evaluated at once: on CPUs those of a block."""
    on_cpu = target_platform() == "cpu"
    if modes.bidirectional or method not in ("auto", "sequential") or not on_cpu:
        return x.shape[-2]
    n_states = math.prod((*x.shape[:-2], *modes.state_shape))
    return block_size(x.shape[-2], modes.state_dtype.itemsize * n_states)


def _chosen(modes, x, reset):
    """Returns the method that ``method="auto"`` selects."""
    length, n_modes = x.shape[-2], modes.state_shape[-1]
    if length == 1 or (reset is not None and not plan.is_symbolic(length)):
        # The states of all channels, which a `vmap` evaluates together.
        size = modes.state_dtype.itemsize * n_modes
        n_bytes = min(size * math.prod(x.shape), 8 * STATES_AT_ONCE)
        return chosen_method(modes.log_decay, length=length, n_bytes=n_bytes)
    return plan.convolution_method(
        target_platform(),
        length=length,
        n_modes=n_modes,
        n_directions=1 + modes.bidirectional,
    )


def _convolved(modes, x, method):
    """Whether ``method`` is evaluated as a convolution; blocks must fit in memory."""
    if method != "chunked":
        return method == "fft"
    states = math.prod(x.shape) // block_length(x.shape[-2]) * modes.state_shape[-1]
    fit = states <= max(STATES_AT_ONCE, math.prod(x.shape))
    return x.shape[-2] <= plan.DIRECT_STEPS or fit


def _by_fft_if_bounded(modes, x, state, lengths):
    """Evaluates by FFT, or sequentially if a decay above 1 amplifies its errors."""
    length = x.shape[-2]
    backward = modes.log_decay_backward or modes.log_decay
    too_large = grows(modes.log_decay, length) | grows(backward, length)

    # Rematerialization avoids residuals for a branch that is rarely taken.
    @jax.checkpoint
    def by_states():
        y, last = _by_states(modes, x, state, None, lengths, "sequential")
        return y + promoted_like(modes.feedthrough, x) * x, last

    def by_fft():
        # Under vmap both branches are evaluated: an overflow here, though not selected,
        # would make the gradient NaN.
        def clipped(log_decay):
            log_abs = jnp.minimum(log_decay.log_abs, GROWTH / length)
            return log_decay._replace(log_abs=log_abs)

        bounded = modes._replace(
            log_decay=clipped(modes.log_decay), log_decay_backward=clipped(backward)
        )
        return by_convolution(bounded, x, state, lengths, "fft")

    return jax.lax.cond(too_large, by_states, by_fft)


def _by_states(modes, x, state, reset, lengths, method):
    modes = to_real_readout(modes)
    n = modes.w.shape[-1]
    # Into how many slices the states of a symbolic length go is not known.
    n_slice = n
    if not plan.is_symbolic(x.shape[-2]):
        n_slice = min(n, max(1, STATES_AT_ONCE // math.prod(x.shape)))
    n_slices = -(-n // n_slice)
    # `vmap` over channels and the reshape into slices take arrays only.
    modes = modes._replace(feedthrough=None, readout=None)
    # `vmap` takes leaves whose channels are sharded alike, and others not sharded.
    modes = jax.tree.map(
        lambda v: reshard(v, x, [x.ndim - 1, None] if v.ndim == 2 else [None]), modes
    )
    own = 0 if modes.log_decay.log_abs.ndim == 2 else None
    axes = modes._replace(log_decay=own, w=0, w_backward=0, log_decay_backward=own)
    options = {"reset": reset, "lengths": lengths, "method": method}
    through = functools.partial(_through_states, **options)
    of_channels = jax.vmap(through, in_axes=(axes, -1, -2), out_axes=(-1, -2))
    if n_slices == 1:
        return of_channels(modes, x, state)

    def split_modes(values):
        """Reshapes ``(..., n)`` to ``(slices, ..., n / slices)``, padded with zeros."""
        return jnp.moveaxis(split_axis(values, -1, n_slice), -2, 0)

    # The backward pass recomputes the states of a slice; only its modes are stored.
    @jax.checkpoint
    def one_slice(y, inputs):
        modes, state = inputs
        y_slice, last = of_channels(modes, x, state)
        return y + y_slice, last

    slices = jax.tree.map(split_modes, (modes, state))
    y, last = jax.lax.scan(one_slice, jnp.zeros_like(x), slices)
    if last is None:
        return y, None
    last = jnp.moveaxis(last, 0, -2)
    return y, last.reshape(*last.shape[:-2], -1)[..., :n]


def _through_states(modes, x, state, reset, lengths, method):
    """Evaluates all channels of `MIMOModes`, or one channel of `SISOModes`."""
    if isinstance(modes, MIMOModes):
        Bx = project_in(x, modes.B)
        w, w_backward, backward = modes.C, modes.C_backward, modes.log_decay
    else:
        Bx = jnp.broadcast_to(x[..., None], (*x.shape, modes.w.shape[-1]))
        w, w_backward = modes.w, modes.w_backward
        backward = modes.log_decay_backward or modes.log_decay
    h, last = linear_recurrence(modes.log_decay, Bx, state, reset=reset, method=method)
    y = read_out(h, w)
    if w_backward is None:
        return y, last if lengths is None else state_after(h, state, lengths)
    h, _ = linear_recurrence(backward, Bx, reset=reset, reverse=True, method=method)
    if isinstance(modes, SISOModes):
        # The backward direction of SISO modes excludes the present step.
        h = shift_left(h, reset)
    return y + read_out(h, w_backward), None
