"""Learning curves of a run."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from ssm_jax.plots.style import BLUE, ORANGE, PAGE, figure, heading, legend, plain

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
      metrics a linear scale from 0, or from a little below the least value, up to 1.
    """
    drawing = figure(PAGE, 2.3)
    for axes, name in zip(drawing.subplots(1, 2), ("loss", metric), strict=True):
        values: list[float] = []
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
            values += [value for _, value in points]
        if name in _LOGARITHMIC:
            # Both may decrease by orders of magnitude during a run.
            if any(value > 0 for value in values):
                axes.set_yscale("log")
        elif any(value > 0 for value in values):
            # r2 may be far below 0 in the first steps; the scale starts at 0 then.
            axes.set_ylim(max(0.0, min(values) - 0.05), 1.02)
        plain(axes, x="step", y=_NAMES.get(name, name))
        legend(axes)
    heading(drawing, title)
    return drawing
