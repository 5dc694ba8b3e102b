"""Common style of the figures: sizes for print, a palette for colour-blind readers."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import (
    LogFormatterSciNotation,
    LogLocator,
    MaxNLocator,
    NullFormatter,
)

from ssm_jax.files import atomic_file

BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE)
SKY = "#56b4e9"
"""Of Okabe and Ito, which readers of all kinds of colour vision can tell apart."""
GREY = "#8c8c8c"

COLUMN, PAGE = 3.3, 6.8
"""Widths of a column and of a page of a conference paper, inches."""

TITLE, LABEL, SMALL = 8, 7.5, 6.5
"""Sizes of text, points: of titles, of labels of axes, of ticks and legends."""

_CHARACTER = 0.6  # Mean width of a character, of the size of its text.
_SUBDIVIDED, _PLAIN = 1e3, 1e5  # Ranges of logarithmic axes.
_LINES = ("-", "--", ":", "-.")
_MARKERS = "os^D"


def figure(width: float, height: float) -> Figure:
    """Creates a figure of the given size in inches, with constrained layout.

    A figure is printed at its own size, so that its width is at most `PAGE`.
    """
    # `Figure` instead of pyplot: no global state and no display.
    return Figure(figsize=(width, height), dpi=200, layout="constrained")


def plain(axes: Axes, *, title: str = "", x: str = "", y: str = "") -> Axes:
    """Sets the labels of axes whose data are drawn, and makes all of it readable.

    Removes the top and right spines and adds a light grid. Logarithmic axes have plain
    numbers as ticks where they span few decades, axes of integers have no fractions,
    and points that no line connects are marked.
    """
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    # Otherwise the grid is drawn over bars and images.
    axes.set_axisbelow(True)
    width, height = _inches(axes)
    axes.set_title(wrap(title, width, TITLE), fontsize=TITLE, loc="left")
    axes.set_xlabel(wrap(x, width, LABEL), fontsize=LABEL)
    axes.set_ylabel(wrap(y, height, LABEL), fontsize=LABEL)
    axes.tick_params(which="both", labelsize=SMALL)
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_offset_text().set_fontsize(SMALL)
        # Other ticks were chosen for these axes.
        if isinstance(axis.get_major_locator(), LogLocator):
            axis.set_major_locator(_LogLocator())
            axis.set_major_formatter(_LogFormatter())
            axis.set_minor_formatter(NullFormatter())
    _mark_single_points(axes)
    _tick_integers(axes)
    return axes


def heading(drawing: Figure, title: str, *, size: float = TITLE) -> None:
    """Sets the title of a figure, which is higher by each line that it breaks."""
    text = wrap(title, drawing.get_figwidth(), size)
    drawing.suptitle(text, fontsize=size)
    _grow(drawing, (text.count("\n") - title.count("\n")) * 1.3 * size / 72)


def legend(axes: Axes, *, below: bool = False) -> None:
    """Adds the legend of axes, below the figure if it would fill them.

    Args:
      axes: Axes whose data are drawn.
      below: Whether it is always below the figure, which it makes higher.
    """
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    drawing, (width, height) = axes.figure.figure, _inches(axes)
    labels = [wrap(label, drawing.get_figwidth() - 0.5, SMALL) for label in labels]
    lines = [line for label in labels for line in label.split("\n")]
    row_width = 0.5 + _text_inches(max(map(len, lines)), SMALL)
    row_height = 1.5 * SMALL / 72
    if not below and row_width <= width / 2 and row_height * len(lines) <= height / 2:
        axes.legend(frameon=False, fontsize=SMALL)
        return
    columns = min(len(labels), max(1, int(drawing.get_figwidth() / row_width)))
    place = {"loc": "outside lower center", "ncols": columns}
    drawing.legend(handles, labels, frameon=False, fontsize=SMALL, **place)
    rows = -(-len(lines) // columns)
    _grow(drawing, row_height * rows)


def label_ticks(axes: Axes, places: Sequence[float], names: Sequence[str]) -> None:
    """Sets the ticks of the horizontal axis, upright if they would overlap."""
    axes.set_xticks(places, names)
    needed = _text_inches(sum(map(len, names)) + len(names), SMALL)
    if needed > 0.7 * _inches(axes)[0]:
        axes.tick_params(axis="x", labelrotation=90)
        _grow(axes.figure.figure, _text_inches(max(map(len, names)), SMALL))


def line_style(index: int) -> dict[str, Any]:
    """Returns colour, line and marker of one of many lines, which all differ."""
    colour, line = index % len(PALETTE), index // len(PALETTE)
    return {
        "color": PALETTE[colour],
        "linestyle": _LINES[line % len(_LINES)],
        # In the first round the markers differ as well, for print without colours.
        "marker": _MARKERS[(colour + line // len(_LINES)) % len(_MARKERS)],
    }


def wrap(text: str, inches: float, size: float) -> str:
    """Breaks the lines of a text that are longer than a width.

    Lines are broken after spaces and, as names of runs and columns have none, after
    punctuation; a longer word is broken anywhere.

    Args:
      text: The text.
      inches: The width.
      size: Size of the text, points.
    """
    limit = max(8, int(inches / _text_inches(1, size)))
    lines = []
    for line in text.split("\n"):
        lines.append("")
        for word in re.findall(rf"[\w.']{{1,{limit - 1}}}\W*|\W+", line):
            if lines[-1] and len(lines[-1]) + len(word.rstrip()) > limit:
                lines.append("")
            lines[-1] += word
    return "\n".join(line.rstrip() for line in lines)


class _LogLocator(LogLocator):
    """Ticks at 1, 2, 5, 10 ... over few decades, and at powers of 10 over many."""

    def tick_values(self, vmin, vmax):
        self.set_params(subs=(1, 2, 5) if vmax < _SUBDIVIDED * vmin else (1,))
        ticks = super().tick_values(vmin, vmax)
        if sum(vmin <= tick <= vmax for tick in ticks) < 2:
            ticks = MaxNLocator(4).tick_values(vmin, vmax)
        return ticks


class _LogFormatter(LogFormatterSciNotation):
    """Plain numbers over few decades, and powers of 10 over many."""

    def __call__(self, x, pos=None):
        axis: Any = self.axis
        low, high = sorted(axis.get_view_interval())
        return f"{x:,.6g}" if high < _PLAIN * low else super().__call__(x, pos)


def _mark_single_points(axes: Axes) -> None:
    """Marks points between gaps, of which a line without markers shows nothing."""
    for line in axes.lines:
        valid = np.isfinite(np.asarray(line.get_ydata(), float))
        beside = np.concatenate([[False], valid, [False]])
        single = valid & ~beside[:-2] & ~beside[2:]
        if line.get_marker() in ("None", "", None) and single.any():
            line.set(marker="o", markersize=3, markevery=np.flatnonzero(single))


def _tick_integers(axes: Axes) -> None:
    """Leaves no fractions on the horizontal axis of lines over integers."""
    locator = axes.xaxis.get_major_locator()
    points = [np.asarray(line.get_xdata()) for line in axes.lines]
    if not isinstance(locator, MaxNLocator) or not points:
        return
    steps = np.unique(np.concatenate(points))
    if steps.dtype.kind in "iuf" and np.array_equal(steps, np.round(steps)):
        if len(steps) == 1:  # Around it there are only fractions.
            axes.set_xticks(steps)
        locator.set_params(integer=True)


def _inches(axes: Axes) -> tuple[float, float]:
    """Width and height of axes with their labels, before the layout is computed."""
    place = axes.get_subplotspec()
    assert place is not None
    grid, root = place.get_gridspec(), axes.figure.figure
    columns, rows = (
        np.asarray(ratios, float)
        for ratios in (grid.get_width_ratios(), grid.get_height_ratios())
    )
    box = axes.figure.bbox.transformed(root.dpi_scale_trans.inverted())
    width = columns[place.colspan.start : place.colspan.stop].sum() / columns.sum()
    height = rows[place.rowspan.start : place.rowspan.stop].sum() / rows.sum()
    # Labels and ticks of the other axis take a part.
    return max(0.5, box.width * width - 0.7), max(0.5, box.height * height - 0.5)


def _grow(drawing: Figure, inches: float) -> None:
    drawing.set_figheight(drawing.get_figheight() + inches)


def _text_inches(n_characters: int, size: float) -> float:
    return _CHARACTER * size / 72 * n_characters


def save(drawing: Figure, path: Path) -> list[Path]:
    """Writes a figure to a file, and a PNG also as PDF, for print.

    Args:
      drawing: The figure.
      path: The file; its suffix is the format.

    Returns:
      The files written.
    """
    _as_written(drawing)
    if layout := drawing.get_layout_engine():
        # Once, and not twice again for each file.
        layout.execute(drawing)
        drawing.set_layout_engine("none")
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


def _as_written(artist: Artist) -> None:
    """Lets names of columns and runs with dollar signs be text, not formulas."""
    for child in artist.get_children():
        if isinstance(child, Axis):
            child = child.label  # Ticks of logarithms are formulas.
        if isinstance(child, Text):
            child.set_parse_math(False)
        _as_written(child)
