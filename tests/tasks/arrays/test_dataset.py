"""GrainTask: batches of a dataset against its elements, and grain's own datasets."""

import dataclasses
import itertools
import sys

import numpy as np
import pytest

from ssm_jax import tasks
from ssm_jax.tasks.arrays import dataset
from ssm_jax.testing import check_task
from tests.bad_inputs import refuses
from tests.tasks.arrays import noise

FIELDS = {"length": 5, "inputs": "vector", "d_input": 2}
CLASSES = {"targets": "classification", "d_output": 3}
VALUES = {"targets": "regression", "d_output": 2}


class Elements:
    """A dataset as grain's: elements beyond the last are those of further epochs."""

    def __init__(self, example, n):
        self.example, self.n = example, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.example(i)


def example(i, n, start, per_step, steps, augmented):
    """Example ``i % n`` of a split, with the epoch as last feature if augmented."""
    epoch, i = divmod(i, n) if augmented else (0, i % n)
    at = np.arange(start + i, start + i + steps(i))
    inputs = np.stack([at, np.full(len(at), epoch)], -1)
    return {"inputs": inputs, "targets": at % 3 if per_step else (start + i) % 3}


@dataclasses.dataclass(frozen=True)
class Source:
    """Three splits of numbers that do not overlap."""

    per_step: bool = False
    padded: bool = False
    augmented: bool = True

    def dataset(self, split):
        n, start = {"train": (9, 0), "validation": (7, 100), "test": (8, 200)}[split]
        steps = (lambda i: 1 + i % 5) if self.padded else (lambda i: 5)
        options = self.per_step, steps, self.augmented
        return Elements(lambda i: example(i, n, start, *options), n)


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_batches_are_the_elements_of_their_epoch(per_step, padded):
    source = Source(per_step, padded)
    task = tasks.GrainTask(
        source=source, per_step=per_step, padded=padded, **FIELDS, **CLASSES
    )
    check_task(task)
    for index in range(5):  # two of four make an epoch
        batch = task.batch("train", index, 4, seed=0)
        for row in range(4):
            first, epoch = batch.inputs[row, 0].astype(int)
            assert epoch == index // 2
            element = source.dataset("train")[9 * epoch + first]
            n = len(element["inputs"])
            np.testing.assert_array_equal(batch.inputs[row, :n], element["inputs"])
            assert not batch.inputs[row, n:].any()
            counted = batch.targets[row, :n] if per_step else batch.targets[row]
            np.testing.assert_array_equal(counted, element["targets"])
            assert (batch.mask is not None) == padded
            if batch.mask is not None:
                assert batch.mask[row].tolist() == [i < n for i in range(5)]
            if per_step:
                assert batch.loss_mask[row].tolist() == [i < n for i in range(5)]


def test_files_are_those_of_the_source(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class OnFile(Source):
        def data_files(self):
            return {"a": tmp_path / "a"}

    task = tasks.GrainTask(source=OnFile(), **FIELDS, **CLASSES)
    assert task.data_files() == {"a": tmp_path / "a"}
    assert not tasks.GrainTask(source=Source(), **FIELDS, **CLASSES).data_files()


def test_dataset_of_grain_draws_anew_in_each_epoch():
    pytest.importorskip("grain")
    task = tasks.GrainTask(source=noise.Noise(), **noise.FIELDS)
    check_task(task, batch_size=2)
    first, second, again = (task.batch("train", i, 6, 0).inputs for i in (0, 1, 0))
    np.testing.assert_array_equal(first, again)
    assert not set(first.ravel().tolist()) & set(second.ravel().tolist())


# Where a read of twelve batches, each of them an epoch, is interrupted.
RESTARTS = (0, 3, 4, 8, 12)


@pytest.mark.parametrize("n_processes", [1, 2])
def test_every_restart_continues_what_random_map_draws(n_processes):
    pytest.importorskip("grain")
    found = []
    for part in itertools.pairwise(RESTARTS):
        dataset._dataset.cache_clear()
        found += noise.digests(*part, n_processes)
    assert found == noise.digests(0, 12, n_processes)
    assert len(set(found)) == 12 * n_processes


@pytest.mark.full
def test_another_python_continues_what_random_map_draws(run_python):
    pytest.importorskip("grain")
    program = "from tests.tasks.arrays import noise; print(*noise.digests(8, 12, 2))"
    assert run_python(program).split() == noise.digests(0, 12, 2)[16:]


def repeat(**changes):
    """A source of equal examples with some changes."""
    fields = {"inputs": np.ones((5, 2)), "targets": 1, **changes}
    return lambda i: fields


BAD = {
    "steps": (repeat(inputs=np.ones((6, 2))), 9, {}, "inputs", (6, 2)),
    "too long": (repeat(inputs=np.ones((6, 2))), 9, {"padded": True}, "inputs", 6),
    "no step": (repeat(inputs=np.ones((0, 2))), 9, {"padded": True}, "inputs", 0),
    "finite": (repeat(inputs=np.full((5, 2), np.nan)), 9, {}, "inputs", "nan"),
    "tokens": (repeat(inputs=np.full(5, 2)), 9, {"inputs": "token"}, "inputs", 2),
    "class": (repeat(targets=3), 9, {}, "targets", 3),
    "values": (repeat(targets=np.ones(3)), 9, VALUES, "targets", (3,)),
    "filtered": (lambda i: None, 9, {}, "source", "NoneType"),
    "names": (lambda i: {"inputs": 1, "label": 1}, 9, {}, "source", "label"),
    "empty": (repeat(), 0, {}, "source", 0),
    "repeated": (repeat(), sys.maxsize, {}, "source", sys.maxsize),
}


@pytest.mark.parametrize("name", BAD)
def test_example_that_does_not_fit_is_refused(name):
    make_example, n, changes, argument, value = BAD[name]

    @dataclasses.dataclass(frozen=True)
    class Bad:
        def dataset(self, split):
            return Elements(make_example, n)

    task = tasks.GrainTask(source=Bad(), **{**FIELDS, **CLASSES, **changes})
    with refuses(argument, value):
        task.batch("test", 0, 2, seed=0)


def test_source_without_a_dataset_is_refused():
    with refuses("source", 3):
        tasks.GrainTask(source=3, **FIELDS, **CLASSES)
