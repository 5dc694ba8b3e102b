"""Classification of one or two sentences, from prepared TFDS sets."""

import abc
import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base, order
from ssm_jax.tasks.text import tokens, words
from ssm_jax.tasks.tfds import reading

# The validation split is drawn with one seed, so that results of runs compare.
_SEED = 2403


@dataclasses.dataclass(frozen=True)
class SentenceSet:
    """A prepared set whose examples are one or two sentences and a class.

    Attributes:
      prepared: The prepared set.
      sentences: Names of the features that hold the sentences.
      n_classes: Number of classes; labels are integers from 0.
      test: The split of the set that is the task's test split.
    """

    prepared: reading.PreparedSet
    sentences: tuple[str, ...]
    n_classes: int
    test: str = "test"

    def read(
        self, data_dir: str | None, split: str
    ) -> tuple[list[list[bytes]], np.ndarray]:
        """Reads a split.

        Args:
          data_dir: Directory of all sets.
          split: Name of the split in the set.

        Returns:
          ``(texts, labels)``: the sentences and the class, int32, of each example.

        Raises:
          FileNotFoundError: As for `ssm_jax.tasks.tfds.reading.PreparedSet.open`.
          ValueError: As there, or a label is not a class.
        """
        texts, labels = [], []
        for record in self.prepared.open(data_dir, split):
            texts.append([record.text(name) for name in self.sentences])
            labels.append(record.integer("label"))
        # A split without public labels has the label -1.
        bad = set(labels) - set(range(self.n_classes))
        if bad:
            raise ValueError(
                f"labels of {self.prepared.name} {split} must be in [0, "
                f"{self.n_classes}), got {min(bad)} in {self.prepared.path(data_dir)};"
                " remove that folder and prepare the set again."
            )
        return texts, np.array(labels, np.int32)


class SentenceTask(order.FiniteTask):
    """Base class of the tasks that hold the rows of all splits in memory."""

    data_dir: str | None
    length: int

    @abc.abstractmethod
    def _set(self) -> SentenceSet:
        """Returns the set that the task reads."""

    @abc.abstractmethod
    def _splits(self) -> dict[base.Split, tokens.LabelledRows]:
        """Returns the examples of each split."""

    def data_files(self) -> dict[str, Path]:
        """Returns the files of the prepared set by name."""
        return self._set().prepared.data_files(self.data_dir)

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        return len(self._splits()[split].labels)

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        # Truncated per batch, so that tasks of any length share the rows.
        return self._splits()[split].take(indices, loss_mask, self.length)


class WordTask(SentenceTask):
    """Base class of the tasks that read their sentences with `read_words`."""

    vocabulary: int
    min_count: int
    n_validation: Any  # An integer, or in some tasks None.

    @property
    def spec(self) -> base.TaskSpec:
        """One word per step, one class per sequence."""
        return tokens.token_spec(
            length=self.length,
            vocabulary=self.vocabulary,
            n_classes=self._set().n_classes,
        )

    def _read(self):
        # The cache has these arguments as its key: `length` is not one of them.
        return read_words(
            self._set(),
            self.data_dir,
            self.n_validation,
            self.vocabulary,
            self.min_count,
        )

    def words(self) -> words.Vocabulary:
        """Returns the vocabulary, for encoding other sentences."""
        return self._read()[0]

    @override
    def _splits(self) -> dict[base.Split, tokens.LabelledRows]:
        return self._read()[1]


def hold_out(n: int, n_validation: int, usual: str) -> dict[base.Split, np.ndarray]:
    """Splits the train examples into train and validation by one fixed draw.

    Args:
      n: Number of examples in the set's train split.
      n_validation: Number of examples held out for validation.
      usual: Number that an error recommends.

    Returns:
      The sorted indices of the train and of the validation examples. The validation
      examples of a smaller ``n_validation`` are a subset of those of a larger one.

    Raises:
      ValueError: One of the two splits would be empty.
    """
    reading.check_held_out(n, n_validation, usual)
    # A permutation: the examples of a smaller split are among those of a larger one.
    order = np.random.default_rng(_SEED).permutation(n)
    return {
        # Sorted, so that the examples keep the order of the set.
        "train": np.sort(order[n_validation:]),
        "validation": np.sort(order[:n_validation]),
    }


@functools.cache
def read_bytes(
    which: SentenceSet, data_dir: str | None, n_validation: int, usual: str
) -> dict[base.Split, tokens.LabelledRows]:
    """Reads all splits of a set as bytes, once per process."""

    def label_rows(texts, labels):
        rows = tokens.Rows.of(tokens.from_bytes(text) for (text,) in texts)
        return tokens.LabelledRows((rows,), labels)

    texts, labels = which.read(data_dir, "train")
    parts = hold_out(len(texts), n_validation, usual)
    splits: dict[base.Split, tokens.LabelledRows] = {
        split: label_rows([texts[row] for row in rows], labels[rows])
        for split, rows in parts.items()
    }
    splits["test"] = label_rows(*which.read(data_dir, which.test))
    return splits


@functools.cache
def read_words(
    which: SentenceSet,
    data_dir: str | None,
    n_validation: int | None,
    vocabulary: int,
    min_count: int,
) -> tuple[words.Vocabulary, dict[base.Split, tokens.LabelledRows]]:
    """Reads all splits of a set as words, once per process.

    Args:
      which: The set.
      data_dir: Directory of all sets.
      n_validation: Number of train examples held out; None means the size of the test
        split.
      vocabulary: Maximum number of tokens.
      min_count: Minimum count of a word in the train split.

    Returns:
      The vocabulary of the train split, and all splits in its tokens.
    """
    texts, labels = which.read(data_dir, "train")
    test = which.read(data_dir, which.test)
    n_test = len(test[1])
    n_validation = n_test if n_validation is None else n_validation
    parts = hold_out(len(texts), n_validation, f"{n_test:,}")
    chosen: dict[base.Split, tuple[list[list[bytes]], np.ndarray]] = {
        split: ([texts[row] for row in rows], labels[rows])
        for split, rows in parts.items()
    }
    chosen["test"] = test
    # Words are counted in the train split alone: no information from the other splits.
    counted = (decode(text) for pair in chosen["train"][0] for text in pair)
    known = words.Vocabulary.of(counted, vocabulary, min_count)

    def label_rows(texts, labels):
        # First and second sentences apart: they are joined per batch, by its length.
        columns = zip(*texts, strict=True)
        rows = tuple(
            tokens.Rows.of(known.encode(map(decode, column))) for column in columns
        )
        return tokens.LabelledRows(rows, labels, words.SEPARATOR)

    return known, {split: label_rows(*part) for split, part in chosen.items()}


def decode(text: bytes) -> str:
    """Decodes UTF-8; other bytes become the replacement character."""
    return text.decode(errors="replace")
