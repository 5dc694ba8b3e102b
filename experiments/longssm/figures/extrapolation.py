"""Length extension as extrapolation: a memory fitted to windows, beyond them.

    python -m experiments.longssm.figures.extrapolation --output=memory.png

A linear model of ``m`` decays has the memory ``sum_i c_i e^(-a_i s)``: how much it
still knows after ``s`` steps. Trained from fresh states on windows of ``T`` steps, it
is fitted to the memory that is wanted on ``[0, T]`` alone, and with ``u = e^(-s)`` what
it does beyond is the extrapolation of a polynomial in ``u``. Where states go on from
window to window, what lies further back counts too: here ``8 T`` steps.

What the picture shows, and the tests check: on the window both fits are the better the
more decays. Beyond it the fit to the window is off by more than the memory itself, and
more decays do not mend it; the fit to ``8 T`` is off by less, for every number of them.

Source: Wang, arXiv 2406.02080, 2024, sections 3.1 and 3.2, appendix D.2; target, rates
and lengths are ours, for the paper has none.
"""

import numpy as np
from matplotlib.figure import Figure

from experiments import drawing
from ssm_jax.plots.style import BLUE, GREY, ORANGE, figure, plain
from ssm_jax.types import Array, Float

WINDOW = 32
SEEN = {"zero": WINDOW, "carry": 8 * WINDOW}
FAR = 64 * WINDOW


def memory(s: Float[Array, " t"]) -> Float[np.ndarray, " t"]:
    """The memory that is wanted: it fades as a power, slower than any decay."""
    return 1 / (1 + np.asarray(s) / 4)


def fitted(m: int, seen: int) -> Float[np.ndarray, " t"]:
    """What decays that are fitted to the first steps remember after each of `FAR`.

    Args:
      m: Decays; their time constants are even in their logarithm from 1 to `FAR`.
      seen: Steps that are fitted, by least squares.

    Returns:
      ``(FAR,)``.
    """
    rates = 1 / np.geomspace(1, FAR, m)
    s = np.arange(FAR)
    terms = np.exp(-np.outer(s, rates))
    weights = np.linalg.lstsq(terms[:seen], memory(s[:seen]), rcond=1e-7)[0]
    return terms @ weights


def errors(m: int, seen: int) -> tuple[float, float]:
    """Mean size of the error on the window and beyond it, as parts of the memory."""
    wanted = memory(np.arange(FAR))
    wrong = np.abs(fitted(m, seen) - wanted) / wanted
    return float(wrong[:WINDOW].mean()), float(wrong[WINDOW:].mean())


def draw() -> Figure:
    """Draws memories, and their errors by the number of decays."""
    drawing = figure(8.6, 3.4)
    left, right = drawing.subplots(1, 2)
    s, colours = np.arange(1, FAR), {"zero": BLUE, "carry": ORANGE}
    left.loglog(s, memory(s), color=GREY, linewidth=3, label="wanted")
    counts = np.arange(2, 17)
    labels = {"zero": "zero states", "carry": "carried states"}
    for name, seen in SEEN.items():
        line = {"color": colours[name], "linewidth": 1.5}
        left.loglog(s, np.abs(fitted(12, seen)[1:]), label=labels[name], **line)
        within, beyond = zip(*(errors(int(m), seen) for m in counts), strict=True)
        right.semilogy(
            counts, within, linestyle=":", label=f"{labels[name]}, window", **line
        )
        right.semilogy(counts, beyond, label=f"{labels[name]}, beyond", **line)
    left.axvline(WINDOW, color=GREY, linestyle="--", linewidth=1)
    plain(left, title="memory of 12 decays", x="steps back")
    plain(right, title="error, part of the memory", x="decays")
    right.set_ylim(top=1e10)
    for axes in (left, right):
        axes.legend(fontsize=8, frameon=False)
    return drawing


if __name__ == "__main__":
    drawing.run(draw)
