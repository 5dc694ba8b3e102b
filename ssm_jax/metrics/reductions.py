"""`Reduction`, of which `Mean` and `Max` are sown by layers."""

import abc
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn, struct

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
        """Returns the number for the log; NaN if it is not defined."""


def add_up(values: Any) -> float:
    """Adds numbers in float64, exactly up to the final rounding.

    Args:
      values: Numbers, ``(n,)``. NaN and infinities have the sum that IEEE 754 gives.

    Example:
      >>> add_up([1e16, 1.0, -1e16]), add_up([np.inf, -np.inf])
      (1.0, nan)
    """
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):
        # `fsum` refuses infinities of both signs and sums beyond float64. A number that
        # a layer measures must not end a run.
        with np.errstate(invalid="ignore", over="ignore"):
            return float(np.sum(np.asarray(values, np.float64)))


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
        # lose digits.
        return jax.tree.map(
            lambda *x: np.apply_along_axis(add_up, 0, np.array(x, np.float64)),
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
    reductions: dict[str, list[Reduction]] = {}
    for path, leaf in jax.tree.leaves_with_path(collection, is_leaf=is_reduction):
        names = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        reduction = leaf if is_reduction(leaf) else Mean(leaf)
        reductions.setdefault(str(names[-1]), []).append(reduction.combined())
    reduced = {}
    for name, parts in reductions.items():
        if len({type(part) for part in parts}) > 1:
            raise ValueError(
                f"`{name}` must be sown as one reduction, got Mean and Max; give one "
                "of them another name."
            )
        # The parts are scalars by now; of several layers they stand in one array.
        reduced[name] = jax.tree.map(lambda *x: jnp.stack(x), *parts).combined()
    return reduced
