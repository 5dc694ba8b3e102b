"""What XLA fuses with what, where it matters."""

import jax
import jax.numpy as jnp

from ssm_jax.kernels.platforms import target_platform
from ssm_jax.kernels.sharding import is_sharded
from ssm_jax.types import Array, Bool, PyTree


def materialize(values: PyTree) -> PyTree:
    """Returns values that CPUs evaluate once, whatever reads them.

    There, XLA fuses the operations that form an array into each of those that read it,
    and evaluates them anew in all of them, and anew for each element that a small array
    is broadcast to; it removes `jax.lax.optimization_barrier` before. It fuses nothing
    with a conditional.

    Args:
      values: Floating-point or complex arrays.

    Returns:
      ``values``.

    Example:
      >>> print(materialize(jnp.ones(2)))
      [1. 1.]
    """
    false = runtime_false(values) if target_platform() == "cpu" else None
    if false is None:
        return values

    def negate(values):
        return jax.tree.map(jnp.negative, values)

    return jax.lax.cond(false, negate, lambda values: values, values)


def runtime_false(values: PyTree) -> Bool[Array, ""] | None:
    """Returns False, from a comparison that XLA does not evaluate while it compiles.

    A branch that is chosen by a constant is no branch in the compiled program.

    Args:
      values: Arrays, of which one element is read.

    Returns:
      False; None if ``values`` have no array of floating-point or complex numbers, as
      the comparison needs, that is not sharded: all devices would need an element of
      one of them.
    """
    for leaf in jax.tree.leaves(values):
        is_number = jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
        if is_number and jnp.size(leaf) and not is_sharded(leaf):
            number = jnp.ravel(jax.lax.stop_gradient(leaf))[0]
            # Of a number the first is False, of NaN the second.
            return (number != number) & (number == number)
    return None
