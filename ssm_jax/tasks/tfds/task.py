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

    Splits: those of the set. Read once per process into memory, without TensorFlow.

    Raises:
      FileNotFoundError: At the first batch or count, if the set does not exist.
      ValueError: A field is out of range; at the first batch or count, if the set is
        damaged or not in array_record format, has no such split or feature, if a label
        is no class or an image has another number of pixels.

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
        return _prepared_set(self).data_files(self.data_dir)

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        return len(_parts(self)[split].labels)

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        part = _parts(self)[split]
        if isinstance(part, labelled.LabelledImages):
            return part.take(indices, loss_mask)
        return part.take(indices, loss_mask, self.length)


@dataclasses.dataclass(frozen=True)
class _OwnSet(reading.PreparedSet):
    """A set that `launch.prepare` does not know."""

    def _command(self, data_dir):
        del data_dir
        return "TFDS's `download_and_prepare` writes it with that `file_format`"


@functools.lru_cache(maxsize=2)
def _parts(
    task: TFDSTask,
) -> dict[base.Split, labelled.LabelledImages | tokens.LabelledRows]:
    """Reads all splits."""
    examples: dict[base.Split, Any] = {
        "train": _read(task, task.train),
        "test": _read(task, task.test),
    }
    if task.validation is not None:
        examples["validation"] = _read(task, task.validation)
    else:
        values, labels = examples["train"]
        drawn = sentences.hold_out(len(labels), task.n_validation, "1,000")
        for split, rows in drawn.items():
            examples[split] = [values[row] for row in rows], labels[rows]
    parts: dict[base.Split, labelled.LabelledImages | tokens.LabelledRows] = {}
    encode = _encoder(task, examples["train"][0])
    for split, (values, labels) in examples.items():
        if task.inputs == "pixels":
            images = np.stack(values)
            parts[split] = labelled.LabelledImages(images, labels, white=255)
        else:
            rows = tokens.Rows.of(encode(values))
            parts[split] = tokens.LabelledRows((rows,), labels)
    return parts


def _encoder(task, texts):
    """A function from texts to their tokens."""
    if task.inputs != "words":
        return lambda values: map(tokens.from_bytes, values)
    # Words are counted in the train split alone: no information from the other splits.
    known = words.Vocabulary.of(map(sentences.decode, texts), task.vocabulary)
    return lambda values: known.encode(map(sentences.decode, values))


def _prepared_set(task):
    return _OwnSet(task.name, task.name, (task.feature, task.label))


def _read(task, split):
    """The values of a split, uint8 pixels ``(l,)`` or bytes, and its labels."""
    values, labels = [], []
    for record in _prepared_set(task).open(task.data_dir, split):
        value = record.text(task.feature)
        values.append(_pixels(task, value) if task.inputs == "pixels" else value)
        labels.append(record.integer(task.label))
    bad = set(labels) - set(range(task.n_classes))
    if bad:
        raise ValueError(
            f"`n_classes` must be greater than all labels of {task.name} {split}, "
            f"which are not negative, got {task.n_classes} with {max(bad)}; a split "
            "without public labels has -1."
        )
    return values, np.array(labels, np.int32)


def _pixels(task, encoded):
    def check(height, width):
        if height * width != task.length:
            raise ValueError(
                f"`length` must be {height * width}, the pixels of an image of "
                f"{task.name} {height, width}, got {task.length}; sequences have one "
                "length."
            )

    return labelled.decode(encoded, check, task.name, "L").ravel()
