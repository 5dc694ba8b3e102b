"""The interface of tasks: a spec, and batches that are pure functions of integers.

A batch depends only on its split, its index, its size and the seed. The position in the
data is therefore one integer, a resumed run reads the batches that an uninterrupted run
would have read, and a task has no state to save. A task on a finite set selects its
rows with `ssm_jax.tasks.order`; an endless task draws its numbers with `generator`.
"""

import dataclasses
import inspect
import zlib
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np

from ssm_jax.fields import (
    NonNegativeInt,
    PositiveInt,
    Seed,
    check_indices,
    check_value,
)

Split = Literal["train", "validation", "test"]
"""The splits of a task's data, disjoint by construction."""


class Batch(NamedTuple):
    """A batch of sequences, targets and masks.

    ``l_output`` and the type of inputs and targets are given by the task's `TaskSpec`.

    Attributes:
      inputs: float32 vectors ``(b, l, d_input)`` or int32 tokens ``(b, l)``, in
        ``[0, d_input)`` on padding too; for pairs ``(b, 2, l, d_input)`` or
        ``(b, 2, l)``.
      targets: float32 values ``(b, l_output, d_output)`` or int32 classes
        ``(b, l_output)``, in ``[0, d_output)`` where they count in the loss, for the
        last ``l_output`` steps; without the axis ``l_output`` if the spec has
        ``l_output=None``.
      loss_mask: bool ``(b, l_output)`` or ``(b,)``, true where a target counts in the
        loss.
      mask: bool ``(b, l)``, for pairs ``(b, 2, l)``, true where a step is valid and
        false on padding. None means that all steps are valid.
      reset: bool ``(b, l)``, true at the first step of a segment, where the state is
        reset. None means that each sequence is one segment.
      dt: float32 ``(b, l)``, for pairs ``(b, 2, l)``, of rows at irregular times: the
        time since the step before in units of the usual one, 1 at the first step of a
        sequence, and any finite number on padding. None means 1.
    """

    inputs: np.ndarray
    targets: np.ndarray
    loss_mask: np.ndarray
    mask: np.ndarray | None = None
    reset: np.ndarray | None = None
    dt: np.ndarray | None = None

    @property
    def flags(self) -> dict[str, Any]:
        """The arguments of a model beside the inputs: ``dt`` only if there is one."""
        flags: dict[str, Any] = {"reset": self.reset, "mask": self.mask}
        # Models that know no irregular steps need not have the argument.
        return flags if self.dt is None else flags | {"dt": self.dt}

    def take(self, rows: slice | np.ndarray) -> "Batch":
        """Returns some rows, by a slice or by their indices."""
        taken: Any = (None if array is None else array[rows] for array in self)
        return Batch(*taken)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """Static description of a task's batches, from which a model is built.

    Attributes:
      length: Number of steps of a sequence, ``l``.
      inputs: ``"vector"`` for float32 features, ``"token"`` for int32 indices.
      d_input: Number of features of a step, or size of the vocabulary.
      targets: ``"regression"`` for float32 values, ``"classification"`` for int32
        classes.
      d_output: Number of values, or of classes, of one prediction.
      l_output: Number of steps, at the end of the sequence, that have a prediction.
        None means one prediction per sequence, or per pair.
      pair: Whether an example is a pair of sequences, on an axis before the length, as
        `ssm_jax.models.PairHead` expects them.
      language: Whether the classes are the next tokens of a text, so that perplexity
        is reported.
      resets: Whether batches have a ``reset``, as rows of several segments have.
      irregular: Whether batches have a ``dt``, as rows at irregular times have.
      class_weight: ``"balanced"``: each class of a batch contributes equally to the
        loss, and macro-F1 and balanced accuracy are reported; see
        `ssm_jax.training.loss_sums`. None: each target contributes equally.
      loss: The loss of a regression, the squared error or the absolute one.

    Raises:
      ValueError: ``class_weight`` is given for a regression, or the absolute loss for a
        classification.
    """

    length: int
    inputs: Literal["vector", "token"]
    d_input: int
    targets: Literal["regression", "classification"]
    d_output: int
    l_output: int | None
    pair: bool = False
    language: bool = False
    resets: bool = False
    irregular: bool = False
    class_weight: Literal["balanced"] | None = None
    loss: Literal["squared", "absolute"] = "squared"

    def __post_init__(self) -> None:
        """Validates what belongs to one kind of targets."""
        if self.class_weight is not None and self.targets != "classification":
            raise ValueError(
                "`class_weight` must be None for a regression, got "
                f"{self.class_weight!r}; leave it out."
            )
        if self.loss != "squared" and self.targets == "classification":
            raise ValueError(
                "`loss` must be 'squared' for a classification, whose loss is the "
                f"cross-entropy, got {self.loss!r}; leave it out."
            )


@runtime_checkable
class Task(Protocol):
    """A source of batches: a frozen dataclass of static values.

    A task that reads files may also have a method ``data_files()``, which returns the
    path of each file that determines its batches, by a name that stays the same if the
    data are moved. A run then notices that its data changed; see
    `ssm_jax.tasks.fingerprint`.

    A task that normalises its data may have a method ``compute_statistics()``, which
    returns arrays by name, and a field ``statistics``, a file of them that is used
    instead. The work dir of a run keeps them, so that other data are normalised alike.
    """

    @property
    def spec(self) -> TaskSpec:
        """The shapes and types of the batches."""
        ...

    def n_examples(self, split: Split) -> int | None:
        """Returns the number of sequences in a split; None if it is endless."""
        ...

    def batch(self, split: Split, index: int, batch_size: int, seed: int) -> Batch:
        """Returns batch ``index`` of a split, a pure function of the arguments.

        A task may also have a keyword ``rows``, the slice of the rows of the batch
        that it returns: then each of several processes reads its own rows only.

        Args:
          split: ``"train"`` has no last batch: a finite set is shuffled in each epoch
            (except by a `TextFolder` with ``layout="stream"``), and the examples of an
            epoch that do not fill a batch are dropped. The other splits of a finite set
            are read once, in order, and the last batch is padded with rows whose
            ``loss_mask`` is false. An endless task is endless in every split.
          index: Position in the split, in batches, from 0.
          batch_size: Number of rows, ``b``; every batch has exactly this many.
          seed: Seeds the order of a finite train split, and all values of an endless
            task. The other splits of a finite set do not depend on it.

        Raises:
          ValueError: ``split`` is unknown, ``index`` is negative or beyond the end,
            ``seed`` is not in [0, 2**32), or ``batch_size`` is not positive or greater
            than the train split.
        """
        ...


def n_batches(task: Task, split: Split, batch_size: int) -> int | None:
    """Returns the number of batches of one epoch of a split.

    Args:
      task: The task.
      split: For ``"train"`` only full batches are counted; for the other splits the
        last batch may be partly padding.
      batch_size: Number of rows of a batch.

    Returns:
      The number of batches; None if the split is endless.

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
    return None if n is None else count_batches(n, split, batch_size)


def generator(task: str, split: Split, seed: int, index: int) -> np.random.Generator:
    """Returns the random number generator of one batch.

    Different arguments give independent streams, so that splits and batches share no
    sequence. Equal arguments give the same stream in every process.

    Args:
      task: Name of the stream. It determines the numbers, so it must never change.
      split: The split.
      seed: Seed of the run, at least 0.
      index: Position in the split, at least 0.

    Returns:
      A generator in its initial state.

    Example:
      >>> draws = [generator("dice", "train", 0, i).integers(2**32) for i in (3, 3, 4)]
      >>> bool(draws[0] == draws[1]), bool(draws[0] == draws[2])
      (True, False)
    """
    # Not `hash`, whose value for a string differs between processes.
    stream = zlib.crc32(f"{task}/{split}".encode())
    # Keyed by the index, not drawn in sequence: a resumed run needs no earlier batch.
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(stream, index))
    return np.random.default_rng(sequence)


def rows_of_batch(
    task: Task,
    split: Split,
    index: int,
    batch_size: int,
    seed: int,
    rows: slice | None = None,
) -> Batch:
    """Returns some rows of a batch, and checks what `check_batch` does.

    Batches enter training and evaluation here: what is compiled cannot raise an error
    of a value.

    Args:
      task: The task. One without the keyword ``rows`` makes the whole batch first.
      split: As for `Task.batch`.
      index: As for `Task.batch`.
      batch_size: Number of rows of the whole batch.
      seed: As for `Task.batch`.
      rows: The rows, with a start and an end. None means all.

    Returns:
      The rows, equal to those of the whole batch.

    Raises:
      ValueError: As for `Task.batch` and `check_batch`.

    Example:
      >>> from ssm_jax.tasks import Digits
      >>> rows_of_batch(Digits(), "test", 0, 8, 0, slice(4, 6)).inputs.shape
      (2, 64, 1)
    """
    # The type of the task is not that of the protocol, whose `batch` has no `rows`.
    make: Any = task.batch
    if rows is None:
        batch = make(split, index, batch_size, seed)
    elif "rows" in inspect.signature(make).parameters:
        batch = make(split, index, batch_size, seed, rows=rows)
    else:
        batch = make(split, index, batch_size, seed).take(rows)
    check_batch(batch, task.spec, f"batch {index} of the {split} split has them")
    return batch


def check_batch(batch: Batch, spec: TaskSpec, remedy: str) -> None:
    """Checks the tokens, the classes and the sizes of steps of a batch.

    Tokens of padding are checked too: their embeddings do not change the predictions,
    but a gradient through NaN is NaN. Targets outside of ``loss_mask`` are free.

    Args:
      batch: The batch.
      spec: The spec of its task.
      remedy: Suggestion in the error message.

    Raises:
      ValueError: A token is not in ``[0, d_input)``, or a class that counts in the loss
        is not in ``[0, d_output)``; a number of ``dt`` is negative or not finite, or
        there is a ``dt``, but the spec is not ``irregular``, or the other way round.
    """
    _check_dt(batch.dt, spec, remedy)
    if spec.inputs == "token":
        check_indices("inputs", np.asarray(batch.inputs), spec.d_input, remedy)
    if spec.targets == "classification":
        targets, counts = np.asarray(batch.targets), np.asarray(batch.loss_mask)
        # Another shape is the error of what computes the loss.
        if targets.shape == counts.shape:
            check_indices("targets", targets, spec.d_output, remedy, counts=counts)


def _check_dt(dt, spec, remedy):
    if (dt is not None) != spec.irregular:
        raise ValueError(
            f"`dt` must be {'an array' if spec.irregular else 'None'} for a task whose "
            f"spec has irregular={spec.irregular}, got {type(dt).__name__}; {remedy}."
        )
    if dt is None:
        return
    # NaN is not at least 0.
    bad = ~((np.asarray(dt) >= 0) & (np.asarray(dt) < np.inf))
    if bad.any():
        raise ValueError(
            f"`dt` must be finite and at least 0, got {np.asarray(dt)[bad][0]}; "
            f"{remedy}."
        )


def check_split(split: Split) -> None:
    """Raises ValueError unless ``split`` is the name of a split."""
    if split not in get_args(Split):
        names = ", ".join(repr(name) for name in get_args(Split))
        raise ValueError(
            f"`split` must be one of {names}, got {split!r}; choose one of them."
        )


def check_request(split: Split, index: int, batch_size: int, seed: int) -> None:
    """Raises ValueError for arguments that are invalid in every task."""
    check_split(split)
    check_value("index", index, NonNegativeInt, "the first batch has index 0")
    check_value("batch_size", batch_size, PositiveInt, "a batch has at least one row")
    check_value("seed", seed, Seed)


def count_batches(n: int, split: Split, batch_size: int) -> int:
    """Returns the number of batches of one epoch of a split of ``n`` examples."""
    # Evaluation reads every example (rounds up); training drops a partial batch.
    if split != "train":
        return -(-n // batch_size)
    if batch_size > n:
        raise ValueError(
            f"`batch_size` must be at most {n}, the examples of the train split, got "
            f"{batch_size}; choose a smaller batch."
        )
    return n // batch_size
