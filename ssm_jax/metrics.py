"""Reductions of measured numbers: over layers, devices, batches and steps.

A layer measures a number by one line, and it reaches the log under its name, as
``train/gate`` and ``validation/gate``::

    log_metric(self, "gate", Mean(jnp.mean(gate)))
"""

import abc
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import struct

METRICS_COLLECTION = "metrics"
"""The Flax collection that layers sow numbers in. A plain number is a `Mean`."""


class Reduction(abc.ABC):
    """What is kept of a measured number while it is reduced; see `Mean` and `Max`."""

    @abc.abstractmethod
    def combined(self) -> Any:
        """Reduces arrays of values to one."""

    @abc.abstractmethod
    def merge(self, *others: Any) -> Any:
        """Reduces several values to one, on the host in float64."""

    @abc.abstractmethod
    def over_devices(self, axes: Sequence[str]) -> Any:
        """Reduces the values of all devices to one."""

    @abc.abstractmethod
    def compute(self) -> float:
        """Returns the number for the log."""


class Sums(Reduction):
    """A reduction whose fields all add up.

    Attributes:
      n_axes: Number of axes of a field: 0 for scalars.
    """

    n_axes = 0

    def combined(self) -> Any:
        """Adds the entries of each field over its further axes, in front."""

        def add(x):
            x = jnp.asarray(x, jnp.float32)
            return jnp.sum(x, axis=tuple(range(x.ndim - self.n_axes)))

        return jax.tree.map(add, self)

    def merge(self, *others: Any) -> Any:
        """Adds each field, on the host in float64."""
        # float32 counts are exact only up to 2^24, and float32 sums of many batches
        # lose digits; `fsum` is exact up to the final rounding.
        return jax.tree.map(
            lambda *x: np.apply_along_axis(math.fsum, 0, np.array(x, np.float64)),
            self,
            *others,
        )

    def over_devices(self, axes: Sequence[str]) -> Any:
        """Adds each field over devices."""
        return jax.lax.psum(self, axes)


@struct.dataclass
class Mean(Sums):
    """A mean as a sum and the number of its terms, which both add up.

    Attributes:
      total: The sum.
      count: The number of its terms.
    """

    total: Any
    count: Any = 1.0

    def part_of(self, whole: "Mean") -> Any:
        """This device's part of the mean over all devices: these parts add up to it.

        Args:
          whole: This mean, reduced over all devices.
        """
        # The mean of no terms is zero, not NaN.
        return self.total / jnp.maximum(whole.count, 1)

    def combined(self) -> "Mean":
        """One mean over all entries of `total`, each with its `count`."""
        total = jnp.asarray(self.total, jnp.float32)
        count = jnp.broadcast_to(jnp.asarray(self.count, jnp.float32), total.shape)
        return Mean(jnp.sum(total), jnp.sum(count))

    def compute(self) -> float:
        """The mean; 0 of no terms."""
        return float(self.total) / float(self.count) if float(self.count) else 0.0


@struct.dataclass
class ClassMean(Sums):
    """The mean over classes of the mean of each class; absent classes are left out.

    Attributes:
      total: Sum of the terms of each class, ``(k,)``.
      count: Number of the terms of each class, ``(k,)``.
    """

    total: Any
    count: Any
    n_axes = 1

    def part_of(self, whole: "ClassMean") -> Any:
        """This device's part of the mean over all devices, as for `Mean`."""
        n_present = jnp.maximum(jnp.sum(whole.count > 0), 1)
        return jnp.sum(self.total / jnp.maximum(whole.count, 1)) / n_present

    def compute(self) -> float:
        """The mean; 0 of no terms."""
        total, count = (np.asarray(x, np.float64) for x in (self.total, self.count))
        present = count > 0
        if not present.any():
            return 0.0
        return float(np.mean(total[present] / count[present]))


@struct.dataclass
class ConfusionMatrix(Sums):
    """Numbers of targets by their class and the predicted class.

    Attributes:
      counts: ``(k, k)``; ``counts[i, j]`` targets of class ``i`` are predicted as
        ``j``.
    """

    counts: Any
    n_axes = 2


@struct.dataclass
class MacroF1(ConfusionMatrix):
    """The F1 score of each class, averaged over classes.

    As in scikit-learn, a class that is neither among the targets nor predicted is left
    out of the average. The score is that of the targets of all batches together; an
    average of the scores of batches depends on the batch size.

    Example:
      >>> round(MacroF1(np.array([[8, 2], [1, 1]])).compute(), 4)
      0.6211
    """

    def compute(self) -> float:
        """The average; 0 without targets."""
        counts = np.asarray(self.counts, np.float64)
        # Those of the class, and those predicted as the class.
        n = counts.sum(1) + counts.sum(0)
        seen = n > 0
        return (
            float(np.mean(2 * counts.diagonal()[seen] / n[seen])) if any(seen) else 0.0
        )


@struct.dataclass
class BalancedAccuracy(ConfusionMatrix):
    """The accuracy on the targets of each class, averaged over the classes they have.

    Example:
      >>> round(BalancedAccuracy(np.array([[8, 2], [1, 1]])).compute(), 4)
      0.65
    """

    def compute(self) -> float:
        """The average; 0 without targets."""
        counts = np.asarray(self.counts, np.float64)
        n = counts.sum(1)
        seen = n > 0
        return float(np.mean(counts.diagonal()[seen] / n[seen])) if any(seen) else 0.0


_BINS = 2**12


@struct.dataclass
class AUC(Sums):
    """The area under the receiver operating characteristic curve of two classes.

    It is the probability that a target of class 1 has a larger score than one of class
    0, where equal scores count a half. Scores are compared with the six most
    significant bits of their mantissa, so that those of all batches together fit in a
    histogram: two that differ by less than 1.6 % may count as equal.

    Attributes:
      counts: Number of targets by class and score, from the lowest, ``(2, 4096)``.

    Example:
      >>> scores, targets = np.array([0.5, 2.0, -1.0, 1.0]), np.array([0, 1, 0, 0])
      >>> AUC.of(scores, targets, np.array([True] * 4)).compute()
      1.0
    """

    counts: Any
    n_axes = 2

    @classmethod
    def of(cls, scores: Any, targets: Any, mask: Any) -> "AUC":
        """Counts targets by class and score.

        Args:
          scores: Any numbers, larger for class 1, ``(*n,)``; beyond 65504 they are
            equal.
          targets: Classes, 0 or 1, ``(*n,)``.
          mask: Which of them count, bool, ``(*n,)``.
        """
        scores = jnp.clip(jnp.where(mask, scores, 0), -65504, 65504)
        bits = jax.lax.bitcast_convert_type(scores.astype(jnp.float16), jnp.uint16)
        # Without their sign the bits are in the order of the numbers. Negative zero is
        # zero.
        size = (bits & 0x7FFF) >> 4
        size = jnp.asarray(size, jnp.int32)
        middle = _BINS // 2
        place = jnp.where((bits >> 15).astype(bool), middle - size, middle + size)
        counts = jnp.zeros((2, _BINS), jnp.float32)
        return cls(counts.at[targets, place].add(jnp.asarray(mask, jnp.float32)))

    def compute(self) -> float:
        """The area; 0.5 if one of the classes has no target."""
        negative, positive = np.asarray(self.counts, np.float64)
        n_pairs = negative.sum() * positive.sum()
        below = np.cumsum(negative) - negative / 2
        return float(positive @ below / n_pairs) if n_pairs else 0.5


@struct.dataclass
class R2(Reduction):
    """The coefficient of determination: 1 - squared error / variance of the targets.

    Attributes:
      error: Sum of the squared errors.
      count: Number of targets.
      mean: Mean of the targets; 0 of none.
      square: Sum of the squares of their deviations from it. Squares of the targets
        themselves would leave nothing of their variance in float32, far from zero.
    """

    error: Any
    count: Any
    mean: Any
    square: Any

    def combined(self) -> "R2":
        """Reduces the entries of each field to one, about the mean of all."""
        return jax.tree.map(partial(jnp.asarray, dtype=jnp.float32), self)._sum(jnp.sum)

    def merge(self, *others: Any) -> "R2":
        """Reduces several to one, about the mean of all, on the host in float64."""
        stacked = jax.tree.map(lambda *x: np.array(x, np.float64), self, *others)
        return stacked._sum(math.fsum)

    def over_devices(self, axes: Sequence[str]) -> "R2":
        """Reduces those of all devices to one, about the mean of all."""
        return self._sum(partial(jax.lax.psum, axis_name=axes))

    def _sum(self, add: Callable[[Any], Any]) -> "R2":
        """Reduces by ``add``, which adds up a field of all parts."""
        n = add(self.count)
        mean = add(self.count * self.mean) / (n + (n == 0))
        square = self.square + self.count * (self.mean - mean) ** 2
        return R2(add(self.error), n, mean, add(square))

    def compute(self) -> float:
        """The coefficient; the variance counts as at least 1e-5."""
        n = max(float(self.count), 1.0)
        variance = float(self.square) / n
        # The lower bound keeps r2 finite for (almost) constant targets.
        return 1.0 - float(self.error) / n / max(variance, 1e-5)


@struct.dataclass
class Max(Reduction):
    """A maximum.

    Attributes:
      value: The largest number so far.
    """

    value: Any

    def combined(self) -> "Max":
        """The maximum over all entries of `value`."""
        return Max(jnp.max(jnp.asarray(self.value, jnp.float32)))

    def merge(self, *others: Any) -> "Max":
        """The maximum of several, on the host; NaN if one of them is."""
        values = [float(part.value) for part in (self, *others)]
        return Max(math.nan if any(map(math.isnan, values)) else max(values))

    def over_devices(self, axes: Sequence[str]) -> "Max":
        """The maximum over all devices."""
        return Max(jax.lax.pmax(self.value, axes))

    def compute(self) -> float:
        """The maximum."""
        return float(self.value)


def is_reduction(value: Any) -> bool:
    """Whether a node of a pytree is a `Reduction`."""
    return isinstance(value, Reduction)


def log_metric(module: nn.Module, name: str, value: Any) -> None:
    """Measures a number in a layer, for the log.

    Args:
      module: The layer that is being applied.
      name: Name in the log; numbers of one name are reduced over all layers.
      value: A `Mean` or a `Max`, whose values may be arrays, or a number, which counts
        as one term of a mean. To leave out padding, give a `Mean` the sum and the
        number of valid steps.
    """
    # What is sown at initialization would become variables of the model.
    if not module.is_initializing():
        module.sow(METRICS_COLLECTION, name, value)


def sown_metrics(collection: Any) -> dict[str, Reduction]:
    """Reduces what all layers sowed to one number per name.

    Args:
      collection: The `METRICS_COLLECTION` that a model returned.

    Returns:
      A reduction by name, in the order in which layers sowed them.

    Raises:
      ValueError: One name is sown as a `Mean` here and as a `Max` there.
    """
    found: dict[str, list[Reduction]] = {}
    for path, leaf in jax.tree.leaves_with_path(collection, is_leaf=is_reduction):
        names = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        reduction = leaf if is_reduction(leaf) else Mean(leaf)
        found.setdefault(str(names[-1]), []).append(reduction.combined())
    reduced = {}
    for name, parts in found.items():
        if len({type(part) for part in parts}) > 1:
            raise ValueError(
                f"`{name}` must be sown as one reduction, got Mean and Max; give one "
                "of them another name."
            )
        # The parts are scalars by now; of several layers they stand in one array.
        reduced[name] = jax.tree.map(lambda *x: jnp.stack(x), *parts).combined()
    return reduced
