"""Convolutions with the kernels of modes, and the states that go in and out."""

from functools import partial

import jax
import jax.numpy as jnp

from ssm_jax.kernels import plan
from ssm_jax.kernels.blocked import block_convolution, direct_convolution
from ssm_jax.kernels.blocks import in_blocks
from ssm_jax.kernels.fft import (
    bidirectional_convolution,
    causal_convolution,
    final_state,
)
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.kernels.powers import decay_powers
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.recurrences.families.finite_kernel import (
    Kernels,
    convolve,
    last_inputs,
)
from ssm_jax.recurrences.families.modes import (
    SISOModes,
    convolution_kernel,
    direction_weights,
    to_real_readout,
    zero_input_response,
    zero_state,
)
from ssm_jax.types import Activations, Inexact, Int, Method, Outputs, PyTree, Steps

# Names that a time-invariant recurrence imports.
__all__ = ["by_convolution", "convolve_modes", "last_inputs"]

# On CPUs an FFT of more than `_LONGEST_FFT` steps leaves the cache, and convolutions of
# blocks with a state between them are faster, if there are not too many modes.
_LONGEST_FFT = 2**16
_BLOCK = 2**14
_MODES_OF_BLOCKS = 64


def convolve_modes(
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


def by_convolution(
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
    size = _block_size(modes, x.shape[-2], method)
    convolve = _convolution(modes, size, method)

    def one_block(x, state, reset, lengths):
        del reset  # A convolution has none.
        return _with_state(modes, convolve(x), x, state, lengths, method)

    if size == x.shape[-2]:
        return _with_state(modes, convolve(x), x, state, lengths, method)
    state = zero_state(modes, x) if state is None else state
    return in_blocks(one_block, x, state, None, lengths, size=size, params=modes)


def _block_size(modes, length, method):
    few = not modes.bidirectional and modes.state_shape[-1] <= _MODES_OF_BLOCKS
    on_cpu = target_platform() == "cpu"
    blocks = method == "fft" and few and on_cpu and length > _LONGEST_FFT
    return _BLOCK if blocks else length


def _convolution(modes, length, method):
    """Returns the convolution of ``length`` steps, with the kernels computed once."""
    # Partial applications: a function of our own would be one more frame of each scan.
    if method == "chunked" and length > plan.DIRECT_STEPS:
        names = "log_decay", "w", "log_decay_backward", "w_backward"
        weights = dict(zip(names, direction_weights(modes), strict=False))
        # Adding the feedthrough to the weights within a block saves a pass over `x`.
        return partial(block_convolution, feedthrough=modes.feedthrough, **weights)
    kernel, backward = convolution_kernel(modes, length), None
    if modes.bidirectional:
        backward = convolution_kernel(modes.backward(), length)
    if method == "chunked":
        kernel = jnp.asarray(kernel).at[:, 0].add(modes.feedthrough)
        return partial(direct_convolution, forward=kernel, backward=backward)
    if backward is None:
        return partial(causal_convolution, kernel=kernel)
    return partial(bidirectional_convolution, forward=kernel, backward=backward)


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
    one = decay_powers(modes.log_decay, jnp.ones((), jnp.int32))
    first = promoted_like(one, state) * state
    y = y + zero_input_response(modes, first, length)
    steps = jnp.asarray(length if lengths is None else lengths)
    # The power is formed from the logarithm: a product of `l` factors loses digits.
    n_step = decay_powers(modes.log_decay, steps)
    n_step = n_step[..., None, :] if n_step.ndim == steps.ndim + 1 else n_step
    return y, last + promoted_like(n_step, state) * state
