"""Checks of the dtype and shape of array arguments, performed at trace time.

They prevent silent errors of type promotion: an integer mask that is applied bitwise,
integers that truncate an update, and imaginary parts that are discarded.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.fields import check_size
from ssm_jax.types import PRNGKey


def check_floating(name: str, value: Any, *, may_be_complex: bool = False) -> None:
    """Checks that an argument is a floating-point array.

    Args:
      name: Name of the argument, used in the error message.
      value: The argument.
      may_be_complex: Whether complex arrays are accepted.

    Raises:
      ValueError: ``value`` is not an array, or its dtype is integer, boolean or, unless
        ``may_be_complex``, complex.

    Example:
      >>> check_floating("x", jnp.ones(3, jnp.int32))
      Traceback (most recent call last):
        ...
      ValueError: `x` must be a floating-point array, got int32; `x.astype(jnp.float32)`
      makes one.
    """
    kind = jnp.inexact if may_be_complex else jnp.floating
    if _has_dtype(value, kind):
        return
    remedy = f"`{name}.astype(jnp.float32)` makes one"
    if _has_dtype(value, jnp.bool_):
        # `reset` may have been given by position.
        remedy += ", and flags are given by keyword, as `reset=`"
    elif _has_dtype(value, jnp.complexfloating):
        remedy = f"`jnp.real({name})` is its real part"
    elif not is_array(value):
        remedy = f"`jnp.asarray({name}, jnp.float32)` makes one"
    rule = "floating-point or complex" if may_be_complex else "floating-point"
    raise ValueError(
        f"`{name}` must be a {rule} array, got {describe(value)}; {remedy}."
    )


def check_flags(name: str, flags: Any, *shapes: tuple[int, ...]) -> None:
    """Checks that an argument is a boolean array with one flag per step.

    Args:
      name: Name of the argument, used in the error message.
      flags: The argument; None is accepted.
      *shapes: Accepted shapes; the error message shows the first. If there are none,
        every shape is accepted.

    Raises:
      ValueError: ``flags`` is not a boolean array, or has another shape.
    """
    if flags is None:
        return
    if not _has_dtype(flags, jnp.bool_):
        remedy = f"`{name} != 0`" if is_array(flags) else f"`jnp.asarray({name}, bool)`"
        raise ValueError(
            f"`{name}` must be a boolean array, got {describe(flags)}; {remedy} makes "
            "one from zeros and ones."
        )
    if shapes and flags.shape not in shapes:
        raise ValueError(
            f"`{name}` must be {shapes[0]}, one flag per step, got {flags.shape}; "
            f"{shape_hint(flags.shape, shapes[0])}."
        )


def shape_hint(shape: tuple[int, ...], steps: tuple[int, ...]) -> str:
    """Returns the way out of an error: how one value per step gets its shape.

    Args:
      shape: Shape of the argument.
      steps: Shape that it must have.
    """
    if len(shape) == len(steps) + 1:
        return "leave out the last axis"
    return "`jnp.broadcast_to` repeats what rows share"


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
    """Returns whether a value has a shape and a dtype, like arrays and tracers."""
    return hasattr(value, "dtype") and hasattr(value, "shape")


def describe(value: Any) -> str:
    """Formats an argument for an error: dtype of an array, else type and value."""
    if is_array(value):
        return str(value.dtype)
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"


def _has_dtype(value: Any, kind: Any) -> bool:
    return is_array(value) and jnp.issubdtype(value.dtype, kind)
