"""Perplexity by length of Mamba-2, Mamba, S5, Gated DeltaNet and the hybrid.

    python -m experiments.longssm.figures.layers --output=layers.png

As `experiments.longssm.figures.carried`, of other models of ``size=tiny``, each trained
with carried states on windows of 16 bytes.
"""

from matplotlib.figure import Figure

from experiments.figures import run
from experiments.longssm.figures import lengths

MODELS = ("gated_delta_net", "hybrid", "mamba", "mamba2", "s5")


def draw() -> Figure:
    """Plots all curves: one column per model, one row per evaluation."""
    return lengths.draw_size("tiny", MODELS)


if __name__ == "__main__":
    run(draw)
