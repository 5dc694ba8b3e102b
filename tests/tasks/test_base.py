"""Random streams, the check of batches, and the imports of the package."""

import dataclasses

import numpy as np
import pytest

from ssm_jax import tasks
from ssm_jax.tasks import base
from tests.bad_inputs import refuses


def test_streams_differ_by_task_split_seed_and_index():
    arguments: list[tuple[str, tasks.Split, int, int]] = [
        ("shift", "train", 0, 0),
        ("cumsum", "train", 0, 0),
        ("shift", "validation", 0, 0),
        ("shift", "test", 0, 0),
        ("shift", "train", 1, 0),
        ("shift", "train", 0, 1),
        ("shift", "train", 5, 1),
        # The same 32-bit words as (5, 1): seed and index must not be concatenated.
        ("shift", "train", 5 + 2**32, 0),
    ]
    first = [base.generator(*a).integers(2**62) for a in arguments]
    assert len(set(first)) == len(arguments)


def test_importing_the_tasks_imports_no_framework_and_no_data(run_python):
    heavy = ("jax", "flax", "sklearn", "tensorflow_datasets", "PIL", "tqdm")
    loaded = run_python(
        "import sys, ssm_jax.tasks\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    assert loaded == "[]"


def test_a_batch_is_the_same_in_another_process(run_python):
    task = "tasks.Shift(length=5, n_shifts=1)"
    printed = run_python(
        "from ssm_jax import tasks\n"
        f"print({task}.batch('test', 2, 1, 0).inputs.tobytes().hex())",
        PYTHONHASHSEED="123",
    )
    batch = tasks.Shift(length=5, n_shifts=1).batch("test", 2, 1, 0)
    assert printed == batch.inputs.tobytes().hex()


def test_classes_of_a_regression_are_not_balanced():
    with refuses("class_weight", "'balanced'", rule="None"):
        dataclasses.replace(tasks.Shift().spec, class_weight="balanced")


@dataclasses.dataclass(frozen=True)
class _Own:
    """A task of a user, with one wrong value in a batch."""

    array: str
    value: int

    spec = tasks.TaskSpec(
        length=3,
        inputs="token",
        d_input=7,
        targets="classification",
        d_output=5,
        l_output=3,
    )

    def n_examples(self, split):
        return None

    def batch(self, split, index, batch_size, seed):
        inputs = np.full((batch_size, 3), 6, np.int32)
        targets = np.full((batch_size, 3), 4, np.int32)
        loss_mask = np.arange(3) < np.full((batch_size, 1), 2)
        {"inputs": inputs, "targets": targets}[self.array][2, 1] = self.value
        # Where no target counts, any value may stand.
        targets[:, 2] = -100
        return tasks.Batch(inputs, targets, loss_mask)


@pytest.mark.parametrize("rows", [None, slice(1, 4)])
@pytest.mark.parametrize(
    ("array", "value", "last"),
    [("inputs", 7, 6), ("inputs", -1, 6), ("targets", 5, 4), ("targets", -1, 4)],
)
def test_index_out_of_range_is_refused_where_a_batch_enters(array, value, last, rows):
    place = [2 if rows is None else 1, 1]
    with refuses(array, f"{value} at {place}", rule=f"from 0 to {last}"):
        base.rows_of_batch(_Own(array, value), "train", 0, 4, 0, rows)
    batch = base.rows_of_batch(_Own(array, 0), "train", 0, 4, 0, rows)
    assert getattr(batch, array)[tuple(place)] == 0
