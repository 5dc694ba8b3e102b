"""Needles in haystacks: the digits are those of the line, wherever it is."""

import dataclasses
import re

import numpy as np
import pytest

from ssm_jax.tasks import NeedleInHaystack
from ssm_jax.tasks.fingerprint import fingerprint_of
from tests.bad_inputs import refuses
from tests.tasks.synthetic.solved import accuracy, assert_solved

SMALL = NeedleInHaystack(length=150)
LINE = re.compile(rb"\nThe number of ([A-Z]+) is (\d+)\.\n")


def row_text(row):
    return (np.array(row) - 1).astype(np.uint8).tobytes()


def find(row):
    text = row_text(row)
    (match,) = LINE.finditer(text)
    key, digits = match.groups()
    question = b"\nThe number of " + key + b" is " + digits[:-1]
    assert text.endswith(question)
    first = len(row) - len(digits)
    return {first + k: digit + 1 for k, digit in enumerate(digits)}


def test_targets_are_the_digits_of_the_line():
    assert_solved(SMALL, find, [57, 1000])
    other = dataclasses.replace(SMALL, n_letters=9, n_digits=2)
    assert_solved(other, find)


@pytest.mark.parametrize("depth, place", [(0.0, 0), (0.5, 50), (1.0, 100)])
def test_depth_is_that_in_the_other_bytes(depth, place):
    task = dataclasses.replace(SMALL, length=157, depth=depth)
    for row in task.batch("train", 0, 5, seed=0).inputs:
        assert LINE.search(row_text(row)).start() == place


def test_depth_of_none_is_uniform():
    rows = SMALL.batch("train", 0, 400, seed=0).inputs
    places = [LINE.search(row_text(row)).start() for row in rows]
    assert min(places) < 5 and max(places) > 88
    assert np.mean(places) == pytest.approx(93 / 2, abs=7)


def test_other_bytes_have_no_digits():
    text = row_text(SMALL.batch("train", 0, 1, seed=0).inputs[0])
    assert re.fullmatch(rb"[a-z ]*", LINE.sub(b"", text).split(b"\n")[0])


def test_bytes_of_a_file_are_read_from_a_random_place(tmp_path):
    text = b"0123456789" * 3 + b"abc\xff\n"
    (tmp_path / "hay.txt").write_bytes(text)
    task = NeedleInHaystack(length=204, file="hay.txt", data_dir=str(tmp_path))
    starts = set()
    for row in task.batch("train", 0, 30, seed=0).inputs:
        body = LINE.sub(b"", row_text(row)).rpartition(b"\nThe")[0]
        assert len(body) == 147
        start = (text * 2).index(body[: len(text)])
        assert body == (text * 6)[start : start + 147]
        starts.add(start)
    assert len(starts) > 10
    assert fingerprint_of(task) is not None and fingerprint_of(SMALL) is None
    (tmp_path / "hay.txt").write_bytes(b"z")
    row = row_text(task.batch("train", 0, 1, seed=0).inputs[0])
    assert row.count(b"z") == 147


def test_file_must_be_there_and_have_a_byte(tmp_path):
    task = NeedleInHaystack(file="hay.txt", data_dir=str(tmp_path))
    with refuses("file", "hay.txt", error=FileNotFoundError):
        task.batch("train", 0, 1, seed=0)
    (tmp_path / "hay.txt").write_bytes(b"")
    with refuses("file", "hay.txt", rule="one byte"):
        task.batch("train", 0, 1, seed=0)


def test_chance_is_any_digit():
    found = accuracy(SMALL, lambda row: dict.fromkeys(range(145, 150), 1 + 55), 600)
    assert found == pytest.approx(SMALL.chance, abs=0.03)


def test_tokens_are_those_of_a_language_model_on_bytes():
    assert (SMALL.spec.d_input, SMALL.spec.d_output) == (257, 257)


BAD = {
    "length": ({"length": 56}, "56", "57"),
    "depth": ({"depth": 1.5}, "1.5", "1"),
    "n_digits": ({"n_digits": 0}, "0", "1"),
    "n_letters": ({"n_letters": 0}, "0", "1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_field_is_an_error_of_one_line(name, unchecked):
    fields, value, rule = BAD[name]
    with refuses(name, value, rule=rule):
        NeedleInHaystack(**fields)
