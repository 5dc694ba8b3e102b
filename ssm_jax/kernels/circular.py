"""Convolutions that wrap around: cyclic ones, and negacyclic ones by complex FFTs."""

import math
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from scipy.fft import next_fast_len

from ssm_jax.kernels import dft
from ssm_jax.kernels.axes import pad_axis
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.types import Array, Complex, Float


def fft_length(size: int) -> int:
    """Returns the smallest length from ``size`` on that is fast for a complex FFT."""
    return cast(int, next_fast_len(size, real=False))


class Negacyclic(NamedTuple):
    """Negacyclic convolution: what passes the end returns with the other sign.

    A right-angle convolution: real sequences ``x`` of ``2 n`` steps are transformed by
    a complex FFT of length ``n`` of ``(x_j + i x_{j+n}) w^j`` with ``w^n = i``, the
    polynomial ``x`` modulo ``z^n - i``. Sequences of at most ``n`` steps need no
    padding.

    Attributes:
      half: Length of the FFT, ``n``.

    References:
      Crandall and Fagin, Discrete weighted transforms and large-integer arithmetic,
      Mathematics of Computation, 1994
    """

    half: int

    @classmethod
    def at_least(cls, size: int) -> "Negacyclic":
        """Returns that of the smallest suitable length from ``size`` on."""
        return cls(fft_length(math.ceil(size / 2)))

    @property
    def size(self) -> int:
        """The length, ``2 n``."""
        return 2 * self.half

    @property
    def wrap(self) -> int:
        """Factor of what passes the end, at the start."""
        return -1

    def __call__(
        self, u: Float[Array, "*b l d"], kernel: Float[Array, "d k"]
    ) -> Float[jax.Array, "*b l d"]:
        """Computes the first ``l`` steps of the convolution of each channel.

        Args:
          u: Sequences, ``(*b, l, d)``, of at most `size` steps, float32 or float64.
          kernel: Kernels, ``(d, k)``, of at most `size` taps, in the dtype of ``u``.
        """
        n = self.half
        spectrum = _spectrum(jnp.swapaxes(u, -1, -2), n) * _spectrum(kernel, n)
        return jnp.swapaxes(_sequences(spectrum, u.shape[-2]), -1, -2)


def circular_convolution(size: int) -> dft.Cyclic | Negacyclic:
    """Returns a convolution of at least ``size`` steps, fast on the target platform.

    Args:
      size: Number of steps, positive.
    """
    method = dft.Cyclic if target_platform() == "tpu" else Negacyclic
    return method.at_least(size)


def _spectrum(x: Float[Array, "*b l"], n: int) -> Complex[Array, "*b n"]:
    """Transforms real sequences of at most ``2 n`` steps."""
    cos, sin = _weights(n, x.dtype)
    length = x.shape[-1]
    x = pad_axis(x, -1, after=(n if length <= n else 2 * n) - length)
    re, im = x[..., :n] * cos, x[..., :n] * sin
    if length > n:
        high = x[..., n:]
        re, im = re - high * sin, im + high * cos
    return jnp.fft.fft(jax.lax.complex(re, im))


def _sequences(
    spectrum: Complex[Array, "*b n"], length: int
) -> Float[jax.Array, "*b l"]:
    """Inverse of `_spectrum`: the first ``length`` steps."""
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
