"""Perplexity of language models by the window length."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ssm_jax.plots.style import (
    BLUE,
    COLUMN,
    GREY,
    ORANGE,
    figure,
    label_ticks,
    legend,
    line_style,
    plain,
)

_COLOURS = {"zero": BLUE, "carry": ORANGE}
_LINES = {"text": "-", "shuffled": ":"}
LENGTH_INDEPENDENT = ("carry", "text")
"""Window state and order of the evaluation whose loss does not depend on the length."""
_STATES = {"zero": "zero state", "carry": "carried state"}


def lengths(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Plots the perplexity of a model by window length, one line per evaluation.

    With states carried over in the order of the text the perplexity is the same at
    every length; it is drawn as a horizontal line.

    Args:
      rows: Rows of `evaluate_lengths`, with ``window_state``, ``order``, ``length``,
        ``perplexity`` and ``trained``; no point is drawn where it is None.
      title: Name of the run.

    Returns:
      A figure with one panel; a vertical line marks the training length. The axis of
      perplexities is logarithmic if they span a factor of 10 or more.
    """
    drawing = figure(COLUMN, 2.5)
    axes = drawing.subplots()
    # A dict keeps the evaluations in the order of the rows, without duplicates.
    for start, order in dict.fromkeys(
        (row["window_state"], row["order"]) for row in rows
    ):
        line = _rows_of(rows, start, order)
        style: dict[str, Any] = {
            "color": _COLOURS[start],
            "linestyle": _LINES[order],
            "label": f"{_STATES[start]}, {order}",
        }
        if (start, order) == LENGTH_INDEPENDENT:
            # Measured at the maximum length only: a single point would not be seen.
            if line[-1]["perplexity"] is not None:
                axes.axhline(line[-1]["perplexity"], **style)
            continue
        _plot(axes, line, marker="o", markersize=3.5, **style)
    _finish(axes, rows, title)
    return drawing


def lengths_of_runs(
    rows_by_run: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], title: str
) -> Figure:
    """Plots the perplexity of several models on windows from zero states.

    Args:
      rows_by_run: The name of each run and its rows, as those of `lengths`. Runs of one
        name, such as those of several seeds, share a colour.
      title: What the runs have in common.

    Returns:
      A figure with one panel, as that of `lengths`.
    """
    drawing = figure(COLUMN, 2.5)
    axes = drawing.subplots()
    names = [*dict.fromkeys(name for name, _ in rows_by_run)]
    labelled = set()
    for name, rows in rows_by_run:
        line = _rows_of(rows, "zero", "text")
        label = None if name in labelled else name
        labelled.add(name)
        style = line_style(names.index(name))
        _plot(axes, line, **style | {"label": label, "markersize": 3.5})
    _finish(axes, [row for _, rows in rows_by_run for row in rows], title)
    axes.set_ylabel("perplexity from zero states")
    return drawing


def _rows_of(
    rows: Sequence[Mapping[str, Any]], window_state: str, order: str
) -> list[Mapping[str, Any]]:
    return [
        row
        for row in rows
        if (row["window_state"], row["order"]) == (window_state, order)
    ]


def _plot(axes: Axes, line: Sequence[Mapping[str, Any]], **style: Any) -> None:
    axes.semilogx(
        [row["length"] for row in line],
        [math.nan if (y := row["perplexity"]) is None else y for row in line],
        **style,
    )


def _finish(axes: Axes, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Marks the lengths of the training, and sets ticks, labels and scales."""
    for i, trained in enumerate(sorted({row["trained"] for row in rows})):
        label = None if i else "length in training"
        axes.axvline(trained, color=GREY, linestyle="--", linewidth=1, label=label)
    # Every other length from the longest one, so that the labels do not overlap.
    ticks = sorted({row["length"] for row in rows})[::-2]
    # Minor ticks would be at multiples of powers of 10, between powers of 2.
    axes.minorticks_off()
    known = [y for row in rows if (y := row["perplexity"]) is not None]
    if known and max(known) > 10 * min(known):
        axes.set_yscale("log")
    plain(axes, title=title, x="window length, tokens", y="perplexity")
    label_ticks(axes, ticks, [f"{tick:,}" for tick in ticks])
    legend(axes)
