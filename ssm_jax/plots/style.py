"""Common style of the figures: sizes for print, a palette for colour-blind readers."""

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text

from ssm_jax.files import atomic_file

BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE)
"""Of Okabe and Ito, which readers of all kinds of colour vision can tell apart."""
GREY = "#8c8c8c"

COLUMN, PAGE = 3.3, 6.8
"""Widths of a column and of a page of a conference paper, inches."""

TITLE, LABEL, SMALL = 8, 7.5, 6.5
"""Sizes of text, points: of titles, of labels of axes, of ticks and legends."""


def figure(width: float, height: float) -> Figure:
    """Creates a figure of the given size in inches, with constrained layout.

    A figure is printed at its own size, so that its width is at most `PAGE`.
    """
    # `Figure` instead of pyplot: no global state and no display.
    return Figure(figsize=(width, height), dpi=200, layout="constrained")


def plain(axes: Axes, *, title: str = "", x: str = "", y: str = "") -> Axes:
    """Removes the top and right spines, adds a light grid, and sets the labels."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    # Otherwise the grid is drawn over bars and images.
    axes.set_axisbelow(True)
    axes.set_title(title, fontsize=TITLE, loc="left")
    axes.set_xlabel(x, fontsize=LABEL)
    axes.set_ylabel(y, fontsize=LABEL)
    axes.tick_params(which="both", labelsize=SMALL)
    return axes


def save(drawing: Figure, path: Path) -> list[Path]:
    """Writes a figure to a file, and a PNG also as PDF, for print.

    Args:
      drawing: The figure.
      path: The file; its suffix is the format.

    Returns:
      The files written.
    """
    _as_written(drawing)
    paths = [path, path.with_suffix(".pdf")] if path.suffix == ".png" else [path]
    # Type 42 embeds TrueType fonts, which publishers require.
    with matplotlib.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "ssm_jax"}):
        for file in paths:
            # Without a date, equal figures are equal files.
            dated = {".pdf": "CreationDate", ".svg": "Date"}.get(file.suffix)
            metadata = {dated: None} if dated else None
            with atomic_file(file) as opened:
                drawing.savefig(
                    opened, format=file.suffix[1:] or None, metadata=metadata
                )
    return paths


def _as_written(drawing: Figure) -> None:
    """Lets names of columns and runs with dollar signs be text, not formulas."""
    ticks = {
        text
        for axes in drawing.findobj(Axis)
        for text in axes.findobj(Text)
        if text is not axes.label
    }
    for text in drawing.findobj(Text):
        if text not in ticks:  # Those of logarithms are formulas.
            text.set_parse_math(False)
