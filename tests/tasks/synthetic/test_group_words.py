"""Words of groups, by permutations, and what predictions that track less reach."""

import numpy as np
import pytest

from ssm_jax.tasks import GroupWords
from ssm_jax.tasks.synthetic import groups
from tests.bad_inputs import refuses
from tests.tasks.synthetic.solved import accuracy, assert_solved
from tests.tasks.synthetic.test_groups import permutations, product

GROUPS = ("S3", "A5", "S5", "A4xZ5", "Z60")


def multiply(group, symbols=None):
    elements = permutations(group)
    number = {element: i for i, element in enumerate(elements)}
    symbols = range(len(elements)) if symbols is None else symbols

    def solve(row):
        found, state = {}, elements[0]
        for step, token in enumerate(row):
            if token != 0:
                state = product(state, elements[symbols[token - 1]])
                found[step] = number[state]
        return found

    return solve


@pytest.mark.parametrize("group", GROUPS)
def test_targets_are_running_products_of_permutations(group):
    assert_solved(GroupWords(group=group, length=21, bos=True), multiply(group), [2, 9])


SWAPS = (1, 2, 5, 6, 14, 21, 24, 54, 80, 105)  # Of S5.


@pytest.mark.parametrize(
    "group, elements", [("A5", (16, 15)), ("S5", SWAPS), ("A4xZ5", (5, 16, 0))]
)
def test_words_are_of_the_elements_that_are_named(group, elements):
    task = GroupWords(group=group, length=21, elements=elements)
    assert task.spec.d_input == len(elements) + 1
    assert task.spec.d_output == groups.order(group)
    assert_solved(task, multiply(group, elements), [2, 9])


def test_swaps_are_permutations_that_exchange_two_points():
    moved = [
        sum(i != j for i, j in enumerate(element)) for (element,) in permutations("S5")
    ]
    assert tuple(np.flatnonzero(np.array(moved) == 2)) == SWAPS


@pytest.mark.parametrize(
    "group, elements",
    [("S5", SWAPS), ("S3", (1, 2)), ("S3", (1, 3)), ("A5", (15, 16)), ("Z60", (1, 7))],
)
def test_chance_is_that_of_the_products_of_one_length(group, elements):
    """Sets of products of growing length, until they grow no more."""
    task = GroupWords(group=group, elements=elements)
    table = groups.product_table(group)
    reached = {0}
    for _ in range(100):
        reached = {int(table[p, q]) for p in reached for q in elements}
    assert task.chance == pytest.approx(1 / len(reached))


@pytest.mark.parametrize(
    "elements, received",
    [
        ((1, 1), "1, 1"),
        ((0, 60), "0, 60"),
        ((-1, 3), "-1, 3"),
        ((0, 1), "which generate 3"),
        ((15,), "(15,)"),
        ((), "()"),
    ],
)
def test_elements_are_different_and_generate_the_group(elements, received):
    with refuses("elements", received):
        GroupWords(group="A5", elements=elements)


def test_new_elements_multiply_from_the_right():
    """Pairs that do not commute tell the orders apart: 11 of 12 in A5."""
    batch = GroupWords(group="A5", length=2).batch("train", 0, 200, seed=0)
    x, y = batch.inputs.T - 1
    table = groups.product_table("A5")
    np.testing.assert_array_equal(batch.targets[:, 1], table[x, y])
    assert np.mean(batch.targets[:, 1] == table[y, x]) < 0.2


@pytest.mark.parametrize("group, n", [("Z60", 60), ("A4xZ5", 60), ("A5", 60)])
def test_published_groups_have_one_size(group, n):
    spec = GroupWords(group=group).spec
    assert (spec.d_input, spec.d_output, spec.l_output) == (n + 1, n, 20)


def test_products_of_all_elements_are_equally_likely():
    task = GroupWords(group="S3", length=5)
    targets = task.batch("train", 0, 1200, seed=0).targets
    for step in range(5):
        counts = np.bincount(targets[:, step], minlength=6)
        assert np.abs(counts / 1200 - 1 / 6).max() < 0.05


def test_chance_is_that_of_a_prediction_that_tracks_nothing():
    """It knows the last element alone, the first product, and no other."""
    task = GroupWords(group="S3", length=6)
    assert task.chance == 1 / 6

    def guess(row):
        return {step: token - 1 for step, token in enumerate(row)}

    found = accuracy(task, guess, 2000, last=True)
    assert found == pytest.approx(task.chance, abs=0.035)


# Element of the group of sums that a factor has: the sign, or the number of turns.
@pytest.mark.parametrize("group, level", [("S3", 1 / 3), ("S5", 1 / 60), ("Z60", 1)])
def test_level_of_a_prediction_that_knows_no_order(group, level):
    task = GroupWords(group=group, length=12)
    assert task.commutative_level == pytest.approx(level)
    table = groups.product_table(group)

    def sort_first(row):
        """The product in another order, which has the same sign or number of turns."""
        product = 0
        for token in sorted(row):
            product = table[product, token - 1]
        return {11: int(product)}

    found = accuracy(task, sort_first, 1500, last=True)
    assert found == pytest.approx(level, abs=0.04)


def test_levels_of_the_published_groups():
    levels = {g: 1 / GroupWords(group=g).commutative_level for g in GROUPS}
    assert levels == {"S3": 3, "A5": 60, "S5": 60, "A4xZ5": 4, "Z60": 1}
