"""The metric of a sweep against the values of a field."""

import statistics
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from ssm_jax.plots.style import (
    COLUMN,
    GREY,
    figure,
    label_ticks,
    legend,
    line_style,
    plain,
)


def sweep(
    results: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    field: str,
    metric: str,
    baseline: float | None,
    title: str,
) -> Figure:
    """Plots the mean of a metric over seeds, with its standard deviation.

    Args:
      results: For each line, by its label, the metric of each seed by the value of the
        field. An empty label is left out of the legend.
      field: The varied field, the label of the horizontal axis.
      metric: The label of the vertical axis.
      baseline: The metric of the task's trivial baseline, a dashed line. None if there
        is none.
      title: Name of the experiment.

    Returns:
      A figure with one panel. The axis of values is logarithmic if all of them are
      positive numbers that span a factor of 8 or more, and has one tick per value.
    """
    drawing = figure(COLUMN, 2.5)
    axes = drawing.subplots()
    values = list(dict.fromkeys(value for line in results.values() for value in line))
    position = _positions(values)
    for index, (label, line) in enumerate(results.items()):
        points = sorted((position[value], *_spread(line[value])) for value in line)
        axes.errorbar(
            [point[0] for point in points],
            [point[1] for point in points],
            yerr=[point[2] for point in points],
            **line_style(index),
            markersize=4,
            capsize=2,
            label=label,
        )
    if baseline is not None:
        style = {"color": GREY, "linestyle": "--", "linewidth": 1}
        axes.axhline(baseline, label="trivial baseline", **style)
    places = sorted(position.values())
    if places[0] > 0 and places[-1] >= 8 * places[0]:
        axes.set_xscale("log")
        axes.minorticks_off()
    names = sorted(position, key=position.__getitem__)
    plain(axes, title=title, x=field, y=f"{metric}, mean and std over seeds")
    label_ticks(axes, places, names)
    legend(axes)
    return drawing


def _positions(values):
    """Where each value is on the axis: itself if all are numbers, else its rank."""
    try:
        return {value: float(value) for value in values}
    except ValueError:
        return {value: float(rank) for rank, value in enumerate(values)}


def _spread(measured):
    std = statistics.stdev(measured) if len(measured) > 1 else 0.0
    return statistics.mean(measured), std
