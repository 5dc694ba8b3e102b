"""Convolutions that wrap around: cyclic ones, and negacyclic ones by complex FFTs."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from scipy.fft import next_fast_len

from ssm_jax.kernels import dft
from ssm_jax.kernels.axes import pad_axis
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.sharding import convolve_on_each_device, row_major
from ssm_jax.types import Array, Complex, Float


def fft_length(size: int) -> int:
    """Returns the smallest length from ``size`` on that is fast for a complex FFT."""
    return cast(int, next_fast_len(size, real=False))


class CircularConvolution(NamedTuple):
    """A convolution that wraps around.

    Attributes:
      size: Its length: the largest number of steps and of taps.
      wrap: Factor of the products that wrap around, 1 or -1.
      convolve: The function of sequences and kernels in one dtype, float32 or float64.
    """

    size: int
    wrap: int
    convolve: Callable[[Array, Array], jax.Array]

    def __call__(
        self, u: Float[Array, "*b l d"], kernel: Float[Array, "d k"]
    ) -> Float[jax.Array, "*b l d"]:
        """Computes the first ``l`` steps of the convolution of each channel.

        Args:
          u: Sequences, ``(*b, l, d)``, of any floating-point dtype.
          kernel: Kernels, ``(d, k)``, float32 or float64, in which sums are formed.
        """
        # There is no FFT of bfloat16.
        given = u.astype(kernel.dtype)
        y = convolve_on_each_device(self.convolve, given, kernel)
        return y.astype(u.dtype)


def circular_convolution(size: int) -> CircularConvolution:
    """Returns a convolution of at least ``size`` steps, fast on the target platform.

    Args:
      size: Number of steps, positive.
    """
    if target_platform() == "tpu":
        factors = dft.cyclic_factors(size)
        cyclic = partial(dft.cyclic_convolution, factors=factors)
        return CircularConvolution(math.prod(factors), 1, cyclic)
    n = fft_length(math.ceil(size / 2))
    return CircularConvolution(2 * n, -1, partial(_negacyclic_convolution, n=n))


def _negacyclic_convolution(u, kernel, n):
    """Computes a right-angle convolution of ``2 n`` steps.

    Real sequences ``x`` of ``2 n`` steps are transformed by a complex FFT of length
    ``n`` of ``(x_j + i x_{j+n}) w^j`` with ``w^n = i``, the polynomial ``x`` modulo
    ``z^n - i``. Sequences of at most ``n`` steps need no padding.

    References:
      Crandall and Fagin, Discrete weighted transforms and large-integer arithmetic,
      Mathematics of Computation, 1994
    """
    spectrum = _spectrum(jnp.swapaxes(u, -1, -2), n)
    spectrum = spectrum * promoted_like(_spectrum(kernel, n), spectrum)
    return jnp.swapaxes(_sequences(spectrum, u.shape[-2]), -1, -2)


def _spectrum(x: Float[Array, "*b l"], n: int) -> Complex[Array, "*b n"]:
    """Transforms real sequences of at most ``2 n`` steps."""
    cos, sin = _weights(n, x.dtype)
    length = x.shape[-1]
    x = pad_axis(x, -1, after=(n if length <= n else 2 * n) - length)
    cos, sin = (promoted_like(v, x) for v in (cos, sin))
    re, im = x[..., :n] * cos, x[..., :n] * sin
    if length > n:
        high = x[..., n:]
        re, im = re - high * sin, im + high * cos
    return jnp.fft.fft(row_major(jax.lax.complex(re, im)))


def _sequences(
    spectrum: Complex[Array, "*b n"], length: int
) -> Float[jax.Array, "*b l"]:
    """Inverse of `_spectrum`: the first ``length`` steps."""
    z = jnp.fft.ifft(row_major(spectrum))
    n = z.shape[-1]
    re, im = jnp.real(z), jnp.imag(z)
    cos, sin = _weights(n, re.dtype)
    cos, sin = (promoted_like(v, re) for v in (cos, sin))
    x = re * cos + im * sin
    if length > n:
        x = jnp.concatenate([x, im * cos - re * sin], -1)
    return x[..., :length]


def _weights(n, dtype):
    """Real and imaginary parts of ``w^j``."""
    angle = np.pi / (2 * n) * np.arange(n)
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)
