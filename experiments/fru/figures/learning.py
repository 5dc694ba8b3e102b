"""Validation error of FRU, SRU, LSTM and RNN by step; figures 6 to 8.

    python -m experiments.fru.figures.learning --output=learning.png

The question of the paper, which plots accuracies: does the FRU learn faster than the
other units? The error is the part of the images or reviews that is misclassified.
Draws the curves in the records of ``experiments/results/fru``, at the published
settings (top) and for images of 14 by 14 pixels (bottom), beside the majority class.
Test accuracies are those of the step with the best validation accuracy.
"""

from collections.abc import Mapping
from typing import get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments.figures import run
from experiments.fru.units import Unit
from experiments.records import RESULTS, records
from ssm_jax.cli.summary import Row, name_of
from ssm_jax.plots.style import GREY, PAGE, PALETTE, SMALL, figure, plain

UNITS = get_args(Unit)
PANELS = (
    ("pixel by pixel", "fru/pixel_mnist:inputs=pixels,model={}"),
    ("permuted pixels", "fru/pixel_mnist:inputs=permuted,model={}"),
    ("film reviews", "fru/imdb:model={}"),
    ("14 by 14 pixels", "fru/pixel_mnist:inputs=pixels,model={},size=small"),
    ("14 by 14, permuted", "fru/pixel_mnist:inputs=permuted,model={},size=small"),
)
"""Titles, and the names of the experiments of a unit."""


def draw() -> Figure:
    """Plots a panel for each setting, with the units whose curves are recorded."""
    losses = {
        name_of(row): row
        for row in records(RESULTS / "fru")
        if "curve" in row and row["seed"] == 0
    }
    drawing = figure(PAGE, 3.8)
    panels = drawing.subplots(2, 3).flat
    for axes, (title, pattern) in zip(panels, PANELS, strict=False):
        rows = {unit: losses.get(pattern.format(unit)) for unit in UNITS}
        _plot_panel(axes, title, rows)
    last = drawing.axes[-1]
    last.set_axis_off()
    for unit, colour in zip(UNITS, PALETTE, strict=True):
        last.plot([], [], color=colour, label=unit.upper())
    last.plot([], [], ":", color=GREY, label="majority class")
    last.legend(fontsize=SMALL, frameon=False, loc="center left")
    return drawing


def _plot_panel(axes: Axes, title: str, rows: Mapping[str, Row | None]) -> None:
    for row, colour in zip(rows.values(), PALETTE, strict=True):
        if row:
            steps = [int(step) for step in row["curve"]]
            errors = [1 - accuracy for accuracy in row["curve"].values()]
            axes.plot(steps, errors, ".-", color=colour, lw=1, ms=3)
            axes.axhline(1 - row["baseline"]["accuracy"], ls=":", color=GREY, lw=1)
    axes.set_yscale("log")
    axes.set_ylim(0.01, 1.0)
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=4)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    plain(axes, title=title, x="steps", y="validation error")


if __name__ == "__main__":
    run(draw)
