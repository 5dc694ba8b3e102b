"""Throughput and memory of models by the sequence length."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from ssm_jax.plots.style import (
    PAGE,
    figure,
    heading,
    label_ticks,
    legend,
    line_style,
    plain,
)


def throughput(rows: Sequence[Mapping[str, Any]], device: str) -> Figure:
    """Plots tokens per second and memory by sequence length, one line per model.

    Args:
      rows: Measurements with ``what``, ``length``, ``tokens_a_second`` and
        ``step_bytes``.
      device: Name of the device they were measured on.

    Returns:
      A figure of two panels.
    """
    drawing = figure(PAGE, 2.4)
    speed, memory = drawing.subplots(1, 2)
    names = list(dict.fromkeys(row["what"] for row in rows))
    for index, name in enumerate(names):
        # In order of length: a line connects its points in the order of the data.
        line = sorted(
            (row for row in rows if row["what"] == name), key=lambda row: row["length"]
        )
        lengths = [row["length"] for row in line]
        style = line_style(index) | {"label": name, "markersize": 4}
        # Logarithmic axes, on which a power of the length is a straight line.
        speed.loglog(lengths, [row["tokens_a_second"] for row in line], **style)
        memory.loglog(lengths, [row["step_bytes"] / 2**20 for row in line], **style)
    ticks = sorted({row["length"] for row in rows})
    plain(speed, title="training, tokens per second", x="length, steps")
    plain(memory, title="memory of a training step, MiB", x="length, steps")
    for axes in (speed, memory):
        label_ticks(axes, ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
    # Outside, as the lines of either panel may be anywhere.
    legend(speed, below=True)
    heading(drawing, f"one sequence at a time, {device}")
    return drawing
