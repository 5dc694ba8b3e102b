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

import numpy as np

from ssm_jax.tasks.listops.shapes import Bounds, Level, Shapes, draw_shapes

PARTS = 10
"""Number of parts that `part_of` divides all expressions into."""

_DIGIT, _OPERATOR, _CLOSE = 1, 11, 15  # First token of each kind; 0 is padding.


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
    *,
    shapes: Shapes = draw_shapes,
    labelled: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws expressions whose length is within the bounds, by rejection sampling.

    From the root down, a node is an operator with probability `P_OPERATOR`, or a digit
    at the maximum depth. The number of arguments of an operator, 2 to
    ``max_arguments``, the operator and the digits are uniform.

    Args:
      rng: Random number generator.
      n: Number of expressions.
      bounds: Bounds on the expressions for which `check_bounds` passes; otherwise the
        sampling may not terminate.
      parts: Parts, as returned by `part_of`, to draw from with equal probability; the
        last digit of each expression is set accordingly. None means all parts.
      shapes: Draws the shapes of trees; for expressions of thousands of tokens
        `draw_long_shapes` is faster.
      labelled: Whether the token of each closing bracket is increased by the value of
        its subtree, so that 15 to 24 are closing brackets.

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
    blocks: list[tuple[np.ndarray, np.ndarray]] = []
    while n:
        levels = shapes(rng, bounds, n)
        if not len(levels[0].tree):
            continue  # None of the trees that were sampled at once is within bounds.
        operators, digits = _draw_symbols(rng, levels)
        rows, closings = _write(levels, operators, digits, bounds.max_length)
        if parts is not None:
            _assign_parts(rng.choice(parts, len(rows)), levels, digits, rows)
        values = _evaluate(levels, operators, digits)
        if labelled:
            text = rows.reshape(-1)
            for level, closing, value in zip(levels, closings, values, strict=True):
                text[closing] += value[level.is_operator].astype(np.uint8)
        blocks.append((rows, values[0]))
        n -= len(rows)
    tokens, values = (np.concatenate(part) for part in zip(*blocks, strict=True))
    return tokens, values


def _draw_symbols(
    rng: np.random.Generator, levels: list[Level]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Draws, per level, a symbol for each operator and a digit for every node."""
    operators, digits = [], []
    # From the leaves up: the order of the draws determines every published example.
    for level in reversed(levels):
        operators.append(rng.integers(4, size=len(level.n_arguments)))
        digits.append(rng.integers(10, size=len(level.is_operator), dtype=np.int32))
    return operators[::-1], digits[::-1]


def _assign_parts(
    parts: np.ndarray, levels: list[Level], digits: list[np.ndarray], rows: np.ndarray
) -> None:
    """Sets the last digit of each expression, in rows and digits, to match its part."""
    texts = [_prefix_to_last_digit(row) for row in rows]
    shift = parts - np.array([_part_of(text) for text in texts])
    last = np.array([len(text) - 1 for text in texts])
    trees = np.arange(len(rows))
    last_digits = (rows[trees, last] - _DIGIT + shift) % 10
    rows[trees, last] = _DIGIT + last_digits
    # Descend from the root: the last node of a tree on a level is either the last digit
    # or the operator whose last argument is the last node on the next level.
    for (tree, is_operator, _), level_digits in zip(levels, digits, strict=True):
        node = np.searchsorted(tree, trees, side="right") - 1
        is_last = ~is_operator[node]
        level_digits[node[is_last]] = last_digits[trees[is_last]]
        trees = trees[~is_last]


def _prefix_to_last_digit(row: np.ndarray) -> bytes:
    """Strips the closing brackets at the end, which the rest determines."""
    return row.tobytes().rstrip(bytes([_CLOSE, 0]))


def _part_of(text: bytes) -> int:
    # A checksum, not `hash`, whose value for bytes differs between processes.
    return (zlib.crc32(text[:-1]) + text[-1]) % PARTS


def _evaluate(
    levels: list[Level], operators: list[np.ndarray], digits: list[np.ndarray]
) -> list[np.ndarray]:
    """Evaluates the trees from the leaves up; returns, per level, all nodes' values."""
    values, value = [], np.empty(0, np.int32)  # Values of the nodes one level deeper.
    nodes = zip(levels, operators, digits, strict=True)
    for (_, is_operator, n_arguments), operator, digit in reversed(list(nodes)):
        result = _apply(operator, n_arguments, value)
        value = digit.copy()
        value[is_operator] = result
        values.append(value)
    return values[::-1]


def _apply(
    operator: np.ndarray, n_arguments: np.ndarray, value: np.ndarray
) -> np.ndarray:
    """Applies each operator to its arguments, which are consecutive in ``value``."""
    result = np.empty(len(operator), np.int32)
    # One call per operator, on the arguments of its nodes alone: medians are sorted.
    for symbol, apply in enumerate((_minimum, _maximum, _median, _sum_modulo_10)):
        is_symbol = operator == symbol
        arguments = value[np.repeat(is_symbol, n_arguments)]
        result[is_symbol] = apply(arguments, n_arguments[is_symbol])
    return result


def _minimum(value: np.ndarray, n_arguments: np.ndarray) -> np.ndarray:
    return np.minimum.reduceat(value, _starts(n_arguments))


def _maximum(value: np.ndarray, n_arguments: np.ndarray) -> np.ndarray:
    return np.maximum.reduceat(value, _starts(n_arguments))


def _median(value: np.ndarray, n_arguments: np.ndarray) -> np.ndarray:
    is_argument = np.arange(n_arguments.max(initial=0)) < n_arguments[:, None]
    # Greater than any digit: sorts last.
    table = np.full(is_argument.shape, 10, np.uint8)
    table[is_argument] = value
    table.sort(axis=1)
    row = np.arange(len(table))
    # The middle two arguments, equal if the number of arguments is odd.
    below, above = table[row, (n_arguments - 1) // 2], table[row, n_arguments // 2]
    return (below + above) // 2


def _sum_modulo_10(value: np.ndarray, n_arguments: np.ndarray) -> np.ndarray:
    return np.add.reduceat(value, _starts(n_arguments)) % 10


def _write(
    levels: list[Level],
    operators: list[np.ndarray],
    digits: list[np.ndarray],
    max_length: int,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Writes the tokens of every node at their positions in the expression.

    Returns the rows and, per level, the positions of the closing brackets in all rows
    one after another.
    """
    sizes = _count_tokens(levels)
    rows = np.zeros((len(levels[0].tree), max_length), np.uint8)
    text, closings = rows.reshape(-1), []
    position = np.arange(len(rows)) * max_length  # First token of each node.
    for depth, (_, is_operator, n_arguments) in enumerate(levels):
        token = _DIGIT + digits[depth]
        token[is_operator] = _OPERATOR + operators[depth]
        text[position] = token
        # Without the token of the operator and its closing bracket.
        first, n_inside = position[is_operator] + 1, sizes[depth][is_operator] - 2
        closings.append(first + n_inside)
        text[closings[-1]] = _CLOSE
        if depth + 1 < len(levels):
            # Siblings are contiguous: offsets are cumulative sizes, shifted per parent.
            offsets = np.cumsum(sizes[depth + 1]) - sizes[depth + 1]
            shift = first - offsets[_starts(n_arguments)]
            position = offsets + np.repeat(shift, n_arguments)
    return rows, closings


def _count_tokens(levels: list[Level]) -> list[np.ndarray]:
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
