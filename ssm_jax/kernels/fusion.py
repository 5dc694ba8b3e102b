"""What XLA fuses with what, where it matters."""

import jax
import jax.numpy as jnp

from ssm_jax.kernels.platforms import target_platform
from ssm_jax.types import PyTree


def materialized(values: PyTree) -> PyTree:
    """Returns floating-point values that CPUs evaluate once, whatever reads them.

    There, XLA fuses the operations that form a small array into those that read it, and
    evaluates them anew for each element that it is broadcast to; it removes
    `jax.lax.optimization_barrier` before. It fuses nothing with a conditional.

    Args:
      values: Arrays. If all elements of the first are NaN, all elements become NaN.

    Returns:
      ``values``.

    Example:
      >>> print(materialized(jnp.ones(2)))
      [1. 1.]
    """
    if target_platform() != "cpu":
        return values
    first = jax.tree.leaves(values)[0]

    def invalid(values):
        # Without a gradient, which under `vmap` would be 0 times NaN.
        return jax.tree.map(lambda leaf: jnp.nan * leaf, jax.lax.stop_gradient(values))

    # A condition that holds and that the compiler cannot evaluate.
    return jax.lax.cond(jnp.any(first == first), lambda v: v, invalid, values)
