"""Blocks initialized and applied one after the other; those that repeat, by scans."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.kernels.axes import match_varying_axes
from ssm_jax.models.precision import ComputeDtype, lower, lower_params
from ssm_jax.models.stacking import entry, stack, unstack
from ssm_jax.sharding.parameters import gather, has_shards
from ssm_jax.types import Activations, PyTree


class Periods(NamedTuple):
    """Consecutive blocks of which each ``length`` repeat those before them.

    Attributes:
      first: Index of the first block.
      length: Number of blocks of a period, 1 if there is a single one.
      n: Number of periods.
    """

    first: int
    length: int
    n: int

    @property
    def positions(self) -> Iterator[slice]:
        """The blocks at each position of the period."""
        end = self.first + self.length * self.n
        for first in range(self.first, self.first + self.length):
            yield slice(first, end, self.length)


def block_kinds(
    blocks: Sequence[nn.Module],
    variables: PyTree,
    names: Sequence[str],
    states: Sequence[PyTree],
) -> list[Any]:
    """Describes blocks; a scan takes those of equal kinds.

    Args:
      blocks: The block of each layer; layers share it where theirs are equal.
      variables: Collections of the model.
      names: Names of the layers.
      states: Initial state of each layer.

    Returns:
      The block of each layer, by its identity, with the structure, the shapes and the
      dtypes of its variables and of its state.
    """

    def describe(tree):
        leaves, structure = jax.tree.flatten(tree)
        return structure, [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]

    return [
        (id(block), describe(_own(variables, name)), describe(state))
        for block, name, state in zip(blocks, names, states, strict=True)
    ]


def find_periods(kinds: Sequence[Any]) -> list[Periods]:
    """Splits blocks into periods that repeat, so that a program contains few blocks.

    At each block the repetition begins that saves the most blocks, if there is one.

    Args:
      kinds: Kind of each block.

    Example:
      >>> find_periods("aabaabaab" + "a")
      [Periods(first=0, length=3, n=3), Periods(first=9, length=1, n=1)]
      >>> [periods.length for periods in find_periods("aaabaaab" + "aaaa" + "b")]
      [4, 1, 1]
    """
    periods, first = [], 0
    while first < len(kinds):
        best = Periods(first, 1, 1)
        for length in range(1, (len(kinds) - first) // 2 + 1):
            period, n = kinds[first : first + length], 1
            # Slices beyond the end are shorter, and so differ.
            while kinds[first + n * length :][:length] == period:
                n += 1
            if length * (n - 1) > best.length * (best.n - 1):
                best = Periods(first, length, n)
        periods.append(best)
        first += best.length * best.n
    return periods


def apply_blocks(
    model: nn.Module,
    blocks: Sequence[nn.Module],
    names: Sequence[str],
    x: Activations,
    states: Sequence[PyTree],
    *,
    dtype: ComputeDtype,
    remat: bool,
    periods: Sequence[Periods],
    **flags: Any,
) -> tuple[Activations, tuple[PyTree, ...]]:
    """Applies blocks one after the other, with the variables of each in ``model``.

    The variables of a model keep an entry per layer, ``block_0`` and so on; they are
    stacked for a scan only. What the blocks change or sow is written back to these
    entries. The keys of the blocks do not depend on ``periods`` and ``remat``.

    Parameters that are sharded (`Shard`) are gathered block by block. The blocks are
    then computed again for the gradient, as with ``remat``: otherwise what the gradient
    needs would hold the gathered parameters of all.

    Args:
      model: The bound model that owns the variables.
      blocks: The block of each layer, without a parent.
      names: Names of the entries of the layers in ``model``.
      x: Input of the first block, ``(*b, l, d)``.
      states: Initial state of each layer.
      dtype: Dtype of the computation.
      remat: Whether the backward pass recomputes the activations within each block.
      periods: The layers in order; several periods of equal `block_kinds` are evaluated
        by one scan.
      **flags: Further arguments of the blocks, the same for all.

    Returns:
      ``(y, states)``: output of the last block, and the final state of each.
    """
    scope: Any = model.scope  # of a bound model
    keys, mutable = _keys(model, len(names)), scope.mutable
    collections = model.variables
    sharded = has_shards(collections)

    def block_variables(name):
        variables = _own(collections, name)
        # Rounded before a scan: the stacked copy has half the size then.
        return variables | {"params": lower_params(dtype, variables.get("params", {}))}

    def make_step(block, scan):
        def step(x, layer):
            variables, keys, state = layer
            bound: Any = block.bind(gather(variables), rngs=keys, mutable=mutable)
            y, state = bound(x, state=state, **flags)
            return lower(dtype, y), (state, bound.scope.mutable_variables())

        if remat or sharded:
            # A scan already prevents that forward and recomputed operations are merged.
            step = jax.checkpoint(step, prevent_cse=not scan)
        return step

    x, variables = lower(dtype, x), [block_variables(name) for name in names]
    results: list[Any] = [None] * len(names)
    for part in periods:
        if part.n == 1:
            i = part.first
            layer = variables[i], entry(keys, i), states[i]
            x, results[i] = make_step(blocks[i], scan=False)(x, layer)
            continue
        step = _in_turn(
            [make_step(blocks[at.start], scan=True) for at in part.positions]
        )
        # The carry must keep its dtype and the mesh axes that it varies over.
        x, initial = match_varying_axes(x, [stack(states[at]) for at in part.positions])
        layers = [
            (stack(variables[at]), _at(keys, at), state)
            for at, state in zip(part.positions, initial, strict=True)
        ]
        x = x.astype(jax.eval_shape(step, x, entry(layers, 0))[0].dtype)
        x, results_of_period = jax.lax.scan(step, x, layers)
        for at, result in zip(part.positions, results_of_period, strict=True):
            results[at] = [entry(result, i) for i in range(part.n)]
    return x, _put(model, names, results)


def init_blocks(
    model: nn.Module,
    blocks: Sequence[nn.Module],
    names: Sequence[str],
    x: Activations,
    states: Sequence[PyTree],
    *,
    periods: Sequence[Periods],
    **flags: Any,
) -> tuple[Activations, tuple[PyTree, ...]]:
    """Initializes blocks, each with its own key, and applies them as `apply_blocks`.

    Args:
      model: The bound model, which is being initialized.
      blocks: The block of each layer, without a parent.
      names: Names of the entries of the layers in ``model``.
      x: Input of the first block, ``(*b, l, d)``.
      states: Initial state of each layer.
      periods: As for `apply_blocks`.
      **flags: Further arguments of the blocks, the same for all.

    Returns:
      As `apply_blocks`.
    """
    keys = _keys(model, len(names))

    def make_step(block):
        def step(x, layer):
            keys, state = layer
            (y, state), variables = block.init_with_output(
                keys, x, state=state, **flags
            )
            return y.astype(x.dtype), (state, variables)

        return step

    results: list[Any] = [None] * len(names)
    for part in periods:
        if part.n == 1:
            i = part.first
            x, results[i] = make_step(blocks[i])(x, (entry(keys, i), states[i]))
            continue
        step = _in_turn([make_step(blocks[at.start]) for at in part.positions])
        layers = [(_at(keys, at), stack(states[at])) for at in part.positions]
        x, results_of_period = jax.lax.scan(step, x, layers)
        for at, result in zip(part.positions, results_of_period, strict=True):
            results[at] = unstack(result, part.n)
    return x, _put(model, names, results)


def _in_turn(steps: Sequence[Callable]) -> Callable:
    """The step of a period, from those of its blocks."""

    def step_period(x, layers):
        results = []
        for step, layer in zip(steps, layers, strict=True):
            x, result = step(x, layer)
            results.append(result)
        return x, results

    return step_period


def _own(collections, name):
    """The variables of a block, by their collections."""
    return {key: tree[name] for key, tree in collections.items() if name in tree}


def _keys(model, n):
    """A key of each stream of random numbers for each of ``n`` blocks."""
    scope: Any = model.scope
    return {name: jax.random.split(model.make_rng(name), n) for name in scope.rngs}


def _at(keys, positions):
    return jax.tree.map(lambda of_stream: of_stream[positions], keys)


def _put(model, names, layers):
    """Writes the variables of each block to its entry, and returns the states."""
    for block_name, (_, variables) in zip(names, layers, strict=True):
        for name, tree in variables.items():
            model.put_variable(name, block_name, tree)
    return tuple(state for state, _ in layers)
