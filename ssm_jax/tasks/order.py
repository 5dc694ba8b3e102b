"""The order in which a task on a finite set reads its examples, in batches."""

import abc
import functools
from collections.abc import Callable

import numpy as np

from ssm_jax.tasks.base import Batch, Split, check_request, count_batches, generator

_ALL = slice(None)


class FiniteTask(abc.ABC):
    """A task on a finite set: batches are examples in the order of `shuffled_indices`.

    Subclasses are frozen dataclasses.
    """

    @abc.abstractmethod
    def n_examples(self, split: Split) -> int:
        """Returns the number of examples in a split."""

    @abc.abstractmethod
    def select(self, split: Split, indices: np.ndarray, loss_mask: np.ndarray) -> Batch:
        """Returns different examples of a split.

        Args:
          split: The split, which `n_examples` has checked.
          indices: int64, ``(b,)``, in ``[0, n)``.
          loss_mask: bool, ``(b,)``, true.

        Returns:
          Arrays that the caller may modify.
        """

    def batch(
        self,
        split: Split,
        index: int,
        batch_size: int,
        seed: int,
        *,
        rows: slice | None = None,
    ) -> Batch:
        """Returns batch ``index``; see `ssm_jax.tasks.Task.batch`."""
        n = self.n_examples(split)
        chosen = shuffled_indices(n, split, index, batch_size, seed, rows)
        return read_once(functools.partial(self.select, split), *chosen)


def shuffled_indices(
    n: int,
    split: Split,
    index: int,
    batch_size: int,
    seed: int,
    rows: slice | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of one batch of a finite split; the train split is shuffled.

    Args:
      n: Number of examples in the split.
      split: ``"train"`` is shuffled in each epoch, the others are read in order.
      index: Position in the split, in batches.
      batch_size: Number of rows of the batch, ``b``.
      seed: Seeds the order of the train split.
      rows: The rows of the batch to return. None means all.

    Returns:
      ``(indices, loss_mask)``: int64 in ``[0, n)``, and a bool that is false where a
      row pads the last batch, both ``(b,)``. Padding rows repeat the last example.

    Raises:
      ValueError: As for `Task.batch`.

    Example:
      >>> indices, loss_mask = shuffled_indices(5, "test", 1, 3, seed=0)
      >>> print(indices, loss_mask)
      [3 4 4] [ True  True False]
      >>> shuffled_indices(5, "test", 1, 3, seed=0, rows=slice(0, 2))[0]
      array([3, 4])
    """
    # Every epoch has its own permutation, so an epoch depends on no earlier one.
    _, epoch, position = _locate(n, split, index, batch_size, seed)
    if split == "train":
        order = _order(n, split, seed, epoch)
        indices = order[position * batch_size : (position + 1) * batch_size]
        # A copy: the permutation is cached, and the caller may modify the indices.
        indices = indices[rows or _ALL].copy()
        return indices, np.ones(len(indices), bool)
    # Every batch has `batch_size` rows, so that a jitted step is compiled once.
    indices = position * batch_size + np.arange(batch_size)[rows or _ALL]
    return np.minimum(indices, n - 1), indices < n


def contiguous_indices(
    n: int,
    split: Split,
    index: int,
    batch_size: int,
    seed: int,
    rows: slice | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of one batch so that each row continues the previous batch.

    The consecutive examples of the split are divided into ``batch_size`` streams of
    equal length: row ``r`` of a batch is the example that follows row ``r`` of the
    previous batch. All epochs are equal and do not depend on the seed.

    Args:
      n: Number of examples in the split.
      split: For ``"train"`` the last examples that do not fill all streams are dropped;
        for the other splits the last streams are padded.
      index: Position in the split, in batches.
      batch_size: Number of rows of the batch, ``b``, and of streams.
      seed: Validated, otherwise unused.
      rows: The rows of the batch to return. None means all.

    Returns:
      ``(indices, loss_mask)``, as `shuffled_indices` returns them.

    Raises:
      ValueError: As for `Task.batch`.

    Example:
      >>> for index in (0, 1, 2):
      ...     print(*contiguous_indices(5, "test", index, 2, seed=0))
      [0 3] [ True  True]
      [1 4] [ True  True]
      [2 4] [ True False]
    """
    length, _, position = _locate(n, split, index, batch_size, seed)
    # Stream r is the examples from r * length on; a batch has one of each stream.
    indices = length * np.arange(batch_size)[rows or _ALL] + position
    return np.minimum(indices, n - 1), indices < n


def read_once(
    select: Callable[[np.ndarray, np.ndarray], Batch],
    indices: np.ndarray,
    loss_mask: np.ndarray,
) -> Batch:
    """Returns a batch, of which each example is read once.

    The rows that pad a batch all repeat one example. It may be all that a process has
    of the last batch, and reading it again for each row would take as long as a batch.

    Args:
      select: Returns the batch of different examples, given their indices and a loss
        mask that is true.
      indices: int64, ``(b,)``, as `shuffled_indices` returns them.
      loss_mask: bool, ``(b,)``, likewise.

    Returns:
      The batch, whose ``loss_mask`` is false in the rows that pad it.

    Example:
      >>> def select(indices, loss_mask):
      ...     print("reads", indices)
      ...     return Batch(indices[:, None], indices, loss_mask)
      >>> read_once(select, *shuffled_indices(5, "test", 1, 4, seed=0)).targets
      reads [4]
      array([4, 4, 4, 4])
    """
    if loss_mask.all():
        return select(indices, loss_mask)
    examples, rows = np.unique(indices, return_inverse=True)
    batch = select(examples, np.ones(len(examples), bool)).take(rows)
    # Indexing by an array has copied it.
    batch.loss_mask[~loss_mask] = False
    return batch


def _locate(n, split, index, batch_size, seed):
    """Returns the batches per epoch, the epoch, and the position in the epoch."""
    check_request(split, index, batch_size, seed)
    n_of_epoch = count_batches(n, split, batch_size)
    if split != "train" and index >= n_of_epoch:
        raise ValueError(
            f"`index` must be below {n_of_epoch}, the batches of {batch_size} in the "
            f"{split} split, got {index}; `n_batches` counts them."
        )
    # In the other splits the epoch is always 0, by the check above.
    return n_of_epoch, *divmod(index, n_of_epoch)


# Drawing a permutation takes 1 ms for 60,000 examples and 100 ms for two million, too
# long for each batch; batches are read in order, so the last one is cached.
@functools.lru_cache(maxsize=1)
def _order(n, split, seed, epoch):
    return generator("order of an epoch", split, seed, epoch).permutation(n)
