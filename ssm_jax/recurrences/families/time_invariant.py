"""Time-invariant recurrences: the base class and the evaluation of their modes."""

import abc
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.kernels import plan
from ssm_jax.kernels.axes import split_axis
from ssm_jax.kernels.fft import (
    bidirectional_convolution,
    causal_convolution,
    final_state,
)
from ssm_jax.kernels.powers import check_log_decay, decay_powers
from ssm_jax.kernels.precision import in_float32, project_in, read_out
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.kernels.recurrence import linear_recurrence
from ssm_jax.kernels.rematerialization import map_blocks
from ssm_jax.kernels.sharding import reshard, state_of_rows
from ssm_jax.kernels.shift import shift_left
from ssm_jax.kernels.toeplitz import block_convolution, direct_convolution
from ssm_jax.recurrences.families.base import Params, Recurrence, check
from ssm_jax.recurrences.families.finite_kernel import Kernels, convolve, last_inputs
from ssm_jax.recurrences.families.modes import (
    MIMOModes,
    SISOModes,
    convolution_kernel,
    direction_weights,
    to_real_readout,
    zero_input_response,
    zero_state,
)
from ssm_jax.recurrences.families.padding import apply_to_valid_steps, state_after
from ssm_jax.types import (
    Activations,
    Inexact,
    Int,
    Method,
    Outputs,
    PRNGKey,
    PyTree,
    Steps,
)


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
        ``max(STATES_AT_ONCE, b l d)`` states exist at once. ``"auto"`` chooses by
        `ssm_jax.kernels.plan`: the method of the states for a single step and with
        resets; otherwise ``"chunked"`` up to 32 steps, and on CPUs for few modes
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
            return _convolve_first_taps(modes, x, state, reset, mask, longest, method)
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
        length, n_states = x.shape[-2], math.prod((*x.shape[:-2], *modes.state_shape))
        size = length
        if not modes.bidirectional:
            bytes_per_step = modes.state_dtype.itemsize * n_states
            size = plan.state_block(length, bytes_per_step, method=method)
        through = functools.partial(_through_states, modes, method=method)
        if size < length:
            state = zero_state(modes, x) if state is None else state
            options = {"size": size, "params": modes}
            y, state = map_blocks(through, x, state, reset, lengths, **options)
        else:
            y, state = through(x, state, reset, lengths)
        return y + promoted_like(modes.feedthrough, x) * x, state
    n_modes = modes.state_shape[-1]
    if method == "auto":
        method = plan.modal_method(
            x.shape,
            n_modes=n_modes,
            n_directions=1 + modes.bidirectional,
            bytes_per_state=modes.state_dtype.itemsize,
            has_reset=reset is not None,
        )
    if reset is None and plan.is_convolved(method, x.shape, n_modes):
        if method == "fft" and not bounded:
            return _convolve_if_bounded(modes, x, state, lengths)
        return _convolve(modes, x, state, lengths, method)
    y, state = _evaluate_states(modes, x, state, reset, lengths, method)
    return y + promoted_like(modes.feedthrough, x) * x, state


def _convolve_if_bounded(modes, x, state, lengths):
    """Evaluates by FFT, or sequentially if a decay above 1 amplifies its errors."""
    length = x.shape[-2]
    backward = modes.log_decay_backward or modes.log_decay

    # Rematerialization avoids residuals for a branch that is rarely taken.
    @jax.checkpoint
    def by_states():
        y, last = _evaluate_states(modes, x, state, None, lengths, "sequential")
        return y + promoted_like(modes.feedthrough, x) * x, last

    def by_fft():
        # Under vmap both branches are evaluated: an overflow here, though not selected,
        # would make the gradient NaN.
        bounded = modes._replace(
            log_decay=plan.limit_growth(modes.log_decay, length),
            log_decay_backward=plan.limit_growth(backward, length),
        )
        return _convolve(bounded, x, state, lengths, "fft")

    return plan.fft_unless_growing(
        [modes.log_decay, backward], length, by_fft, by_states
    )


def _evaluate_states(modes, x, state, reset, lengths, method):
    modes = to_real_readout(modes)
    n = modes.w.shape[-1]
    n_slice = plan.modes_at_once(x.shape, n)
    n_slices = -(-n // n_slice)
    # `vmap` over channels and the reshape into slices take arrays only.
    modes = modes._replace(feedthrough=None, readout=None)
    # `vmap` takes leaves whose channels are sharded alike, and others not sharded.
    modes = jax.tree.map(
        lambda v: reshard(v, x, [x.ndim - 1, None] if v.ndim == 2 else [None]), modes
    )
    decay_axis = 0 if modes.log_decay.log_abs.ndim == 2 else None
    axes = modes._replace(
        log_decay=decay_axis, w=0, w_backward=0, log_decay_backward=decay_axis
    )
    options = {"reset": reset, "lengths": lengths, "method": method}
    evaluate = functools.partial(_through_states, **options)
    evaluate_channels = jax.vmap(evaluate, in_axes=(axes, -1, -2), out_axes=(-1, -2))
    if n_slices == 1:
        return evaluate_channels(modes, x, state)

    def split_modes(values):
        """Reshapes ``(..., n)`` to ``(slices, ..., n / slices)``, padded with zeros."""
        return jnp.moveaxis(split_axis(values, -1, n_slice), -2, 0)

    # The backward pass recomputes the states of a slice; only its modes are stored.
    @jax.checkpoint
    def one_slice(y, inputs):
        modes, state = inputs
        y_slice, last = evaluate_channels(modes, x, state)
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


def _convolve_first_taps(
    modes: SISOModes,
    x: Activations,
    state: PyTree,
    reset: Steps | None,
    mask: Steps | None,
    kernel_length: int,
    method: Method,
) -> tuple[Outputs, PyTree]:
    """Convolves sequences with the first taps of the kernel of modes; `convolve`."""

    def kernels(length):
        length = min(length, kernel_length)
        backward = None
        if modes.bidirectional:
            backward = convolution_kernel(modes.backward(), length)
        return Kernels(convolution_kernel(modes, length), modes.feedthrough, backward)

    return convolve(
        kernels, x, state, reset, mask, kernel_length=kernel_length, method=method
    )


def _convolve(
    modes: SISOModes,
    x: Activations,
    state: Inexact[jax.Array, "*b d n"] | None,
    lengths: Int[jax.Array, "*b"] | None,
    method: Method,
) -> tuple[Outputs, Inexact[jax.Array, "*b d n"] | None]:
    """Convolves with the kernels of the modes, and forms the last state.

    Args:
      modes: The modes.
      x: Input, ``(*b, l, d)``.
      state: State before the first step, or None.
      lengths: Number of valid steps of each row, ``(*b,)``. None means all.
      method: ``"fft"``; or ``"chunked"`` for `direct_convolution` of short sequences,
        `block_convolution` of others.

    Returns:
      ``(y, state)``; no state if the modes are bidirectional.
    """
    size = x.shape[-2]
    if method == "fft" and not modes.bidirectional:
        size = plan.fft_block(size, modes.state_shape[-1])
    convolve = _convolution(modes, size, method)

    def one_block(x, state, reset, lengths):
        del reset  # A convolution has none.
        return _with_state(modes, convolve(x), x, state, lengths, method)

    if size == x.shape[-2]:
        return _with_state(modes, convolve(x), x, state, lengths, method)
    state = zero_state(modes, x) if state is None else state
    return map_blocks(one_block, x, state, None, lengths, size=size, params=modes)


def _convolution(modes, length, method):
    """Returns the convolution of ``length`` steps, with the kernels computed once."""
    if method == "chunked" and length > plan.DIRECT_STEPS:
        names = "log_decay", "w", "log_decay_backward", "w_backward"
        weights: dict[str, Any] = dict(
            zip(names, direction_weights(modes), strict=False)
        )
        # Adding the feedthrough to the weights within a block saves a pass over `x`.
        weights["feedthrough"] = modes.feedthrough
        return functools.partial(block_convolution, **weights)
    kernel, backward = convolution_kernel(modes, length), None
    if modes.bidirectional:
        backward = convolution_kernel(modes.backward(), length)
    if method == "chunked":
        kernel = jnp.asarray(kernel).at[:, 0].add(modes.feedthrough)
        return functools.partial(direct_convolution, forward=kernel, backward=backward)
    if backward is None:
        return functools.partial(causal_convolution, kernel=kernel)
    both = {"forward": kernel, "backward": backward}
    return functools.partial(bidirectional_convolution, **both)


def _with_state(modes, y, x, state, lengths, method):
    """Returns ``y`` with what does not come from the kernels, and the last state."""
    if method == "fft":
        y = y + promoted_like(modes.feedthrough, x) * x
    if modes.bidirectional:
        return y, None
    length = x.shape[-2]
    modes = to_real_readout(modes)
    aligned = x
    if lengths is not None:
        # `final_state` counts steps from the end of the row: right-align valid steps.
        before = (length - lengths)[..., None]
        shift = promoted_like(jnp.arange(length), before) - before
        aligned = jnp.take_along_axis(x, jnp.maximum(shift, 0)[..., None], -2)
        aligned = jnp.where(shift[..., None] >= 0, aligned, 0)
    last = final_state(modes.log_decay, aligned)
    if state is None:
        return y, last
    # A real state of complex modes is accepted.
    state = jnp.asarray(state, common_dtype(state, modes.state_dtype))
    first_power = decay_powers(modes.log_decay, jnp.ones((), jnp.int32))
    first = promoted_like(first_power, state) * state
    y = y + zero_input_response(modes, first, length)
    steps = jnp.asarray(length if lengths is None else lengths)
    # The power is formed from the logarithm: a product of `l` factors loses digits.
    n_step = decay_powers(modes.log_decay, steps)
    n_step = n_step[..., None, :] if n_step.ndim == steps.ndim + 1 else n_step
    return y, last + promoted_like(n_step, state) * state
