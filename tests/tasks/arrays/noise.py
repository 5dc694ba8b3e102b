"""A task on datasets of grain that draw random numbers, and digests of its batches."""

import dataclasses
import hashlib

from ssm_jax import tasks
from ssm_jax.tasks.base import rows_of_batch


@dataclasses.dataclass(frozen=True)
class Noise:
    """Six examples in each split, whose inputs `random_map` draws."""

    def dataset(self, split):
        import grain

        seed = ("train", "validation", "test").index(split)
        return (
            grain.MapDataset.range(6)
            .seed(seed)
            .random_map(lambda i, rng: (i, rng.normal(size=(5, 2))))
            .map(lambda pair: {"inputs": pair[1], "targets": pair[0] % 2})
        )


FIELDS = {
    "length": 5,
    "inputs": "vector",
    "d_input": 2,
    "targets": "classification",
    "d_output": 2,
}


def digests(first: int, last: int, n_processes: int) -> list[str]:
    """Digests of the rows of each process in some batches of four."""
    task, n = tasks.GrainTask(source=Noise(), **FIELDS), 4 // n_processes
    slices = [slice(row, row + n) for row in range(0, 4, n)]
    batches = [
        rows_of_batch(task, "train", index, 4, 7, rows)
        for index in range(first, last)
        for rows in slices
    ]
    return [
        hashlib.sha256(batch.inputs.tobytes() + batch.targets.tobytes()).hexdigest()
        for batch in batches
    ]
