"""ArrayTask: sequences and targets in an npz file."""

import dataclasses
import functools
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from typing_extensions import override

from ssm_jax.fields import Fraction, PositiveInt, check_fields
from ssm_jax.tasks import base, order, user_files
from ssm_jax.tasks.arrays import checks


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayTask(order.FiniteTask):
    """Regression or classification on the arrays of an npz file.

    The file has these arrays, for ``n`` examples; of pairs, the axes from the length on
    have an axis 2 before them:

    - ``inputs``: numbers ``(n, length, d_input)``, or tokens, integers in
      ``[0, d_input)``, ``(n, length)``.
    - ``targets``: numbers ``(n, d_output)``, or classes, integers in ``[0, d_output)``,
      ``(n,)``; with ``per_step`` ``(n, length, d_output)`` and ``(n, length)``.
    - ``lengths``, optional: integers ``(n,)``, of pairs ``(n, 2)``, the number of steps
      of each sequence from 1 to ``length``; the steps after them are padding.
    - ``split``, optional: ``"train"``, ``"validation"`` or ``"test"``, ``(n,)``.

    Attributes:
      file: Name of the ``.npz`` file.
      data_dir: Directory of the file. None means the current directory.
      length: Number of steps of a sequence, with padding.
      inputs: ``"vector"`` for numbers, ``"token"`` for tokens.
      d_input: Number of features of a step, or size of the vocabulary.
      targets: ``"regression"`` for numbers, ``"classification"`` for classes.
      d_output: Number of values, or of classes.
      per_step: Whether each step has a target.
      pair: Whether an example is a pair of sequences, with one target.
      validation_fraction: Part of the examples for validation, and
      test_fraction: that for testing, drawn once and for all; ignored if the file has
        ``split``.

    Batch:
      inputs: float32, ``(b, length, d_input)``, or int32, ``(b, length)``; of pairs
        with an axis 2 after the first.
      targets: float32 or int32, as in the file.
      loss_mask: bool, ``(b,)``, or ``(b, length)`` with ``per_step``; false in the rows
        that pad the last batch and on padded steps.
      mask: bool, ``(b, length)``, of pairs ``(b, 2, length)``, false on padded steps;
        None if the file has no ``lengths``.

    Splits: those of ``split``; without it, examples drawn independently of the seed.

    Raises:
      FileNotFoundError: At the first batch or count, if there is no such file.
      ValueError: A field is out of range; at the first batch or count, if the file is
        damaged, if an array is missing, does not fit the fields or is not finite, or if
        a split is empty.

    Example:
      >>> import os, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     arrays = {"inputs": np.ones((20, 5, 3)), "targets": np.arange(20) % 2}
      ...     np.savez(os.path.join(folder, "a.npz"), **arrays)
      ...     task = ArrayTask(
      ...         file="a.npz", data_dir=folder, length=5, inputs="vector", d_input=3,
      ...         targets="classification", d_output=2,
      ...     )
      ...     batch = task.batch("train", 0, 4, seed=0)
      >>> batch.inputs.shape, batch.targets.shape
      ((4, 5, 3), (4,))
    """

    file: str
    data_dir: str | None = None
    length: PositiveInt
    inputs: Literal["vector", "token"]
    d_input: PositiveInt
    targets: Literal["regression", "classification"]
    d_output: PositiveInt
    per_step: bool = False
    pair: bool = False
    validation_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.pair and self.per_step:
            raise ValueError(
                "`per_step` must be False for pairs, got True; a pair has one target."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """As the fields state it."""
        return base.TaskSpec(
            length=self.length,
            inputs=self.inputs,
            d_input=self.d_input,
            targets=self.targets,
            d_output=self.d_output,
            l_output=self.length if self.per_step else None,
            pair=self.pair,
        )

    def data_files(self) -> dict[str, Path]:
        """Returns the path of the file, by its name."""
        return user_files.data_files(self._path())

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        n = len(_arrays(self).rows[split])
        if n == 0:
            raise ValueError(
                f"`file` must have examples of the {split} split, got none in "
                f"{self._path()}; `validation_fraction` and `test_fraction` set their "
                "parts, or its array `split` does."
            )
        return n

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        arrays = _arrays(self)
        indices = arrays.rows[split][indices]
        mask = None
        if arrays.lengths is not None:
            mask = np.arange(self.length) < arrays.lengths[indices][..., None]
        if self.per_step:
            steps = np.ones((1, self.length), bool) if mask is None else mask
            loss_mask = loss_mask[:, None] & steps
        # Indexing by an array copies: the caller may modify the batch.
        return base.Batch(
            arrays.inputs[indices], arrays.targets[indices], loss_mask, mask
        )

    def _path(self):
        return user_files.path_of(self.data_dir, self.file)


class _Arrays(NamedTuple):
    inputs: np.ndarray
    targets: np.ndarray
    lengths: np.ndarray | None
    rows: dict[str, np.ndarray]  # examples of each split


# The file is read once per process.
@functools.lru_cache(maxsize=4)
def _arrays(task: ArrayTask) -> _Arrays:
    path = task._path()
    user_files.check_is_there(path)
    file = user_files.npz(path)
    for name in ("inputs", "targets"):
        if name not in file:
            raise ValueError(
                f"`file` must have the arrays inputs and targets, got "
                f"{', '.join(file) or 'none'} in {path}; write it by `np.savez`."
            )
    # Of a single number, which has no axis, the check below says so.
    n, pair = (*file.layout("inputs").shape, 1)[0], (2,) if task.pair else ()
    steps, width = (*pair, task.length), (task.d_input,)
    target_shape = (n, task.length) if task.per_step else (n,)
    vectors, classes = task.inputs == "vector", task.targets == "classification"
    expected = {
        "inputs": (
            (n, *steps, *width) if vectors else (n, *steps),
            None if vectors else task.d_input,
        ),
        "targets": (
            target_shape if classes else (*target_shape, task.d_output),
            task.d_output if classes else None,
        ),
        "lengths": ((n, *pair), task.length + 1),
    }
    expected = {name: kind for name, kind in expected.items() if name in file}
    # All headers before the first array, which may have gigabytes.
    for name, (shape, n_integers) in expected.items():
        checks.check_layout(file.layout(name), name, shape, n_integers, path)
    arrays = {
        name: checks.convert(file[name], name, shape, n_integers, path)
        for name, (shape, n_integers) in expected.items()
    }
    lengths = arrays.get("lengths")
    if lengths is not None and lengths.min(initial=1) < 1:
        raise ValueError(
            f"`lengths` must be at least 1, got {lengths.min()} in {path}; leave "
            "empty sequences out."
        )
    rows = _rows(task, file, n, path)
    return _Arrays(arrays["inputs"], arrays["targets"], lengths, rows)


def _rows(task, file, n, path):
    """The examples of each split."""
    names = get_args(base.Split)
    if "split" in file:
        found, words = file.layout("split"), ""
        if found.shape == (n,) and found.dtype.kind == "U":
            split = file["split"]
            if np.isin(split, names).all():
                return {name: np.flatnonzero(split == name) for name in names}
            words = f" with {np.unique(split)[:5].tolist()}"
        raise ValueError(
            f"`split` must be {n} of {', '.join(names)}, got {found.dtype} "
            f"{found.shape}{words} in {path}; leave it out for splits that are "
            "drawn."
        )
    # Seed 0 for every run: the splits belong to the data.
    order = base.generator("splits of arrays", "train", 0, 0).permutation(n)
    sizes = [round(f * n) for f in (task.validation_fraction, task.test_fraction)]
    validation, test, train = np.split(order, np.cumsum(sizes))
    found = {"train": train, "validation": validation, "test": test}
    return {name: np.sort(rows) for name, rows in found.items()}
