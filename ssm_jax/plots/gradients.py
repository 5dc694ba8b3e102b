"""How far gradients reach, over the steps of a sequence and of training."""

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure

from ssm_jax.plots.style import figure, plain

PREFIX = "gradient/"


def gradients(lines: Sequence[Mapping[str, float | int]], title: str) -> Figure | None:
    """Draws gradients by the initial state, a curve for each time they were measured.

    Args:
      lines: Lines of ``metrics.jsonl``, some with ``gradient/t``.
      title: What the run is.

    Returns:
      One panel, later curves lighter; None where no line has gradients.
    """
    lines = [line for line in lines if any(key.startswith(PREFIX) for key in line)]
    if not lines:
        return None
    drawing = figure(5.2, 3.4)
    axes = drawing.subplots()
    colours = matplotlib.colormaps["viridis"]
    for i, line in enumerate(lines):
        points = sorted(
            (int(key.removeprefix(PREFIX)), value)
            for key, value in line.items()
            if key.startswith(PREFIX)
        )
        axes.semilogy(
            *zip(*points, strict=True),
            color=colours(0.9 * i / max(len(lines) - 1, 1)),
            linewidth=1.5,
            label=f"step {line['step']}" if i in (0, len(lines) - 1) else None,
        )
    plain(
        axes, title=f"{title}: gradient by the initial state", x="loss at t", y="norm"
    )
    axes.legend(frameon=False, fontsize=8)
    return drawing
