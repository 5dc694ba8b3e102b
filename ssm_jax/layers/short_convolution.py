"""A causal depthwise convolution with few taps; its state is a window of inputs."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import PositiveInt
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.kernels.axes import pad_axis, steps_from
from ssm_jax.kernels.nonfinite import nan_where
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.sharding import reshard_like
from ssm_jax.layers.module import Module
from ssm_jax.layers.recurrent import LabelledParam
from ssm_jax.recurrences.families.base import ParamGroup, check
from ssm_jax.recurrences.families.nonfinite import finite_taps
from ssm_jax.recurrences.families.padding import apply_to_valid_steps
from ssm_jax.sharding.axis import length_axis
from ssm_jax.sharding.boundaries import boundary_state, broadcast_last
from ssm_jax.types import Activations, Array, Float, Outputs, Steps


class ShortConvolution(Module):
    """Causal depthwise convolution, ``y_t = b + sum_{j<k} w_j x_{t-j}`` per channel.

    Attributes:
      d_conv: Number of taps ``k``, including the current step.
      use_bias: Whether to add ``b``.

    Parameters, float32, uniform in ``+-1 / sqrt(k)``, the default of PyTorch:
      kernel: ``(k, d)``, ``w_{k-1}`` to ``w_0``; the last row weighs the current step.
        It is boxed as `LabelledParam`: for optimizers it is no matrix.
      bias: ``(d,)``, ``b``.

    Example:
      >>> layer = ShortConvolution(d_conv=3)
      >>> x = jnp.ones((2, 8, 4))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, window = jax.jit(layer.apply)(variables, x)
      >>> y.shape, window.shape
      ((2, 8, 4), (2, 2, 4))
    """

    d_conv: PositiveInt = 4
    use_bias: bool = True

    def initial_state(
        self, batch_shape: tuple[int, ...], d_model: int
    ) -> Float[jax.Array, "*b k d"]:
        """Returns a window of zeros, ``(*batch_shape, d_conv - 1, d)``."""
        return jnp.zeros((*batch_shape, self.d_conv - 1, d_model))

    @nn.compact
    def __call__(
        self,
        x: Activations,
        state: Float[Array, "*b k d"] | None = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        train: bool = False,
    ) -> tuple[Outputs, Float[jax.Array, "*b k d"]]:
        """Maps a sequence to a sequence.

        Args:
          x: Input, ``(*b, l, d)``.
          state: Initial window: the last ``d_conv - 1`` inputs before the first step,
            ``(*b, d_conv - 1, d)``, oldest first. None means zeros.
          reset: True where a segment starts, ``(*b, l)``; inputs of earlier segments
            count as zeros. None means a single segment.
          mask: True at valid steps, ``(*b, l)``; padding is skipped and its outputs are
            zero. None means that all steps are valid.
          train: Unused; the layer is the same in training.

        Returns:
          ``(y, state)``: output, ``(*b, l, d)``, and the final window, float32, with
          zeros for inputs of earlier segments than the last.

        Raises:
          ValueError: A shape or a dtype does not fit.
        """
        del train
        check_floating("x", x)
        k, d = self.d_conv, x.shape[-1]
        check(x, state, reset, mask, d=d, state_shape=(k - 1, d))

        def uniform(key, shape):
            return jax.random.uniform(key, shape, minval=-(k**-0.5), maxval=k**-0.5)

        def labelled(*shape) -> Any:
            return LabelledParam(uniform(*shape), ParamGroup(kind="convolution"))

        kernel = self.param("kernel", labelled, (k, d))
        bias = self.param("bias", uniform, (d,)) if self.use_bias else None

        def convolve(x, window, reset, lengths):
            if window is None:
                window = self.initial_state(x.shape[:-2], d)
            window = reshard_like(window, x)
            # Products and sums in the dtype of the kernel, not in that of the input.
            x = x.astype(kernel.dtype)
            y, window = _convolve(x, window, kernel, reset, lengths)
            return y if bias is None else y + promoted_like(bias, y), window

        def run(window):
            return apply_to_valid_steps(
                convolve, x, window, reset, mask, isolated=False
            )

        axis = length_axis()
        if axis is None or k == 1 or self.is_initializing():
            return run(state)
        if state is None:
            state = self.initial_state(x.shape[:-2], d)
        # A piece without padding that is as long as the window fills it.
        full = mask is None and x.shape[-2] >= k - 1
        before = boundary_state(
            lambda window: run(window)[1],
            state,
            axis,
            diagonal=False,
            reach=1 if full else None,
        )
        y, last = run(before)
        return y, broadcast_last(last, axis)


def _convolve(x, window, kernel, reset, lengths):
    """Convolves valid steps; returns the output and the final window of each row."""
    length, past = x.shape[-2], len(kernel) - 1
    # Prepending the window makes the first outputs the same as in one long call.
    inputs = jnp.concatenate([window.astype(x.dtype), x], -2)
    segment = None
    if reset is not None:
        segment = jnp.cumsum(reset, -1)
        # The window belongs to segment 0, which ends at the first reset.
        segment = pad_axis(segment, -1, before=past)

    # A sum of shifted sequences, because XLA's grouped convolution is slow on CPUs.
    y = jnp.zeros_like(x)
    finite, reached = finite_taps(inputs, reset, len(kernel))
    for tap, weight in enumerate(kernel):
        values = finite[..., tap : tap + length, :]
        if segment is not None:
            same_segment = segment[..., tap : tap + length] == segment[..., past:]
            values = jnp.where(same_segment[..., None], values, 0)
        y += promoted_like(weight, values) * values
    if reached is not None:
        y = nan_where(reached, y)

    if lengths is None:
        lengths = jnp.full(x.shape[:-2], length)
    # The valid steps are left-aligned, so the final window starts at `lengths` (the
    # window itself shifts the inputs by `past`).
    index = steps_from(lengths, past)
    window = jnp.take_along_axis(inputs, index[..., None], -2)
    if segment is not None:
        # The next call has no access to these resets, so other segments are zeroed.
        last = jnp.take_along_axis(segment, lengths[..., None] + past - 1, -1)
        same_segment = jnp.take_along_axis(segment, index, -1) == last
        window = jnp.where(same_segment[..., None], window, 0)
    return y, window
