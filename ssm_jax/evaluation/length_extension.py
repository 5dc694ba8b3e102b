"""Length extension: the loss of a language model as a function of the window length.

A text is evaluated in windows of each length. Each window starts from the initial state
of the model or from the final state of the previous window; windows are evaluated in
the order of the text or shuffled. They are distributed over all documents of the text,
and standard errors are taken over documents. Windows are evaluated in pieces of fixed
length, so memory does not grow with the window length.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from ssm_jax.fields import PositiveInt, Seed, check_indices, check_value
from ssm_jax.models.decoding import vocabulary_size
from ssm_jax.training.losses import cross_entropy, perplexity
from ssm_jax.types import Array, Float, Integer, PyTree

WindowState = Literal["zero", "carry"]
Order = Literal["text", "shuffled"]
Verdict = Literal["strong", "weak", "none"]

ROWS = 16  # rows of a batch, if there are as many
PIECE = 2048  # steps of a window that are evaluated in one call
TOLERANCE = 1e-5  # nats per token; smaller changes are rounding errors


@dataclass(frozen=True)
class LossAtLength:
    """The loss of a language model at one window length.

    Attributes:
      length: Steps of a window.
      windows: Mean loss of each window in nats per token, ``(w,)``, in the order of the
        text.
      n_documents: Number ``d`` of documents; each has the same number of windows.
    """

    length: int
    windows: Float[np.ndarray, " w"]
    n_documents: int = 1

    @property
    def documents(self) -> Float[np.ndarray, " d"]:
        """Mean loss of each document in nats per token, ``(d,)``."""
        return self.windows.reshape(self.n_documents, -1).mean(1)

    @property
    def loss(self) -> float:
        """Mean over all tokens in nats, which is also the mean over documents."""
        return float(np.mean(self.windows))

    @property
    def error(self) -> float | None:
        """Standard error of `loss` over documents; None for a single document.

        Windows of one document are correlated, so a standard error over windows would
        underestimate the variation between documents.
        """
        return None if self.n_documents < 2 else _standard_error(self.documents)

    @property
    def perplexity(self) -> float:
        """``exp(loss)``; infinite if that overflows."""
        return perplexity(self.loss)


def loss_interval(
    documents: Sequence[float] | Float[np.ndarray, " d"], confidence: float = 0.95
) -> tuple[float, float] | None:
    """Computes a confidence interval of the mean loss over documents.

    Args:
      documents: Mean loss of each document, ``(d,)``.
      confidence: Confidence level.

    Returns:
      ``(low, high)``, Student's t interval with ``d - 1`` degrees of freedom; None for
      a single document.

    Example:
      >>> low, high = loss_interval([1.0, 2.0, 3.0])
      >>> round(low, 3), round(high, 3)
      (-0.484, 4.484)
    """
    n = len(documents)
    if n < 2:
        return None
    # Imported here: a tenth of a second that no other evaluation needs.
    from scipy import special

    quantile = special.stdtrit(n - 1, (1 + confidence) / 2)
    half = float(quantile) * _standard_error(documents)
    mean = float(np.mean(documents))
    return mean - half, mean + half


def _standard_error(documents):
    """The standard error of a mean; `scipy.stats` takes long to import."""
    return float(np.std(documents, ddof=1) / np.sqrt(len(documents)))


def losses_by_length(
    model: nn.Module,
    variables: PyTree,
    text: Integer[Array, " n"],
    lengths: Sequence[int],
    *,
    edges: Integer[Array, " e"] | None = None,
    max_tokens: int | None = None,
    window_state: WindowState = "zero",
    order: Order = "text",
    seed: int = 0,
) -> Iterator[LossAtLength]:
    """Measures the loss of a model at several window lengths, on the same tokens.

    Args:
      model: Causal model that predicts the next token at each step.
      variables: Parameters and other variables of the model.
      text: Tokens, ``(n,)``, in ``[0, vocabulary)``.
      lengths: Window lengths in steps; each must divide the maximum.
      edges: Start of each document in the text and end of the last one, ``(e,)``;
        `spread_spans` distributes windows over them. None means a single document.
      max_tokens: Maximum number of tokens evaluated at each length; at least one window
        of the maximum length is evaluated. None means as many as equal shares of all
        documents allow.
      window_state: State from which a window starts. ``"zero"``: the initial state of
        the model. ``"carry"``: the final state of the previous window of its row; the
        first window of a row starts from the initial state.
      order: ``"text"``: windows are evaluated in the order of the text. ``"shuffled"``:
        in a random order.
      seed: Seed of the random order.

    Yields:
      The loss at each length, as soon as it is measured.

    Raises:
      ValueError: ``lengths`` is empty, a length does not fit, or a token is not in the
        vocabulary of the model.
      FloatingPointError: The loss of a window is NaN.

    References:
      Wang, `LongSSM: On the Length Extension of State-space Models in Language
      Modelling <https://arxiv.org/abs/2406.02080>`_, 2024, sections 2 and 4
    """
    check_value("seed", seed, Seed)
    check_lengths(lengths)
    longest = max(lengths)
    text = np.asarray(text)
    if (n_tokens := vocabulary_size(model)) is not None:
        check_indices("text", text, n_tokens, "the task of the model encodes texts")
    # The last token is only a target.
    edges = np.array([0, len(text) - 1]) if edges is None else edges
    # Chosen by the maximum length, so that all lengths use the same tokens.
    spans = spread_spans(edges, longest, max_tokens, n_spans=ROWS)
    for length in lengths:
        starts = spans.starts.reshape(-1, 1) + np.arange(0, spans.length, length)
        indices = np.arange(starts.size)
        if order == "shuffled":
            indices = np.random.default_rng((seed, length)).permutation(starts.size)
        shuffled = starts.reshape(-1)[indices].reshape(starts.shape)
        losses = _losses(model, variables, text, length, shuffled, window_state)
        # The inverse permutation restores the order of the text.
        windows = losses.reshape(-1)[np.argsort(indices)]
        # Comparisons of NaN are false: `classify_extension` would see no increase.
        if n_nan := np.isnan(windows).sum():
            raise FloatingPointError(
                f"`loss` must be of predictions that are numbers, got NaN for {n_nan} "
                f"of {len(windows)} windows of {length} tokens; evaluate another "
                "checkpoint of the run."
            )
        yield LossAtLength(length, windows, len(spans.starts))


def check_lengths(lengths: Sequence[int]) -> None:
    """Raises ValueError unless there are lengths, which divide the maximum."""
    check_value("lengths", tuple(lengths), tuple[PositiveInt, ...], "16 is one")
    if not lengths:
        raise ValueError("`lengths` must hold a length, got none; 16 is one.")
    if any(max(lengths) % length for length in lengths):
        raise ValueError(
            f"`lengths` must be positive and divide the maximum, got {list(lengths)}; "
            "powers of 2 do."
        )


@partial(jax.jit, static_argnums=0)
def _step(model, variables, inputs, targets, state):
    """Sum of the losses of a piece for each row, and the final states."""
    logits, state = model.apply(variables, inputs, state)
    loss = cross_entropy(logits, targets)
    return jnp.sum(loss, -1), state


def _losses(model, variables, text, length, starts, window_state):
    """Mean loss of the window at each start, in the shape of ``starts``."""
    shape, max_rows = starts.shape, ROWS
    if window_state == "zero":
        # Independent windows are rows of their own; short ones fill larger batches.
        starts, max_rows = starts.reshape(-1, 1), ROWS * max(1, PIECE // length)
    # Batches of equal size, so that one compiled step evaluates all; the last batch is
    # filled up with repeated rows, which are dropped.
    n_batches = math.ceil(len(starts) / max_rows)
    n_rows = math.ceil(len(starts) / n_batches)
    batches = np.resize(starts, (n_batches, n_rows, starts.shape[1]))
    state = model.initial_state((n_rows,))
    losses = [_rows(model, variables, text, length, rows, state) for rows in batches]
    return np.concatenate(losses)[: len(starts)].reshape(shape)


def _rows(model, variables, text, length, starts, state):
    """Mean loss of the window at each start; the state is carried along each row."""
    losses = np.zeros(starts.shape)
    for column, start in enumerate(starts.T):
        for begin in range(0, length, PIECE):
            end = min(begin + PIECE, length)
            index = start[:, None] + np.arange(begin, end)
            inputs, targets = (text[k].astype(np.int32) for k in (index, index + 1))
            loss, state = _step(model, variables, inputs, targets, state)
            # Float32 sums over many pieces would lose digits.
            losses[:, column] += np.asarray(loss, np.float64)
    return losses / length


def classify_extension(
    measured: Sequence[LossAtLength], *, beyond: int, confidence: float = 0.95
) -> Verdict:
    """Classifies whether a model extends to lengths beyond its training length.

    Use losses of windows that start from the initial state: if the state is carried
    over in the order of the text, the loss is the same at every length.

    Args:
      measured: Losses at increasing lengths, on the same tokens of at least two
        documents.
      beyond: Training length; shorter lengths are ignored.
      confidence: Confidence level; the loss changes from a length to the next if the
        `loss_interval` of the difference excludes 0.

    Returns:
      ``"strong"`` if the loss decreases at every step to a longer length, ``"weak"`` if
      it increases at none, ``"none"`` if it increases at one.

    Raises:
      ValueError: Fewer than two lengths are at least ``beyond``, or there are fewer
        than two documents.

    References:
      Wang, 2024, definition 2.1
    """
    measured = [loss for loss in measured if loss.length >= beyond]
    if len(measured) < 2:
        raise ValueError(
            f"`measured` must have two lengths from {beyond} on, got {len(measured)}; "
            "measure longer windows too."
        )
    if (n := measured[0].n_documents) < 2:
        raise ValueError(
            f"`measured` must be of at least 2 documents, got {n}; measure a text of "
            "more documents, because a standard error is taken over them."
        )
    documents = np.stack([loss.documents for loss in measured])
    # Intervals of paired differences: documents differ more than lengths do.
    intervals = [loss_interval(c, confidence) for c in np.diff(documents, axis=0)]
    bounds = [interval for interval in intervals if interval is not None]
    # `(low + high) / 2` is the mean difference.
    if any(low > 0 and low + high > 2 * TOLERANCE for low, high in bounds):
        return "none"
    decreases = (high < 0 and low + high < -2 * TOLERANCE for low, high in bounds)
    return "strong" if all(decreases) else "weak"


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
