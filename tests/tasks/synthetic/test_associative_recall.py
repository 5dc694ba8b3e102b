"""Associative recall: queries have the values of their pairs, where they should be."""

import numpy as np
import pytest

from ssm_jax.tasks import AssociativeRecall
from tests.bad_inputs import refuses
from tests.tasks.synthetic.solved import accuracy, assert_solved

SMALL = AssociativeRecall(length=40, vocabulary=50, n_pairs=5)


def recall(row, n_pairs=5):
    value_of, found = {}, {}
    for i in range(n_pairs):
        value_of[row[2 * i]] = row[2 * i + 1]
    for step in range(2 * n_pairs, len(row)):
        if row[step] != 0:
            found[step] = value_of[row[step]]
    return found


def test_targets_are_those_of_a_lookup():
    assert_solved(SMALL, recall, [20, 41, 300])


def test_keys_and_values_are_different_tokens_none_of_them_twice():
    batch = SMALL.batch("train", 0, 300, seed=0)
    keys, values = batch.inputs[:, 0:10:2], batch.inputs[:, 1:10:2]
    assert keys.min() == 1 and keys.max() == 24
    assert values.min() == 25 and values.max() == 49
    for row in (*keys, *values):
        assert len(set(row.tolist())) == 5
    np.testing.assert_array_equal(batch.loss_mask.sum(1), 5)
    assert not batch.targets[~batch.loss_mask].any()
    # All are equally likely in each place: 300 of 24 keys.
    counts = np.bincount(keys.ravel(), minlength=25)[1:]
    assert np.abs(counts - 62.5).max() < 5 * 62.5**0.5


def test_queries_are_at_even_distances_behind_the_pairs():
    batch = SMALL.batch("train", 0, 100, seed=0)
    steps = np.nonzero(batch.loss_mask)[1]
    assert steps.min() >= 10 and not (steps % 2).any()


def slots(power, n=3000):
    task = AssociativeRecall(length=20, vocabulary=20, n_pairs=1, power=power)
    steps = np.nonzero(task.batch("train", 0, n, seed=0).loss_mask)[1]
    return np.bincount((steps - 2) // 2, minlength=9) / n


@pytest.mark.parametrize("power", [0.01, 1.0, 3.0])
def test_distances_of_queries_have_the_power(power):
    expected = np.arange(1, 10) ** (power - 1)
    np.testing.assert_allclose(slots(power), expected / expected.sum(), atol=0.035)


def test_slots_of_several_keys_are_drawn_without_replacement():
    task = AssociativeRecall(length=10, vocabulary=20, n_pairs=2, power=0.5)
    batch = task.batch("train", 0, 4000, seed=0)
    slot = np.argmax(batch.inputs[:, 4:, None] == batch.inputs[:, None, :4:2], 1) // 2
    p = np.arange(1, 4) ** -0.5
    p /= p.sum()
    for i in range(3):
        for j in range(3):
            expected = 0 if i == j else p[i] * p[j] / (1 - p[i])
            part = np.mean((slot[:, 0] == i) & (slot[:, 1] == j))
            assert part == pytest.approx(expected, abs=0.03)


def test_random_filler_changes_steps_without_a_target_only():
    task = AssociativeRecall(length=40, vocabulary=50, n_pairs=5, filler="random")
    batch = task.batch("train", 0, 200, seed=0)
    asked = np.where(batch.loss_mask, batch.inputs, 0)
    rows = np.concatenate([batch.inputs[:, :10], asked[:, 10:]], axis=1)
    for row, targets in zip(rows.tolist(), batch.targets, strict=True):
        assert recall(row) == {i: targets[i] for i in np.flatnonzero(targets)}
    filler = batch.inputs[:, 10:][~batch.loss_mask[:, 10:]]
    assert set(filler.tolist()) == set(range(50))


def test_chance_is_any_value_of_the_row():
    def guess(row):
        return {step: row[3] for step in range(10, len(row))}

    assert SMALL.chance == 0.2
    assert accuracy(SMALL, guess, 200) == 0.2


def test_first_pairs_are_asked_first_with_a_small_power():
    def in_order(row):
        steps = [step for step in range(8, len(row)) if row[step]]
        return {step: row[2 * i + 1] for i, step in enumerate(steps)}

    published = AssociativeRecall()
    assert accuracy(published, in_order, 1500) == pytest.approx(0.28, abs=0.025)
    uniform = AssociativeRecall(power=1.0)
    assert accuracy(uniform, in_order, 1500) == pytest.approx(0.25, abs=0.025)


BAD = {
    "length": ({"length": 15}, "15", "16"),
    "n_pairs": ({"n_pairs": 8, "vocabulary": 17, "length": 99}, "8", "7"),
    "vocabulary": ({"vocabulary": 3}, "3", "4"),
    "power": ({"power": 0.0}, "0.0", "0"),
    "filler": ({"filler": "noise"}, "'noise'", "'zero', 'random'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_field_is_an_error_of_one_line(name, unchecked):
    fields, value, rule = BAD[name]
    with refuses(name, value, rule=rule):
        AssociativeRecall(**fields)
