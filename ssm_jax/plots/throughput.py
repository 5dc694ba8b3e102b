"""Speed and memory of models against the length of a sequence."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ssm_jax.plots.style import PALETTE, figure, plain


def throughput(rows: Sequence[Mapping[str, Any]], device: str) -> Figure:
    """Draws tokens a second and memory by length, a line a model.

    Args:
      rows: ``what``, ``length``, ``tokens_a_second`` and ``step_bytes`` of each.
      device: What they were measured on.

    Returns:
      Two panels.
    """
    drawing = figure(8.0, 3.4)
    speed, memory = drawing.subplots(1, 2)
    names = list(dict.fromkeys(row["what"] for row in rows))
    for name, colour in zip(names, PALETTE, strict=False):
        of_name = sorted(
            (row for row in rows if row["what"] == name), key=lambda row: row["length"]
        )
        lengths = [row["length"] for row in of_name]
        line = {"color": colour, "label": name, "marker": "o", "markersize": 4}
        speed.loglog(lengths, [row["tokens_a_second"] for row in of_name], **line)
        memory.loglog(lengths, [row["step_bytes"] / 2**20 for row in of_name], **line)
    ticks = sorted({row["length"] for row in rows})
    for axes in (speed, memory):
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.minorticks_off()
    plain(speed, title="training, tokens a second", x="length, steps")
    plain(memory, title="memory of a step, MiB", x="length, steps")
    speed.legend(fontsize=8, frameon=False)
    drawing.suptitle(f"one sequence at a time, {device}", fontsize=10)
    return drawing
