"""Learning curves of a run."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from ssm_jax.plots.style import BLUE, ORANGE, PAGE, SMALL, TITLE, figure, plain

_COLOURS = {"train": BLUE, "validation": ORANGE}
_NAMES = {"r2": "R²"}
_LOGARITHMIC = ("loss", "perplexity")


def curves(
    lines: Sequence[Mapping[str, float | int | None]], metric: str, title: str
) -> Figure:
    """Plots the loss and a metric on the train and validation splits.

    Args:
      lines: Lines of ``metrics.jsonl``, each with ``step`` and ``split/metric``.
        A metric that is None is left out.
      metric: The second metric, ``"r2"``, ``"accuracy"`` or ``"perplexity"``.
      title: Name of the run.

    Returns:
      A figure of two panels. Loss and perplexity have a logarithmic scale, the other
      metrics a linear scale up to 1.
    """
    drawing = figure(PAGE, 2.3)
    for axes, name in zip(drawing.subplots(1, 2), ("loss", metric), strict=True):
        lowest = 1.0
        for split, colour in _COLOURS.items():
            points = [
                (line["step"], value)
                for line in lines
                if (value := line.get(f"{split}/{name}")) is not None
            ]
            if not points:
                continue
            # Validation has few points, which a line alone would hide.
            marker = "o" if split == "validation" else None
            axes.plot(
                *zip(*points, strict=True),
                color=colour,
                marker=marker,
                markersize=3.5,
                linewidth=1.5,
                label=split,
            )
            lowest = min(lowest, min(value for _, value in points))
        shown = _NAMES.get(name, name)
        plain(axes, x="step", y=shown)
        if name in _LOGARITHMIC:
            # Both may decrease by orders of magnitude during a run.
            axes.set_yscale("log")
        else:
            # r2 may be far below 0 in the first steps; the scale starts at 0 then.
            axes.set_ylim(max(0.0, lowest - 0.05), 1.02)
        if axes.lines:
            axes.legend(frameon=False, fontsize=SMALL)
    drawing.suptitle(title, fontsize=TITLE)
    return drawing
