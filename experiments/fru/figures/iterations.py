"""Iterations of the FRU in parallel by length, for several scales of its weights.

    python -m experiments.fru.figures.iterations --output=iterations.png

Draws the record of benchmark `iterations`: the number of iterations that solve for all
steps of an FRU at once, with its initial weights and larger ones, and of a GRU. The
input of each step of the FRU is divided by the horizon, so that the number is bounded
for every length; see `ssm_jax.kernels.nonlinear`.
"""

import json

from matplotlib.figure import Figure

from experiments.figures import run
from experiments.records import BENCHMARKS
from ssm_jax.plots.style import COLUMN, GREY, PALETTE, SMALL, figure, plain


def draw() -> Figure:
    """Plots iterations by length; hollow where the solver fell back to single steps."""
    rows = json.loads((BENCHMARKS / "iterations.json").read_text())["rows"]
    drawing = figure(1.3 * COLUMN, 2.6)
    axes = drawing.subplots()
    names = list(dict.fromkeys(row["what"] for row in rows))
    for name, colour in zip(names, (*PALETTE, GREY), strict=True):
        line = [row for row in rows if row["what"] == name]
        lengths = [row["length"] for row in line]
        counts = [row["iterations"] for row in line]
        axes.semilogx(lengths, counts, color=colour, label=name)
        for row in line:
            fill = "full" if row["converged"] else "none"
            axes.plot(
                row["length"], row["iterations"], "o", color=colour, fillstyle=fill
            )
    ticks = sorted({row["length"] for row in rows})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.plot([], [], "o", color="black", fillstyle="none", label="not converged")
    plain(axes, title="iterations of the solver", x="length, steps")
    axes.legend(fontsize=SMALL, frameon=False)
    return drawing


if __name__ == "__main__":
    run(draw)
