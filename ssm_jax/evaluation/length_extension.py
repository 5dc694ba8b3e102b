"""Length extension: how the loss of a language model changes with the length it reads.

A text is evaluated as windows of each length, from a fresh state or from the one that
the window before it left, in its order or with the windows mixed. The windows are
spread over all documents of the text, and the error of a mean is that over documents.
Windows of any length are read piece by piece, so that memory does not grow with them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from scipy import stats

from ssm_jax.evaluation.spans import spread_spans
from ssm_jax.fields import PositiveInt, Seed, check_value
from ssm_jax.types import Array, Float, Integer, PyTree

WindowState = Literal["zero", "previous"]
Order = Literal["text", "shuffled"]
Verdict = Literal["strong", "weak", "none"]

ROWS = 16  # Rows that are read side by side, where there are so many.
PIECE = 2048  # Steps of a piece.
LEAST = 1e-5  # Nats a token; smaller changes are rounding.


@dataclass(frozen=True)
class LossAtLength:
    """The loss at one length.

    Attributes:
      length: Steps of a window.
      windows: Mean loss of each window, nats a token, ``(w,)``, in the order of the
        text.
      n_documents: Documents ``d`` that the windows are of, equally many of each.
    """

    length: int
    windows: Float[np.ndarray, " w"]
    n_documents: int = 1

    @property
    def documents(self) -> Float[np.ndarray, " d"]:
        """Mean loss of each document, nats a token, ``(d,)``."""
        return self.windows.reshape(self.n_documents, -1).mean(1)

    @property
    def loss(self) -> float:
        """Mean over all tokens, nats, and over documents, which have equal shares."""
        return float(np.mean(self.windows))

    @property
    def error(self) -> float | None:
        """Standard error of `loss` over documents; None of a single document.

        Windows of one document resemble each other, so that an error over windows would
        say how well the loss of these documents is known, not that of the next one.
        """
        return None if self.n_documents < 2 else float(stats.sem(self.documents))

    @property
    def perplexity(self) -> float:
        """``exp(loss)``; infinite where that overflows."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


def loss_interval(
    documents: Sequence[float] | Float[np.ndarray, " d"], confidence: float = 0.95
) -> tuple[float, float] | None:
    """The interval of a mean loss that takes documents as the units of the sample.

    Args:
      documents: Mean loss of each document, ``(d,)``.
      confidence: Part of such intervals that hold the mean over all documents.

    Returns:
      Student's t interval of ``d - 1`` degrees of freedom; None of a single document.

    Example:
      >>> low, high = loss_interval([1.0, 2.0, 3.0])
      >>> round(low, 3), round(high, 3)
      (-0.484, 4.484)
    """
    n = len(documents)
    if n < 2:
        return None
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1) * stats.sem(documents))
    mean = float(np.mean(documents))
    return mean - half, mean + half


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
    """Measures a model at several lengths, on the same tokens for all of them.

    Args:
      model: A causal model that predicts the next token at each step.
      variables: Its parameters and other variables.
      text: Tokens, ``(n,)``.
      lengths: Steps of a window; all must divide the greatest.
      edges: Where documents start in the text and where the last one ends, ``(e,)``;
        `scatter_back` says how windows are spread over them. None: it is one document.
      max_tokens: Most tokens that are read at each length, if not the greatest length
        takes more. None: as many as equal shares of all documents allow.
      window_state: ``"zero"``: each window starts afresh. ``"previous"``: from the state that
        the window read before it in its row left; the first one of a row starts afresh.
      order: ``"text"``: windows follow each other as in the text. ``"shuffled"``: in an
        order that is drawn.
      seed: Draws that order.

    Yields:
      What was measured at each length, as soon as it is.

    Raises:
      ValueError: There is no length, or one that does not fit.

    References:
      Wang, `LongSSM: On the Length Extension of State-space Models in Language
      Modelling <https://arxiv.org/abs/2406.02080>`_, 2024, sections 2 and 4
    """
    check_value("seed", seed, Seed)
    check_value("lengths", tuple(lengths), tuple[PositiveInt, ...], "16 is one")
    if not lengths:
        raise ValueError("`lengths` must hold a length, got none; 16 is one.")
    longest = max(lengths)
    if any(longest % length for length in lengths):
        raise ValueError(
            f"`lengths` must be positive and divide the greatest, got {list(lengths)}; "
            "powers of 2 do."
        )
    text = np.asarray(text)
    edges = np.array([0, len(text) - 1]) if edges is None else edges
    spans = spread_spans(edges, longest, max_tokens, n_spans=ROWS)
    for length in lengths:
        places = spans.starts.reshape(-1, 1) + np.arange(0, spans.length, length)
        drawn = np.arange(places.size)
        if order == "shuffled":
            drawn = np.random.default_rng((seed, length)).permutation(places.size)
        read = places.reshape(-1)[drawn].reshape(places.shape)
        losses = _losses(model, variables, text, length, read, window_state)
        windows = losses.reshape(-1)[np.argsort(drawn)]
        yield LossAtLength(length, windows, len(spans.starts))


@partial(jax.jit, static_argnums=0)
def _step(model, variables, inputs, targets, state):
    """Losses of a piece, summed for each row, and the states behind it."""
    logits, state = model.apply(variables, inputs, state)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return jnp.sum(loss, -1), state


def _losses(model, variables, text, length, places, start):
    """Mean loss of the window at each place, in the shape of the places."""
    shape, most = places.shape, ROWS
    if start == "zero":
        # Windows that do not know each other are rows of their own.
        places, most = places.reshape(-1, 1), ROWS * max(1, PIECE // length)
    # Parts of equal size, so that one compiled step reads all; rows that fill up the
    # last part are read again.
    n_parts = math.ceil(len(places) / most)
    n_rows = math.ceil(len(places) / n_parts)
    filled = np.resize(places, (n_parts, n_rows, places.shape[1]))
    fresh = model.initial_state((n_rows,))
    parts = [_rows(model, variables, text, length, part, fresh) for part in filled]
    return np.concatenate(parts)[: len(places)].reshape(shape)


def _rows(model, variables, text, length, places, state):
    """Mean loss of the window at each place; states go on along each row."""
    found = np.zeros(places.shape)
    for column, first in enumerate(places.T):
        for begin in range(0, length, PIECE):
            end = min(begin + PIECE, length)
            at = first[:, None] + np.arange(begin, end)
            inputs, targets = (text[k].astype(np.int32) for k in (at, at + 1))
            loss, state = _step(model, variables, inputs, targets, state)
            found[:, column] += np.asarray(loss, np.float64)
    return found / length


def classify_extension(
    measured: Sequence[LossAtLength], *, beyond: int, confidence: float = 0.95
) -> Verdict:
    """Says whether a model extends to lengths beyond the one it was trained at.

    Of windows from fresh states only: where states go on from window to window in the
    order of the text, the loss is the same at every length.

    Args:
      measured: At rising lengths, on the same tokens of two documents or more.
      beyond: The length it was trained at: only longer ones count, and itself.
      confidence: A change counts whose `loss_interval` over documents leaves out 0.

    Returns:
      ``"strong"``: every longer length has a lesser loss. ``"weak"``: none has a
      greater one. ``"none"``: one has.

    Raises:
      ValueError: Fewer than two lengths count, or there are fewer than two documents.

    References:
      Wang, 2024, definition 2.1
    """
    measured = [each for each in measured if each.length >= beyond]
    if len(measured) < 2:
        raise ValueError(
            f"`measured` must have two lengths from {beyond} on, got {len(measured)}; "
            "measure longer windows."
        )
    if (n := measured[0].n_documents) < 2:
        raise ValueError(
            f"`measured` must be of at least 2 documents, got {n}; measure a text of "
            "more, for a change within one says nothing of another."
        )
    documents = np.stack([each.documents for each in measured])
    intervals = [loss_interval(c, confidence) for c in np.diff(documents, axis=0)]
    ends = [interval for interval in intervals if interval is not None]
    if any(low > 0 and low + high > 2 * LEAST for low, high in ends):
        return "none"
    falls = (high < 0 and low + high < -2 * LEAST for low, high in ends)
    return "strong" if all(falls) else "weak"
