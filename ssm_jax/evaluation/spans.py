"""Which tokens of a text are read when a model is measured at several lengths."""

from typing import NamedTuple

import numpy as np

from ssm_jax.types import Array, Integer


class Spans(NamedTuple):
    """Contiguous spans of a text, equally many and equally long in each document.

    Attributes:
      starts: First token of each span, int64, ``(d, r)``: ``r`` spans of each of ``d``
        documents, in the order of the text.
      length: Tokens of a span.
    """

    starts: np.ndarray
    length: int

    @property
    def n_tokens(self) -> int:
        """Tokens of all spans together."""
        return self.starts.size * self.length


def spread_spans(
    edges: Integer[Array, " e"],
    longest: int,
    max_tokens: int | None = None,
    *,
    n_spans: int = 16,
) -> Spans:
    """Spreads spans over a text: an equal share of each document, whatever its size.

    Equal shares make the mean over all tokens the mean over documents. A document that
    is shorter than the longest window is read together with the documents behind it, up
    to the first at which they hold one; below, a document is such a group too.

    Args:
      edges: Where documents start, and where the last one ends, rising, ``(e,)``.
      longest: Tokens of the longest window; a span is a multiple of it.
      max_tokens: Most tokens of all spans together, but at least one window is read.
        Where that is less than one window of each document, documents at equal
        distances are read. None: as many as the shortest document has.
      n_spans: Spans to aim at, over all documents; they are read side by side.

    Returns:
      The spans. In each document they start at equal distances, the first at its start.

    Raises:
      ValueError: All documents together are shorter than the longest window.

    Example:
      >>> spread_spans(np.array([0, 100, 150, 400]), longest=50, max_tokens=300).starts
      array([[  0],
             [100],
             [150]])
    """
    groups = [int(edges[0])]
    for edge in map(int, edges[1:]):
        if edge - groups[-1] >= longest:
            groups.append(edge)
    if len(groups) == 1:
        raise ValueError(
            f"`lengths` must be at most {edges[-1] - edges[0]}, the tokens of the text "
            f"that have a next one, got {longest}; read shorter windows or a longer "
            "text."
        )
    groups[-1] = int(edges[-1])
    first, size = np.array(groups[:-1]), np.diff(groups)
    windows = int(size.min()) // longest  # Of each document.
    if max_tokens is not None:
        most = max(1, max_tokens // longest)
        if most < len(first):
            chosen = np.arange(most) * len(first) // most
            first, size = first[chosen], size[chosen]
        windows = min(windows, most // len(first))
    of_span = -(-windows // max(1, n_spans // len(first)))
    spans = windows // of_span
    # Counted in windows, so that spans may touch but never overlap.
    place = np.arange(spans) * (size // longest)[:, None] // spans
    return Spans(first[:, None] + longest * place, of_span * longest)
