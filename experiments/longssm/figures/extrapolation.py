"""Length extension as extrapolation of a memory that is fitted to windows.

    python -m experiments.longssm.figures.extrapolation --output=memory.png

A linear model with ``m`` decays has the memory ``sum_i c_i e^(-a_i s)``, its response
to an input ``s`` steps earlier. If it is trained from zero states on windows of ``T``
steps, it is fitted to the target memory on ``[0, T]`` only; with ``u = e^(-s)``, its
memory beyond ``T`` is the extrapolation of a polynomial in ``u``. If states are carried
between windows, earlier inputs are fitted too, here those of ``8 T`` steps.

The figure shows, and the tests check: on the window the error of both fits decreases
with the number of decays. Beyond the window the error of the fit to ``T`` exceeds the
memory itself, also with more decays; the error of the fit to ``8 T`` is smaller for
every number of decays.

Source: Wang, arXiv 2406.02080, 2024, sections 3.1 and 3.2, appendix D.2; target, rates
and lengths are ours, since the paper states none.
"""

import numpy as np
from matplotlib.figure import Figure

from experiments.figures import run
from ssm_jax.plots.style import BLUE, GREY, ORANGE, PAGE, SMALL, figure, plain
from ssm_jax.types import Array, Float

WINDOW = 32
FIT_STEPS = {"zero": WINDOW, "carry": 8 * WINDOW}
FAR = 64 * WINDOW


def memory(s: Float[Array, " t"]) -> Float[np.ndarray, " t"]:
    """The target memory: it decreases as a power, slower than any exponential."""
    return 1 / (1 + np.asarray(s) / 4)


def fit(m: int, n_steps: int) -> Float[np.ndarray, " t"]:
    """Memory over `FAR` steps of decays that are fitted to the first steps.

    Args:
      m: Number of decays; the logarithms of their time constants are evenly spaced
        from 1 to `FAR`.
      n_steps: Number of steps that are fitted by least squares.

    Returns:
      ``(FAR,)``.
    """
    rates = 1 / np.geomspace(1, FAR, m)
    s = np.arange(FAR)
    terms = np.exp(-np.outer(s, rates))
    weights = np.linalg.lstsq(terms[:n_steps], memory(s[:n_steps]), rcond=1e-7)[0]
    return terms @ weights


def errors(m: int, n_steps: int) -> tuple[float, float]:
    """Mean absolute error on the window and beyond it, relative to the memory."""
    expected = memory(np.arange(FAR))
    error = np.abs(fit(m, n_steps) - expected) / expected
    return float(error[:WINDOW].mean()), float(error[WINDOW:].mean())


def draw() -> Figure:
    """Plots memories, and their errors by the number of decays."""
    drawing = figure(PAGE, 2.6)
    left, right = drawing.subplots(1, 2)
    s, colours = np.arange(1, FAR), {"zero": BLUE, "carry": ORANGE}
    left.loglog(s, memory(s), color=GREY, linewidth=3, label="wanted")
    counts = np.arange(2, 17)
    labels = {"zero": "zero states", "carry": "carried states"}
    for name, n_steps in FIT_STEPS.items():
        line = {"color": colours[name], "linewidth": 1.5}
        left.loglog(s, np.abs(fit(12, n_steps)[1:]), label=labels[name], **line)
        within, beyond = zip(*(errors(int(m), n_steps) for m in counts), strict=True)
        right.semilogy(
            counts, within, linestyle=":", label=f"{labels[name]}, window", **line
        )
        right.semilogy(counts, beyond, label=f"{labels[name]}, beyond", **line)
    left.axvline(WINDOW, color=GREY, linestyle="--", linewidth=1)
    plain(left, title="memory of 12 decays", x="steps back")
    plain(right, title="error, part of the memory", x="decays")
    right.set_ylim(top=1e10)
    for axes in (left, right):
        axes.legend(fontsize=SMALL, frameon=False)
    return drawing


if __name__ == "__main__":
    run(draw)
