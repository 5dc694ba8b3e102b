"""Checks of array arguments by dtype and shape, which are known when they are traced.

Without them a mask of integers would select by its bits, integer inputs would round
what they are added to, and imaginary parts would be dropped.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.fields import check_size
from ssm_jax.types import PRNGKey


def check_floating(name: str, value: Any, *, may_be_complex: bool = False) -> None:
    """Checks that an argument is an array of floating-point numbers.

    Args:
      name: Name of the argument.
      value: What was given.
      may_be_complex: Whether complex numbers are taken, too.

    Raises:
      ValueError: ``value`` is no array, or one of integers, flags or, unless they are
        taken, complex numbers.

    Example:
      >>> check_floating("x", jnp.ones(3, jnp.int32))
      Traceback (most recent call last):
        ...
      ValueError: `x` must be a floating-point array, got int32; `x.astype(jnp.float32)`
      makes one.
    """
    kind = jnp.inexact if may_be_complex else jnp.floating
    if _is_of(value, kind):
        return
    remedy = f"`{name}.astype(jnp.float32)` makes one"
    if _is_of(value, jnp.complexfloating):
        remedy = f"`jnp.real({name})` is its real part"
    elif not is_array(value):
        remedy = f"`jnp.asarray({name}, jnp.float32)` makes one"
    rule = "floating-point or complex" if may_be_complex else "floating-point"
    raise ValueError(f"`{name}` must be a {rule} array, got {shown(value)}; {remedy}.")


def check_flags(name: str, flags: Any, *shapes: tuple[int, ...]) -> None:
    """Checks that an argument is an array of flags, one a step.

    Args:
      name: Name of the argument.
      flags: What was given; None is taken.
      *shapes: The shapes that it may have, the one for the message first. None given:
        any.

    Raises:
      ValueError: ``flags`` is no boolean array, or of another shape.
    """
    if flags is None:
        return
    if not _is_of(flags, jnp.bool_):
        remedy = f"`{name} != 0`" if is_array(flags) else f"`jnp.asarray({name}, bool)`"
        raise ValueError(
            f"`{name}` must be a boolean array, got {shown(flags)}; {remedy} makes one "
            "of zeros and ones."
        )
    if shapes and flags.shape not in shapes:
        raise ValueError(
            f"`{name}` must be {shapes[0]}, one flag a step, got {flags.shape}; leave "
            "out the last axis."
        )


def check_draw(key: PRNGKey, d_in: int) -> None:
    """Checks what parameters are drawn from and for.

    Args:
      key: A key of `jax.random`, typed or raw.
      d_in: Width of the inputs.

    Raises:
      ValueError: ``key`` is no key, or ``d_in`` no positive integer.
    """
    if not is_array(key) or not (
        jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.dtype == jnp.uint32
    ):
        raise ValueError(
            f"`key` must be a key of jax.random, got {key!r}; `jax.random.key(0)` "
            "makes one."
        )
    check_size("d_in", d_in)


def is_array(value: Any) -> bool:
    """Whether a value has a shape and a dtype, as arrays and tracers have."""
    return hasattr(value, "dtype") and hasattr(value, "shape")


def shown(value: Any) -> str:
    """An argument as errors show it: the dtype of an array, else type and value."""
    if is_array(value):
        return str(value.dtype)
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"


def _is_of(value: Any, kind: Any) -> bool:
    return is_array(value) and jnp.issubdtype(value.dtype, kind)
