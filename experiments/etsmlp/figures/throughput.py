"""Tokens per second and memory of training by length; figure 3.

    python -m experiments.etsmlp.figures.throughput --output=throughput.png

Draws the record of benchmark `throughput`, whose models are smaller than the published
ones. Statement of the paper: ETSMLP trains faster than the Transformer on long
sequences, with less memory.

Source: Chu and Lin, arXiv 2403.17445, 2024, figure 3.
"""

import json

from matplotlib.figure import Figure

from experiments.figures import run
from experiments.records import BENCHMARKS
from ssm_jax import plots


def draw() -> Figure:
    """Plots the record."""
    record = json.loads((BENCHMARKS / "throughput.json").read_text())
    return plots.throughput(record["rows"], f"{record['cpus']} cores")


if __name__ == "__main__":
    run(draw)
