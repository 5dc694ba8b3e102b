"""Convolutions with a kernel of finite length, whose state is the last inputs."""

import abc
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels import plan
from ssm_jax.kernels.axes import pad_axis, steps_from
from ssm_jax.kernels.fft import bidirectional_convolution, causal_convolution
from ssm_jax.kernels.nonfinite import nan_where
from ssm_jax.kernels.precision import in_float32
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.sharding import reshard_like
from ssm_jax.recurrences.families.base import Params, Recurrence, check
from ssm_jax.recurrences.families.nonfinite import finite_taps
from ssm_jax.recurrences.families.padding import apply_to_valid_steps
from ssm_jax.types import Activations, Array, Float, Method, Outputs, PyTree, Steps


class Kernels(NamedTuple):
    """Convolution kernel of each channel.

    Attributes:
      forward: Taps of the present and past steps, lag 0 first, ``(d, k)``.
      feedthrough: ``D``, factor of the input in the output, ``(d,)``.
      backward: Taps of the future steps, lag -1 first, ``(d, k)``. None: forward
        direction only.
    """

    forward: Float[Array, "d k"]
    feedthrough: Float[Array, " d"]
    backward: Float[Array, "d k"] | None = None


class FiniteKernel(Recurrence, abc.ABC):
    """A convolution with a kernel of ``kernel_length`` taps.

    Attributes:
      bidirectional: Whether there is a kernel over future steps: then no state.
    """

    bidirectional: bool = False

    @property
    @abc.abstractmethod
    def kernel_length(self) -> int:
        """Number of taps ``k`` per direction."""

    @abc.abstractmethod
    def kernels(self, params: Params, length: int) -> Kernels:
        """Returns the ``min(length, kernel_length)`` first taps."""

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """Returns zeros, ``(*b, k - 1, d)``; None if bidirectional."""
        if self.bidirectional:
            return None
        return last_inputs(batch_shape, self.kernel_length, d_in)

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

        The state is the last ``k - 1`` inputs; `convolve` describes the methods.
        """
        params = in_float32(params)
        return convolve(
            lambda length: self.kernels(params, length),
            x,
            state,
            reset,
            mask,
            kernel_length=self.kernel_length,
            method=method,
        )


def last_inputs(
    batch_shape: tuple[int, ...], kernel_length: int, d: int
) -> Float[jax.Array, "*b k d"]:
    """Returns the state before the first step: zeros, ``(*b, k - 1, d)``."""
    return jnp.zeros((*batch_shape, kernel_length - 1, d))


def convolve(
    kernels: Callable[[int], Kernels],
    x: Activations,
    state: PyTree,
    reset: Steps | None,
    mask: Steps | None,
    *,
    kernel_length: int,
    method: Method,
) -> tuple[Outputs, PyTree]:
    """Convolves sequences with finite kernels, as `Recurrence.apply`.

    ``"fft"`` takes no resets. ``"sequential"`` sums the products of all steps and taps,
    in a loop over steps or taps, of which there are fewer: ``l k`` products per channel
    in memory of ``l + k``. Resets are exact: a tap that reaches across one is left out.
    ``"auto"`` is ``"sequential"`` for short sequences and with resets, else ``"fft"``.

    Args:
      kernels: ``length -> Kernels``, the ``min(length, kernel_length)`` first taps.
      x: Input, ``(*b, l, d)``.
      state: Last ``kernel_length - 1`` inputs before ``x``, the latest last, ``(*b, k -
        1, d)``. None means zeros.
      reset: Resets of `Recurrence.apply`.
      mask: Mask of `Recurrence.apply`.
      kernel_length: Number of taps ``k`` of the whole kernel.
      method: ``"sequential"``, ``"fft"`` or ``"auto"``.

    Returns:
      ``(y, state)``; the state is None if there is a backward kernel.

    Raises:
      ValueError: As `Recurrence.apply`; also if ``method`` is another one, or is
        ``"fft"`` with resets.
    """
    shapes = jax.eval_shape(lambda: kernels(1))
    d = shapes.forward.shape[0]
    bidirectional = shapes.backward is not None
    state_shape = None if bidirectional else (kernel_length - 1, d)
    check(x, state, reset, mask, d=d, state_shape=state_shape, method=method)
    _check_method(method, reset)
    if method == "auto":
        has_reset = reset is not None
        method = plan.finite_convolution_method(x.shape[-2], has_reset=has_reset)

    def run(x, state, reset, lengths):
        x = x.astype(shapes.feedthrough.dtype)
        past = x
        # Without a state, only the taps and inputs of these steps are needed.
        if state is not None:
            state = reshard_like(state.astype(x.dtype), x)
            past = jnp.concatenate([state, x], -2)
        taps = kernels(min(past.shape[-2], kernel_length))
        segment = None if reset is None else _segments(reset, past.shape[-2])
        ahead = kernel_length if bidirectional else 0
        # The state holds the inputs as they are.
        inputs, reached = finite_taps(past, reset, kernel_length, ahead=ahead)
        x = inputs[..., -x.shape[-2] :, :]
        if taps.backward is not None and method == "fft":
            y = bidirectional_convolution(x, taps.forward, taps.backward)
        elif method == "fft":
            y = causal_convolution(inputs, taps.forward)[..., -x.shape[-2] :, :]
        else:
            y = _sum_taps(inputs, taps.forward, segment, x.shape[-2])
        if taps.backward is not None and method != "fft":
            # In reverse order a future step is a past one; lag 0 is not part of it.
            backward = pad_axis(taps.backward, -1, before=1)
            order = None if segment is None else jnp.flip(segment, -1)
            y += jnp.flip(_sum_taps(jnp.flip(x, -2), backward, order, x.shape[-2]), -2)
        y += promoted_like(taps.feedthrough, x) * x
        if reached is not None:
            y = nan_where(reached, y)
        if bidirectional:
            return y, None
        return y, _state_after(past, segment, x.shape[-2], lengths, kernel_length - 1)

    return apply_to_valid_steps(run, x, state, reset, mask, isolated=False)


def _check_method(method, reset):
    if method in ("associative", "chunked", "pallas"):
        raise ValueError(
            "`method` must be 'sequential' or 'fft' for a finite kernel, got "
            f"{method!r}; 'auto' chooses one of them."
        )
    if method == "fft" and reset is not None:
        raise ValueError(
            "`method` must be 'sequential' if `reset` is given, got 'fft'; a "
            "convolution by FFT does not see where segments start."
        )


def _segments(reset, length):
    """Returns the segment number of each input, 0 for those of the state."""
    segment = jnp.cumsum(reset, -1)
    return pad_axis(segment, -1, before=length - reset.shape[-1])


def _sum_taps(past, kernel, segment, length):
    """Sums taps over the last ``length`` steps of ``past``, within their segments."""
    taps = kernel.shape[-1]
    # Zeros in front, so that each tap of the first of these steps meets an input.
    front = max(0, length + taps - 1 - past.shape[-2])
    past = pad_axis(past, -2, before=front)
    past = past[..., past.shape[-2] - (length + taps - 1) :, :]
    if segment is not None:
        segment = pad_axis(segment, -1, before=front)
        segment = segment[..., segment.shape[-1] - (length + taps - 1) :]

    def window(start, size, step_segment):
        """Inputs from ``start`` on, zeros outside of ``step_segment``."""
        inputs = jax.lax.dynamic_slice_in_dim(past, start, size, -2)
        if segment is None:
            return inputs
        input_segment = jax.lax.dynamic_slice_in_dim(segment, start, size, -1)
        # Select, not multiply: a value that is not finite must not cross a reset.
        return jnp.where((input_segment == step_segment)[..., None], inputs, 0)

    # The loop over the shorter axis reads windows of at least half of `past`. The
    # backward pass forms a window again instead of storing all of them.
    if length < taps:

        @jax.checkpoint
        def one_step(t):
            # The last input of the window of `taps` is that of the step.
            step_segment = None
            if segment is not None:
                step_segment = jax.lax.dynamic_slice_in_dim(
                    segment, t + taps - 1, 1, -1
                )
            inputs = window(t, taps, step_segment)
            return jnp.einsum(
                "...kd,dk->...d", inputs, jnp.flip(kernel, -1), precision="highest"
            )

        return jnp.moveaxis(jax.lax.map(one_step, jnp.arange(length)), 0, -2)

    step_segment = None if segment is None else segment[..., taps - 1 :]

    @jax.checkpoint
    def one_tap(y, inputs):
        lag, tap = inputs
        values = window(taps - 1 - lag, length, step_segment)
        return y + promoted_like(tap, values) * values, None

    start = jnp.zeros_like(past[..., :length, :])
    y, _ = jax.lax.scan(one_tap, start, (jnp.arange(taps), kernel.T))
    return y


def _state_after(past, segment, length, lengths, size):
    """Returns the last ``size`` inputs before step ``lengths`` of the last ``length``.

    Those before the last reset are zeros: no later tap may reach them.
    """
    # Index of the oldest input kept, after `size` zeros in front.
    end = past.shape[-2] - length + (length if lengths is None else lengths)
    index = jnp.broadcast_to(
        steps_from(jnp.asarray(end), size), (*past.shape[:-2], size)
    )
    past = pad_axis(past, -2, before=size)
    last_inputs = jnp.take_along_axis(past, index[..., None], axis=-2)
    if segment is None:
        return last_inputs
    last = jnp.broadcast_to(
        jnp.asarray(end)[..., None] + size - 1, (*index.shape[:-1], 1)
    )
    segment = pad_axis(segment, -1, before=size)
    same_segment = jnp.take_along_axis(segment, index, -1) == jnp.take_along_axis(
        segment, last, -1
    )
    return jnp.where(same_segment[..., None], last_inputs, 0)
