"""Examples that are new to a run: what a task reads beside the data of its training."""

import abc
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ssm_jax.tasks import order

Inputs = tuple[np.ndarray, np.ndarray | None]
"""The inputs and the mask of a `Batch`."""


class NewExamples(NamedTuple):
    """Examples without targets, which a model predicts.

    Attributes:
      column: What their names are called.
      names: Name of each example, or its index, ``(n,)``.
      classes: What the classes are called; None of a regression.
      batches: Yields the inputs of all examples in their order, given the size of a
        batch; the last one may have fewer.
    """

    column: str
    names: np.ndarray
    classes: tuple[Any, ...] | None
    batches: Callable[[int], Iterator[Inputs]]


class NewDataTask(order.FiniteTask):
    """A finite task that reads examples of other data as it reads its own."""

    in_folder: ClassVar[bool] = False
    """Whether the data are a folder of files, and not one file."""

    @abc.abstractmethod
    def new_examples(self, data: Any = None) -> NewExamples:
        """Reads examples of which no target is known.

        Args:
          data: The path of the data, or a `Table` of columns or arrays in memory, if
            the task reads them from one file; no target is read. None means the data of
            the task.

        Raises:
          FileNotFoundError: There is no such file.
          ValueError: As for `batch`.
        """

    @abc.abstractmethod
    def on(self, data: Any) -> "NewDataTask":
        """Returns this task on other examples, read as those of its training.

        Args:
          data: As for `new_examples`, with the targets. All examples are of the test
            split.

        Raises:
          FileNotFoundError: There is no such file.
          ValueError: As for `batch`.
        """


def batches_of(
    inputs: np.ndarray, mask: np.ndarray | None
) -> Callable[[int], Iterator[Inputs]]:
    """Returns `NewExamples.batches` of examples that are in memory.

    Args:
      inputs: As those of a `Batch`, of all examples.
      mask: As that of a `Batch`, or None.

    Example:
      >>> batches = batches_of(np.arange(5)[:, None], None)
      >>> [inputs.ravel().tolist() for inputs, _ in batches(2)]
      [[0, 1], [2, 3], [4]]
    """

    def batches(size: int) -> Iterator[Inputs]:
        for first in range(0, len(inputs), size):
            rows = slice(first, first + size)
            yield inputs[rows], None if mask is None else mask[rows]

    return batches


def test_split(n: int) -> dict[str, np.ndarray]:
    """Returns the indices of the examples of each split, where all are for testing."""
    none = np.arange(0)
    return {"train": none, "validation": none, "test": np.arange(n)}
