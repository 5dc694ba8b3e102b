"""Computation in bfloat16 with parameters and states in float32."""

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.types import PyTree

ComputeDtype = Literal["float32", "bfloat16"]
"""``"bfloat16"``: modules compute with parameters rounded to it, so that matrix
products, normalizations and activations are in bfloat16; parameters and their gradients
are float32, and recurrences compute in float32, with their own parameters and states.
``"float32"``: nothing is rounded."""


def call(
    dtype: ComputeDtype,
    module: nn.Module,
    *args: Any,
    method: str = "__call__",
    **flags,
) -> Any:
    """Calls a submodule, in bfloat16 with parameters and inputs rounded to it.

    Args:
      dtype: The dtype of the computation.
      module: A bound submodule. Its parameters below the name ``recurrence`` are not
        rounded.
      *args: Arguments; those of floating-point numbers are rounded, except states,
        which are passed as flags.
      method: Name of the method.
      **flags: Further arguments, not rounded.

    Returns:
      What the method returns.
    """
    # Parameters are initialized by the float32 model, so that they are the same.
    if dtype == "float32" or module.is_initializing():
        return getattr(module, method)(*args, **flags)

    def function(module, *args):
        return getattr(module, method)(*args, **flags)

    # The dtypes of Flax modules follow those of parameters and inputs, so this covers
    # every module, also of other packages.
    lowered = nn.map_variables(function, "params", partial(lower_params, dtype))
    return lowered(module, *lower(dtype, args))


def lower(dtype: ComputeDtype, tree: PyTree) -> PyTree:
    """Rounds the floating-point arrays of a tree, if the dtype is bfloat16."""
    return tree if dtype == "float32" else jax.tree.map(_round, tree)


def lower_params(dtype: ComputeDtype, params: PyTree) -> PyTree:
    """Rounds parameters as `lower`, except those below the name ``recurrence``."""

    def lower_leaf(path, leaf):
        names = [getattr(key, "key", None) for key in path]
        return leaf if "recurrence" in names else _round(leaf)

    return params if dtype == "float32" else jax.tree.map_with_path(lower_leaf, params)


def widen(dtype: ComputeDtype, tree: PyTree) -> PyTree:
    """Converts the bfloat16 arrays of a tree to float32, if the dtype is bfloat16.

    Layers may return a state in the dtype of their input; a carried state must not
    change its dtype.
    """

    def widen_leaf(x):
        return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x

    return tree if dtype == "float32" else jax.tree.map(widen_leaf, tree)


def _round(x):
    floating = jnp.issubdtype(x.dtype, jnp.floating)
    return jnp.asarray(x, jnp.bfloat16) if floating else x
