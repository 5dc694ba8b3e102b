"""Throughput and memory of models by the sequence length."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ssm_jax.plots.style import PAGE, PALETTE, SMALL, TITLE, figure, plain


def throughput(rows: Sequence[Mapping[str, Any]], device: str) -> Figure:
    """Plots tokens per second and memory by sequence length, one line per model.

    Args:
      rows: Measurements with ``what``, ``length``, ``tokens_a_second`` and
        ``step_bytes``.
      device: Name of the device they were measured on.

    Returns:
      A figure of two panels.
    """
    drawing = figure(PAGE, 2.6)
    speed, memory = drawing.subplots(1, 2)
    names = list(dict.fromkeys(row["what"] for row in rows))
    for name, colour in zip(names, PALETTE, strict=False):
        # In order of length: a line connects its points in the order of the data.
        line = sorted(
            (row for row in rows if row["what"] == name), key=lambda row: row["length"]
        )
        lengths = [row["length"] for row in line]
        style = {"color": colour, "label": name, "marker": "o", "markersize": 4}
        # Logarithmic axes, on which a power of the length is a straight line.
        speed.loglog(lengths, [row["tokens_a_second"] for row in line], **style)
        memory.loglog(lengths, [row["step_bytes"] / 2**20 for row in line], **style)
    ticks = sorted({row["length"] for row in rows})
    for axes in (speed, memory):
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        # Ticks at powers of 10 only may leave an axis with a single label.
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.minorticks_off()
    plain(speed, title="training, tokens per second", x="length, steps")
    plain(memory, title="memory of a training step, MiB", x="length, steps")
    labels = speed.get_legend_handles_labels()
    # Outside, as the lines of either panel may be anywhere.
    drawing.legend(
        *labels,
        loc="outside lower center",
        ncols=len(names),
        fontsize=SMALL,
        frameon=False,
    )
    drawing.suptitle(f"one sequence at a time, {device}", fontsize=TITLE)
    return drawing
