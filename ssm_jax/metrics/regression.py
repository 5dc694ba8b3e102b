"""Reductions of predicted numbers."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ssm_jax.metrics.reductions import Reduction, Sums, add_up


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
        # The mean of targets that overflow is infinite, and so is their variance.
        with np.errstate(invalid="ignore", over="ignore"):
            return stacked._sum(add_up)

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
        """The coefficient; the variance counts as at least 1e-5.

        It is NaN if the squares of the targets overflow float32.
        """
        n = max(float(self.count), 1.0)
        variance = float(self.square) / n
        if not math.isfinite(variance):
            return math.nan
        # The lower bound keeps r2 finite for (almost) constant targets.
        return 1.0 - float(self.error) / n / max(variance, 1e-5)


@struct.dataclass
class Skill(Sums):
    """The skill score 1 - absolute error / that of predictions of zero.

    Attributes:
      error: Sum of the absolute errors.
      reference: Sum of the absolute values of the targets.
    """

    error: Any
    reference: Any

    def compute(self) -> float:
        """The score; 0 for targets that are all zero."""
        reference = float(self.reference)
        return 1.0 - float(self.error) / reference if reference else 0.0
