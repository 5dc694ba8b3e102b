"""Parity and sums against loops, and which steps count."""

import dataclasses

import numpy as np
import pytest

from ssm_jax.tasks import GroupWords, ModularSums, Parity
from tests.bad_inputs import refuses
from tests.tasks.synthetic.solved import accuracy, assert_solved


def parity(row):
    found, odd = {}, False
    for step, token in enumerate(row):
        odd ^= token == 2
        if token != 0:
            found[step] = int(odd)
    return found


def navigate(row, moves=(-1, 0, 1), k=5):
    found, place = {}, 0
    for step, token in enumerate(row):
        if token != 0:
            place = (place + moves[token - 1]) % k
            found[step] = place
    return found


def last(solve):
    def solve_last(row):
        found = solve(row)
        return {max(found): found[max(found)]}

    return solve_last


CASES = {
    "parity": (Parity(length=20), parity),
    "sums": (ModularSums(length=20), navigate),
    "sums_7": (
        ModularSums(length=20, modulus=7, moves=(3, -9)),
        lambda row: navigate(row, (3, -9), 7),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shortest", [None, 3])
def test_targets_are_those_of_a_loop(name, shortest):
    task, solve = CASES[name]
    task = dataclasses.replace(task, shortest=shortest)
    assert_solved(task, solve, [4, 33, 300])
    assert_solved(dataclasses.replace(task, last_only=True, bos=True), last(solve), [5])


@pytest.mark.parametrize("bos", [False, True])
def test_words_end_anywhere_and_padding_is_behind_them(bos):
    task = Parity(length=9 + bos, shortest=2, last_only=True, bos=bos)
    batch = task.batch("train", 0, 800, seed=0)
    n = batch.mask.sum(1) - bos
    assert np.abs(np.bincount(n, minlength=10)[2:] / 800 - 1 / 8).max() < 0.05
    np.testing.assert_array_equal(np.argmax(batch.loss_mask, 1), n - 1 + bos)
    np.testing.assert_array_equal(batch.loss_mask.sum(1), 1)
    expected = batch.mask & (np.arange(9 + bos) >= bos)
    np.testing.assert_array_equal(batch.inputs != 0, expected)
    if bos:
        assert not batch.inputs[:, 0].any() and batch.mask[:, 0].all()


def test_words_that_fill_their_rows_need_no_mask():
    batch = Parity(length=5).batch("train", 0, 4, seed=0)
    assert batch.mask is None and batch.loss_mask.all()


def test_symbols_are_uniform():
    tokens = ModularSums(length=100).batch("train", 0, 100, seed=0).inputs
    np.testing.assert_allclose(np.bincount(tokens.ravel())[1:] / 1e4, 1 / 3, atol=0.02)


@pytest.mark.parametrize("task", [Parity(), ModularSums()], ids=["parity", "sums"])
def test_chance_is_that_of_a_prediction_that_tracks_nothing(task):
    found = accuracy(task, lambda row: dict.fromkeys(range(40), 1), 1000, last=True)
    assert found == pytest.approx(task.chance, abs=0.06)


def test_moves_that_wrap_around_fit_in_an_integer():
    task = ModularSums(length=9, modulus=3, moves=(2**40, 2**40 + 1))
    first = 2**40 % 3
    tokens, targets = task.batch("train", 0, 1, seed=0)[:2]
    expected = np.cumsum(tokens[0] - 1 + first) % 3
    np.testing.assert_array_equal(targets[0], expected)


BAD = {
    "length": (Parity, {"length": 3, "shortest": 3, "bos": True}, "3", "4"),
    "shortest": (ModularSums, {"shortest": 0}, "0", "1"),
    "modulus": (ModularSums, {"modulus": 1}, "1", "2"),
    "moves": (ModularSums, {"moves": (1, 6)}, "(1, 6)", "5"),
    "moves_one": (ModularSums, {"moves": (1,)}, "(1,)", "two"),
    "group": (GroupWords, {"group": "B5"}, "'B5'", "S"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_field_is_an_error_of_one_line(name, unchecked):
    task, fields, value, rule = BAD[name]
    with refuses(name.removesuffix("_one"), value, rule=rule):
        task(**fields)
