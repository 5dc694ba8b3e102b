"""Errors of kernels of DLR by length, with exact powers and with float32 ones.

    python -m experiments.dlr.figures.powers --output=powers.png

Draws the record of benchmark `powers`. Left, the kernel of DLR as initialized, whose
decays bound the number of steps that count. Right, a shift by 7/8 of the length by
DLR-prod, whose modes do not decay: the squared distance from a single tap.
"""

import json

from matplotlib.figure import Figure

from experiments.figures import run
from experiments.records import BENCHMARKS
from ssm_jax.plots.style import GREY, PAGE, PALETTE, SMALL, figure, plain


def draw() -> Figure:
    """Plots both errors by length, one line per evaluation of the powers."""
    rows = json.loads((BENCHMARKS / "powers.json").read_text())["rows"]
    drawing = figure(PAGE, 2.6)
    panels = drawing.subplots(1, 2)
    titles = {
        "error": "initial kernel: largest relative error",
        "left": "single tap: squared distance",
    }
    names = list(dict.fromkeys(row["what"] for row in rows))
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        for name, colour in zip(names, (GREY, *PALETTE), strict=False):
            # The error is relative to float64, where it is 0.
            line = [row for row in rows if row["what"] == name and row[key]]
            axes.loglog(
                [row["length"] for row in line],
                [row[key] for row in line],
                color=colour,
                linestyle=":" if name == "float64" else "-",
                marker="o",
                markersize=4,
                label=name,
            )
        ticks = sorted({row["length"] for row in rows})
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], rotation=30)
        axes.minorticks_off()
        plain(axes, title=title, x="length, steps")
    panels[1].legend(fontsize=SMALL, frameon=False)
    return drawing


if __name__ == "__main__":
    run(draw)
