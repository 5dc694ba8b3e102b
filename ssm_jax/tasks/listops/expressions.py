"""Random nested expressions, many at once, level by level: what ListOps is made of.

A node of the tree is a digit or an operator; ``MIN``, ``MAX``, ``MED`` and ``SM`` have
the numbers 0 to 3. Tokens are as `ssm_jax.tasks.ListOps` has them.

References:
  Nangia and Bowman, `ListOps: A Diagnostic Dataset for Latent Tree Learning
  <https://arxiv.org/abs/1804.06028>`_, 2018, section 2
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

P_OPERATOR = 0.25
"""Probability that a node above the greatest depth is an operator."""

RAREST = 100_000
"""Trees of which at least one must have a wanted length, or none is looked for."""

PARTS = 10
"""Parts that `part_of` divides all expressions into."""

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


def part_of(tokens: np.ndarray) -> int:
    """Numbers the part that an expression belongs to, whatever the bounds.

    Expressions that differ in their last digit alone are in ten different parts, so
    that each part has trees of every shape. Which digit is in which part is decided by
    a checksum of what stands before it.

    Args:
      tokens: uint8, ``(l,)``; padding at the right does not count.

    Returns:
      The number, below `PARTS`.

    Example:
      >>> [part_of(np.array([14, 9, digit, 15, 0], np.uint8)) for digit in (6, 7, 8)]
      [9, 0, 1]
    """
    return _part_of(_to_last_digit(tokens))


def draw(
    rng: np.random.Generator,
    n: int,
    bounds: Bounds,
    parts: Sequence[int] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws expressions whose length is within the bounds.

    From the root downwards a node is an operator with probability `P_OPERATOR`, but a
    digit at the greatest depth; an operator has 2 to ``max_arguments`` arguments. All
    numbers of arguments, all operators and all digits are equally likely. Trees of a
    length that is not wanted are drawn anew.

    Args:
      rng: Where the numbers come from.
      n: Expressions to draw.
      bounds: Which are wanted. The search has no end unless they `has_expressions`.
      parts: Numbers of the parts, as `part_of` gives them, that they are from, equally
        likely: the last digit of each is set so. None means all, as drawn.

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
    found: list[tuple[np.ndarray, np.ndarray]] = []
    while n:
        levels, wanted = _draw_shapes(rng, bounds)
        # The first that are found, whatever they are, or the choice would not be fair.
        levels = [_keep_trees(level, wanted[:n]) for level in levels]
        operators, digits = _draw_symbols(rng, levels)
        rows = _write(levels, operators, digits, bounds.max_length)
        if parts is not None:
            _move_into(rng.choice(parts, len(rows)), levels, digits, rows)
        values = _evaluate(levels, operators, digits, bounds.max_arguments)
        found.append((rows, values))
        n -= len(values)
    tokens, values = (np.concatenate(part) for part in zip(*found, strict=True))
    return tokens, values


def has_expressions(bounds: Bounds) -> bool:
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


def _draw_symbols(
    rng: np.random.Generator, levels: list[_Level]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Draws, by level, an operator for each that is one and a digit for every node."""
    operators, digits = [], []
    for level in reversed(levels):
        operators.append(rng.integers(4, size=len(level.n_arguments)))
        digits.append(rng.integers(10, size=len(level.is_operator), dtype=np.int32))
    return operators[::-1], digits[::-1]


def _move_into(
    parts: np.ndarray, levels: list[_Level], digits: list[np.ndarray], rows: np.ndarray
) -> None:
    """Sets the last digit of each expression, in both places, so that its part fits."""
    texts = [_to_last_digit(row) for row in rows]
    shift = parts - np.array([_part_of(text) for text in texts])
    last = np.array([len(text) - 1 for text in texts])
    every = np.arange(len(rows))
    moved = (rows[every, last] - _DIGIT + shift) % 10
    rows[every, last] = _DIGIT + moved
    # The last digit is found from the root on: the last node of its tree on a level is
    # that digit, or the operator whose last argument is the last node on the next.
    for (tree, is_operator, _), of_level in zip(levels, digits, strict=True):
        node = np.searchsorted(tree, every, side="right") - 1
        is_last = ~is_operator[node]
        of_level[node[is_last]] = moved[every[is_last]]
        every = every[~is_last]


def _to_last_digit(row: np.ndarray) -> bytes:
    """What stands before the closing brackets at the end, which it determines."""
    return row.tobytes().rstrip(bytes([_CLOSE, 0]))


def _part_of(text: bytes) -> int:
    return (zlib.crc32(text[:-1]) + text[-1]) % PARTS


def _evaluate(
    levels: list[_Level],
    operators: list[np.ndarray],
    digits: list[np.ndarray],
    max_arguments: int,
) -> np.ndarray:
    """Works the values out from the leaves upwards; gives those of the roots."""
    value = np.empty(0, np.int32)  # Of the level below.
    of_levels = zip(levels, operators, digits, strict=True)
    for (_, is_operator, n_arguments), operator, digit in reversed(list(of_levels)):
        result = _apply(operator, n_arguments, value, max_arguments)
        value = digit.copy()
        value[is_operator] = result
    return value


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
    operators: list[np.ndarray],
    digits: list[np.ndarray],
    max_length: int,
) -> np.ndarray:
    """Sets every node's tokens where they stand in its expression."""
    sizes = _count_tokens(levels)
    rows = np.zeros((len(levels[0].tree), max_length), np.uint8)
    place = np.zeros(len(rows), np.int64)  # Of the level's nodes, in their rows.
    for depth, (tree, is_operator, n_arguments) in enumerate(levels):
        token = _DIGIT + digits[depth]
        token[is_operator] = _OPERATOR + operators[depth]
        rows[tree, place] = token
        first, n_inside = place[is_operator] + 1, sizes[depth][is_operator] - 2
        rows[tree[is_operator], first + n_inside] = _CLOSE
        if depth + 1 < len(levels):
            # Siblings stand in a row, each as far on as those before it are long.
            before = np.cumsum(sizes[depth + 1]) - sizes[depth + 1]
            shift = first - before[_starts(n_arguments)]
            place = before + np.repeat(shift, n_arguments)
    return rows


def _count_tokens(levels: list[_Level]) -> list[np.ndarray]:
    """Counts the tokens of the tree below each node, itself included, by level."""
    sizes, size = [], np.empty(0, np.int64)  # Of the level below.
    for _, is_operator, n_arguments in reversed(levels):
        inside = np.add.reduceat(size, _starts(n_arguments)) if len(size) else 0
        size = np.ones(len(is_operator), np.int64)
        size[is_operator] = 2 + inside
        sizes.append(size)
    return sizes[::-1]


def _starts(counts: np.ndarray) -> np.ndarray:
    """Where each of several runs begins that follow one another."""
    return np.cumsum(counts) - counts
