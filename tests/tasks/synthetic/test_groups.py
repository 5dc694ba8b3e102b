"""Groups: tables of products, compared with permutations composed in Python."""

import itertools

import numpy as np
import pytest

from ssm_jax.tasks.synthetic import groups
from tests.bad_inputs import refuses

NAMES = ("C2", "S3", "A4", "S4", "A5", "Z60", "A4xZ5", "S3xC2xA3")


def permutations(name):
    """The elements in the order of the table: as permutations of separate points."""
    factors = []
    for part in name.split("x"):
        kind, n = part[0], int(part[1:])
        if kind in "CZ":
            some = [tuple((i + turns) % n for i in range(n)) for turns in range(n)]
        else:
            some = [*itertools.permutations(range(n))]
        if kind == "A":
            some = [p for p in some if sign(p) == 1]
        factors.append(some)
    return [*itertools.product(*factors)]


def sign(p):
    inversions = sum(p[i] > p[j] for i, j in itertools.combinations(range(len(p)), 2))
    return 1 - 2 * (inversions % 2)


def product(p, q):
    """The right factor acts first."""
    return tuple(tuple(a[i] for i in b) for a, b in zip(p, q, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_table_is_that_of_composed_permutations(name):
    elements = permutations(name)
    table = groups.product_table(name)
    assert table.shape == (len(elements),) * 2 == (groups.order(name),) * 2
    number = {element: i for i, element in enumerate(elements)}
    some = np.random.default_rng(0).integers(len(elements), size=(500, 2))
    for p, q in some.tolist():
        assert table[p, q] == number[product(elements[p], elements[q])]
    np.testing.assert_array_equal(table[0], np.arange(len(table)))
    np.testing.assert_array_equal(table[:, 0], np.arange(len(table)))


@pytest.mark.parametrize("name, part", [("S3", 1 / 2), ("A5", 1 / 12), ("Z60", 1)])
def test_part_of_the_pairs_that_commute(name, part):
    """The number of classes of conjugates over the order: orders of factors matter."""
    table = groups.product_table(name)
    assert np.mean(table == table.T) == pytest.approx(part)


@pytest.mark.parametrize(
    "name, order", [("C2", 1), ("S3", 3), ("S4", 12), ("A4", 4), ("S5", 60)]
)
def test_order_of_the_commutator_subgroup(name, order):
    assert groups.commutator_order(name) == order


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 50])
def test_running_products_multiply_from_the_left_to_the_right(length):
    table = groups.product_table("S4")
    words = np.random.default_rng(1).integers(24, size=(3, length))
    found = groups.running_products(table, words)
    for word, products in zip(words.tolist(), found.tolist(), strict=True):
        product = 0
        for element, expected in zip(word, products, strict=True):
            product = table[product, element]
            assert product == expected


@pytest.mark.parametrize(
    "name", ["", "S", "D4", "S0", "S7", "A7", "C1", "Z1001", "A5xS4", "A5x", "s5"]
)
def test_unknown_group_is_an_error_of_one_line(name):
    with refuses("group", repr(name), rule="1,000"):
        groups.order(name)
