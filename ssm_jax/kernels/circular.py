"""Circular convolutions, by the FFT or by matrix products."""

from typing import cast

import jax.numpy as jnp
from scipy.fft import next_fast_len

from ssm_jax.kernels import dft
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.types import Array, Float


def fft_length(size: int) -> int:
    """Returns the smallest length from ``size`` on that is fast for an FFT."""
    return cast(int, next_fast_len(size, real=True))


def circle(size: int) -> dft.Circle:
    """Returns a circle of at least ``size`` steps that is fast on the target platform.

    Args:
      size: Number of steps, positive.
    """
    if target_platform() == "tpu":
        return dft.circle(size)
    return dft.Circle(fft_length(size), 1)


def circular_convolution(
    u: Float[Array, "*b l d"], kernel: Float[Array, "d k"], on: dft.Circle
) -> Float[Array, "*b l d"]:
    """Computes the first ``l`` steps of a circular convolution over time.

    On TPUs by `ssm_jax.kernels.dft`, on other platforms by the FFT.

    Args:
      u: Sequences, ``(*b, l, d)``.
      kernel: Kernel of each channel, ``(d, k)``, float32 or float64; the dtype of the
        sums.
      on: The circle, from `circle`, of at least ``l`` and ``k`` steps.

    Returns:
      ``y``, ``(*b, l, d)``, in the dtype of ``u``.
    """
    length, dtype = u.shape[-2], u.dtype
    # There is no FFT of bfloat16.
    u = u.astype(kernel.dtype)
    if target_platform() == "tpu":
        return dft.circular_convolution(u, kernel.T, on).astype(dtype)
    u = jnp.swapaxes(u, -1, -2)
    spectrum = jnp.fft.rfft(u, on.size) * jnp.fft.rfft(kernel, on.size)
    y = jnp.fft.irfft(spectrum, on.size)[..., :length]
    return jnp.swapaxes(y, -1, -2).astype(dtype)
