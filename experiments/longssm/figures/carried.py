"""Perplexity by length of DLR, CES, FRU and GRU, trained with carried or zero states.

    python -m experiments.longssm.figures.carried --output=carried.png

As `experiments.longssm.figures.lengths`, of the runs of ``size=tiny``, which the paper
has not: each model is trained on windows of 16 bytes.
"""

from matplotlib.figure import Figure

from experiments.figures import run
from experiments.longssm.figures import lengths

MODELS = ("dlr", "ets", "fru", "gru")


def draw() -> Figure:
    """Plots all curves: one column per model, one row per evaluation."""
    return lengths.draw_size("tiny", MODELS)


if __name__ == "__main__":
    run(draw)
