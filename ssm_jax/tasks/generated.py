"""Finite sets that a generator defines: drawn where first asked for, then kept."""

from collections.abc import Callable

import numpy as np

from ssm_jax.tasks import base


class GeneratedExamples:
    """Sequences of small integers with a class each, drawn a block at a time.

    Generators work on many examples at once, so that is how they are called; which
    examples a block holds depends on its number alone, not on what was asked before.

    Attributes:
      n: Examples of the set.

    Example:
      >>> def draw(block):
      ...     rows = np.full((4, 3), block, np.uint8)
      ...     return rows, np.arange(4, dtype=np.int32)
      >>> examples = GeneratedExamples(n=10, length=3, per_block=4, draw=draw)
      >>> rows, labels = examples.take(np.array([9, 2]))
      >>> rows.tolist(), labels.tolist()
      ([[2, 2, 2], [0, 0, 0]], [1, 2])
    """

    def __init__(
        self,
        *,
        n: int,
        length: int,
        per_block: int,
        draw: Callable[[int], tuple[np.ndarray, np.ndarray]],
    ) -> None:
        """Makes room for a set, and draws none of it.

        Args:
          n: Examples of the set.
          length: Integers of a sequence, ``l``.
          per_block: Examples that are drawn at once.
          draw: Gives block number ``i``: sequences, uint8, ``(per_block, l)``, and
            classes, int32, ``(per_block,)``.
        """
        self.n = n
        self._per_block = per_block
        self._draw = draw
        n_blocks = -(-n // per_block)
        # Memory that is not written to costs nothing: a set fills up as it is used.
        self._rows = np.empty((n_blocks, per_block, length), np.uint8)
        self._labels = np.empty((n_blocks, per_block), np.int32)
        self._is_drawn = np.zeros(n_blocks, bool)

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gives the examples with the numbers ``rows``.

        Args:
          rows: int64, ``(b,)``, in ``[0, n)``.

        Returns:
          Sequences, uint8, ``(b, l)``, and classes, int32, ``(b,)``: copies.
        """
        blocks, places = np.divmod(rows, self._per_block)
        for block in np.unique(blocks[~self._is_drawn[blocks]]).tolist():
            self._rows[block], self._labels[block] = self._draw(block)
            self._is_drawn[block] = True
        return self._rows[blocks, places], self._labels[blocks, places]


def check_sizes(n_train: int, n_validation: int, n_test: int) -> None:
    """Raises a ValueError unless every split has examples."""
    sizes = {"n_train": n_train, "n_validation": n_validation, "n_test": n_test}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(
                f"`{name}` must be at least 1, got {size}; a split has examples."
            )


def split_size(split: base.Split, n_train: int, n_validation: int, n_test: int) -> int:
    """Gives the size of a split; a ValueError where it is unknown."""
    base.check_split(split)
    return {"train": n_train, "validation": n_validation, "test": n_test}[split]
