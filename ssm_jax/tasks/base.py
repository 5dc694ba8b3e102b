"""What every task promises: a spec, and batches that are functions of integers.

A batch depends on its split, its index, its size and the seed, and on nothing else. So
the position in the data is one integer, a resumed run sees what the first run would
have seen, and a task has no state to save. A finite set gets its rows from
`shuffled_indices`, or in their order from `contiguous_indices`, an endless one its random numbers
from `generator`.
"""

import dataclasses
import functools
import zlib
from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np

from ssm_jax.fields import NonNegativeInt, PositiveInt, Seed, check_value

Split = Literal["train", "validation", "test"]
"""The parts of a task's data, disjoint by construction."""


class Batch(NamedTuple):
    """Sequences, what is to be predicted from them, and which predictions count.

    ``l_output`` and the kind of inputs and targets are those of the task's `TaskSpec`.

    Attributes:
      inputs: float32 vectors ``(b, l, d_input)`` or int32 tokens ``(b, l)``; of pairs
        ``(b, 2, l, d_input)`` or ``(b, 2, l)``.
      targets: float32 values ``(b, l_output, d_output)`` or int32 classes
        ``(b, l_output)``, those of the last ``l_output`` steps; without the axis
        ``l_output`` where the spec has None there.
      loss_mask: bool, true where a target counts, ``(b, l_output)`` or ``(b,)``.
      mask: bool ``(b, l)``, of pairs ``(b, 2, l)``, true where a step is data and not
        padding. None means that all steps are data.
      reset: bool ``(b, l)``, true where a segment starts: what was read before is
        forgotten. None means that a sequence is one segment.
    """

    inputs: np.ndarray
    targets: np.ndarray
    loss_mask: np.ndarray
    mask: np.ndarray | None = None
    reset: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """What a model must know of a task.

    Attributes:
      length: Steps of a sequence, ``l``.
      inputs: ``"vector"``: float32 features; ``"token"``: int32 indices.
      d_input: Features of a step, or tokens in the vocabulary.
      targets: ``"regression"``: float32 values; ``"classification"``: int32 classes.
      d_output: Values, or classes to choose from, of one prediction.
      l_output: The model predicts the last ``l_output`` steps. None: it makes one
        prediction a sequence, or a pair.
      pair: Whether an example is two sequences, side by side before the length, as
        `ssm_jax.models.PairHead` takes them.
      language: Whether the classes are the next tokens of a text, of which perplexity
        is measured.
    """

    length: int
    inputs: Literal["vector", "token"]
    d_input: int
    targets: Literal["regression", "classification"]
    d_output: int
    l_output: int | None
    pair: bool = False
    language: bool = False


@runtime_checkable
class Task(Protocol):
    """A source of batches; a frozen dataclass of static numbers."""

    @property
    def spec(self) -> TaskSpec:
        """What a model must know of the task."""
        ...

    def n_examples(self, split: Split) -> int | None:
        """Counts the sequences of a split; None where they never end."""
        ...

    def batch(self, split: Split, index: int, batch_size: int, seed: int) -> Batch:
        """Gives batch number ``index``, a pure function of the arguments.

        Args:
          split: ``"train"`` never ends: a finite set is shuffled anew each epoch (but
            for streams, as `contiguous_indices` has them), and what is left of an epoch
            after its last full batch is dropped. The other splits of a finite set come
            in order, once, filled up with rows whose mask is false; an endless task has
            no end there either.
          index: Position in the split, in batches, from 0.
          batch_size: Rows of the batch, ``b``, always that many.
          seed: Draws the order of a finite train split, and all numbers of an endless
            task; the other splits of a finite set do not depend on it.

        Raises:
          ValueError: ``split`` is unknown, ``index`` is negative or beyond the end,
            ``seed`` is not in [0, 2**32), or ``batch_size`` is not positive or greater
            than the train split.
        """
        ...


def n_batches(task: Task, split: Split, batch_size: int) -> int | None:
    """Counts the batches of an epoch of a split.

    Args:
      task: Where the batches come from.
      split: In ``"train"`` only full batches count, elsewhere every example does.
      batch_size: Rows of a batch.

    Returns:
      Full batches of an epoch, or batches that hold the whole split; None where the
      split never ends.

    Raises:
      ValueError: ``split`` is unknown, or ``batch_size`` not positive or greater than
        the train split.

    Example:
      >>> from ssm_jax.tasks import Digits
      >>> n_batches(Digits(), "train", 64), n_batches(Digits(), "test", 64)
      (21, 5)
    """
    check_request(split, index=0, batch_size=batch_size, seed=0)
    n = task.n_examples(split)
    return None if n is None else _count_batches(n, split, batch_size)


def shuffled_indices(
    n: int, split: Split, index: int, batch_size: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses the examples of one batch from the ``n`` of a finite split.

    Args:
      n: Examples of the split.
      split: ``"train"`` is shuffled anew each epoch, the others are read in order.
      index: Position in the split, in batches.
      batch_size: Rows of the batch, ``b``.
      seed: Draws the order of the train split.

    Returns:
      ``(rows, mask)``: which examples, int64 in ``[0, n)``, and whether each counts,
      bool, both ``(b,)``. Rows that fill up the last batch repeat the last example and
      do not count.

    Raises:
      ValueError: As for `Task.batch`.

    Example:
      >>> rows, mask = shuffled_indices(5, "test", 1, 3, seed=0)
      >>> print(rows, mask)
      [3 4 4] [ True  True False]
    """
    _, epoch, position = _place(n, split, index, batch_size, seed)
    if split == "train":
        order = _order(n, split, seed, epoch)
        rows = order[position * batch_size : (position + 1) * batch_size].copy()
        return rows, np.ones(batch_size, bool)
    rows = position * batch_size + np.arange(batch_size)
    return np.minimum(rows, n - 1), rows < n


def contiguous_indices(
    n: int, split: Split, index: int, batch_size: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses the examples of one batch so that each row goes on where it was.

    The examples, which follow upon one another, are cut into one stream a row, all
    equally long: row ``r`` of a batch is the example after row ``r`` of the batch
    before it. Each epoch is the same, whatever the seed.

    Args:
      n: Examples of the split.
      split: ``"train"`` leaves out at the end what is not enough for all streams; in
        the others the last streams are filled up.
      index: Position in the split, in batches.
      batch_size: Rows of the batch, ``b``, and streams.
      seed: Of the run.

    Returns:
      ``(rows, mask)``, as `shuffled_indices` returns them.

    Raises:
      ValueError: As for `Task.batch`.

    Example:
      >>> for index in (0, 1, 2):
      ...     print(*contiguous_indices(5, "test", index, 2, seed=0))
      [0 3] [ True  True]
      [1 4] [ True  True]
      [2 4] [ True False]
    """
    length, _, position = _place(n, split, index, batch_size, seed)
    rows = length * np.arange(batch_size) + position
    return np.minimum(rows, n - 1), rows < n


def generator(task: str, split: Split, seed: int, index: int) -> np.random.Generator:
    """Seeds the random numbers of one batch.

    Different arguments give independent streams, so splits and batches share no
    sequence; equal ones give the same stream in every process.

    Args:
      task: Name of what is drawn.
      split: Part of the data that it is drawn for.
      seed: Seed of the run, at least 0.
      index: Position in the split, at least 0.

    Returns:
      A generator at the start of its stream.

    Example:
      >>> draws = [generator("dice", "train", 0, i).integers(2**32) for i in (3, 3, 4)]
      >>> bool(draws[0] == draws[1]), bool(draws[0] == draws[2])
      (True, False)
    """
    # crc32 and not `hash`, which changes from process to process.
    stream = zlib.crc32(f"{task}/{split}".encode())
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(stream, index))
    return np.random.default_rng(sequence)


def check_split(split: Split) -> None:
    """Raises a ValueError unless ``split`` names a part of the data."""
    if split not in get_args(Split):
        names = ", ".join(repr(name) for name in get_args(Split))
        raise ValueError(
            f"`split` must be one of {names}, got {split!r}; these are all there are."
        )


def check_request(split: Split, index: int, batch_size: int, seed: int) -> None:
    """Raises a ValueError for arguments that no task has a batch for."""
    check_split(split)
    check_value("index", index, NonNegativeInt, "the first batch is number 0")
    check_value("batch_size", batch_size, PositiveInt, "a batch has rows")
    check_value("seed", seed, Seed)


def _place(n, split, index, batch_size, seed):
    """Batches of an epoch, which epoch it is, and which of its batches."""
    check_request(split, index, batch_size, seed)
    n_of_epoch = _count_batches(n, split, batch_size)
    if split != "train" and index >= n_of_epoch:
        raise ValueError(
            f"`index` must be below {n_of_epoch}, the batches of {batch_size} in the "
            f"{split} split, got {index}; `n_batches` counts them."
        )
    return n_of_epoch, *divmod(index, n_of_epoch)


# Drawing it for each batch takes a millisecond for 60,000 examples, and a hundred for
# the two million windows of a text; so one is kept.
@functools.lru_cache(maxsize=1)
def _order(n, split, seed, epoch):
    return generator("order of an epoch", split, seed, epoch).permutation(n)


def _count_batches(n: int, split: Split, batch_size: int) -> int:
    if split != "train":
        return -(-n // batch_size)
    if batch_size > n:
        raise ValueError(
            f"`batch_size` must be at most {n}, the examples of the train split, got "
            f"{batch_size}; take a smaller batch."
        )
    return n // batch_size
