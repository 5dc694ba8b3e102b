"""Induction heads: the token behind the special one, at any distance."""

import dataclasses

import numpy as np
import pytest

from ssm_jax.tasks import InductionHeads
from tests.bad_inputs import refuses
from tests.tasks.synthetic.solved import accuracy, assert_solved

SMALL = InductionHeads(length=20, vocabulary=6)


def induce(row):
    special = row[-1]
    return {len(row) - 1: row[row.index(special) + 1]}


def continue_row(row):
    following = {step: row[step + 1] for step in range(len(row) - 1)}
    return following | induce(row)


@pytest.mark.parametrize("special", ["own", "inside"])
def test_target_is_the_token_behind_the_special_one(special):
    task = dataclasses.replace(SMALL, special=special)
    assert_solved(task, induce, [3, 4, 500])
    assert_solved(dataclasses.replace(task, last_only=False), continue_row, [3, 50])


@pytest.mark.parametrize("special, n", [("own", 6), ("inside", 5)])
def test_special_token_is_there_twice_and_never_the_answer(special, n):
    task = dataclasses.replace(SMALL, special=special)
    assert task.spec.d_input == task.spec.d_output == n + 1
    batch = task.batch("train", 0, 1000, seed=0)
    is_special = batch.inputs == n
    np.testing.assert_array_equal(is_special.sum(1), 2)
    assert is_special[:, -1].all()
    # The first one is anywhere, and the answer any other token.
    assert np.abs(is_special[:, :-2].mean(0) - 1 / 18).max() < 0.04
    counts = np.bincount(batch.targets[:, 0], minlength=n)
    assert len(counts) == n
    assert np.abs(counts / 1000 - 1 / n).max() < 0.06


@pytest.mark.parametrize("special, chance", [("own", 1 / 16), ("inside", 1 / 15)])
def test_chance_is_any_token_but_the_special_one(special, chance):
    task = InductionHeads(length=10, special=special)
    assert task.chance == chance
    found = accuracy(task, lambda row: {9: 3}, 5000)
    assert found == pytest.approx(chance, abs=0.012)


def test_default_is_the_published_setting():
    spec = InductionHeads().spec
    assert (spec.length, spec.d_input, spec.l_output) == (256, 17, 1)


BAD = {
    "length": ({"length": 2}, "2", "3"),
    "vocabulary": ({"vocabulary": 2}, "2", "3"),
    "special": ({"special": "none"}, "'none'", "'own', 'inside'"),
    "last_only": ({"last_only": 1}, "1", "True or False"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_field_is_an_error_of_one_line(name, unchecked):
    fields, value, rule = BAD[name]
    with refuses(name, value, rule=rule):
        InductionHeads(**fields)
