"""Convolutions on a circle of steps, by the FFT or by matrix products.

Real sequences ``x`` of ``2 n`` steps are convolved by a complex FFT of ``n``: it
transforms ``(x_j + i x_{j+n}) w^j`` with ``w^n = i``, the polynomial ``x`` modulo
``z^n - i``. Sequences of at most ``n`` steps need no padding then. What passes the end
of the circle returns to its start with the other sign.
"""

import math
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from scipy.fft import next_fast_len

from ssm_jax.kernels import dft
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.types import Array, Complex, Float


def fft_length(size: int) -> int:
    """Returns the smallest length from ``size`` on that is fast for a complex FFT."""
    return cast(int, next_fast_len(size, real=False))


def circle(size: int) -> dft.Circle:
    """Returns a circle of at least ``size`` steps that is fast on the target platform.

    Args:
      size: Number of steps, positive.
    """
    if target_platform() == "tpu":
        return dft.circle(size)
    return dft.Circle(2, fft_length(math.ceil(size / 2)))


def before_the_start(taps: Float[Array, "d k"]) -> Float[Array, "d k"]:
    """Returns taps at the lags ``-k, ..., -1`` as the last taps of the circle."""
    return taps if target_platform() == "tpu" else -taps


def convolution_on(
    on: dft.Circle, u: Float[Array, "*b l d"], kernel: Float[Array, "d k"]
) -> Float[Array, "*b l d"]:
    """Computes the first ``l`` steps of a convolution over time on a circle.

    On TPUs by `ssm_jax.kernels.dft`, on other platforms by the FFT.

    Args:
      on: The circle, from `circle`, of at least ``l`` and ``k`` steps.
      u: Sequences, ``(*b, l, d)``.
      kernel: Kernel of each channel, ``(d, k)``, float32 or float64; the dtype of the
        sums.

    Returns:
      ``y``, ``(*b, l, d)``, in the dtype of ``u``.

    References:
      Crandall and Fagin, Discrete weighted transforms and large-integer arithmetic,
      Mathematics of Computation, 1994
    """
    length, dtype = u.shape[-2], u.dtype
    # There is no FFT of bfloat16.
    u = u.astype(kernel.dtype)
    if target_platform() == "tpu":
        return dft.circular_convolution(u, kernel.T, on).astype(dtype)
    n = on.inner
    spectrum = _spectrum(jnp.swapaxes(u, -1, -2), n) * _spectrum(kernel, n)
    return jnp.swapaxes(_steps(spectrum, length), -1, -2).astype(dtype)


def _spectrum(x: Float[Array, "*b l"], n: int) -> Complex[Array, "*b n"]:
    """Transforms real sequences of at most ``2 n`` steps."""
    cos, sin = _weights(n, x.dtype)
    length = x.shape[-1]
    padded = n if length <= n else 2 * n
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, padded - length)])
    re, im = x[..., :n] * cos, x[..., :n] * sin
    if length > n:
        high = x[..., n:]
        re, im = re - high * sin, im + high * cos
    return jnp.fft.fft(jax.lax.complex(re, im))


def _steps(spectrum: Complex[Array, "*b n"], length: int) -> Float[Array, "*b l"]:
    """The first steps of the sequences; inverts `_spectrum`."""
    z = jnp.fft.ifft(spectrum)
    n = z.shape[-1]
    re, im = jnp.real(z), jnp.imag(z)
    cos, sin = _weights(n, re.dtype)
    x = re * cos + im * sin
    if length > n:
        x = jnp.concatenate([x, im * cos - re * sin], -1)
    return x[..., :length]


def _weights(n, dtype):
    """Real and imaginary parts of ``w^j``."""
    angle = np.pi / (2 * n) * np.arange(n)
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)
