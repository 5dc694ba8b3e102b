"""Examples in memory, of splits that are drawn or given; shared by tasks on files."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ssm_jax.tasks import base


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


class Examples(NamedTuple):
    """All examples of a file.

    Attributes:
      inputs: float32 or int32, ``(n, l, ...)``; of pairs with an axis 2 before ``l``.
      targets: float32 or int32, ``(n, ...)``.
      lengths: Number of valid steps of each sequence, or None.
      length: Number of steps of a sequence, ``l``, with padding.
      rows: The examples of each split.
      input_scale: What the inputs were divided by, or None.
      target_scale: What the targets were divided by, or None.
    """

    inputs: np.ndarray
    targets: np.ndarray
    lengths: np.ndarray | None
    length: int
    rows: dict[str, np.ndarray]
    input_scale: Scale | None = None
    target_scale: Scale | None = None

    def standardized(self, *, inputs: bool, targets: bool) -> "Examples":
        """Returns the examples with inputs or targets of mean 0 and deviation 1."""
        examples, train = self, self.rows["train"]
        if inputs and len(train):
            scale = Scale.of(self.inputs[train], self.mask(train))
            values = scale.apply(self.inputs)
            examples = examples._replace(inputs=values, input_scale=scale)
        if targets and len(train):
            # Of each step, those of padding do not count.
            valid = self.mask(train) if self.targets.ndim == 3 else None
            scale = Scale.of(self.targets[train], valid)
            values = scale.apply(self.targets)
            examples = examples._replace(targets=values, target_scale=scale)
        return examples

    def unscaled(self, targets: np.ndarray) -> np.ndarray:
        """Returns targets or predictions as they are in the file, float64."""
        targets = np.asarray(targets, np.float64)
        scale = self.target_scale
        return targets if scale is None else targets * scale.std + scale.mean

    def described(self) -> dict[str, Any]:
        """Returns the scales as values of JSON."""
        scales = {"inputs": self.input_scale, "targets": self.target_scale}
        return {name: s.described() for name, s in scales.items() if s is not None}

    def mask(self, indices: np.ndarray) -> np.ndarray | None:
        """Returns where steps of some examples are valid, None if all are."""
        if self.lengths is None:
            return None
        return np.arange(self.length) < self.lengths[indices][..., None]

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
            f"{', '.join(map(repr, unknown[:3]))}; add them."
        )
    indices = np.array([position[word] for word in words], np.int32)
    return indices[inverse].reshape(labels.shape)
