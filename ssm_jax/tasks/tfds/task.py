"""TFDSTask: classification on any set that TFDS has prepared as array_record."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from ssm_jax.fields import PositiveInt, check_fields
from ssm_jax.tasks import base, order
from ssm_jax.tasks.images import labelled
from ssm_jax.tasks.text import sentences, tokens, words
from ssm_jax.tasks.tfds import reading

_KEPT = 2**28  # bytes of the examples of a split that are kept,
_OVERHEAD = 256  # and of what Python adds to each


@dataclasses.dataclass(frozen=True, kw_only=True)
class TFDSTask(order.FiniteTask):
    """Classification: the class of an image, pixel by pixel, or of a text.

    Attributes:
      name: Folder of the set in ``data_dir``, such as ``"mnist/3.0.1"``.
      feature: Name of the feature that is read.
      inputs: ``"pixels"``: an image of ``length`` pixels, gray, row by row from the top
        left; ``"bytes"`` or ``"words"``: a text.
      length: Number of pixels, bytes or words of a sequence; longer texts are
        truncated.
      n_classes: Number of classes.
      label: Name of the feature with the class, an integer in ``[0, n_classes)``.
      data_dir: Directory of all prepared sets. None means TFDS's default directory: the
        environment variable ``TFDS_DATA_DIR``, else ``~/tensorflow_datasets``.
      train: Split of the set for training.
      test: Split of the set for testing.
      validation: Split of the set for validation. None means ``n_validation`` examples
        of ``train``, drawn once and for all, which are not trained on.
      n_validation: Number of these examples; ignored if there is a split.
      vocabulary: Size of the vocabulary of ``"words"``: three special tokens and the
        most frequent words of the train split; see `ssm_jax.tasks.text.words`.

    Batch:
      inputs: float32 in [0, 1], ``(b, length, 1)``; or int32, ``(b, length)``: bytes
        plus 1, or words, then padding, 0.
      targets: int32, ``(b,)``.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.
      mask: bool, ``(b, length)``, false on padding; None for images.

    Splits: those of the set. Examples are read per batch, without TensorFlow; of each
    split up to 256 MiB are kept in memory. For ``"words"`` each process also reads the
    train split once, to count them.

    Raises:
      FileNotFoundError: At the first batch or count, if the set does not exist.
      ValueError: A field is out of range; at the first batch or count, if the set is
        damaged or not in array_record format, or has no such split or feature; then,
        for the first example of a split, or at the batch that has it, if a label is no
        class or an image has another number of pixels.

    Example:
      >>> mnist = TFDSTask(
      ...     name="mnist/3.0.1", feature="image", inputs="pixels", length=784,
      ...     n_classes=10,
      ... )
      >>> mnist.spec.length, mnist.spec.d_input
      (784, 1)
    """

    name: str
    feature: str
    inputs: Literal["pixels", "bytes", "words"]
    length: PositiveInt
    n_classes: PositiveInt
    label: str = "label"
    data_dir: str | None = None
    train: str = "train"
    test: str = "test"
    validation: str | None = None
    n_validation: PositiveInt = 1_000
    vocabulary: PositiveInt = 30_000

    def __post_init__(self) -> None:
        check_fields(self)
        if self.inputs == "words":
            words.check_vocabulary(self.vocabulary, min_count=1)
        parts = [self.train, self.test, self.validation]
        if len(set(parts)) < len(parts):
            raise ValueError(
                "`validation` must be another split than `train` and `test`, which "
                f"differ, got {', '.join(map(str, parts))}; None takes it from `train`."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """One pixel or token per step, one class per sequence."""
        if self.inputs == "pixels":
            return labelled.pixel_spec(length=self.length, n_classes=self.n_classes)
        size = tokens.N_BYTES if self.inputs == "bytes" else self.vocabulary
        return tokens.token_spec(
            length=self.length, vocabulary=size, n_classes=self.n_classes
        )

    def data_files(self) -> dict[str, Path]:
        """Returns the files of the prepared set by name."""
        return _prepared(self).data_files(self.data_dir)

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        return len(_splits(self)[split].rows)

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        values, labels = _splits(self)[split].take(indices)
        if self.inputs == "pixels":
            images = labelled.LabelledImages(np.stack(values), labels, white=255)
            return images.take(np.arange(len(indices)), loss_mask)
        inputs, mask = tokens.pad(values, self.length)
        return base.Batch(inputs, labels, loss_mask, mask)


@dataclasses.dataclass(frozen=True)
class _OwnSet(reading.PreparedSet):
    """A set that `launch.prepare` does not know."""

    def _command(self, data_dir):
        del data_dir
        return "TFDS's `download_and_prepare` writes it with that `file_format`"


class _Examples:
    """The examples of a split, which are read when they are asked for."""

    def __init__(self, task, name, records, rows, encode):
        self._task, self._name, self._encode = task, name, encode
        # The rows of the split among the records.
        self._records, self.rows = records, rows
        # The first that are read: in shuffled epochs as good as the last ones.
        self._kept, self._room = {}, _KEPT

    def take(self, indices):
        """The pixels or tokens of some examples, ``(l,)`` each, and their labels."""
        found = {i: self._kept[i] for i in indices.tolist() if i in self._kept}
        if missing := [i for i in indices.tolist() if i not in found]:
            read = dict(zip(missing, self._read(self.rows[missing]), strict=True))
            found |= read
            for i, (value, label) in read.items():
                if self._room >= value.nbytes + _OVERHEAD:
                    self._kept[i] = value, label
                    self._room -= value.nbytes + _OVERHEAD
        values, labels = zip(*(found[i] for i in indices.tolist()), strict=True)
        return values, np.array(labels, np.int32)

    def _read(self, rows):
        task, records = self._task, self._records.read(rows.tolist())
        labels = [record.integer(task.label) for record in records]
        bad = set(labels) - set(range(task.n_classes))
        if bad:
            raise ValueError(
                f"`n_classes` must be greater than all labels of {task.name} "
                f"{self._name}, which are not negative, got {task.n_classes} with "
                f"{max(bad)}; a split without public labels has -1."
            )
        values = self._encode([record.text(task.feature) for record in records])
        return zip(values, labels, strict=True)


@functools.lru_cache(maxsize=2)
def _splits(task: TFDSTask) -> dict[base.Split, _Examples]:
    """Opens all splits, and reads the first example of each."""
    names: dict[base.Split, str] = {"train": task.train, "test": task.test}
    if task.validation is not None:
        names["validation"] = task.validation
    prepared = _prepared(task)
    opened: dict[base.Split, Any] = {
        split: prepared.open(task.data_dir, name) for split, name in names.items()
    }
    rows = {split: np.arange(len(records)) for split, records in opened.items()}
    if task.validation is None:
        rows |= sentences.hold_out(len(rows["train"]), task.n_validation, "1,000")
        names["validation"], opened["validation"] = task.train, opened["train"]
    encode = _encoder(task, opened["train"], rows["train"])
    splits: dict[base.Split, _Examples] = {
        split: _Examples(task, names[split], opened[split], rows[split], encode)
        for split in opened
    }
    # Fields that do not fit the set are noticed here and not in the middle of a run.
    for examples in splits.values():
        examples.take(np.arange(1))
    return splits


def _prepared(task):
    return _OwnSet(task.name, task.name, (task.feature, task.label))


def _encoder(task, records, rows):
    """A function from encoded images or texts to their pixels or tokens."""
    if task.inputs == "pixels":
        return lambda values: [_pixels(task, value) for value in values]
    if task.inputs == "bytes":
        # Truncated before the conversion: most bytes of a long text are not used.
        return lambda values: [tokens.from_bytes(v[: task.length]) for v in values]
    # Words are counted in the train split alone: no information from the other splits.
    train = (sentences.decode(r.text(task.feature)) for r in records.iterate(rows))
    known = words.Vocabulary.of(train, task.vocabulary)
    return lambda values: [
        # A copy, as a slice would keep the rest of a long text.
        row[: task.length].copy()
        for row in known.encode(map(sentences.decode, values))
    ]


def _pixels(task, encoded):
    def check(height, width):
        if height * width != task.length:
            raise ValueError(
                f"`length` must be {height * width}, the pixels of an image of "
                f"{task.name} {height, width}, got {task.length}; sequences have one "
                "length."
            )

    return labelled.decode(encoded, check, task.name, "L").ravel()
