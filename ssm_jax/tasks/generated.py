"""Finite generated sets: their sizes, and examples drawn on first use and cached."""

from collections.abc import Callable

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base, order


class GeneratedExamples:
    """Sequences of small integers with their targets, drawn in blocks on first use.

    Examples are drawn in blocks because the generators are vectorized. A block depends
    only on its index and not on earlier requests.

    Attributes:
      n: Number of examples in the set.

    Example:
      >>> def draw(block):
      ...     rows = np.full((4, 3), block, np.uint8)
      ...     return rows, np.arange(4, dtype=np.int32)
      >>> examples = GeneratedExamples(n=10, per_block=4, draw=draw)
      >>> rows, labels = examples.take(np.array([9, 2]))
      >>> rows.tolist(), labels.tolist()
      ([[2, 2, 2], [0, 0, 0]], [1, 2])
    """

    def __init__(
        self,
        *,
        n: int,
        per_block: int,
        draw: Callable[[int], tuple[np.ndarray, np.ndarray]],
    ) -> None:
        """Describes the set; draws no example.

        Args:
          n: Number of examples in the set.
          per_block: Number of examples in a block.
          draw: Returns block ``i``: sequences, uint8, ``(per_block, l)``, a quarter of
            the memory of int32, and their targets, ``(per_block, ...)``.
        """
        self.n = n
        self._per_block = per_block
        self._draw = draw
        self._blocks: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the examples with the indices ``rows``.

        Args:
          rows: int64, ``(b,)``, in ``[0, n)``.

        Returns:
          Sequences, uint8, ``(b, l)``, and targets, ``(b, ...)``: copies.
        """
        blocks, positions = np.divmod(rows, self._per_block)
        # A block is drawn once, even if several rows are in it.
        for block in set(blocks.tolist()) - self._blocks.keys():
            self._blocks[block] = self._draw(block)
        places = list(zip(blocks.tolist(), positions.tolist(), strict=True))
        sequences, targets = (
            np.stack([self._blocks[block][part][at] for block, at in places])
            for part in (0, 1)
        )
        return sequences, targets


class GeneratedTask(order.FiniteTask):
    """A finite task whose splits have the sizes of its fields."""

    n_train: int
    n_validation: int
    n_test: int

    def __post_init__(self) -> None:
        """Raises ValueError unless every split has at least one example."""
        for name in ("n_train", "n_validation", "n_test"):
            if (size := getattr(self, name)) < 1:
                raise ValueError(
                    f"`{name}` must be at least 1, got {size}; a split has at least "
                    "one example."
                )

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        sizes = (self.n_train, self.n_validation, self.n_test)
        return dict(zip(("train", "validation", "test"), sizes, strict=True))[split]
