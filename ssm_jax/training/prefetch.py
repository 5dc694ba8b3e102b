"""Batches made by a thread while the devices compute."""

import collections
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

DEPTH = 2
"""Number of batches that are made ahead."""


class Prefetch:
    """Iterates over batches that one thread makes ahead, in their order.

    A batch is a function of its index alone, so that the batches are those made one at
    a time, wherever an iteration begins. An error is raised where its batch is due.

    Args:
      make: Makes the batch of an index. It is never called twice at the same time.
      indices: The indices.

    Attributes:
      waited_s: Seconds that the iteration has waited for batches.

    Example:
      >>> with Prefetch(lambda index: index**2, range(4)) as batches:
      ...     list(batches)
      [0, 1, 4, 9]
    """

    def __init__(self, make: Callable[[int], Any], indices: Iterable[int]):
        """Stores the arguments; nothing is made before the iteration."""
        self._make, self._indices = make, iter(indices)
        self._ahead: collections.deque[Future[Any]] = collections.deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self.waited_s = 0.0

    def __enter__(self) -> "Prefetch":
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the thread, after the batch that it makes."""
        self._thread.shutdown(cancel_futures=True)

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches."""
        for _ in range(DEPTH):
            self._submit()
        while self._ahead:
            began = time.perf_counter()
            batch = self._ahead.popleft().result()
            self.waited_s += time.perf_counter() - began
            # Before the caller computes with this one.
            self._submit()
            yield batch

    def _submit(self):
        index = next(self._indices, None)
        if index is not None:
            self._ahead.append(self._thread.submit(self._make, index))

    def wait(self) -> None:
        """Waits until the thread makes nothing, so that its source is free."""
        for batch in self._ahead:
            batch.exception()
