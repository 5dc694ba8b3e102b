"""Random nested expressions, many at once, level by level: what ListOps is made of.

A node of the tree is a digit or an operator; ``MIN``, ``MAX``, ``MED`` and ``SM`` have
the numbers 0 to 3. Tokens are as `ssm_jax.tasks.ListOps` has them.

References:
  Nangia and Bowman, `ListOps: A Diagnostic Dataset for Latent Tree Learning
  <https://arxiv.org/abs/1804.06028>`_, 2018, section 2
"""

from typing import NamedTuple

import numpy as np

P_OPERATOR = 0.25
"""Probability that a node above the greatest depth is an operator."""

RAREST = 100_000
"""Trees of which at least one must have a wanted length, or none is looked for."""

_AT_ONCE = 1024  # Trees that are drawn together; most of them are far too short.
_DIGIT, _OPERATOR, _CLOSE = 1, 11, 15  # First tokens of their kinds; 0 is padding.


class Bounds(NamedTuple):
    """Which expressions are wanted; as in `ssm_jax.tasks.ListOps`, all inclusive."""

    min_length: int
    max_length: int
    max_depth: int
    max_arguments: int


class _Level(NamedTuple):
    """The nodes of many trees at one depth, siblings side by side.

    Attributes:
      tree: Which tree each node belongs to, ``(n,)``, never falling.
      is_operator: Whether it has arguments, on the next level, ``(n,)``.
      n_arguments: How many, of the operators alone, ``(n_operators,)``.
    """

    tree: np.ndarray
    is_operator: np.ndarray
    n_arguments: np.ndarray


def draw(
    rng: np.random.Generator, n: int, bounds: Bounds
) -> tuple[np.ndarray, np.ndarray]:
    """Draws expressions whose length is within the bounds.

    From the root downwards a node is an operator with probability `P_OPERATOR`, but a
    digit at the greatest depth; an operator has 2 to ``max_arguments`` arguments. All
    numbers of arguments, all operators and all digits are equally likely. Trees of a
    length that is not wanted are drawn anew.

    Args:
      rng: Where the numbers come from.
      n: Expressions to draw.
      bounds: Which are wanted. The search has no end unless they `exist`.

    Returns:
      Tokens, uint8, ``(n, max_length)``, padded with 0, and values, int32, ``(n,)``.

    Example:
      >>> bounds = Bounds(min_length=5, max_length=6, max_depth=2, max_arguments=9)
      >>> tokens, values = draw(np.random.default_rng(1), 2, bounds)
      >>> print(tokens)  # [SM 4 3 6 ] and [SM 0 1 0 2 ]
      [[14  5  4  7 15  0]
       [14  1  2  1  3 15]]
      >>> print(values)
      [3 3]
    """
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    while n:
        levels, found = _draw_shapes(rng, bounds)
        # The first that are found, whatever they are, or the choice would not be fair.
        levels = [_keep_trees(level, found[:n]) for level in levels]
        tokens, sizes, values = _evaluate(rng, levels, bounds.max_arguments)
        parts.append((_write(levels, tokens, sizes, bounds.max_length), values))
        n -= len(values)
    tokens, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    return tokens, values


def exist(bounds: Bounds) -> bool:
    """Whether one of the first `RAREST` trees that are drawn is within the bounds."""
    rng = np.random.default_rng(0)
    rounds = range(0, RAREST, _AT_ONCE)
    return any(len(_draw_shapes(rng, bounds)[1]) for _ in rounds)


def _draw_shapes(
    rng: np.random.Generator, bounds: Bounds
) -> tuple[list[_Level], np.ndarray]:
    """Draws trees without their symbols, and says which have a wanted length.

    A tree that has grown too long is given up where it stands.
    """
    levels: list[_Level] = []
    length = np.zeros(_AT_ONCE, np.int64)
    tree = np.arange(_AT_ONCE)
    while len(tree):
        p = P_OPERATOR if len(levels) < bounds.max_depth - 1 else 0.0
        is_operator = rng.random(len(tree)) < p
        parent = tree[is_operator]
        n_arguments = rng.integers(2, bounds.max_arguments, len(parent), endpoint=True)
        levels.append(_Level(tree, is_operator, n_arguments))
        # A digit is one token, an operator two: its own and the closing bracket.
        length += np.bincount(tree, minlength=_AT_ONCE)
        length += np.bincount(parent, minlength=_AT_ONCE)
        next_tree = np.repeat(parent, n_arguments)
        least = length + np.bincount(next_tree, minlength=_AT_ONCE)
        tree = next_tree[least[next_tree] <= bounds.max_length]
        length[least > bounds.max_length] = 0
    is_wanted = (bounds.min_length <= length) & (length <= bounds.max_length)
    return levels, np.flatnonzero(is_wanted)


def _keep_trees(level: _Level, kept: np.ndarray) -> _Level:
    """Leaves some of the trees, numbered anew from 0 in their order."""
    number = np.full(_AT_ONCE, -1)
    number[kept] = np.arange(len(kept))
    tree = number[level.tree]
    stays = tree >= 0
    n_arguments = level.n_arguments[stays[level.is_operator]]
    return _Level(tree[stays], level.is_operator[stays], n_arguments)


def _evaluate(
    rng: np.random.Generator, levels: list[_Level], max_arguments: int
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Draws symbols from the leaves upwards and works the values out on the way.

    Returns:
      The token of each node and the number of tokens of its tree, by level from the
      root, and the values of the roots.
    """
    tokens, sizes = [], []
    value, size = np.empty(0, np.int32), np.empty(0, np.int64)  # Of the level below.
    for _, is_operator, n_arguments in reversed(levels):
        operator = rng.integers(4, size=len(n_arguments))
        result = _apply(operator, n_arguments, value, max_arguments)
        value = rng.integers(10, size=len(is_operator), dtype=np.int32)
        token = _DIGIT + value
        token[is_operator] = _OPERATOR + operator
        value[is_operator] = result
        inside = np.add.reduceat(size, _starts(n_arguments)) if len(size) else 0
        size = np.ones(len(is_operator), np.int64)
        size[is_operator] = 2 + inside
        tokens.append(token)
        sizes.append(size)
    return tokens[::-1], sizes[::-1], value


def _apply(
    operator: np.ndarray, n_arguments: np.ndarray, value: np.ndarray, max_arguments: int
) -> np.ndarray:
    """Applies each operator to its arguments, which follow one another in ``value``."""
    is_argument = np.arange(max_arguments) < n_arguments[:, None]
    table = np.full(is_argument.shape, 10, np.uint8)  # Above every digit: sorts last.
    table[is_argument] = value
    table.sort(axis=1)
    row = np.arange(len(table))
    below, above = table[row, (n_arguments - 1) // 2], table[row, n_arguments // 2]
    total = table.sum(axis=1, where=is_argument)
    least, greatest = table[:, 0], table[row, n_arguments - 1]
    return np.choose(operator, [least, greatest, (below + above) // 2, total % 10])


def _write(
    levels: list[_Level],
    tokens: list[np.ndarray],
    sizes: list[np.ndarray],
    max_length: int,
) -> np.ndarray:
    """Sets every node's tokens where they stand in its expression."""
    rows = np.zeros((len(levels[0].tree), max_length), np.uint8)
    place = np.zeros(len(rows), np.int64)  # Of the level's nodes, in their rows.
    for depth, (tree, is_operator, n_arguments) in enumerate(levels):
        rows[tree, place] = tokens[depth]
        first, n_inside = place[is_operator] + 1, sizes[depth][is_operator] - 2
        rows[tree[is_operator], first + n_inside] = _CLOSE
        if depth + 1 < len(levels):
            # Siblings stand in a row, each as far on as those before it are long.
            before = np.cumsum(sizes[depth + 1]) - sizes[depth + 1]
            shift = first - before[_starts(n_arguments)]
            place = before + np.repeat(shift, n_arguments)
    return rows


def _starts(counts: np.ndarray) -> np.ndarray:
    """Where each of several runs begins that follow one another."""
    return np.cumsum(counts) - counts
