"""Loss of language models against the length that they read."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from ssm_jax.plots.style import BLUE, GREY, ORANGE, figure, plain

_COLOURS = {"zero": BLUE, "previous": ORANGE}
_LINES = {"text": "-", "shuffled": ":"}
_STARTS = {"zero": "fresh states", "previous": "states go on"}


def lengths(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Draws the perplexity of a model by length, a line for each way of reading.

    Args:
      rows: ``start``, ``order``, ``length``, ``perplexity`` and ``trained`` of each.
      title: What the run is.

    Returns:
      One panel; the length of training is marked.
    """
    drawing = figure(5.6, 3.6)
    axes = drawing.subplots()
    for start, order in dict.fromkeys((row["start"], row["order"]) for row in rows):
        of_line = [
            row for row in rows if (row["start"], row["order"]) == (start, order)
        ]
        axes.semilogx(
            [row["length"] for row in of_line],
            [row["perplexity"] for row in of_line],
            color=_COLOURS[start],
            linestyle=_LINES[order],
            marker="o",
            markersize=3.5,
            label=f"{_STARTS[start]}, {order}",
        )
    axes.axvline(rows[0]["trained"], color=GREY, linestyle="--", linewidth=1)
    ticks = sorted({row["length"] for row in rows})[::-2]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    plain(axes, title=title, x="tokens of a window", y="perplexity")
    axes.legend(frameon=False, fontsize=8)
    return drawing
