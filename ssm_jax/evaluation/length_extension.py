"""Length extension: how the loss of a language model changes with the length it reads.

A text is evaluated as windows of each length, from a fresh state or from the one that
the window before it left, in its order or with the windows mixed. Windows of any length
are read piece by piece, so that memory does not grow with them.
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

from ssm_jax.types import Array, Float, Integer, PyTree

Start = Literal["zero", "previous"]
Order = Literal["text", "shuffled"]
Verdict = Literal["strong", "weak", "none"]

ROWS = 16  # Windows that are read side by side, where there are so many.
PIECE = 2048  # Steps of a piece.
LEAST = 1e-5  # Nats a token; smaller changes are rounding.


@dataclass(frozen=True)
class Measured:
    """The loss at one length.

    Attributes:
      length: Steps of a window.
      windows: Mean loss of each window, nats a token, ``(w,)``, in the order of the
        text.
    """

    length: int
    windows: Float[np.ndarray, " w"]

    @property
    def loss(self) -> float:
        """Mean over all tokens, nats."""
        return float(np.mean(self.windows))

    @property
    def error(self) -> float:
        """Standard error of `loss` over the windows; 0 for a single one."""
        n = len(self.windows)
        return float(np.std(self.windows, ddof=1) / math.sqrt(n)) if n > 1 else 0.0

    @property
    def perplexity(self) -> float:
        """``exp(loss)``; infinite where that overflows."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


def losses_by_length(
    model: nn.Module,
    variables: PyTree,
    text: Integer[Array, " n"],
    lengths: Sequence[int],
    *,
    start: Start = "zero",
    order: Order = "text",
    seed: int = 0,
) -> Iterator[Measured]:
    """Measures a model at several lengths, on the same tokens for all of them.

    Args:
      model: A causal model that predicts the next token at each step.
      variables: Its parameters and other variables.
      text: Tokens, ``(n,)``.
      lengths: Steps of a window; all must divide the greatest.
      start: ``"zero"``: each window starts afresh. ``"previous"``: from the state that
        the window read before it in its row left.
      order: ``"text"``: windows follow each other as in the text. ``"shuffled"``: in an
        order that is drawn.
      seed: Draws that order.

    Yields:
      What was measured at each length, as soon as it is.

    Raises:
      ValueError: A length does not fit.

    References:
      Wang, `LongSSM: On the Length Extension of State-space Models in Language
      Modelling <https://arxiv.org/abs/2406.02080>`_, 2024, sections 2 and 4
    """
    longest = max(lengths)
    if min(lengths) < 1 or any(longest % length for length in lengths):
        raise ValueError(
            f"`lengths` must be positive and divide the greatest, got {list(lengths)}; "
            "powers of 2 do."
        )
    n_longest = (len(text) - 1) // longest
    if n_longest == 0:
        raise ValueError(
            f"`lengths` must be less than {len(text)}, the tokens of the text, got "
            f"{longest}; take a longer text."
        )
    rows = min(ROWS, n_longest)
    used = rows * (n_longest // rows) * longest
    text = np.asarray(text[: used + 1], np.int32)
    for length in lengths:
        places = np.arange(used // length)
        if order == "shuffled":
            places = np.random.default_rng((seed, length)).permutation(places)
        losses = _windows(model, variables, text, length, places, rows, start)
        yield Measured(length, losses[np.argsort(places)])


@partial(jax.jit, static_argnums=0)
def _step(model, variables, inputs, targets, state):
    """Losses of a piece, summed for each row, and the states behind it."""
    logits, state = model.apply(variables, inputs, state)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return jnp.sum(loss, -1), state


def _windows(model, variables, text, length, places, rows, start):
    """Mean loss of each window, in the order in which they are read."""
    of_rows = places.reshape(rows, -1)
    if start == "zero":
        # Windows that do not know each other are rows of their own.
        side_by_side = max(1, min(of_rows.shape[1], PIECE // length))
        while of_rows.shape[1] % side_by_side:
            side_by_side -= 1
        of_rows = places.reshape(rows * side_by_side, -1)
    found = np.zeros(of_rows.shape)
    state = fresh = model.initial_state((len(of_rows),))
    for column in range(of_rows.shape[1]):
        first = length * of_rows[:, column, None]
        state = fresh if start == "zero" else state
        for begin in range(0, length, PIECE):
            end = min(begin + PIECE, length)
            at = first + np.arange(begin, end)
            inputs, targets = text[at], text[at + 1]
            loss, state = _step(model, variables, inputs, targets, state)
            found[:, column] += np.asarray(loss, np.float64)
    return found.reshape(-1) / length


def verdict(
    measured: Sequence[Measured], *, beyond: int, deviations: float = 2.0
) -> Verdict:
    """Says whether a model extends to lengths beyond the one it was trained at.

    Args:
      measured: At rising lengths, on the same tokens.
      beyond: The length it was trained at: only longer ones count, and itself.
      deviations: Confidence: a change counts that exceeds so many deviations of its
        mean over the stretches of the longest length; 2 are 95 %.

    Returns:
      ``"strong"``: every longer length has a lesser loss. ``"weak"``: none has a
      greater one. ``"none"``: one has.

    Raises:
      ValueError: Fewer than two lengths count.

    References:
      Wang, 2024, definition 2.1
    """
    measured = [each for each in measured if each.length >= beyond]
    if len(measured) < 2:
        raise ValueError(
            f"`measured` must have two lengths from {beyond} on, got {len(measured)}."
        )
    n = len(measured[-1].windows)
    stretches = [each.windows.reshape(n, -1).mean(1) for each in measured]
    changes = np.diff(stretches, axis=0)
    error = changes.std(1, ddof=1) / math.sqrt(n) if n > 1 else np.abs(changes[:, 0])
    mean, bound = changes.mean(1), np.maximum(deviations * error, LEAST)
    if np.any(mean > bound):
        return "none"
    return "strong" if np.all(mean < -bound) else "weak"
