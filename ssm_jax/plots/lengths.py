"""Loss of language models against the length that they read."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from ssm_jax.plots.style import BLUE, GREY, ORANGE, figure, plain

_COLOURS = {"zero": BLUE, "carry": ORANGE}
_LINES = {"text": "-", "shuffled": ":"}
CARRIED = ("carry", "text")
"""What a line starts from, and in which order, that has one height."""
_STARTS = {"zero": "fresh states", "carry": "states go on"}


def lengths(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Draws the perplexity of a model by length, a line for each way of reading.

    States that go on through the text in its order give the same at every length: a
    line of that height, of the greatest length that was measured.

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
        look: dict[str, Any] = {
            "color": _COLOURS[start],
            "linestyle": _LINES[order],
            "label": f"{_STARTS[start]}, {order}",
        }
        if (start, order) == CARRIED:
            axes.axhline(of_line[-1]["perplexity"], **look)
            continue
        axes.semilogx(
            [row["length"] for row in of_line],
            [row["perplexity"] for row in of_line],
            marker="o",
            markersize=3.5,
            **look,
        )
    axes.axvline(rows[0]["trained"], color=GREY, linestyle="--", linewidth=1)
    ticks = sorted({row["length"] for row in rows})[::-2]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    plain(axes, title=title, x="tokens of a window", y="perplexity")
    axes.legend(frameon=False, fontsize=8)
    return drawing
