"""Rows of tokens, truncated or padded to one length; shared by the text tasks.

Token 0 is padding or, in language modelling on bytes, the separator of documents; it
never stands for text. A byte has the token byte + 1; the tokens of words are those of
`ssm_jax.tasks.text.words.Vocabulary`.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from ssm_jax.tasks import base

N_BYTES = 257
"""Vocabulary size of a task that reads bytes: 256 bytes and token 0."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of tokens of different lengths, stored end to end.

    Attributes:
      tokens: Integers, ``(n,)``, all rows concatenated.
      ends: int64, ``(r,)``, end of each row in ``tokens``.

    Example:
      >>> rows = Rows.of([np.array([5, 6]), np.array([7])])
      >>> [row.tolist() for row in rows.take(np.array([1, 0, 1]))]
      [[7], [5, 6], [7]]
    """

    tokens: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, rows: Iterable[np.ndarray]) -> "Rows":
        """Concatenates at least one row; rows may be empty."""
        # One array and its ends: no Python object per row.
        rows = list(rows)
        return cls(np.concatenate(rows), np.cumsum([len(row) for row in rows]))

    def take(self, which: np.ndarray) -> list[np.ndarray]:
        """Returns the tokens of the rows with the indices ``which``."""
        # The row before row 0 would be the last one.
        starts = np.where(which == 0, 0, self.ends[which - 1])
        ends = self.ends[which]
        return [self.tokens[a:b] for a, b in zip(starts, ends, strict=True)]


def from_bytes(text: bytes) -> np.ndarray:
    """Returns the tokens, uint16, of a text that is read as bytes.

    Example:
      >>> from_bytes(b"ab").tolist()
      [98, 99]
    """
    # uint16, as the token of the byte 255 is 256.
    return np.frombuffer(text, np.uint8).astype(np.uint16) + 1


def pad(rows: Sequence[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Truncates or pads rows on the right to one length.

    Args:
      rows: Tokens of each of ``b`` rows.
      length: Length of the result, ``l``.

    Returns:
      ``(inputs, mask)``: tokens, int32, and a bool that is false on padding, both
      ``(b, l)``.

    Example:
      >>> inputs, mask = pad([np.array([5, 6, 7]), np.array([8])], 2)
      >>> inputs.tolist(), mask.tolist()
      ([[5, 6], [8, 0]], [[True, True], [True, False]])
    """
    inputs = np.zeros((len(rows), length), np.int32)
    mask = np.zeros(inputs.shape, bool)
    for i, row in enumerate(rows):
        tokens = row[:length]
        inputs[i, : len(tokens)] = tokens
        mask[i, : len(tokens)] = True
    return inputs, mask


def join(
    first: np.ndarray, second: np.ndarray, separator: int, length: int
) -> np.ndarray:
    """Concatenates two sentences with a separator between them.

    If the result is too long, the longer sentence is truncated until both have the same
    length, then both are, so that neither sentence displaces the other.

    Args:
      first: Tokens of the first sentence.
      second: Tokens of the second sentence.
      separator: The token between them.
      length: Maximum number of tokens of the result.

    Returns:
      At most ``length`` tokens.

    Example:
      >>> join(np.array([5, 6, 7, 8]), np.array([9]), separator=2, length=4).tolist()
      [5, 6, 2, 9]
    """
    # Without the separator.
    room = length - 1
    # What the first sentence leaves, but at least half.
    n_second = min(len(second), max(room - len(first), room // 2))
    n_first = min(len(first), room - n_second)
    return np.concatenate([first[:n_first], [separator], second[:n_second]])


@dataclasses.dataclass(frozen=True)
class LabelledRows:
    """The examples of a split: one or two sentences each, and a class.

    Attributes:
      sentences: Tokens of the first sentences and, if an example has two, of the second
        sentences; ``n`` rows each.
      labels: int32, ``(n,)``, the class of each example.
      separator: The token between two sentences.
    """

    sentences: tuple[Rows, ...]
    labels: np.ndarray
    separator: int = 0

    def take(
        self, indices: np.ndarray, loss_mask: np.ndarray, length: int
    ) -> base.Batch:
        """Returns some examples, of which two sentences are joined in one row.

        Args:
          indices: int64, ``(b,)``, in ``[0, n)``.
          loss_mask: bool, ``(b,)``.
          length: Number of tokens of a row, ``l``.

        Returns:
          Inputs and mask ``(b, l)``, targets and loss mask ``(b,)``.
        """
        first, *second = (sentences.take(indices) for sentences in self.sentences)
        if second:
            pairs = zip(first, *second, strict=True)
            first = [join(a, b, self.separator, length) for a, b in pairs]
        inputs, mask = pad(first, length)
        return base.Batch(inputs, self.labels[indices], loss_mask, mask)


def token_spec(
    *, length: int, vocabulary: int, n_classes: int, pair: bool = False
) -> base.TaskSpec:
    """Returns the spec of a task that classifies a text, or a pair of texts."""
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
