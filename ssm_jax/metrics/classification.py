"""Reductions of predicted classes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ssm_jax.metrics.reductions import Sums


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
