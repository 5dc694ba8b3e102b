"""Blocks of equal structure, initialized and applied one after the other."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.kernels.axes import match_varying_axes
from ssm_jax.models.precision import ComputeDtype, lower, lower_params
from ssm_jax.models.stacking import entry, stack, unstack
from ssm_jax.types import Activations, PyTree


def can_scan(variables: PyTree, names: Sequence[str], states: Sequence[PyTree]) -> bool:
    """Returns whether blocks have variables and states of equal structure and shapes.

    Args:
      variables: Collections of the model.
      names: Names of the blocks.
      states: Initial state of each block.
    """
    collections = [
        [tree[name] for name in names if name in tree] for tree in variables.values()
    ]
    # A collection has an entry for all blocks or for none.
    complete = all(len(trees) in (0, len(names)) for trees in collections)
    return complete and all(map(_have_equal_structure, [*collections, states]))


def apply_blocks(
    model: nn.Module,
    block: nn.Module,
    names: Sequence[str],
    x: Activations,
    states: Sequence[PyTree],
    *,
    dtype: ComputeDtype,
    remat: bool,
    scan: bool,
    **flags: Any,
) -> tuple[Activations, tuple[PyTree, ...]]:
    """Applies blocks one after the other, with the variables of each in ``model``.

    The variables of a model keep an entry per block, ``block_0`` and so on; they are
    stacked for a scan only. What the blocks change or sow is written back to these
    entries. The keys of the blocks do not depend on ``scan`` and ``remat``.

    Args:
      model: The bound model that owns the variables.
      block: The block, without a parent.
      names: Names of the entries of the blocks in ``model``.
      x: Input of the first block, ``(*b, l, d)``.
      states: Initial state of each block.
      dtype: Dtype of the computation.
      remat: Whether the backward pass recomputes the activations within each block.
      scan: Whether the blocks, for which `can_scan` is True, are evaluated by one scan.
      **flags: Further arguments of the blocks, the same for all.

    Returns:
      ``(y, states)``: output of the last block, and the final state of each.
    """
    scope: Any = model.scope  # of a bound model
    keys, mutable = _keys(model, len(names)), scope.mutable
    collections = model.variables

    def block_variables(name):
        layer_results = {
            key: tree[name] for key, tree in collections.items() if name in tree
        }
        # Rounded before a scan: the stacked copy has half the size then.
        return layer_results | {
            "params": lower_params(dtype, layer_results.get("params", {}))
        }

    def step(x, layer):
        variables, keys, state = layer
        bound: Any = block.bind(variables, rngs=keys, mutable=mutable)
        y, state = bound(x, state=state, **flags)
        return lower(dtype, y), (state, bound.scope.mutable_variables())

    if remat:
        # A scan already prevents that forward and recomputed operations are merged.
        step = jax.checkpoint(step, prevent_cse=not scan)
    x, variables = lower(dtype, x), [block_variables(name) for name in names]
    if scan:
        # The carry must keep its dtype and the mesh axes that it varies over.
        x, state = match_varying_axes(x, stack(states))
        layers = stack(variables), keys, state
        x = x.astype(jax.eval_shape(step, x, entry(layers, 0))[0].dtype)
        x, layer_results = jax.lax.scan(step, x, layers)
        results = [entry(layer_results, i) for i in range(len(names))]
    else:
        results = []
        block_keys = [entry(keys, i) for i in range(len(names))]
        for layer in zip(variables, block_keys, states, strict=True):
            x, result = step(x, layer)
            results.append(result)
    return x, _put(model, names, results)


def init_blocks(
    model: nn.Module,
    block: nn.Module,
    names: Sequence[str],
    x: Activations,
    states: Sequence[PyTree],
    **flags: Any,
) -> tuple[Activations, tuple[PyTree, ...]]:
    """Initializes blocks, each with its own key, and applies them as `apply_blocks`.

    Args:
      model: The bound model, which is being initialized.
      block: The block, without a parent.
      names: Names of the entries of the blocks in ``model``.
      x: Input of the first block, ``(*b, l, d)``.
      states: Initial state of each block, of equal structure.
      **flags: Further arguments of the blocks, the same for all.

    Returns:
      As `apply_blocks`.
    """

    def step(x, layer):
        keys, state = layer
        (y, state), variables = block.init_with_output(keys, x, state=state, **flags)
        return y.astype(x.dtype), (state, variables)

    y, layers = jax.lax.scan(step, x, (_keys(model, len(names)), stack(states)))
    return y, _put(model, names, unstack(layers, len(names)))


def _keys(model, n):
    """A key of each stream of random numbers for each of ``n`` blocks."""
    scope: Any = model.scope
    return {name: jax.random.split(model.make_rng(name), n) for name in scope.rngs}


def _put(model, names, layers):
    """Writes the variables of each block to its entry, and returns the states."""
    for block_name, (_, variables) in zip(names, layers, strict=True):
        for name, tree in variables.items():
            model.put_variable(name, block_name, tree)
    return tuple(state for state, _ in layers)


def _have_equal_structure(trees):
    """Whether all trees have the structure, the shapes and the dtypes of the first."""

    def describe(tree):
        leaves, structure = jax.tree.flatten(tree)
        return structure, [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]

    return all(describe(tree) == describe(trees[0]) for tree in trees[1:])
