"""Finite groups by name, as tables of the products of their elements."""

import functools
import itertools
import math
import re
from collections.abc import Sequence

import numpy as np

from ssm_jax.fields import check_indices

MAX_ORDER = 1_000
"""Maximum number of elements of a group; its table is of the square of that."""


def order(name: str) -> int:
    """Returns the number of elements of a group.

    Args:
      name: The group; see `product_table`.

    Raises:
      ValueError: There is no such group, or it has one element, or more than
        `MAX_ORDER`.

    Example:
      >>> order("S5"), order("A4xZ5")
      (120, 60)
    """
    return math.prod(_order(kind, n) for kind, n in _factors(name))


@functools.lru_cache(maxsize=16)
def product_table(name: str) -> np.ndarray:
    """Returns the products of all pairs of elements of a group.

    Args:
      name: ``"S"``, the symmetric group, all permutations, or ``"A"``, the alternating
        group, the even ones, with the number of points; ``"Z"`` or ``"C"``, the cyclic
        group, with the number of elements; or several of these with an ``x`` between
        them, their direct product.

    Returns:
      int32, ``(n, n)``, read-only. Entry ``(p, q)`` is the element ``p q``. Of
      permutations it is ``i -> p[q[i]]``: the right one acts first. Permutations are
      numbered in lexicographic order of their images, the elements of cyclic groups by
      their number of turns, and pairs in lexicographic order. Element 0 is the
      identity.

    Raises:
      ValueError: As for `order`.

    Example:
      >>> product_table("C3")
      array([[0, 1, 2],
             [1, 2, 0],
             [2, 0, 1]], dtype=int32)
      >>> table = product_table("S3")  # Of 012, 021, 102, 120, 201, 210.
      >>> int(table[1, 2]), int(table[2, 1])
      (4, 3)

    References:
      The numbering of a group changes no property of a task. The order of factors is
      that of the library that wrote the data of Merrill, Petty and Sabharwal, `The
      Illusion of State in State-Space Models <https://arxiv.org/abs/2404.08819>`_, 2024
    """
    table = np.zeros((1, 1), np.int64)
    for kind, n in _factors(name):
        factor = _cyclic(n) if kind in "CZ" else _permutations(n, even=kind == "A")
        size = len(table) * len(factor)
        # Pairs: the number of the first element is the more significant digit.
        pairs = table[:, None, :, None] * len(factor) + factor[:, None, :]
        table = pairs.reshape(size, size)
    table = table.astype(np.int32)
    table.setflags(write=False)
    return table


def commutator_order(name: str) -> int:
    """Returns the number of elements of the commutator subgroup of a group.

    A product is known up to this subgroup if the factors are known, but not their
    order.

    Args:
      name: The group; see `product_table`.

    Raises:
      ValueError: As for `order`.

    Example:
      >>> [commutator_order(name) for name in ("Z60", "A4xZ5", "A5", "S5")]
      [1, 4, 60, 60]
    """
    table = product_table(name)
    inverse = _inverses(table)
    return len(subgroup(name, np.unique(table[table, table[inverse][:, inverse]])))


def subgroup(name: str, elements: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns the subgroup that elements of a group generate.

    Args:
      name: The group; see `product_table`.
      elements: Numbers of its elements.

    Returns:
      The numbers of the elements that are products of these, sorted; int.

    Raises:
      ValueError: As for `order`, or a number is not that of an element.

    Example:
      >>> subgroup("Z60", [12, 20]).tolist()
      [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56]
    """
    table = product_table(name)
    check_indices("elements", np.asarray(elements), len(table), f"{name} has so many")
    # In a finite group, inverses are powers.
    members = np.unique([0, *elements])
    while len(products := np.unique(table[members[:, None], members])) > len(members):
        members = products
    return members


def coset_order(name: str, elements: Sequence[int]) -> int:
    """Returns how many elements are products of long words of one length.

    These are a coset of a normal subgroup, and each is equally likely: of swaps, which
    are odd, an even number has an even permutation as its product.

    Args:
      name: The group; see `product_table`.
      elements: Numbers of the elements that words are made of, at least one.

    Raises:
      ValueError: As for `subgroup`.

    Example:
      >>> coset_order("S3", [1, 2, 5]), coset_order("S3", [1, 3])
      (3, 6)
    """
    table = product_table(name)
    check_indices("elements", np.asarray(elements), len(table), f"{name} has so many")
    inverse = _inverses(table)
    differences = table[inverse[elements[0]], np.asarray(elements)]
    conjugates = table[
        table[inverse[:, None], differences], np.arange(len(table))[:, None]
    ]
    return len(subgroup(name, np.unique(conjugates)))


def running_products(table: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Multiplies the elements of words from the left to the right.

    Args:
      table: Products of all pairs, ``(n, n)``; element 0 is the identity, and the
        product is associative.
      words: Elements, ``(b, l)``.

    Returns:
      int32, ``(b, l)``: ``p_t = p_{t-1} x_t``, from ``p_0 = x_0`` on.

    Example:
      >>> running_products(product_table("C3"), np.array([[1, 1, 2, 2]])).tolist()
      [[1, 2, 1, 0]]
    """
    b, length = words.shape
    # Chunks of about the root of the length: two loops of so many steps, first within
    # all chunks at once, then over the chunks.
    size = max(1, math.isqrt(length))
    n_chunks = -(-length // size)
    padded = np.pad(words.astype(np.int32), ((0, 0), (0, n_chunks * size - length)))
    products = padded.reshape(b, n_chunks, size)
    for i in range(1, size):
        products[..., i] = table[products[..., i - 1], products[..., i]]
    for j in range(1, n_chunks):
        products[:, j] = table[products[:, j - 1, -1:], products[:, j]]
    return products.reshape(b, -1)[:, :length]


def _inverses(table):
    """The inverse of each element; element 0 is the identity."""
    return np.argmin(table, axis=1)


def _factors(name):
    """The kind and the number of each factor, such as ``[("A", 4), ("Z", 5)]``."""
    factor = r"[ACSZ][1-9]\d{0,3}"
    if isinstance(name, str) and re.fullmatch(f"{factor}(x{factor})*", name):
        factors = [(part[0], int(part[1:])) for part in name.split("x")]
        # Of single factors first: factorials of large numbers are long.
        small = all(n <= 7 or kind in "CZ" for kind, n in factors)
        if small and 2 <= math.prod(itertools.starmap(_order, factors)) <= MAX_ORDER:
            return factors
    raise ValueError(
        "`group` must be S, A, Z or C with a number, or several with an x between "
        f"them, of 2 to {MAX_ORDER:,} elements, got {name!r}; 'A4xZ5' is an example."
    )


def _order(kind, n):
    if kind in "CZ":
        return n
    return math.factorial(n) if kind == "S" else max(1, math.factorial(n) // 2)


def _cyclic(n):
    """Products of the rotations of ``n`` points."""
    turns = np.arange(n)
    return (turns[:, None] + turns) % n


def _permutations(n, *, even):
    """Products of the permutations of ``n`` points, or of the even ones."""
    images = np.array([*itertools.permutations(range(n))])
    if even:
        later = np.triu_indices(n, 1)
        inversions = images[:, later[0]] > images[:, later[1]]
        images = images[inversions.sum(axis=1) % 2 == 0]
    # Images as digits: in lexicographic order these numbers increase.
    digits = n ** np.arange(n)[::-1]
    return np.searchsorted(images @ digits, images[:, images] @ digits)
