"""Complex arithmetic on real and imaginary parts, as Pallas has no complex numbers."""

import jax
import jax.numpy as jnp

from ssm_jax.types import Array

Parts = tuple[jax.Array, ...]
"""A real array, ``(re,)``, or a complex one, ``(re, im)``."""


def split(x: Array) -> Parts:
    """Returns the parts of an array."""
    x = jnp.asarray(x)
    return (x.real, x.imag) if jnp.iscomplexobj(x) else (x,)


def join(parts: Parts) -> jax.Array:
    """Returns the array of the parts."""
    return jax.lax.complex(*parts) if len(parts) == 2 else parts[0]


def multiply(x: Parts, y: Parts) -> Parts:
    """Returns ``x * y``."""
    if len(x) == 1:
        return tuple(x[0] * part for part in y)
    if len(y) == 1:
        return multiply(y, x)
    (x_re, x_im), (y_re, y_im) = x, y
    return x_re * y_re - x_im * y_im, x_re * y_im + x_im * y_re


def add(x: Parts, y: Parts) -> Parts:
    """Returns ``x + y``, both real or both complex."""
    return tuple(map(jnp.add, x, y))


def zero_unless(condition: Array, x: Parts) -> Parts:
    """Returns ``x`` where the condition holds, else 0."""
    return tuple(jnp.where(condition, part, 0) for part in x)


def multiply_carry(x: Parts, y: Parts) -> Parts:
    """Returns ``x * y``, and 0 where ``y`` is 0, even if ``x`` is not finite."""
    not_zero = y[0] != 0
    if len(y) == 2:
        not_zero |= y[1] != 0
    return zero_unless(not_zero, multiply(x, y))
