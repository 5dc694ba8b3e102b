"""The check for tasks of users: each wrong task has one fault, which it names."""

import numpy as np
import pytest

from ssm_jax import testing
from ssm_jax.tasks import Digits, Shift


class OneSeed(Shift):
    def batch(self, split, index, batch_size, seed):
        return super().batch(split, 0, batch_size, seed)


class SameSplits(Shift):
    def batch(self, split, index, batch_size, seed):
        return super().batch("train", index, batch_size, seed)


class WrongType(Shift):
    def batch(self, split, index, batch_size, seed):
        batch = super().batch(split, index, batch_size, seed)
        return batch._replace(inputs=np.float64(batch.inputs))


class CountsTwice(Digits):
    def batch(self, split, index, batch_size, seed):
        batch = super().batch(split, index, batch_size, seed)
        return batch._replace(loss_mask=np.ones_like(batch.loss_mask))


class NoFile(Shift):
    def data_files(self):
        return {"a.csv": "/nowhere/a.csv"}


TASK_FAULTS = {
    "files": (NoFile(length=8, n_shifts=2), "`data_files` must return"),
    "batches": (OneSeed(length=8, n_shifts=2), "batches 0 and 1 must differ"),
    "splits": (SameSplits(length=8, n_shifts=2), "disjoint"),
    "types": (WrongType(length=8, n_shifts=2), "`inputs` must be"),
    "padding": (CountsTwice(), "examples, got"),
}


@pytest.mark.parametrize(("task", "rule"), TASK_FAULTS.values(), ids=TASK_FAULTS.keys())
def test_fault_of_a_task_is_named(task, rule):
    with pytest.raises(AssertionError) as refusal:
        testing.check_task(task, batch_size=7)
    assert rule in str(refusal.value)
