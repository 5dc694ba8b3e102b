"""Sentences and their classes, from sets in TFDS's folder format."""

import abc
import dataclasses
import functools

import numpy as np

from ssm_jax.tasks import base
from ssm_jax.tasks.text import tokens, words
from ssm_jax.tasks.tfds import reading

# One draw for everybody, so that figures of different runs can be compared.
_SEED = 2403


@dataclasses.dataclass(frozen=True)
class SentenceSet:
    """A prepared set whose examples are one sentence, or two, and a class.

    Attributes:
      prepared: Where it lies.
      sentences: Names of the features that hold the sentences.
      n_classes: Classes; the labels are the integers from 0.
      test: The split of the set that a task tests on; it trains on ``"train"``.
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
          data_dir: Folder of all sets.
          split: Name that the set itself has for the split.

        Returns:
          ``(texts, labels)``: the sentences of each example, and its class, int32.

        Raises:
          FileNotFoundError: As for `ssm_jax.tasks.tfds.reading.PreparedSet.open`.
          ValueError: As there, or an example has no class.
        """
        texts, labels = [], []
        for record in self.prepared.open(data_dir, split):
            texts.append([record.text(name) for name in self.sentences])
            labels.append(record.integer("label"))
        bad = set(labels) - set(range(self.n_classes))
        if bad:
            raise ValueError(
                f"labels of {self.prepared.name} {split} must be in [0, "
                f"{self.n_classes}), got {min(bad)} in {self.prepared.path(data_dir)};"
                " remove that folder and prepare the set again."
            )
        return texts, np.array(labels, np.int32)


class WordTask(abc.ABC):
    """What tasks that `read_words` reads have in common."""

    length: int

    @abc.abstractmethod
    def _read(self) -> tuple[words.Vocabulary, dict[base.Split, tokens.LabelledRows]]:
        """What `read_words` gives."""

    def words(self) -> words.Vocabulary:
        """The words that have a token, for sentences of one's own."""
        return self._read()[0]

    def n_examples(self, split: base.Split) -> int:
        """Returns the number of examples in a split."""
        base.check_split(split)
        return len(self._read()[1][split].labels)

    def batch(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> base.Batch:
        """Returns batch ``index``; see `ssm_jax.tasks.Task.batch`."""
        base.check_split(split)
        part = self._read()[1][split]
        return part.batch(split, index, batch_size, seed, self.length)


def hold_out(n: int, n_validation: int, usual: str) -> dict[base.Split, np.ndarray]:
    """Draws which train examples are for validation: always the same ones.

    Args:
      n: Examples of the set's train split.
      n_validation: How many of them are held out.
      usual: Number that an error recommends.

    Returns:
      The numbers of the examples to train on and of the others, both rising. What a
      smaller ``n_validation`` holds out, a greater one does too.

    Raises:
      ValueError: ``n_validation`` leaves nothing on one side.
    """
    reading.check_held_out(n, n_validation, usual)
    order = np.random.default_rng(_SEED).permutation(n)
    return {
        "train": np.sort(order[n_validation:]),
        "validation": np.sort(order[:n_validation]),
    }


@functools.cache
def read_bytes(
    which: SentenceSet, data_dir: str | None, n_validation: int, usual: str
) -> dict[base.Split, tokens.LabelledRows]:
    """Reads all splits of a set as bytes, once per process."""

    def labelled(texts, labels):
        rows = tokens.Rows.of(tokens.from_bytes(text) for (text,) in texts)
        return tokens.LabelledRows((rows,), labels)

    texts, labels = which.read(data_dir, "train")
    parts = hold_out(len(texts), n_validation, usual)
    read: dict[base.Split, tokens.LabelledRows] = {
        split: labelled([texts[row] for row in rows], labels[rows])
        for split, rows in parts.items()
    }
    read["test"] = labelled(*which.read(data_dir, which.test))
    return read


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
      data_dir: Folder of all sets.
      n_validation: Train examples held out; None: as many as are tested on.
      vocabulary: Tokens at most.
      min_count: How often a word must occur in what is trained on.

    Returns:
      The vocabulary of the examples to train on, and all splits in its tokens.
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
    counted = (_decode(text) for pair in chosen["train"][0] for text in pair)
    known = words.Vocabulary.of(counted, vocabulary, min_count)

    def labelled(texts, labels):
        columns = zip(*texts, strict=True)
        rows = tuple(
            tokens.Rows.of(known.encode(map(_decode, column))) for column in columns
        )
        return tokens.LabelledRows(rows, labels, words.SEPARATOR)

    return known, {split: labelled(*part) for split, part in chosen.items()}


def _decode(text: bytes) -> str:
    # What is no UTF-8 becomes one more symbol.
    return text.decode(errors="replace")
