"""Accuracy of a model by the length of rows and by the position in them."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from ssm_jax.plots.style import (
    BLUE,
    GREY,
    ORANGE,
    PAGE,
    figure,
    heading,
    label_ticks,
    legend,
    line_style,
    plain,
)


def accuracy_by_length(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Plots the accuracy of a model by the length of rows, and by position.

    Args:
      rows: The rows of `ssm_jax.evaluation.accuracy_by_length`.
      title: Name of the run.

    Returns:
      A figure with two panels, of all lengths and of the positions in rows of each. A
      vertical line marks the training length, a horizontal one the level of chance.
    """
    drawing = figure(PAGE, 2.5)
    by_length, by_position = drawing.subplots(1, 2, sharey=True)
    lengths = [row["length"] for row in rows]
    for name, label, colour in (
        ("accuracy", "all targets", BLUE),
        ("last_accuracy", "last target", ORANGE),
    ):
        values = [row[name] for row in rows]
        by_length.semilogx(
            lengths, values, color=colour, marker="o", markersize=3, label=label
        )
    for index, row in enumerate(rows):
        bins = row["accuracy_by_position"]
        by_position.semilogx(
            [one["until"] for one in bins],
            [one["accuracy"] for one in bins],
            label=f"{row['length']:,} steps",
            markersize=2.5,
            **line_style(index),
        )
    for axes in (by_length, by_position):
        axes.minorticks_off()
        axes.set_ylim(0, 1.02)
        if rows[0]["trained"] is not None:
            axes.axvline(rows[0]["trained"], color=GREY, linestyle="--", linewidth=1)
        if rows[0]["chance"] is not None:
            axes.axhline(rows[0]["chance"], color=GREY, linestyle=":", linewidth=1)
    plain(by_length, x="length of rows", y="accuracy")
    plain(by_position, x="position in rows")
    ticks = lengths if len(lengths) < 7 else lengths[::-2]
    label_ticks(by_length, ticks, [f"{tick:,}" for tick in ticks])
    legend(by_length)
    legend(by_position)
    heading(drawing, title)
    return drawing
