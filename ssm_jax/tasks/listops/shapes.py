"""Shapes of random trees for ListOps, with a bound on the number of tokens.

`draw_shapes` makes the nodes of every tree that it rejects. `draw_long_shapes` draws
from the same distribution and rejects trees before their nodes are made, which is
faster where few trees are accepted.

References:
  Nangia and Bowman, `ListOps: A Diagnostic Dataset for Latent Tree Learning
  <https://arxiv.org/abs/1804.06028>`_, 2018, section 2
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

P_OPERATOR = 0.25
"""Probability that a node above the maximum depth is an operator."""

N_TRIAL_TREES = 100_000
"""Number of trees that `check_bounds` samples to find one within the bounds."""

_AT_ONCE = 1024  # Trees sampled at once; most are rejected as too short.
_COUNTED_AT_ONCE = 8192  # Trees counted at once: one in 270 has 7,001 to 8,179 tokens.


class Bounds(NamedTuple):
    """Inclusive bounds on expressions, with the names of `ssm_jax.tasks.ListOps`."""

    min_length: int
    max_length: int
    max_depth: int
    max_arguments: int


class Level(NamedTuple):
    """The nodes of many trees at one depth; siblings are adjacent.

    Attributes:
      tree: Index of the tree of each node, ``(n,)``, non-decreasing.
      is_operator: Whether a node is an operator, with arguments on the next level,
        ``(n,)``.
      n_arguments: Number of arguments of each operator, ``(n_operators,)``.
    """

    tree: np.ndarray
    is_operator: np.ndarray
    n_arguments: np.ndarray


Shapes = Callable[[np.random.Generator, Bounds, int], list[Level]]
"""Draws up to n trees within bounds; returns their levels, from the root down."""


def check_bounds(bounds: Bounds, usual: str) -> None:
    """Raises ValueError unless trees of these lengths exist and are not too rare.

    Args:
      bounds: The bounds.
      usual: The remedy for a bad ``min_length``: the published bounds.
    """
    for name in ("max_depth", "max_arguments"):
        if (value := getattr(bounds, name)) < 2:
            raise ValueError(
                f"`{name}` must be at least 2, got {value}; an operator has at "
                "least two arguments, one level below it."
            )
    if not 1 <= bounds.min_length <= bounds.max_length:
        raise ValueError(
            f"`min_length` must be from 1 to `max_length`, {bounds.max_length}, got "
            f"{bounds.min_length}; {usual}."
        )
    # Rejection sampling without such trees would not terminate.
    if not _has_trees(bounds):
        raise ValueError(
            "`min_length` and `max_length` must be lengths that trees have, got "
            f"{bounds.min_length} and {bounds.max_length}, which none of "
            f"{N_TRIAL_TREES:,} sampled trees has; widen the bounds, or increase "
            "`max_depth` or `max_arguments`."
        )


def _has_trees(bounds: Bounds) -> bool:
    # A fixed seed: whether a task is valid must not depend on chance.
    rng = np.random.default_rng(0)
    rounds = range(0, N_TRIAL_TREES, _AT_ONCE)
    return any(len(draw_shapes(rng, bounds, 1)[0].tree) for _ in rounds)


def draw_shapes(rng: np.random.Generator, bounds: Bounds, n: int) -> list[Level]:
    """Draws the shapes of up to ``n`` trees.

    From the root down, a node is an operator with probability `P_OPERATOR`, or a digit
    at the maximum depth; the number of arguments is uniform. A tree is rejected if its
    length is out of bounds, as soon as it exceeds the maximum length.

    Args:
      rng: Random number generator.
      bounds: Bounds on the trees.
      n: Maximum number of trees. There are fewer, or none, if fewer of those sampled
        at once are within the bounds.

    Returns:
      The levels from the root down, of which the last ones may have no nodes.
    """
    levels: list[Level] = []
    length = np.zeros(_AT_ONCE, np.int64)
    tree = np.arange(_AT_ONCE)
    while len(tree):
        p = P_OPERATOR if len(levels) < bounds.max_depth - 1 else 0.0
        is_operator = rng.random(len(tree)) < p
        parent = tree[is_operator]
        n_arguments = rng.integers(2, bounds.max_arguments, len(parent), endpoint=True)
        levels.append(Level(tree, is_operator, n_arguments))
        # A digit is one token; an operator is two, its own and the closing bracket.
        length += np.bincount(tree, minlength=_AT_ONCE)
        length += np.bincount(parent, minlength=_AT_ONCE)
        next_tree = np.repeat(parent, n_arguments)
        # Every node of the next level adds at least one token.
        length_min = length + np.bincount(next_tree, minlength=_AT_ONCE)
        tree = next_tree[length_min[next_tree] <= bounds.max_length]
        # 0 marks a tree as dropped, since `min_length` is at least 1.
        length[length_min > bounds.max_length] = 0
    accepted = _accept(length, bounds, n)
    number = np.cumsum(accepted) - 1  # The trees that are kept, renumbered from 0.
    result = []
    for tree, is_operator, n_arguments in levels:
        stays = accepted[tree]
        n_arguments = n_arguments[stays[is_operator]]
        result.append(Level(number[tree[stays]], is_operator[stays], n_arguments))
    return result


def draw_long_shapes(rng: np.random.Generator, bounds: Bounds, n: int) -> list[Level]:
    """Draws the shapes of up to ``n`` trees, faster than `draw_shapes` if few fit.

    The length of a tree does not depend on which nodes of a level are the operators,
    only on their number and the numbers of their arguments. Only these are drawn for
    all trees. In the accepted trees, each choice of the nodes that are operators is
    then equally likely, so that the distribution is that of `draw_shapes`.

    Args:
      rng: Random number generator.
      bounds: Bounds on the trees.
      n: Maximum number of trees, as in `draw_shapes`.

    Returns:
      ``max_depth`` levels from the root down, of which the last ones may have no nodes.

    Example:
      >>> bounds = Bounds(min_length=9, max_length=9, max_depth=3, max_arguments=9)
      >>> for level in draw_long_shapes(np.random.default_rng(2), bounds, 1):
      ...     print(level.is_operator.astype(int), level.n_arguments)
      [1] [2]
      [0 1] [4]
      [0 0 0 0] []
    """
    levels = []
    length = np.ones(_COUNTED_AT_ONCE, np.int64)
    # Only trees with nodes on the level: three in four have none below the root.
    trees, n_nodes = np.arange(_COUNTED_AT_ONCE), np.ones(_COUNTED_AT_ONCE, np.int64)
    for depth in range(bounds.max_depth):
        p = P_OPERATOR if depth < bounds.max_depth - 1 else 0.0
        n_operators = rng.binomial(n_nodes, p)
        n_arguments = rng.integers(
            2, bounds.max_arguments, n_operators.sum(), endpoint=True
        )
        levels.append((trees, n_nodes, n_operators, n_arguments))
        has_more = n_operators > 0
        trees, n_operators = trees[has_more], n_operators[has_more]
        # The sums of runs are the numbers of arguments of all operators of a tree.
        first = np.cumsum(n_operators) - n_operators
        n_nodes = np.add.reduceat(n_arguments, first)
        # As above: a token for each node, and one more for each operator.
        length[trees] += n_operators + n_nodes
        # A tree that exceeds the maximum length needs no further nodes.
        fits = length[trees] <= bounds.max_length
        trees, n_nodes = trees[fits], n_nodes[fits]
    accepted = _accept(length, bounds, n)
    return [_arrange(rng, accepted, *level) for level in levels]


def _accept(length: np.ndarray, bounds: Bounds, n: int) -> np.ndarray:
    """Returns which trees are the first ``n`` within the bounds."""
    fits = (bounds.min_length <= length) & (length <= bounds.max_length)
    # The first in order: any other selection would bias the sample.
    return fits & (np.cumsum(fits) <= n)


def _arrange(
    rng: np.random.Generator,
    accepted: np.ndarray,
    trees: np.ndarray,
    n_nodes: np.ndarray,
    n_operators: np.ndarray,
    n_arguments: np.ndarray,
) -> Level:
    """Chooses which nodes of each kept tree on a level are the operators."""
    stays = accepted[trees]
    n_arguments = n_arguments[np.repeat(stays, n_operators)]
    number = (np.cumsum(accepted) - 1)[trees[stays]]  # Renumbered from 0.
    n_nodes, n_operators = n_nodes[stays], n_operators[stays]
    tree = np.repeat(number, n_nodes)
    kinds = np.stack([n_operators, n_nodes - n_operators], axis=1)
    is_operator = np.repeat(np.tile([1, 0], len(n_nodes)), kinds.reshape(-1))
    # The nodes of a tree are permuted by keys: the tree, 48 random bits, the kind. One
    # sort of integers takes half the time of an argsort.
    key = (tree << 49) | (rng.integers(2**48, size=len(tree)) << 1) | is_operator
    key.sort()
    return Level(tree, (key & 1).astype(bool), n_arguments)
