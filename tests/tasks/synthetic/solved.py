"""How a reference solver and a trivial one are compared with the targets of a task."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ssm_jax import tasks

# From the tokens of a row to the classes of those steps that have a target.
Solver = Callable[[list[int]], dict[int, int]]


def count_targets(batch: tasks.Batch, length: int) -> list[dict[int, int]]:
    """The classes that count in the loss, of each row by their steps."""
    steps = np.arange(length)[length - batch.targets.shape[1] :]
    rows = zip(batch.targets, batch.loss_mask, strict=True)
    return [
        dict(zip(steps[mask].tolist(), row[mask].tolist(), strict=True))
        for row, mask in rows
    ]


def assert_solved(task: Any, solve: Solver, lengths: Sequence[int] = ()) -> None:
    """The targets are those of the solver, and there are no others, at each length."""
    for length in (task.length, *lengths):
        other = dataclasses.replace(task, length=length)
        for split in ("train", "test"):
            batch = other.batch(split, 3, 4, seed=1)
            assert batch.inputs.shape == (4, length)
            solved = [solve(row) for row in batch.inputs.tolist()]
            assert solved == count_targets(batch, length)


def accuracy(task: Any, solve: Solver, n: int, *, last: bool = False) -> float:
    """Accuracy of a solver in ``n`` rows, or in their last targets."""
    batch = task.batch("test", 0, n, seed=0)
    hits = []
    targets = count_targets(batch, task.length)
    for row, expected in zip(batch.inputs.tolist(), targets, strict=True):
        solved = solve(row)
        steps = [max(expected)] if last else expected
        hits += [solved.get(step) == expected[step] for step in steps]
    return float(np.mean(hits))
