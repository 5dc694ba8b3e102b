"""Vectorized generator of random nested expressions for ListOps.

A node of the tree is a digit or an operator; ``MIN``, ``MAX``, ``MED`` and ``SM`` have
the indices 0 to 3. The tokens are those of `ssm_jax.tasks.ListOps`. Many trees are
processed at once, one level at a time.

References:
  Nangia and Bowman, `ListOps: A Diagnostic Dataset for Latent Tree Learning
  <https://arxiv.org/abs/1804.06028>`_, 2018, section 2
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

P_OPERATOR = 0.25
"""Probability that a node above the maximum depth is an operator."""

N_TRIAL_TREES = 100_000
"""Number of trees that `has_expressions` samples to find one within the bounds."""

PARTS = 10
"""Number of parts that `part_of` divides all expressions into."""

_AT_ONCE = 1024  # Trees sampled at once; most are rejected as too short.
_DIGIT, _OPERATOR, _CLOSE = 1, 11, 15  # First token of each kind; 0 is padding.


class Bounds(NamedTuple):
    """Inclusive bounds on expressions, with the names of `ssm_jax.tasks.ListOps`."""

    min_length: int
    max_length: int
    max_depth: int
    max_arguments: int


class _Level(NamedTuple):
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


def part_of(tokens: np.ndarray) -> int:
    """Returns the part that an expression belongs to, independent of the bounds.

    Expressions that differ only in their last digit are in ten different parts, so that
    every part has trees of every shape. A checksum of the preceding tokens determines
    which digit belongs to which part.

    Args:
      tokens: uint8, ``(l,)``; padding on the right is ignored.

    Returns:
      The part, an integer in [0, `PARTS`).

    Example:
      >>> [part_of(np.array([14, 9, digit, 15, 0], np.uint8)) for digit in (6, 7, 8)]
      [9, 0, 1]
    """
    return _part_of(_prefix_to_last_digit(tokens))


def draw(
    rng: np.random.Generator,
    n: int,
    bounds: Bounds,
    parts: Sequence[int] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws expressions whose length is within the bounds, by rejection sampling.

    From the root down, a node is an operator with probability `P_OPERATOR`, or a digit
    at the maximum depth. The number of arguments of an operator, 2 to
    ``max_arguments``, the operator and the digits are uniform.

    Args:
      rng: Random number generator.
      n: Number of expressions.
      bounds: Bounds on the expressions; `has_expressions` must hold for them, or the
        sampling does not terminate.
      parts: Parts, as returned by `part_of`, to draw from with equal probability; the
        last digit of each expression is set accordingly. None means all parts.

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
        # The first accepted trees in order: any other selection would bias the sample.
        levels = [_keep_trees(level, wanted[:n]) for level in levels]
        operators, digits = _draw_symbols(rng, levels)
        rows = _write(levels, operators, digits, bounds.max_length)
        if parts is not None:
            _assign_parts(rng.choice(parts, len(rows)), levels, digits, rows)
        values = _evaluate(levels, operators, digits, bounds.max_arguments)
        found.append((rows, values))
        n -= len(values)
    tokens, values = (np.concatenate(part) for part in zip(*found, strict=True))
    return tokens, values


def has_expressions(bounds: Bounds) -> bool:
    """Returns whether one of `N_TRIAL_TREES` sampled trees is within the bounds."""
    # A fixed seed: whether a task is valid must not depend on chance.
    rng = np.random.default_rng(0)
    rounds = range(0, N_TRIAL_TREES, _AT_ONCE)
    return any(len(_draw_shapes(rng, bounds)[1]) for _ in rounds)


def _draw_shapes(
    rng: np.random.Generator, bounds: Bounds
) -> tuple[list[_Level], np.ndarray]:
    """Draws the shapes of trees; returns their levels and the indices accepted.

    A tree is dropped at the level at which it exceeds the maximum length.
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
        # A digit is one token; an operator is two, its own and the closing bracket.
        length += np.bincount(tree, minlength=_AT_ONCE)
        length += np.bincount(parent, minlength=_AT_ONCE)
        next_tree = np.repeat(parent, n_arguments)
        # Every node of the next level adds at least one token.
        length_min = length + np.bincount(next_tree, minlength=_AT_ONCE)
        tree = next_tree[length_min[next_tree] <= bounds.max_length]
        # 0 marks a tree as dropped, since `min_length` is at least 1.
        length[length_min > bounds.max_length] = 0
    is_wanted = (bounds.min_length <= length) & (length <= bounds.max_length)
    return levels, np.flatnonzero(is_wanted)


def _keep_trees(level: _Level, kept: np.ndarray) -> _Level:
    """Keeps some of the trees, renumbered from 0 in their order."""
    number = np.full(_AT_ONCE, -1)
    number[kept] = np.arange(len(kept))
    tree = number[level.tree]
    stays = tree >= 0
    n_arguments = level.n_arguments[stays[level.is_operator]]
    return _Level(tree[stays], level.is_operator[stays], n_arguments)


def _draw_symbols(
    rng: np.random.Generator, levels: list[_Level]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Draws, per level, a symbol for each operator and a digit for every node."""
    operators, digits = [], []
    # From the leaves up: the order of the draws determines every published example.
    for level in reversed(levels):
        operators.append(rng.integers(4, size=len(level.n_arguments)))
        digits.append(rng.integers(10, size=len(level.is_operator), dtype=np.int32))
    return operators[::-1], digits[::-1]


def _assign_parts(
    parts: np.ndarray, levels: list[_Level], digits: list[np.ndarray], rows: np.ndarray
) -> None:
    """Sets the last digit of each expression, in rows and digits, to match its part."""
    texts = [_prefix_to_last_digit(row) for row in rows]
    shift = parts - np.array([_part_of(text) for text in texts])
    last = np.array([len(text) - 1 for text in texts])
    every = np.arange(len(rows))
    moved = (rows[every, last] - _DIGIT + shift) % 10
    rows[every, last] = _DIGIT + moved
    # Descend from the root: the last node of a tree on a level is either the last digit
    # or the operator whose last argument is the last node on the next level.
    for (tree, is_operator, _), of_level in zip(levels, digits, strict=True):
        node = np.searchsorted(tree, every, side="right") - 1
        is_last = ~is_operator[node]
        of_level[node[is_last]] = moved[every[is_last]]
        every = every[~is_last]


def _prefix_to_last_digit(row: np.ndarray) -> bytes:
    """Strips the closing brackets at the end, which the rest determines."""
    return row.tobytes().rstrip(bytes([_CLOSE, 0]))


def _part_of(text: bytes) -> int:
    # A checksum, not `hash`, whose value for bytes differs between processes.
    return (zlib.crc32(text[:-1]) + text[-1]) % PARTS


def _evaluate(
    levels: list[_Level],
    operators: list[np.ndarray],
    digits: list[np.ndarray],
    max_arguments: int,
) -> np.ndarray:
    """Evaluates the trees from the leaves up; returns the values of the roots."""
    value = np.empty(0, np.int32)  # Values of the nodes one level deeper.
    of_levels = zip(levels, operators, digits, strict=True)
    for (_, is_operator, n_arguments), operator, digit in reversed(list(of_levels)):
        result = _apply(operator, n_arguments, value, max_arguments)
        value = digit.copy()
        value[is_operator] = result
    return value


def _apply(
    operator: np.ndarray, n_arguments: np.ndarray, value: np.ndarray, max_arguments: int
) -> np.ndarray:
    """Applies each operator to its arguments, which are consecutive in ``value``."""
    is_argument = np.arange(max_arguments) < n_arguments[:, None]
    table = np.full(
        is_argument.shape, 10, np.uint8
    )  # Greater than any digit: sorts last.
    table[is_argument] = value
    table.sort(axis=1)
    row = np.arange(len(table))
    # The middle two arguments, equal if the number of arguments is odd.
    below, above = table[row, (n_arguments - 1) // 2], table[row, n_arguments // 2]
    total = table.sum(axis=1, where=is_argument)
    minimum, maximum = table[:, 0], table[row, n_arguments - 1]
    # All four results for every row: vectorized, no branch per operator.
    return np.choose(operator, [minimum, maximum, (below + above) // 2, total % 10])


def _write(
    levels: list[_Level],
    operators: list[np.ndarray],
    digits: list[np.ndarray],
    max_length: int,
) -> np.ndarray:
    """Writes the tokens of every node at their positions in the expression."""
    sizes = _count_tokens(levels)
    rows = np.zeros((len(levels[0].tree), max_length), np.uint8)
    position = np.zeros(len(rows), np.int64)  # First token of each node, in its row.
    for depth, (tree, is_operator, n_arguments) in enumerate(levels):
        token = _DIGIT + digits[depth]
        token[is_operator] = _OPERATOR + operators[depth]
        rows[tree, position] = token
        # Without the token of the operator and its closing bracket.
        first, n_inside = position[is_operator] + 1, sizes[depth][is_operator] - 2
        rows[tree[is_operator], first + n_inside] = _CLOSE
        if depth + 1 < len(levels):
            # Siblings are contiguous: offsets are cumulative sizes, shifted per parent.
            before = np.cumsum(sizes[depth + 1]) - sizes[depth + 1]
            shift = first - before[_starts(n_arguments)]
            position = before + np.repeat(shift, n_arguments)
    return rows


def _count_tokens(levels: list[_Level]) -> list[np.ndarray]:
    """Returns, per level, the number of tokens of the subtree of each node."""
    sizes, size = [], np.empty(0, np.int64)  # Sizes one level deeper.
    for _, is_operator, n_arguments in reversed(levels):
        # Siblings are contiguous: the sums of runs are the sizes of all arguments.
        inside = np.add.reduceat(size, _starts(n_arguments)) if len(size) else 0
        size = np.ones(len(is_operator), np.int64)
        size[is_operator] = 2 + inside
        sizes.append(size)
    return sizes[::-1]


def _starts(counts: np.ndarray) -> np.ndarray:
    """Returns the start of each of several consecutive runs."""
    return np.cumsum(counts) - counts
