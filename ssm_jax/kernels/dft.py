"""Cyclic convolution by matrix products, for platforms whose FFT is slow.

A discrete Fourier transform of length ``n1 n2`` is one of length ``n1``, a product with
twiddle factors and one of length ``n2``. Short ones are matrix products, for which TPUs
have units; their FFT takes longer to compile. The spectrum stays in the order in which
the factors leave it, on which a product of two spectra does not depend.

Complex arrays are ``(*b, k, 2, m, d)``, with real and imaginary parts along the axis of
length 2. Channels stay last, as in the sequences.
"""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.kernels.axes import split_axis
from ssm_jax.kernels.precision import einsum_f32
from ssm_jax.types import Array, Float

# Points of the longest transform that is one matrix product.
_MAX_FACTOR = 256


def cyclic_factors(size: int) -> tuple[int, int]:
    """Returns the factors of the smallest suitable length from ``size`` on.

    Args:
      size: Number of steps, positive.

    Returns:
      An even number, and a power of two.
    """
    inner = _inner(size)
    return 2 * -(-size // (2 * inner)), inner


def cyclic_convolution(
    u: Float[Array, "*b l d"], kernel: Float[Array, "d k"], factors: tuple[int, int]
) -> Float[jax.Array, "*b l d"]:
    """Computes the first ``l`` steps of the cyclic convolution of each channel.

    Args:
      u: Sequences, ``(*b, l, d)``, float32 or float64.
      kernel: Kernels, ``(d, k)``, in the dtype of ``u``.
      factors: Factors of the length of the convolution, at least ``l`` and ``k``; the
        first is even.

    References:
      Cooley and Tukey, An algorithm for the machine calculation of complex Fourier
      series, Mathematics of Computation, 1965
    """
    spectrum = _product(_spectrum(u, *factors), _spectrum(kernel.T, *factors))
    return _sequences(spectrum, *factors, u.shape[-2])


def _inner(size):
    """Returns the length of all factors but the first, all about as long."""
    n_factors = max(2, math.ceil(math.log(size, _MAX_FACTOR)))
    return 2 ** round(math.log2(size) * (n_factors - 1) / n_factors)


def _spectrum(x, outer, inner):
    """Transforms real sequences; of conjugate outer frequencies, only one."""
    x = split_axis(x, -2, inner)
    *batch, rows, _, d = x.shape
    # The other rows are zero, and left out of the product.
    z = _multiply_axis(x.reshape(*batch, rows, inner * d), _real_table(outer)[:rows])
    z = z.reshape(*batch, -1, 2, inner, d)
    return _transform(_apply_twiddles(z, outer * inner, -1))


def _sequences(z, outer, inner, length):
    """Inverse of `_spectrum`: the first ``length`` steps."""
    size = outer * inner
    z = _apply_twiddles(_inverse(z, inner), size, 1)
    *batch, k, _, m, d = z.shape
    # A conjugate that was left out doubles the real part.
    weights = np.full(k, 2 / size)
    weights[[0, outer // 2]] = 1 / size
    rows = -(-length // m)
    table = (_real_table(outer)[:rows] * np.repeat(weights, 2)).T
    x = _multiply_axis(z.reshape(*batch, k * 2, m * d), table)
    return x.reshape(*batch, rows * m, d)[..., :length, :]


def _transform(z):
    """Transforms the axis ``m``; each factor but the last adds an axis ``k``."""
    *batch, _, m, d = z.shape
    if m <= _MAX_FACTOR:
        z = _multiply_axis(z.reshape(*batch, 2 * m, d), _complex_table(m, -1))
        return z.reshape(*batch, 2, m, d)
    inner = _inner(m)
    outer = m // inner
    table = _complex_table(outer, -1).reshape(2 * outer, 2, outer)
    table = np.swapaxes(table, 1, 2).reshape(2 * outer, 2 * outer)
    z = _multiply_axis(z.reshape(*batch, 2 * outer, inner * d), table)
    return _transform(_apply_twiddles(z.reshape(*batch, outer, 2, inner, d), m, -1))


def _inverse(z, n):
    """Inverse of `_transform`, to an axis of ``n`` steps, times ``n``."""
    if n <= _MAX_FACTOR:
        *batch, _, m, d = z.shape
        z = _multiply_axis(z.reshape(*batch, 2 * m, d), _complex_table(m, 1))
        return z.reshape(*batch, 2, m, d)
    z = _apply_twiddles(_inverse(z, _inner(n)), n, 1)
    *batch, outer, _, inner, d = z.shape
    table = _complex_table(outer, 1).reshape(2, outer, 2 * outer)
    table = np.swapaxes(table, 0, 1).reshape(2 * outer, 2 * outer)
    z = _multiply_axis(z.reshape(*batch, 2 * outer, inner * d), table)
    return z.reshape(*batch, 2, n, d)


def _multiply_axis(x, table):
    """Multiplies the last axis but one by a matrix."""
    # In this order of the operands a TPU needs no transpose.
    table = table.astype(x.dtype)
    return einsum_f32("...md,mn->...nd", x, table)


def _apply_twiddles(z, size, sign):
    """Multiplies by the twiddle factors ``exp(sign 2 pi i k m / size)``."""
    turns = jnp.arange(z.shape[-4])[:, None] * jnp.arange(z.shape[-2])[None]
    # Angles of at most pi, where float32 has the smallest error.
    turns = jnp.where(2 * turns > size, turns - size, turns)
    angle = turns.astype(z.dtype) * (sign * 2 * np.pi / size)
    factors = jnp.stack([jnp.cos(angle), jnp.sin(angle)], 1)
    return _product(z, factors[..., None])


def _product(y, z):
    """Returns the product of complex arrays."""
    z = jax.lax.broadcast_to_rank(z, y.ndim)
    (a, b), (c, d) = jnp.moveaxis(y, -3, 0), jnp.moveaxis(z, -3, 0)
    return jnp.stack([a * c - b * d, a * d + b * c], -3)


@cache
def _real_table(n):
    """``exp(-2 pi i j k / n)`` for ``k <= n / 2``; columns are ``(k, re or im)``.

    Zeros follow, up to a multiple of 8 columns: a tile of a TPU, which takes several
    times as long to compile a product that is not of whole tiles.
    """
    angle = _angles(n)[:, : n // 2 + 1]
    table = np.stack([np.cos(angle), -np.sin(angle)], -1).reshape(n, -1)
    return np.pad(table, [(0, 0), (0, -table.shape[1] % 8)])


@cache
def _complex_table(n, sign):
    """Product with ``exp(sign 2 pi i j k / n)``, both axes ``(re or im, n)``."""
    angle = sign * _angles(n)
    re, im = np.cos(angle), np.sin(angle)
    return np.block([[re, im], [-im, re]])


def _angles(n):
    return 2 * np.pi / n * (np.outer(np.arange(n), np.arange(n)) % n)
