"""A causal convolution of few taps, channel by channel; its window is its state."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import PositiveInt
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.layers.module import Module
from ssm_jax.recurrences.families.base import check
from ssm_jax.recurrences.families.padding import apply_to_valid_steps
from ssm_jax.types import Activations, Array, Float, Outputs, Steps


class ShortConvolution(Module):
    """``y_t = b + sum_j w_j x_{t-j}`` over the last ``d_conv`` steps, in each channel.

    Attributes:
      d_conv: Taps ``k``, the present step's included.

    Parameters, float32, uniform in ``+-1 / sqrt(k)``, PyTorch's default:
      kernel: ``(k, d)``, ``w``; the last row weighs the present step.
      bias: ``(d,)``, ``b``.

    Example:
      >>> layer = ShortConvolution(d_conv=3)
      >>> x = jnp.ones((2, 8, 4))
      >>> variables = layer.init(jax.random.key(0), x)
      >>> y, window = layer.apply(variables, x)
      >>> y.shape, window.shape
      ((2, 8, 4), (2, 2, 4))
    """

    d_conv: PositiveInt = 4

    def initial_state(
        self, batch_shape: tuple[int, ...], d_model: int
    ) -> Float[jax.Array, "*b k d"]:
        """The window of a fresh start: zeros, ``(*batch_shape, d_conv - 1, d)``."""
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
          state: The window: the last ``d_conv - 1`` inputs before the first step,
            ``(*b, d_conv - 1, d)``, oldest first. None means zeros.
          reset: True where a segment starts, ``(*b, l)``; what is before it counts as
            zeros. None means one segment.
          mask: True where a step is data, ``(*b, l)``; the others are as if they were
            not there and give zeros. None means all are.
          train: Not read: it is the same in training.

        Returns:
          ``(y, state)``: output, ``(*b, l, d)``, and the window to go on from, float32;
          zeros in it for what is of other segments than the last.

        Raises:
          ValueError: A shape or a dtype does not fit.
        """
        del train
        check_floating("x", x)
        k, d = self.d_conv, x.shape[-1]
        check(x, state, reset, mask, d=d, state_shape=(k - 1, d))

        def uniform(key, shape):
            return jax.random.uniform(key, shape, minval=-(k**-0.5), maxval=k**-0.5)

        kernel = self.param("kernel", uniform, (k, d))
        bias = self.param("bias", uniform, (d,))

        def run(x, window, reset, lengths):
            if window is None:
                window = self.initial_state(x.shape[:-2], d)
            y, window = _convolved(
                x.astype(kernel.dtype), window, kernel, reset, lengths
            )
            return y + bias, window

        return apply_to_valid_steps(run, x, state, reset, mask)


def _convolved(x, window, kernel, reset, lengths):
    """The convolution, and the window behind the data of each row."""
    length, past = x.shape[-2], len(kernel) - 1
    # What each step sees, from the oldest in the window to the last input.
    seen = jnp.concatenate([window.astype(x.dtype), x], -2)
    segment = None
    if reset is not None:
        segment = jnp.cumsum(reset, -1)
        # The window is of the segment that goes on, number 0.
        segment = jnp.pad(segment, [(0, 0)] * (x.ndim - 2) + [(past, 0)])

    # Sums of shifted sequences: XLA's convolution by groups is slow on CPUs.
    y = jnp.zeros_like(x)
    for tap, weight in enumerate(kernel):
        values = seen[..., tap : tap + length, :]
        if segment is not None:
            same = segment[..., tap : tap + length] == segment[..., past:]
            values = jnp.where(same[..., None], values, 0)
        y += weight * values

    if lengths is None:
        lengths = jnp.full(x.shape[:-2], length)
    index = lengths[..., None] + jnp.arange(past)
    window = jnp.take_along_axis(seen, index[..., None], -2)
    if segment is not None:
        last = jnp.take_along_axis(segment, lengths[..., None] + past - 1, -1)
        same = jnp.take_along_axis(segment, index, -1) == last
        window = jnp.where(same[..., None], window, 0)
    return y, window
