"""Finite generated data sets: examples are drawn on first use, then cached."""

from collections.abc import Callable

import numpy as np

from ssm_jax.tasks import base


class GeneratedExamples:
    """Sequences of small integers with a class each, drawn in blocks on first use.

    Examples are drawn in blocks because the generators are vectorized. A block depends
    only on its index and not on earlier requests.

    Attributes:
      n: Number of examples in the set.

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
        """Allocates the set; draws no example.

        Args:
          n: Number of examples in the set.
          length: Length of a sequence, ``l``.
          per_block: Number of examples in a block.
          draw: Returns block ``i``: sequences, uint8, ``(per_block, l)``, and classes,
            int32, ``(per_block,)``.
        """
        self.n = n
        self._per_block = per_block
        self._draw = draw
        n_blocks = -(-n // per_block)
        # uint8, a quarter of the memory of int32. Pages are committed on first write,
        # so unused blocks take no memory.
        self._rows = np.empty((n_blocks, per_block, length), np.uint8)
        self._labels = np.empty((n_blocks, per_block), np.int32)
        self._is_drawn = np.zeros(n_blocks, bool)

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the examples with the indices ``rows``.

        Args:
          rows: int64, ``(b,)``, in ``[0, n)``.

        Returns:
          Sequences, uint8, ``(b, l)``, and classes, int32, ``(b,)``: copies.
        """
        blocks, positions = np.divmod(rows, self._per_block)
        # A block is drawn once, even if several rows are in it.
        for block in np.unique(blocks[~self._is_drawn[blocks]]).tolist():
            self._rows[block], self._labels[block] = self._draw(block)
            self._is_drawn[block] = True
        return self._rows[blocks, positions], self._labels[blocks, positions]


def check_sizes(n_train: int, n_validation: int, n_test: int) -> None:
    """Raises ValueError unless every split has at least one example."""
    sizes = {"n_train": n_train, "n_validation": n_validation, "n_test": n_test}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(
                f"`{name}` must be at least 1, got {size}; a split has at least one "
                "example."
            )


def split_size(split: base.Split, n_train: int, n_validation: int, n_test: int) -> int:
    """Returns the size of a split; raises ValueError if the split is unknown."""
    base.check_split(split)
    return {"train": n_train, "validation": n_validation, "test": n_test}[split]
