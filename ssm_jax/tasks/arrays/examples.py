"""Examples in memory, of splits that are drawn or given; shared by tasks on files."""

import abc
import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from ssm_jax.files import read_arrays
from ssm_jax.tasks import base, new_data, user_files
from ssm_jax.tasks.series.columns import Table


class Scale(NamedTuple):
    """Mean and standard deviation of each feature, or value, in the train split."""

    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, valid: np.ndarray | None = None) -> "Scale":
        """Measures values.

        Args:
          values: Numbers, ``(..., d)``.
          valid: bool, ``(...)``, false where values do not count. None means all do.

        Returns:
          float64, ``(d,)`` each. The deviation of a constant is 1, which it is then
          divided by.

        Example:
          >>> Scale.of(np.array([[1.0, 7.0], [3.0, 7.0]])).std.tolist()
          [1.0, 1.0]
        """
        if valid is not None:
            values = values[valid]
        values = values.reshape(-1, values.shape[-1])
        # NaN, of a missing value, does not count, unless nothing else is there.
        values = np.where(np.isnan(values).all(0), 0, values)
        mean = np.asarray(np.nanmean(values, 0, np.float64))
        std = np.asarray(np.nanstd(values, 0, np.float64))
        # The deviation of a constant is rounding, which would become noise of size 1.
        return cls(mean, np.where(std > 1e-6 * np.abs(mean), std, 1.0))

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Returns values of mean 0 and standard deviation 1, float32."""
        return ((values - self.mean) / self.std).astype(np.float32)

    def described(self) -> dict[str, Any]:
        """Returns the numbers as values of JSON."""
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}


class Scales(NamedTuple):
    """What inputs and targets are normalised by; None where they are not."""

    inputs: Scale | None = None
    targets: Scale | None = None

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Scales":
        """Returns the scales of `arrays`."""
        return cls(**{
            name: Scale(arrays[f"{name}/mean"], arrays[f"{name}/std"])
            for name in cls._fields
            if f"{name}/mean" in arrays
        })  # fmt: skip

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the numbers as arrays by name."""
        return {
            f"{name}/{moment}": values
            for name, scale in self._known().items()
            for moment, values in scale._asdict().items()
        }

    def described(self) -> dict[str, Any]:
        """Returns the numbers as values of JSON."""
        return {name: scale.described() for name, scale in self._known().items()}

    def unscaled(self, targets: np.ndarray) -> np.ndarray:
        """Returns targets or predictions as they are in the file, float64."""
        targets, scale = np.asarray(targets, np.float64), self.targets
        return targets if scale is None else targets * scale.std + scale.mean

    def apply_to_inputs(self, inputs: np.ndarray) -> np.ndarray:
        """Returns inputs as a model reads them, the mean in place of NaN."""
        if self.inputs is None:
            return inputs
        return np.nan_to_num(self.inputs.apply(inputs), copy=False)

    def _known(self) -> dict[str, Scale]:
        return {name: s for name, s in self._asdict().items() if s is not None}


class Examples(NamedTuple):
    """All examples of a file.

    Attributes:
      inputs: float32 or int32, ``(n, l, ...)``; of pairs with an axis 2 before ``l``.
      targets: float32 or int32, ``(n, ...)``.
      lengths: Number of valid steps of each sequence, or None.
      length: Number of steps of a sequence, ``l``, with padding.
      rows: The examples of each split.
      scales: What the inputs and the targets were normalised by.
    """

    inputs: np.ndarray
    targets: np.ndarray
    lengths: np.ndarray | None
    length: int
    rows: dict[str, np.ndarray]
    scales: Scales = Scales()

    def measured(self, *, inputs: bool, targets: bool) -> Scales:
        """Returns the scales of inputs or targets in the train split."""
        train = self.rows["train"]
        if not len(train):
            return Scales()
        # Of targets of each step, those of padding do not count.
        valid = self.mask(train) if self.targets.ndim == 3 else None
        return Scales(
            Scale.of(self.inputs[train], self.mask(train)) if inputs else None,
            Scale.of(self.targets[train], valid) if targets else None,
        )

    def standardized(self, scales: Scales) -> "Examples":
        """Returns the examples with inputs and targets normalised by scales."""
        targets = self.targets
        if scales.targets is not None:
            targets = scales.targets.apply(targets)
        inputs = scales.apply_to_inputs(self.inputs)
        return self._replace(inputs=inputs, targets=targets, scales=scales)

    def mask(self, indices: np.ndarray) -> np.ndarray | None:
        """Returns where steps of some examples are valid, None if all are."""
        lengths = None if self.lengths is None else self.lengths[indices]
        return valid_steps(lengths, self.length)

    def take(
        self,
        split: base.Split,
        indices: np.ndarray,
        loss_mask: np.ndarray,
        *,
        per_step: bool = False,
    ) -> base.Batch:
        """Returns examples of a split; see `ssm_jax.tasks.order.FiniteTask.select`."""
        indices = self.rows[split][indices]
        mask = self.mask(indices)
        if per_step:
            steps = np.ones((1, self.length), bool) if mask is None else mask
            loss_mask = loss_mask[:, None] & steps
        # Indexing by an array copies: the caller may modify the batch.
        return base.Batch(self.inputs[indices], self.targets[indices], loss_mask, mask)


class ExamplesTask(new_data.NewDataTask):
    """A task on `Examples`, normalised by their train split or that of a training.

    Attributes:
      classes: The labels of a classification, if they are not integers from 0.
      statistics: File of `compute_statistics` of the data of a training, which are used
        instead of those of this file. None means those of this file.
    """

    classes: tuple[str, ...] | None
    statistics: str | None

    @property
    @abc.abstractmethod
    def spec(self) -> base.TaskSpec:
        """The shapes and types of the batches."""

    @override
    def on(self, data: str | Table) -> "ExamplesTask":
        found = self._read_labelled(data)
        if not len(found.inputs):
            path = data.path if isinstance(data, Table) else data
            raise ValueError(f"`file` must have examples, got none in {path}.")
        task = copy.copy(self)
        # In place of the cached properties.
        vars(task).update(scales=self.scales, _examples=found.standardized(self.scales))
        return task

    @abc.abstractmethod
    def _read(self) -> Examples:
        """Reads the file of the task."""

    @abc.abstractmethod
    def _read_labelled(self, data: str | Table) -> Examples:
        """Reads examples with targets, not normalised, as those of the test split."""

    @property
    @abc.abstractmethod
    def _is_scaled(self) -> dict[str, bool]:
        """Whether inputs and targets are normalised."""

    def in_units(
        self,
        values: np.ndarray,
        split: base.Split,
        index: int,
        batch_size: int,
        seed: int,
    ) -> np.ndarray:
        """Returns targets or predictions of a batch of a regression as in the file.

        Args:
          values: Targets, or predictions of a model, ``(b, ..., d_output)``.
          split: The split of `batch`, like the other arguments, on which the result
            does not depend.
          index: See ``split``.
          batch_size: See ``split``.
          seed: See ``split``.

        Returns:
          float64, of the shape of ``values``.
        """
        del split, index, batch_size, seed
        return self.scales.unscaled(values)

    def compute_statistics(self) -> dict[str, np.ndarray]:
        """Returns means and standard deviations of the training, for `statistics`.

        Raises:
          ValueError: As for `batch`.
        """
        return self.scales.arrays()

    @functools.cached_property
    def scales(self) -> Scales:
        """What inputs and targets are normalised by."""
        if self.statistics is None:
            return self._examples.scales
        return self._stored(self.statistics)

    # Once by each object, so that all its batches are of one state of the file.
    @functools.cached_property
    def _examples(self) -> Examples:
        return self._read()

    def _standardized(self, examples: Examples) -> Examples:
        """Examples normalised by the statistics of the training, or by their own."""
        if self.statistics is not None:
            return examples.standardized(self.scales)
        return examples.standardized(examples.measured(**self._is_scaled))

    def _stored(self, file: str) -> Scales:
        """The scales of a file of `compute_statistics`."""
        sizes = {"inputs": self.spec.d_input, "targets": self.spec.d_output}
        ours = {
            f"{name}/{moment}": (sizes[name],)
            for name, is_scaled in self._is_scaled.items()
            for moment in Scale._fields
            if is_scaled
        }
        arrays, found = {}, None
        try:
            arrays = read_arrays(user_files.path_of(None, file))
            found = {name: array.shape for name, array in arrays.items()}
        except ValueError as error:
            found = error
        if found != ours:
            raise ValueError(
                f"`statistics` must be a file of the arrays {ours}, got "
                f"{file} with {found}; `compute_statistics` of the task of "
                "the training returns its arrays."
            )
        return Scales.of_arrays(arrays)


def valid_steps(lengths: np.ndarray | None, length: int) -> np.ndarray | None:
    """Returns the mask of sequences of ``lengths`` steps, None if all are valid."""
    return None if lengths is None else np.arange(length) < lengths[..., None]


def drawn_splits(
    n: int, validation_fraction: float, test_fraction: float
) -> dict[str, np.ndarray]:
    """Returns the indices of the examples of each split, in increasing order."""
    # Seed 0 for every run: the splits belong to the data.
    order = base.generator("splits of arrays", "train", 0, 0).permutation(n)
    sizes = [round(fraction * n) for fraction in (validation_fraction, test_fraction)]
    validation, test, train = np.split(order, np.cumsum(sizes))
    found = {"train": train, "validation": validation, "test": test}
    return {name: np.sort(rows) for name, rows in found.items()}


def class_indices(labels: np.ndarray, classes: Sequence[str], where: str) -> np.ndarray:
    """Returns the position of each label among the classes, int32, of its shape.

    Args:
      labels: Words, or integers, which are compared as they are written.
      classes: The classes.
      where: Where the labels were found, for errors.

    Raises:
      ValueError: A label is none of the classes.

    Example:
      >>> class_indices(np.array([10, -1, 10]), ("-1", "10"), "a.npz").tolist()
      [1, 0, 1]
    """
    found, inverse = np.unique(labels, return_inverse=True)
    position = {name: i for i, name in enumerate(classes)}
    words = [str(label).strip() for label in found.tolist()]
    if unknown := [word for word in words if word not in position]:
        raise ValueError(
            f"`classes` must have all labels of {where}, got none for "
            f"{', '.join(map(repr, unknown[:3]))}; add them, or leave these examples "
            "out."
        )
    indices = np.array([position[word] for word in words], np.int32)
    return indices[inverse].reshape(labels.shape)
