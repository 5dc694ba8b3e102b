"""Copying: each string of a row is followed by its copy and the end."""

import numpy as np
import pytest

from ssm_jax.tasks import Copying
from tests.bad_inputs import refuses
from tests.tasks.synthetic.solved import accuracy, assert_solved

BOS, BAR, END = 27, 28, 29
PACKED = Copying(length=60, shortest=1, longest=6)
ALONE = Copying(length=30, shortest=2, longest=9, packed=False)
WHOLE = Copying(length=30, shortest=None, longest=None, packed=False)
TASKS = {"packed": PACKED, "alone": ALONE, "whole": WHOLE}

each_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def copy(row):
    """The letters read since the last beginning, from a bar on."""
    found, letters, left = {}, [], None
    for step, token in enumerate(row):
        if token == BOS:
            letters, left = [], None
        elif token == BAR:
            left = [*letters, END]
        elif left is None:
            letters.append(token)
        if left:
            found[step] = left.pop(0)
    return found


def strings(row):
    """The numbers of letters of the strings, and the number of steps of padding."""
    text = "".join("_" if token == 0 else chr(96 + token) for token in row)
    text = text.replace(chr(96 + BOS), "$").replace(chr(96 + BAR), "|")
    body = text.replace(chr(96 + END), ".").rstrip("_")
    return [len(s.split("|")[0]) for s in body.split("$")[1:]], len(text) - len(body)


@each_task
def test_targets_are_the_letters_again(task):
    assert_solved(task, copy, [28, 61, 200])


@each_task
def test_padding_is_behind_the_strings_and_masked(task):
    batch = task.batch("train", 0, 100, seed=0)
    np.testing.assert_array_equal(batch.mask, batch.inputs != 0)
    # No valid step is behind one of padding.
    assert (np.diff(batch.mask.astype(int), axis=1) <= 0).all()


def test_packed_rows_have_as_many_strings_as_fit():
    rows = PACKED.batch("train", 0, 400, seed=0).inputs.tolist()
    numbers = [strings(row) for row in rows]
    assert {n for some, _ in numbers for n in some} == set(range(1, 7))
    # The next one would be longer than what is left.
    assert max(padding for _, padding in numbers) <= 2 * 6 + 2
    assert min(len(some) for some, _ in numbers) >= 61 // 15
    first = np.bincount([some[0] for some, _ in numbers], minlength=7)[1:]
    assert np.abs(first / 400 - 1 / 6).max() < 0.08


def test_rows_of_one_string_have_one():
    rows = ALONE.batch("train", 0, 300, seed=0).inputs.tolist()
    numbers = [strings(row)[0] for row in rows]
    assert {len(some) for some in numbers} == {1}
    assert {some[0] for some in numbers} == set(range(2, 10))


def test_strings_of_one_length_fill_their_rows():
    assert WHOLE.n_copied == (14, 14)
    batch = WHOLE.batch("train", 0, 5, seed=0)
    assert batch.mask.all()
    np.testing.assert_array_equal(batch.loss_mask.sum(1), 15)


def test_letters_are_uniform():
    inputs = PACKED.batch("train", 0, 300, seed=0).inputs
    counts = np.bincount(inputs.ravel(), minlength=30)[1:27]
    assert np.abs(counts - counts.mean()).max() < 7 * counts.mean() ** 0.5


@pytest.mark.parametrize(
    "task, margin",
    [(ALONE, 0.015), (WHOLE, 0.01), (Copying(length=600), 0.02)],
    ids=["alone", "whole", "packed"],
)
def test_chance_is_the_end_and_any_letter(task, margin):
    def guess(row):
        return {step: END if c == END else 1 for step, c in copy(row).items()}

    assert accuracy(task, guess, 150) == pytest.approx(task.chance, abs=margin)


def test_default_is_the_published_setting():
    task = Copying()
    assert (task.spec.length, task.n_copied, task.packed) == (220, (5, 20), True)
    assert task.spec.d_input == 30


BAD = {
    "length": ({"length": 41}, "41", "42"),
    "length_none": ({"length": 3, "shortest": None, "longest": None}, "3", "4"),
    "shortest": ({"shortest": 21}, "21", "20"),
    "longest": ({"longest": 0}, "0", "1"),
    "n_letters": ({"n_letters": 0}, "0", "1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_field_is_an_error_of_one_line(name, unchecked):
    fields, value, rule = BAD[name]
    with refuses(name.removesuffix("_none"), value, rule=rule):
        Copying(**fields)
