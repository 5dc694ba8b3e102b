"""The contract of tasks."""

import os

import numpy as np

from ssm_jax.tasks import Batch, Task, TaskSpec, n_batches
from ssm_jax.tasks.base import rows_of_batch
from ssm_jax.tasks.fingerprint import data_files
from ssm_jax.testing.comparison import check

_SPLITS = ("train", "validation", "test")


def check_task(task: Task, *, batch_size: int = 3) -> None:
    """Checks that a task keeps the contract of `Task`.

    Args:
      task: The task.
      batch_size: Rows of a batch; a size that does not divide the splits finds more.

    Raises:
      AssertionError: A property does not hold; the message says which and what usually
        fixes it.

    Example:
      >>> from ssm_jax.tasks import Shift
      >>> check_task(Shift(length=8, n_shifts=2))
    """
    name = type(task).__name__
    check(
        isinstance(task, Task) and isinstance(task.spec, TaskSpec),
        f"{name}: `spec`, `n_examples` and `batch` must exist",
        "`ssm_jax.tasks.Task` says what each returns",
    )
    check(
        all(map(os.path.isfile, data_files(task).values())),
        f"{name}: `data_files` must return the paths of files by their names",
        "leave it out if the task reads no files",
    )
    for split in _SPLITS:
        batch = task.batch(split, 0, batch_size, 0)
        _check_arrays(f"{name}, {split}", task.spec, batch, batch_size)
        check(
            _equal(batch, task.batch(split, 0, batch_size, 0)),
            f"{name}, {split}: the same arguments must give the same batch",
            "draw from `ssm_jax.tasks.base.generator`, which depends on them alone",
        )
        rows = slice(1, batch_size)
        check(
            _equal(
                batch.take(rows), rows_of_batch(task, split, 0, batch_size, 0, rows)
            ),
            f"{name}, {split}: `rows` must select rows of the whole batch",
            "pass it to `shuffled_indices`, or leave the keyword out",
        )
        n = n_batches(task, split, batch_size)
        if n is None or n > 1:
            check(
                not _equal(batch, task.batch(split, 1, batch_size, 0)),
                f"{name}, {split}: batches 0 and 1 must differ",
                "`index` counts the batches of the split",
            )
        if n is not None and split != "train":
            _check_whole(name, task, split, n, batch_size)
    first = [task.batch(split, 0, batch_size, 0).inputs.tobytes() for split in _SPLITS]
    check(
        len(set(first)) == len(_SPLITS),
        f"{name}: the splits must be disjoint, got equal batches",
        "an endless task puts `split` into the seed of its generator",
    )


def _check_arrays(where: str, spec: TaskSpec, batch: Batch, b: int) -> None:
    outputs = (b,) if spec.l_output is None else (b, spec.l_output)
    steps = (b, 2, spec.length) if spec.pair else (b, spec.length)
    vectors = (*steps, spec.d_input) if spec.inputs == "vector" else steps
    values = (*outputs, spec.d_output) if spec.targets == "regression" else outputs
    expected = {
        "inputs": (vectors, "float32" if spec.inputs == "vector" else "int32"),
        "targets": (values, "float32" if spec.targets == "regression" else "int32"),
        "loss_mask": (outputs, "bool"),
        "mask": (steps, "bool"),
        "reset": (steps, "bool"),
        "dt": (steps, "float32"),
    }
    for field, (shape, dtype) in expected.items():
        value = getattr(batch, field)
        if value is None and field in ("mask", "reset", "dt"):
            continue
        got = f"{getattr(value, 'shape', '')} {getattr(value, 'dtype', type(value))}"
        check(
            got == f"{shape} {dtype}",
            f"{where}: `{field}` must be {shape} {dtype}, got {got}",
            "the spec of the task says what its batches are",
        )
    check(
        np.all(np.isfinite(batch.targets)) and np.all(np.isfinite(batch.inputs)),
        f"{where}: inputs and targets must be finite",
        "use zeros where `mask` or `loss_mask` is false",
    )
    limits = [("inputs", spec.inputs == "token", spec.d_input)]
    limits += [("targets", spec.targets == "classification", spec.d_output)]
    for field, applies, limit in limits:
        value = getattr(batch, field)
        check(
            not applies or (value.min() >= 0 and value.max() < limit),
            f"{where}: `{field}` must be in [0, {limit})",
            "indices start at 0",
        )


def _check_whole(name, task, split, n, b):
    """A split that is evaluated has each of its examples once."""
    n_seen = 0
    for index in range(n):
        mask = task.batch(split, index, b, 0).loss_mask
        n_seen += int(mask.reshape(b, -1).any(axis=1).sum())
    n_examples = task.n_examples(split)
    check(
        n_seen == n_examples,
        f"{name}, {split}: {n} batches must have {n_examples} examples, got {n_seen}",
        "`loss_mask` is false in the rows that fill the last batch",
    )


def _equal(one: Batch, other: Batch) -> bool:
    def same(a, b):
        return np.array_equal(a, b) if a is not None and b is not None else a is b

    return all(same(a, b) for a, b in zip(one, other, strict=True))
