"""Rows of tokens, cut or padded to one length: what all text tasks share.

Token 0 is no text anywhere: it is padding or, between bytes that have none, the border
of two documents. A byte is the token one greater; the tokens of words are those of a
`ssm_jax.tasks.text.words.Vocabulary`.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from ssm_jax.tasks import base

N_BYTES = 257
"""Tokens of a task that reads bytes: the bytes, and the one that is no byte."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of tokens of different lengths, stored end to end.

    Attributes:
      tokens: Integers, ``(n,)``, all rows one after another.
      ends: int64, ``(r,)``, where each row ends in ``tokens``.

    Example:
      >>> rows = Rows.of([np.array([5, 6]), np.array([7])])
      >>> [row.tolist() for row in rows.take(np.array([1, 0, 1]))]
      [[7], [5, 6], [7]]
    """

    tokens: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, rows: Iterable[np.ndarray]) -> "Rows":
        """Stores rows; at least one is needed, and each may be empty."""
        rows = list(rows)
        return cls(np.concatenate(rows), np.cumsum([len(row) for row in rows]))

    def take(self, which: np.ndarray) -> list[np.ndarray]:
        """Gives the tokens of some rows, which are counted from 0."""
        starts = np.where(which == 0, 0, self.ends[which - 1])
        ends = self.ends[which]
        return [self.tokens[a:b] for a, b in zip(starts, ends, strict=True)]


def from_bytes(text: bytes) -> np.ndarray:
    """Gives the tokens of a text that is read as bytes, uint16.

    Example:
      >>> from_bytes(b"ab").tolist()
      [98, 99]
    """
    return np.frombuffer(text, np.uint8).astype(np.uint16) + 1


def pad(rows: Sequence[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Cuts rows at the end, or fills them up there, until all have one length.

    Args:
      rows: Tokens of each row, ``b`` of them.
      length: Tokens that a row shall have, ``l``.

    Returns:
      ``(inputs, mask)``: tokens, int32, and where they are not padding, bool, both
      ``(b, l)``.

    Example:
      >>> inputs, mask = pad([np.array([5, 6, 7]), np.array([8])], 2)
      >>> inputs.tolist(), mask.tolist()
      ([[5, 6], [8, 0]], [[True, True], [True, False]])
    """
    inputs = np.zeros((len(rows), length), np.int32)
    mask = np.zeros(inputs.shape, bool)
    for i, row in enumerate(rows):
        cut = row[:length]
        inputs[i, : len(cut)] = cut
        mask[i, : len(cut)] = True
    return inputs, mask


def join(
    first: np.ndarray, second: np.ndarray, separator: int, length: int
) -> np.ndarray:
    """Makes two sentences one row, with a separator between them.

    What is too long loses the end of the longer sentence, until both are of a length,
    and only then the ends of both: no long sentence pushes the other one out.

    Args:
      first: Tokens of the first sentence.
      second: Tokens of the second.
      separator: The token between them.
      length: Tokens that the row may have.

    Returns:
      At most ``length`` tokens.

    Example:
      >>> join(np.array([5, 6, 7, 8]), np.array([9]), separator=2, length=4).tolist()
      [5, 6, 2, 9]
    """
    room = length - 1
    n_second = min(len(second), max(room - len(first), room // 2))
    n_first = min(len(first), room - n_second)
    return np.concatenate([first[:n_first], [separator], second[:n_second]])


@dataclasses.dataclass(frozen=True)
class LabelledRows:
    """One sentence or two for each example of a split, and its class.

    Attributes:
      sentences: Tokens of the first sentences, and of the second ones where an example
        has two; ``n`` rows each.
      labels: int32, ``(n,)``, the class of each example.
      separator: The token that stands between two sentences.
    """

    sentences: tuple[Rows, ...]
    labels: np.ndarray
    separator: int = 0

    def batch(
        self, split: base.Split, index: int, batch_size: int, seed: int, length: int
    ) -> base.Batch:
        """Gives batch number ``index`` of these examples; they are the split.

        Args:
          split: Which split they are: ``"train"`` is shuffled.
          index: Position in the split, in batches.
          batch_size: Rows of the batch, ``b``.
          seed: Draws the order of the train split.
          length: Tokens of a row, ``l``; two sentences are joined to one row.

        Returns:
          Inputs and mask ``(b, l)``, targets and loss mask ``(b,)``.

        Raises:
          ValueError: As for `ssm_jax.tasks.Task.batch`.
        """
        rows, loss_mask = base.shuffled_indices(
            len(self.labels), split, index, batch_size, seed
        )
        first, *second = (sentences.take(rows) for sentences in self.sentences)
        if second:
            pairs = zip(first, *second, strict=True)
            first = [join(a, b, self.separator, length) for a, b in pairs]
        inputs, mask = pad(first, length)
        return base.Batch(inputs, self.labels[rows], loss_mask, mask)


def token_spec(
    *, length: int, vocabulary: int, n_classes: int, pair: bool = False
) -> base.TaskSpec:
    """Describes a task that names the class of a text, or of a pair of texts."""
    return base.TaskSpec(
        length=length,
        inputs="token",
        d_input=vocabulary,
        targets="classification",
        d_output=n_classes,
        l_output=None,
        pair=pair,
    )


def check_length(length: int, usual: int) -> None:
    """Raises ValueError unless a row has room for two tokens and a separator."""
    if length < 3:
        raise ValueError(
            f"`length` must be at least 3, got {length}; {usual} is usual."
        )
