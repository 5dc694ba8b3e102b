"""Shift and CumSum against reference solutions computed from their inputs."""

import chex
import numpy as np
import pytest

from ssm_jax import tasks
from tests.bad_inputs import refuses


def shifted(inputs: np.ndarray, n_shifts: int) -> np.ndarray:
    """Solves Shift step by step, with the delays of the paper."""
    length = inputs.shape[1]
    delays = np.linspace(0, length - length / n_shifts, n_shifts).astype(int)
    outputs = np.zeros((*inputs.shape[:2], n_shifts), np.float32)
    for i in range(length):
        for k, delay in enumerate(delays):
            if i >= delay:
                outputs[:, i, k] = inputs[:, i - delay, 0]
    return outputs


def summed(inputs: np.ndarray) -> np.ndarray:
    """Solves CumSum step by step, in float64."""
    total = np.zeros(len(inputs))
    outputs = np.zeros((*inputs.shape[:2], 1))
    for i in range(inputs.shape[1]):
        total += inputs[:, i, 0]
        outputs[:, i, 0] = total / (i + 1) ** 0.5
    return outputs


@pytest.mark.parametrize(
    "length, n_shifts", [(1, 1), (2, 2), (13, 5), (16, 1), (64, 8), (1000, 8)]
)
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_shift_is_solved_by_delays(length, n_shifts, split):
    task = tasks.Shift(length=length, n_shifts=n_shifts)
    batch = task.batch(split, 3, 4, seed=1)
    chex.assert_trees_all_equal(batch.targets, shifted(batch.inputs, n_shifts))


@pytest.mark.parametrize("length", [1, 2, 13, 4096])
def test_cumsum_is_solved_by_a_running_sum(length):
    batch = tasks.CumSum(length=length).batch("train", 3, 4, seed=1)
    # The targets are rounded to float32 once, at the end.
    np.testing.assert_allclose(batch.targets, summed(batch.inputs), rtol=1e-7)


ATOMIC = {"shift": tasks.Shift(), "cumsum": tasks.CumSum()}
every_task = pytest.mark.parametrize("task", ATOMIC.values(), ids=ATOMIC.keys())


@every_task
def test_loss_mask_is_true_everywhere(task):
    assert task.batch("train", 0, 2, seed=0).loss_mask.all()


@every_task
def test_noise_is_normal_and_reaches_one(task):
    x = task.batch("train", 0, 32, seed=0).inputs[..., 0]
    np.testing.assert_array_equal(np.abs(x).max(axis=1), 1.0)
    z = x / x.std(axis=1, keepdims=True)
    # Mean and fourth moment of a normal variable; over 131,072 draws their standard
    # errors are 0.003 and 0.03, and a uniform one would have 1.8 for 3.
    assert abs(z.mean()) < 0.02
    assert abs((z**4).mean() - 3.0) < 0.2


@every_task
def test_position_makes_one_turn_of_the_circle(task):
    positions = task.batch("train", 0, 2, seed=0).inputs[..., 1:]
    turn = np.exp(2j * np.pi * np.arange(4096) / 4096)
    for row in positions:
        np.testing.assert_allclose(
            row, np.stack([np.real(turn), np.imag(turn)], -1), atol=1e-7
        )


def test_shift_and_cumsum_draw_different_noise():
    noise = [
        task.batch("train", 0, 1, seed=0).inputs[..., 0] for task in ATOMIC.values()
    ]
    assert not np.array_equal(*noise)


def test_defaults_are_those_of_the_paper():
    assert tasks.Shift() == tasks.Shift(length=4096, n_shifts=8)
    assert tasks.CumSum() == tasks.CumSum(length=4096)


BAD_SIZES = {
    "shift_length": (lambda: tasks.Shift(length=0), "length", 0),
    "cumsum_length": (lambda: tasks.CumSum(length=-3), "length", -3),
    "no_shift": (lambda: tasks.Shift(n_shifts=0), "n_shifts", 0),
    "too_many_shifts": (
        lambda: tasks.Shift(length=4, n_shifts=5),
        "n_shifts",
        5,
    ),
}


@pytest.mark.parametrize("name", BAD_SIZES)
def test_bad_size_is_an_error_of_one_line(name):
    make, field, value = BAD_SIZES[name]
    with refuses(field, value):
        make()
