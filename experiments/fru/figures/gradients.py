"""Gradients of FRU, SRU, LSTM and RNN by the initial state; figure 5.

    python -m experiments.fru.figures.gradients --output=gradients.png

The question of the paper: are the gradients of the FRU constant over time, where those
of the other units vanish or grow? Draws the records of ``experiments/results/fru`` of
mixtures of polynomials of degree 5: for each ``t`` the L2 norm of the gradient of the
loss of the prediction after ``t`` steps by the state before the first one, at the last
step of training; a curve for each seed.
"""

from typing import get_args

from matplotlib.figure import Figure

from experiments.figures import run
from experiments.fru.units import Unit
from experiments.records import RESULTS, records
from ssm_jax.cli.summary import name_of
from ssm_jax.plots.style import PAGE, PALETTE, figure, legend, plain

EXPERIMENT = "fru/mixture:curves=poly5,model={},size=small"


def draw() -> Figure:
    """Plots a curve for each unit and seed whose gradients are recorded."""
    rows = [row for row in records(RESULTS / "fru") if "gradients" in row]
    drawing = figure(PAGE, 2.6)
    axes = drawing.subplots()
    for unit, colour in zip(get_args(Unit), PALETTE, strict=True):
        curves = [
            row["gradients"] for row in rows if name_of(row) == EXPERIMENT.format(unit)
        ]
        for i, curve in enumerate(curves):
            steps = [int(step) for step in curve]
            label = None if i else unit.upper()
            axes.plot(steps, [*curve.values()], ".-", color=colour, lw=1, label=label)
    axes.set_yscale("log")
    plain(axes, title="gradient by the initial state", x="steps read", y="L2 norm")
    legend(axes)
    return drawing


if __name__ == "__main__":
    run(draw)
