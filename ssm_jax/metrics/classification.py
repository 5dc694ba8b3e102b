"""Reductions of predicted classes."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ssm_jax.metrics.reductions import Reduction, Sums


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


_PADDING = -128


@struct.dataclass
class AUC(Reduction):
    """The area under the receiver operating characteristic curve of two classes.

    It is the probability that a target of class 1 has a larger score than one of class
    0, where equal scores count a half. It depends on the order of the scores alone, so
    that no shift or scale that keeps their order in float32 changes it.

    It is exact: the scores of all targets are kept and sorted on the host. An
    evaluation keeps 5 bytes per target in each process, and a line of training metrics
    as many per target since the line before, on each device.

    Attributes:
      scores: Scores, larger for class 1, float32 ``(n,)``.
      classes: Their targets, 0 or 1, int8 ``(n,)``; -128 for those that do not count.

    Example:
      >>> scores, targets = np.array([0.5, 2.0, -1.0, 1.0]), np.array([0, 1, 0, 0])
      >>> AUC.of(scores, targets, np.array([True] * 4)).compute()
      1.0
    """

    scores: Any
    classes: Any

    @classmethod
    def of(cls, scores: Any, targets: Any, mask: Any) -> "AUC":
        """Keeps scores and targets.

        Args:
          scores: Any numbers, larger for class 1, ``(*n,)``.
          targets: Classes, 0 or 1, ``(*n,)``.
          mask: Which of them count, bool, ``(*n,)``.
        """
        # A target that is no class stays none in int8: `compute` refuses it.
        targets = jnp.clip(jnp.asarray(targets), _PADDING + 1, 127)
        classes = jnp.where(mask, targets, _PADDING).astype(jnp.int8)
        scores = jnp.where(mask, scores, 0)
        return cls(jnp.ravel(scores), jnp.ravel(classes))

    def combined(self) -> "AUC":
        """The entries of each field in one axis."""
        return jax.tree.map(jnp.ravel, self)

    def merge(self, *others: Any) -> "AUC":
        """The scores and targets of several, on the host, without padding."""
        parts = [jax.tree.map(np.asarray, part) for part in (self, *others)]
        counts = [part.classes != _PADDING for part in parts]
        pairs = list(zip(parts, counts, strict=True))
        return AUC(
            np.concatenate([part.scores[count] for part, count in pairs]),
            np.concatenate([part.classes[count] for part, count in pairs]),
        )

    def over_devices(self, axes: Sequence[str]) -> "AUC":
        """Those of all devices, on each."""

        def gather(x):
            return jax.lax.all_gather(x, tuple(axes), tiled=True, to="invarying")

        return jax.tree.map(gather, self)

    def compute(self) -> float:
        """The area; NaN if a score is, or if one of the classes has no target.

        Raises:
          ValueError: A target is neither 0 nor 1.
        """
        known = self.merge()
        wrong = np.flatnonzero((known.classes < 0) | (known.classes > 1))
        if wrong.size:
            raise ValueError(
                f"`targets` must be 0 or 1, got {known.classes[wrong[0]]} at index "
                f"{wrong[0]} of all; AUC is of two classes."
            )
        negative, positive = (
            np.sort(known.scores[known.classes == label]) for label in (0, 1)
        )
        n_pairs = len(negative) * len(positive)
        if n_pairs == 0 or np.isnan(known.scores).any():
            return math.nan
        # Negative scores below each positive one, and those that are not above it: a
        # pair of equal scores is in the second alone, and so counts a half. int64 is
        # exact for all pairs of two classes of 2^31 targets.
        below = np.searchsorted(negative, positive, "left").sum(dtype=np.int64)
        not_above = np.searchsorted(negative, positive, "right").sum(dtype=np.int64)
        return (int(below) + int(not_above)) / (2 * n_pairs)
