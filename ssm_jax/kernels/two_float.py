"""Arithmetic on two-float numbers: pairs of float32 that represent ``hi + lo``.

The unevaluated sum has about 48 significant bits, without float64. Only exact products
are formed, so that fused multiply-add does not change a result.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.kernels.sharding import take

# 1 / (2 pi) in binary, split into six 12-bit digits. The product of two such digits is
# exact in float32.
_INVERSE_TWO_PI = 0x28BE60DB9391054A7F
_DIGITS = np.array(
    [
        ((_INVERSE_TWO_PI >> (60 - 12 * i)) & 0xFFF) * 2.0 ** (-12 * (i + 1))
        for i in range(6)
    ],
    np.float32,
)
_WORD = 2.0**32

TICK = np.float32(2.0 * np.pi / _WORD)
"""Radians of one unit of the integers that `to_turns` returns."""

# atan(k / 256) for 0 <= k <= 256, then 0, pi / 2 and pi, as float32 and remainder. They
# are looked up by an index that is known at run time only: XLA reassociates sums with
# constants, which would undo the two-float arithmetic.
_ANGLES = np.concatenate([np.arctan(np.arange(257) / 256.0), [0.0, np.pi / 2, np.pi]])
_ANGLES_HI = _ANGLES.astype(np.float32)
_ANGLES_LO = (_ANGLES - _ANGLES_HI).astype(np.float32)


def split(a):
    """Splits a float32 into a sum of two of at most 12 significant bits each."""
    # Masking bits is exact, and unlike Veltkamp's splitting it cannot overflow.
    bits = jax.lax.bitcast_convert_type(a, jnp.uint32) & np.uint32(0xFFFFF000)
    hi = jax.lax.bitcast_convert_type(bits, jnp.float32)
    return hi, a - hi


@jax.jit
def two_sum(a, b):
    """Returns the sum of two float32 and its rounding error."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


@jax.jit
def two_product(a, b):
    """Returns the product of two float32 as a two-float number."""
    # Products of 12-bit halves are exact in float32, so the result is the same whether
    # or not the compiler fuses a product with the addition that follows.
    (a1, a2), (b1, b2) = split(a), split(b)
    hi, lo = two_sum(a1 * b1, a1 * b2)
    hi, more = two_sum(hi, a2 * b1)
    return two_sum(hi, (lo + more) + a2 * b2)


@jax.jit
def add(a, b):
    """Adds two two-float numbers."""
    hi, lo = two_sum(a[0], b[0])
    return two_sum(hi, lo + (a[1] + b[1]))


@jax.jit
def arctan2(y, x):
    """Computes ``arctan2(y, x)`` of two float32 as a two-float number.

    The angle in the first octant is that of the nearest of 257 tabulated slopes plus a
    short series in the remainder.
    """
    abs_x, abs_y = jnp.abs(x), jnp.abs(y)
    big, small = jnp.maximum(abs_x, abs_y), jnp.minimum(abs_x, abs_y)
    big = jnp.where(big == 0, np.float32(1), big)
    # With t = k / 256 near small / big: atan(small / big) = atan(t) + atan(u), where
    # u = (small - t big) / (big + t small). Both factors are kept in two floats.
    k = jnp.round(256 * small / big)
    num, num_lo = add((256 * small, jnp.zeros_like(small)), two_product(-k, big))
    den, den_lo = add((256 * big, jnp.zeros_like(big)), two_product(k, small))
    u = num / den
    exact, exact_lo = two_product(u, den)
    u_lo = ((num - exact) - exact_lo + num_lo - u * den_lo) / den
    # |u| is at most 1 / 512, so that the next term of the series is below 2**-64.
    tail = u_lo - u**3 / 3 + u**5 / 5
    angle = add(_look_up(k.astype(jnp.int32)), (u, tail))
    # Reflect the first octant into the octant of (x, y).
    steep, back = abs_y > abs_x, x < 0
    base = _look_up(257 + jnp.where(steep, 1, jnp.where(back, 2, 0)))
    turn = jnp.where(steep != back, np.float32(-1), np.float32(1))
    sign = jnp.where(y < 0, np.float32(-1), np.float32(1))
    hi, lo = add(base, (turn * angle[0], turn * angle[1]))
    return sign * hi, sign * lo


@jax.jit
def to_turns(phase, phase_lo):
    """Converts radians to turns, ``(word + rest) / 2**32``, as int32 and float32."""
    parts = [*split(phase)]
    if phase_lo is not None:
        parts += [*split(phase_lo)]
    # All products of parts and digits in one array: fewer operations compile faster.
    turns = jnp.stack(parts)[None] * jnp.expand_dims(_DIGITS, range(1, phase.ndim + 2))
    # Whole turns are dropped from each exact product before any rounding occurs.
    turns = turns - jnp.round(turns)
    # Half a turn would overflow int32; minus half a turn is the same angle.
    turns = jnp.where(turns == 0.5, np.float32(-0.5), turns) * _WORD
    whole = jnp.round(turns)
    word = jnp.sum(whole.astype(jnp.int32), (0, 1), dtype=jnp.int32)
    rest = jnp.sum(turns - whole, (0, 1))
    carry = jnp.round(rest)
    return word + carry.astype(jnp.int32), rest - carry


def _look_up(index):
    return tuple(take(jnp.asarray(table), index) for table in (_ANGLES_HI, _ANGLES_LO))
