"""Selection of the tokens of a text on which losses by length are measured."""

from typing import NamedTuple

import numpy as np

from ssm_jax.types import Array, Integer


class Spans(NamedTuple):
    """Contiguous spans of a text: the same number and length in each document.

    Attributes:
      starts: Index of the first token of each span, int64, ``(d, r)``: ``r`` spans in
        each of ``d`` documents, in the order of the text.
      length: Number of tokens of a span.
    """

    starts: np.ndarray
    length: int

    @property
    def n_tokens(self) -> int:
        """Total number of tokens of all spans."""
        return self.starts.size * self.length


def spread_spans(
    edges: Integer[Array, " e"],
    longest: int,
    max_tokens: int | None = None,
    *,
    n_spans: int = 16,
) -> Spans:
    """Distributes spans evenly over the documents of a text.

    Every document contributes the same number of tokens, regardless of its length, so
    the mean over all tokens is the mean over documents. A document shorter than the
    longest window is merged with the following documents until they hold one window
    together; such a group counts as one document.

    Args:
      edges: Start of each document and end of the last one, increasing, ``(e,)``.
      longest: Tokens of the longest window; the length of a span is a multiple of it.
      max_tokens: Maximum total number of tokens; at least one window is selected. If it
        is less than one window per document, a subset of documents at equal distances
        is selected. None means as many as the shortest document allows.
      n_spans: Target number of spans, over all documents; they are evaluated as rows of
        one batch.

    Returns:
      The spans. In each document they start at equal distances, the first one at the
      start of the document.

    Raises:
      ValueError: All documents together are shorter than the longest window.

    Example:
      >>> spread_spans(np.array([0, 100, 150, 400]), longest=50, max_tokens=300).starts
      array([[  0],
             [100],
             [150]])
    """
    groups = merged_documents(edges, longest)
    first, size = groups[:-1], np.diff(groups)
    n_windows = int(size.min()) // longest  # of each document
    if max_tokens is not None:
        max_windows = max(1, max_tokens // longest)
        if max_windows < len(first):
            selected = np.arange(max_windows) * len(first) // max_windows
            first, size = first[selected], size[selected]
        n_windows = min(n_windows, max_windows // len(first))
    windows_per_span = -(-n_windows // max(1, n_spans // len(first)))
    spans = n_windows // windows_per_span
    # Offsets in whole windows, so that spans may touch but never overlap.
    offset = np.arange(spans) * (size // longest)[:, None] // spans
    return Spans(first[:, None] + longest * offset, windows_per_span * longest)


def merged_documents(
    edges: Integer[Array, " e"], longest: int
) -> Integer[np.ndarray, " g"]:
    """Merges documents until each holds a window; see `spread_spans`.

    Args:
      edges: Start of each document and end of the last one, increasing, ``(e,)``.
      longest: Tokens of the longest window.

    Returns:
      Start of each group of documents and end of the last one, int64, ``(g,)``.

    Raises:
      ValueError: All documents together are shorter than the longest window.

    Example:
      >>> merged_documents(np.array([0, 100, 150, 400]), longest=150).tolist()
      [0, 150, 400]
    """
    groups = [int(edges[0])]
    for edge in map(int, edges[1:]):
        if edge - groups[-1] >= longest:
            groups.append(edge)
    if len(groups) == 1:
        raise ValueError(
            f"`lengths` must be at most {edges[-1] - edges[0]}, the tokens of the text "
            f"that have a next one, got {longest}; use shorter windows or a longer "
            "text."
        )
    # Documents that remain after the last complete group join it.
    groups[-1] = int(edges[-1])
    return np.array(groups)
