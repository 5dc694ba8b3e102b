"""Norms of gradients by the initial state, over the steps of a sequence."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ssm_jax.plots.style import PAGE, figure, heading, legend, plain

KINDS = {
    "gradient": "loss at t",
    "gradient_outputs": "first output of a block",
}
NORMS = {"l1": "L1", "l2": "L2", "linf": "L-infinity"}


def gradients(
    lines: Sequence[Mapping[str, float | int | None]], title: str
) -> Figure | None:
    """Plots the norms of gradients by the initial state during training.

    Args:
      lines: Lines of ``metrics.jsonl``, some with ``gradient/NORM/t`` or
        ``gradient_outputs/NORM/i``; those that are None are left out.
      title: Name of the run.

    Returns:
      A figure with one row per kind of gradient in ``lines`` and one panel per norm.
      Each measured training step is a curve, lighter for later steps. None if no line
      has gradients.
    """
    kinds = [kind for kind in KINDS if any(points(line, kind, "l2") for line in lines)]
    if not kinds:
        return None
    # Gradients are measured at some of the logged steps only.
    lines = [line for line in lines if points(line, kinds[0], "l2")]
    drawing = figure(PAGE, 2.2 * len(kinds))
    panels = drawing.subplots(len(kinds), len(NORMS), squeeze=False)
    colours = matplotlib.colormaps["viridis"]
    for kind, row in zip(kinds, panels, strict=True):
        for norm, axes in zip(NORMS, row, strict=True):
            for i, line in enumerate(lines):
                axes.plot(
                    *zip(*points(line, kind, norm), strict=True),
                    # The lightest tenth of the colour map is hard to see on white.
                    color=colours(0.9 * i / max(len(lines) - 1, 1)),
                    linewidth=1.5,
                    # Two labels are enough: the colours give the order of the rest.
                    label=f"step {line['step']}" if i in (0, len(lines) - 1) else None,
                )
            if any(np.any(curve.get_ydata() > 0) for curve in axes.lines):
                # Gradients vanish or grow exponentially with the distance.
                axes.set_yscale("log")
            plain(axes, title=NORMS[norm], x=KINDS[kind], y="norm")
    legend(panels[0, 0])
    heading(drawing, f"{title}: gradient by the initial state")
    return drawing


def points(
    line: Mapping[str, float | int | None], kind: str, norm: str
) -> list[tuple[int, float]]:
    """Returns positions and norms of a line of ``metrics.jsonl``, sorted by position.

    Args:
      line: The line; norms that are None are left out.
      kind: One of `KINDS`.
      norm: One of `NORMS`.

    Example:
      >>> points({"gradient/l2/16": 0.5, "gradient/l2/4": 2.0}, "gradient", "l2")
      [(4, 2.0), (16, 0.5)]
    """
    prefix = f"{kind}/{norm}/"
    return sorted(
        (int(key.removeprefix(prefix)), value)
        for key, value in line.items()
        if key.startswith(prefix) and value is not None
    )
