"""ArrayTask: sequences and targets in an npz file."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from typing_extensions import override

from ssm_jax.fields import Fraction, PositiveInt, check_fields
from ssm_jax.tasks import base, new_data, user_files
from ssm_jax.tasks.arrays import checks, examples
from ssm_jax.tasks.series.columns import Table


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayTask(examples.ExamplesTask):
    """Regression or classification on the arrays of an npz file.

    The file has these arrays, for ``n`` examples; of pairs, the axes from the length on
    have an axis 2 before them:

    - ``inputs``: numbers ``(n, length, d_input)``, or tokens, integers in
      ``[0, d_input)``, ``(n, length)``. Numbers of one feature may lack the last axis.
    - ``targets``: numbers ``(n, d_output)``, or classes, integers in ``[0, d_output)``,
      ``(n,)``; with ``per_step`` ``(n, length, d_output)`` and ``(n, length)``. With
      ``classes`` words or any integers; a single number may lack the last axis.
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
      classes: The labels in the file, words or integers as they are written; the class
        of a label is its position here. None means that labels are these positions.
      class_weight: ``"balanced"`` for classes of different frequency; see `TaskSpec`.
      standardize: Whether numbers, inputs as well as targets, have mean 0 and standard
        deviation 1, for each feature or value, in the train split; `in_units` is the
        inverse for targets.
      statistics: File of `compute_statistics` of the data of a training, which are used
        instead of those of this file. None means those of this file.
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
    classes: tuple[str, ...] | None = None
    class_weight: Literal["balanced"] | None = None
    standardize: bool = False
    statistics: str | None = None
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
        classes, n = self.classes, self.d_output
        labelled = self.targets == "classification"
        if classes is not None and (len(set(classes)) != n or not labelled):
            raise ValueError(
                f"`classes` must be `d_output` different labels, {n}, of a "
                f"classification, got {len(set(classes))} with targets = "
                f"{self.targets!r}; None means integers from 0."
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
            class_weight=self.class_weight,
        )

    def data_files(self) -> dict[str, Path]:
        """Returns the path of the file, by its name."""
        return user_files.data_files(self._path())

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        n = len(self._examples.rows[split])
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
        return self._examples.take(split, indices, loss_mask, per_step=self.per_step)

    @override
    def new_examples(self, data: str | Table | None = None) -> new_data.NewExamples:
        file, path = _open(data or self._path())
        arrays = _arrays(self, file, path, ("inputs",))
        inputs = self.scales.apply_to_inputs(arrays["inputs"])
        if not len(inputs):
            raise ValueError(f"`file` must have examples, got none in {path}.")
        mask = examples.valid_steps(arrays.get("lengths"), self.length)
        classes = None
        if self.targets == "classification":
            classes = self.classes or tuple(range(self.d_output))
        batches = new_data.batches_of(inputs, mask)
        return new_data.NewExamples("id", np.arange(len(inputs)), classes, batches)

    def preprocessing(self) -> dict[str, Any]:
        """Describes scales and classes, in values of JSON, for an export."""
        about = self.scales.described()
        return about if self.classes is None else about | {"classes": [*self.classes]}

    @property
    @override
    def _is_scaled(self) -> dict[str, bool]:
        return {
            "inputs": self.standardize and self.inputs == "vector",
            "targets": self.standardize and self.targets == "regression",
        }

    @override
    def _read(self) -> examples.Examples:
        path = self._path()
        user_files.check_is_there(path)
        return _examples(self, user_files.state_of(path))

    @override
    def _read_labelled(self, data: str | Table) -> examples.Examples:
        file, path = _open(data)
        arrays = _arrays(self, file, path, ("inputs", "targets"))
        inputs, targets = arrays["inputs"], arrays["targets"]
        lengths, rows = arrays.get("lengths"), new_data.test_split(len(inputs))
        return examples.Examples(inputs, targets, lengths, self.length, rows)

    def _path(self):
        return user_files.path_of(self.data_dir, self.file)


# Read again if the file has changed since.
@functools.lru_cache(maxsize=4)
def _examples(task: ArrayTask, state: tuple[int, ...]) -> examples.Examples:
    del state
    path = task._path()
    found = task._read_labelled(path)
    rows = _rows(task, user_files.npz(path), len(found.inputs), path)
    return task._standardized(found._replace(rows=rows))


def _open(data):
    """The arrays of a file, or those in memory, and the path for errors."""
    if isinstance(data, Table):
        return data, data.path
    user_files.check_is_there(data)
    return user_files.npz(data), data


def _arrays(task, file, path, names):
    """The arrays of some names, and ``lengths`` if it is there, as in a batch."""
    for name in names:
        if name not in file:
            raise ValueError(
                f"`file` must have the arrays {' and '.join(names)}, got "
                f"{', '.join(file) or 'none'} in {path}; write it by `np.savez`."
            )
    # An array in memory is its own layout.
    layout_of = file.__getitem__ if isinstance(file, Table) else file.layout
    # Of a single number, which has no axis, the check below says so.
    n, pair = (*layout_of("inputs").shape, 1)[0], (2,) if task.pair else ()
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
    wanted = [name for name in (*names, "lengths") if name in file]
    expected = {name: expected[name] for name in wanted}
    shapes = {}
    # All headers before the first array, which may have gigabytes.
    for name, (shape, n_integers) in expected.items():
        layout = layout_of(name)
        # Of one number, the file may lack the last axis.
        is_short = n_integers is None and (*layout.shape, 1) == shape
        shapes[name] = layout.shape if is_short else shape
        if name == "targets" and task.classes is not None:
            _check_labels(layout, shape, path)
        else:
            checks.check_layout(layout, name, shapes[name], n_integers, path)
    labels = None
    if task.classes is not None and "targets" in expected:
        labels = examples.class_indices(file["targets"], task.classes, path)
    arrays = {
        name: labels
        if name == "targets" and labels is not None
        else checks.convert(file[name], name, shapes[name], n_integers, path).reshape(
            shape
        )
        for name, (shape, n_integers) in expected.items()
    }
    lengths = arrays.get("lengths")
    if lengths is not None and lengths.min(initial=1) < 1:
        raise ValueError(
            f"`lengths` must be at least 1, got {lengths.min()} in {path}; leave "
            "empty sequences out."
        )
    return arrays


def _check_labels(layout, shape, path):
    if layout.shape != shape or layout.dtype.kind not in "biuU":
        raise ValueError(
            f"`targets` must be words or integers {shape} with `classes`, got "
            f"{layout.dtype} {layout.shape} in {path}; `array.astype(str)` makes words."
        )


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
    return examples.drawn_splits(n, task.validation_fraction, task.test_fraction)
