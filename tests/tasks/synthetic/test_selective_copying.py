"""Selective copying: the data tokens of a row, in their order, without its noise."""

import numpy as np
import pytest

from ssm_jax.tasks import SelectiveCopying
from tests.bad_inputs import refuses
from tests.tasks.synthetic.solved import accuracy, assert_solved

SMALL = SelectiveCopying(length=30, n_data=5)


def copy(row, marker=15):
    data = [token for token in row if 0 < token < marker]
    first = row.index(marker)
    return {first + k: token - 1 for k, token in enumerate(data)}


def test_targets_are_the_data_in_their_order():
    assert_solved(SMALL, copy, [10, 31, 400])


def test_noise_is_no_class_and_no_target():
    batch = SMALL.batch("train", 0, 500, seed=0)
    assert SMALL.spec.d_output == 14
    assert batch.loss_mask.all()
    counts = np.bincount(batch.targets.ravel(), minlength=14)
    assert len(counts) == 14
    assert np.abs(counts - counts.mean()).max() < 5 * counts.mean() ** 0.5


def test_places_of_data_are_uniform_and_new_in_each_row():
    inputs = SMALL.batch("train", 0, 1000, seed=0).inputs
    is_data = (inputs > 0) & (inputs < 15)
    np.testing.assert_array_equal(is_data.sum(1), 5)
    np.testing.assert_array_equal(inputs[:, -5:], 15)
    assert np.abs(is_data[:, :25].mean(0) - 0.2).max() < 0.065
    assert len(np.unique(is_data, axis=0)) > 950


def test_default_is_the_published_setting():
    spec = SelectiveCopying().spec
    assert (spec.length, spec.d_input, spec.l_output) == (4096, 16, 16)


def test_chance_is_any_data_token():
    task = SelectiveCopying(length=9, vocabulary=6, n_data=3)
    assert task.chance == 0.25
    found = accuracy(task, lambda row: dict.fromkeys(range(6, 9), 0), 1500)
    assert found == pytest.approx(0.25, abs=0.03)


BAD = {
    "length": ({"length": 31}, "31", "32"),
    "vocabulary": ({"vocabulary": 3}, "3", "4"),
    "n_data": ({"n_data": 0}, "0", "1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_field_is_an_error_of_one_line(name, unchecked):
    fields, value, rule = BAD[name]
    with refuses(name, value, rule=rule):
        SelectiveCopying(**fields)
