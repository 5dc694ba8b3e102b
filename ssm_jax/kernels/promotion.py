"""Explicit promotion: kernels work under every setting of the caller's program.

With ``jax_numpy_dtype_promotion="strict"`` and ``jax_numpy_rank_promotion="raise"`` JAX
refuses arguments of several dtypes or ranks. Here they are converted as JAX does it by
default, so that a program is the same under all settings.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.types import Array, Shaped


def common_dtype(*values: Any) -> jnp.dtype:
    """Returns the dtype that arrays, dtypes and Python scalars are promoted to.

    That of `jax.numpy.result_type` by JAX's standard rules.

    Args:
      *values: Arrays, dtypes and Python scalars.

    Example:
      >>> with jax.numpy_dtype_promotion("strict"):
      ...     print(common_dtype(jnp.float32, jnp.ones(3, jnp.bfloat16)))
      float32
    """
    # Nothing is traced here, so that no compiled program depends on the setting.
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*values)


def promoted_like(
    values: Shaped[Array, "..."], like: Shaped[Array, "..."]
) -> Shaped[jax.Array, "..."]:
    """Returns values that an operator combines with those of another array.

    Args:
      values: ``(*n,)``, of at most the rank and the dtype of ``like``: a bias, a decay
        of each state, a real factor of complex numbers.
      like: The other array.

    Returns:
      ``values`` in the dtype of ``like``, with leading axes of 1 up to its rank.

    Example:
      >>> promoted_like(jnp.ones(3), jnp.ones((2, 5, 3), jnp.complex64)).shape
      (1, 1, 3)
    """
    return jax.lax.broadcast_to_rank(jnp.asarray(values, like.dtype), jnp.ndim(like))
