"""LongTable: labelled sequences in a table with a row for each step."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from typing_extensions import override

from ssm_jax.fields import Fraction, PositiveInt, check_fields
from ssm_jax.tasks import base, new_data, user_files
from ssm_jax.tasks.arrays import examples
from ssm_jax.tasks.series import columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongTable(examples.ExamplesTask):
    r"""Regression or classification: sequences of a table in long format.

    Each row is a step. A column names the example that the step belongs to, another has
    the target of that example, the same in all of its rows, and columns of numbers are
    the features. The steps of an example are in the order of the file, in which its
    rows need not be adjacent. Features, and targets that are numbers, have mean 0 and
    standard deviation 1 in the train split; `in_units` is the inverse for targets.

    Attributes:
      file: Name of a ``.csv``, ``.npz`` or ``.parquet`` file; see
        `ssm_jax.tasks.series.columns` for its format. A pattern such as ``"*.csv"``
        means several files of the same columns, whose names are the column ``"file"``.
      data_dir: Directory of the file. None means the current directory.
      example: Column that names the example.
      target: Column of the target.
      features: Columns of numbers.
      length: Number of steps of a sequence, at least that of the longest example; the
        others are padded.
      classes: Values of the target, as they are written in the file. None means that
        the target is a number.
      class_weight: ``"balanced"`` for classes of different frequency; see `TaskSpec`.
      missing: ``"error"`` refuses missing values of features; ``"mean"`` replaces one
        by the mean of its column.
      statistics: File of `compute_statistics` of the data of a training, which are used
        instead of those of this file. None means those of this file.
      validation_fraction: Part of the examples for validation, and
      test_fraction: that for testing, drawn once and for all.

    Batch:
      inputs: float32, ``(b, length, k)`` with ``k`` features.
      targets: int32, ``(b,)``, or float32, ``(b, 1)``.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.
      mask: bool, ``(b, length)``, false on padded steps; None if there are none.

    Splits: examples drawn independently of the seed.

    Raises:
      FileNotFoundError: At the first batch or count, if there is no such file.
      ValueError: A field is out of range; at the first batch or count, if the file is
        damaged, lacks a column, has a value that a column may not have, an example with
        two targets or more steps than ``length``, or a split is empty.

    Example:
      >>> import tempfile
      >>> rows = [f"{i},{i + t},{'up' if i % 2 else 'down'}"
      ...         for i in range(20) for t in range(5)]
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     _ = Path(folder, "a.csv").write_text("id,x,label\n" + "\n".join(rows))
      ...     task = LongTable(
      ...         file="a.csv", data_dir=folder, example="id", target="label",
      ...         features=("x",), length=5, classes=("down", "up"),
      ...     )
      ...     batch = task.batch("train", 0, 4, seed=0)
      >>> batch.inputs.shape, batch.targets.shape
      ((4, 5, 1), (4,))
    """

    file: str
    data_dir: str | None = None
    example: str
    target: str
    features: tuple[str, ...]
    length: PositiveInt
    classes: tuple[str, ...] | None = None
    class_weight: Literal["balanced"] | None = None
    missing: Literal["error", "mean"] = "error"
    statistics: str | None = None
    validation_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.1

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.features:
            raise ValueError("`features` must name a column of numbers, got none.")
        if self.classes is not None and len(set(self.classes)) < 2:
            raise ValueError(
                f"`classes` must be two or more, got {self.classes}; None means that "
                "the target is a number."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """Columns as features of a step; one prediction per example."""
        return base.TaskSpec(
            length=self.length,
            inputs="vector",
            d_input=len(self.features),
            targets="regression" if self.classes is None else "classification",
            d_output=1 if self.classes is None else len(self.classes),
            l_output=None,
            class_weight=self.class_weight,
        )

    def data_files(self) -> dict[str, Path]:
        """Returns the path of the file, or of those of a pattern, by their names."""
        return columns.files(self._path())

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        found = self._examples.rows
        if len(found[split]) == 0:
            raise ValueError(
                f"`file` must have examples of the {split} split, got "
                f"{sum(map(len, found.values()))} in all in {self._path()}; "
                "`validation_fraction` and `test_fraction` set their parts."
            )
        return len(found[split])

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        return self._examples.take(split, indices, loss_mask)

    @override
    def new_examples(
        self, data: str | columns.Table | None = None
    ) -> new_data.NewExamples:
        table = _table(data or self._path())
        read = _sequences(self, table)
        names = table[self.example][read.first_rows]
        inputs = self.scales.apply_to_inputs(read.inputs)
        mask = examples.valid_steps(read.lengths, self.length)
        batches = new_data.batches_of(inputs, mask)
        return new_data.NewExamples(self.example, names, self.classes, batches)

    def preprocessing(self) -> dict[str, Any]:
        """Describes features, scales and classes, in values of JSON, for an export."""
        about = {"features": [*self.features], **self.scales.described()}
        return about if self.classes is None else about | {"classes": [*self.classes]}

    @property
    @override
    def _is_scaled(self) -> dict[str, bool]:
        return {"inputs": True, "targets": self.classes is None}

    @override
    def _read(self) -> examples.Examples:
        return _examples(self, columns.read(self._path()))

    @override
    def _read_labelled(self, data: str | columns.Table) -> examples.Examples:
        table = _table(data)
        read = _sequences(self, table)
        targets = _targets(self, table, read)
        rows = new_data.test_split(len(targets))
        return examples.Examples(read.inputs, targets, read.lengths, self.length, rows)

    def _path(self):
        return user_files.path_of(self.data_dir, self.file)


# Read again if the file has changed since.
@functools.lru_cache(maxsize=4)
def _examples(task: LongTable, table: columns.Table) -> examples.Examples:
    found = task._read_labelled(table)
    rows = examples.drawn_splits(
        len(found.inputs), task.validation_fraction, task.test_fraction
    )
    return task._standardized(found._replace(rows=rows))


def _table(data):
    return data if isinstance(data, columns.Table) else columns.read(data)


class _Sequences(NamedTuple):
    """The features of a table: a row of it is a step of an example.

    Attributes:
      inputs: float64, ``(n, length, k)``, NaN where a value is missing.
      lengths: Number of valid steps, or None if all are.
      rows: The rows of the table, example by example, in the order of their steps.
      first_of_row: Position in ``rows`` of the first step of the example, of each.
    """

    inputs: np.ndarray
    lengths: np.ndarray | None
    rows: np.ndarray
    first_of_row: np.ndarray

    @property
    def first_rows(self) -> np.ndarray:
        """The row of the first step of each example."""
        return self.rows[np.unique(self.first_of_row)]


def _sequences(task, table):
    """The sequences of a table, which are checked."""
    example_of_row, lengths = group(table, task.example)
    n, path = len(lengths), table.path
    if lengths.max() > task.length:
        raise ValueError(
            f"`length` must be at least {lengths.max()}, the steps of the longest "
            f"example of {path}, got {task.length}; the others are padded."
        )
    # The position of each row in its example, in the order of the file.
    by_example = np.argsort(example_of_row, kind="stable")
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    step = np.empty(len(example_of_row), int)
    step[by_example] = np.arange(len(by_example)) - first
    values = [_numbers(table, name, task.missing) for name in task.features]
    inputs = np.zeros((n, task.length, len(values)))
    inputs[example_of_row, step] = np.stack(values, -1)
    padded = lengths if lengths.min() < task.length else None
    return _Sequences(inputs, padded, by_example, first)


def group(table: columns.Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the example of each row, and the number of rows of each example.

    Args:
      table: The table.
      name: Column that names the example.

    Returns:
      int64, ``(rows,)`` and ``(n,)``, with examples in the order of their first rows.

    Raises:
      ValueError: A row has no example.
    """
    names = _present(table, name, "example")
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    # `unique` sorts by name; the splits are to depend on the order of the file alone.
    rank = np.argsort(np.argsort(first))
    example_of_row = rank[inverse]
    return example_of_row, np.bincount(example_of_row)


def _targets(task, table, read):
    """The target of each example, which is the same in all of its rows."""
    values = _present(table, task.target, "target")
    if task.classes is None:
        values = _numbers(table, task.target, "error", "target")
    in_order = values[read.rows]
    differs = in_order != in_order[read.first_of_row]
    if differs.any():
        row = read.rows[np.argmax(differs)]
        other = read.rows[read.first_of_row[np.argmax(differs)]]
        raise ValueError(
            "`target` must be the same in all rows of an example, got "
            f"{table.shown(task.target, row)}, and {str(table[task.target][other])!r} "
            f"in {table.place(other)}; `example` names the column that tells examples "
            "apart."
        )
    targets = values[read.first_rows]
    if task.classes is None:
        return targets[:, None]
    return examples.class_indices(
        targets, task.classes, f"{task.target!r} in {table.path}"
    )


def _present(table, name, field):
    """A column without missing values."""
    values = table.column(name, field)
    missing = columns.missing(values)
    if missing.any():
        raise ValueError(
            f"`{field}` must have a value in each row, got none for {name!r} in "
            f"{table.place(np.argmax(missing))} of {table.path}; fill it in, or "
            "remove the row."
        )
    return values


def _numbers(table, name, missing, field="features"):
    """A column of numbers, NaN where one is missing."""
    table.column(name, field)
    read = table.numbers(name)
    if read.values is None:
        raise ValueError(
            f"`{field}` must be columns of numbers, got "
            f"{table.shown(name, read.misfit)}."
        )
    values = read.values
    if np.isinf(values).any():
        row = int(np.argmax(np.isinf(values)))
        raise ValueError(
            f"`{field}` must be finite, got {table.shown(name, row)}; correct it."
        )
    if missing == "error" and np.isnan(values).any():
        row = int(np.argmax(np.isnan(values)))
        raise ValueError(
            f"`missing` must be 'mean' for a column with gaps, got 'error' with "
            f"{np.isnan(values).sum()} of {name!r}, the first in "
            f"{table.place(row)} of {table.path}; 'mean' fills them in."
        )
    return values
