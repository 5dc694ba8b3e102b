"""Forecasts of a series beside its values, and their errors by the step predicted."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from ssm_jax.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PAGE,
    PURPLE,
    SKY,
    figure,
    legend,
    plain,
)

_COLOURS = {
    "model": ORANGE,
    "last value": GREEN,
    "seasonal": PURPLE,
    "ridge": BLUE,
    "linear": SKY,
}


def forecasts(
    series: np.ndarray,
    found: Mapping[str, np.ndarray],
    errors: Mapping[str, Mapping[str, Any]],
    *,
    name: str,
    title: str,
    times: np.ndarray | None = None,
) -> Figure:
    """Plots forecasts of consecutive windows.

    Args:
      series: Values of the series, ``(t,)``, NaN where they are missing.
      found: Under ``"first"`` the positions in ``series`` of the first values that
        windows predict, ``(w,)``; under ``"model"`` the predictions, ``(w, horizon)``;
        and under ``"lower"`` and ``"upper"``, if they are there, the ends of their
        intervals, ``(w, horizon)``.
      errors: The result of `ssm_jax.evaluation.forecast_errors`.
      name: Name of the series, the label of its axis.
      title: Name of the model.
      times: ``datetime64`` of each value of the series, increasing, ``(t,)``. None: the
        axis counts steps.

    Returns:
      A figure with the series and the predictions above, and below the mean absolute
      error and R2 of the model and of each baseline over the step predicted.
    """
    drawing = figure(PAGE, 4.4)
    above, below = drawing.subfigures(2, 1, squeeze=False)[:, 0]
    axes = above.subplots()
    dates = np.arange(len(series)) if times is None else times
    axes.plot(dates, series, color=BLUE, linewidth=1.6, alpha=0.5, label="values")
    label = "model"
    unknown = np.full_like(found["model"], np.nan)
    ends = (found.get(end, unknown) for end in ("lower", "upper"))
    windows = zip(found["first"], found["model"], *ends, strict=True)
    for first, predicted, lower, upper in windows:
        steps = dates[first : first + len(predicted)]
        axes.plot(steps, predicted, color=ORANGE, linewidth=1.0, label=label)
        if np.isfinite(upper - lower).all():
            band = "90 % of values" if label == "model" else "_nolegend_"
            style = {"color": ORANGE, "alpha": 0.2, "linewidth": 0}
            axes.fill_between(steps, lower, upper, label=band, **style)
        axes.axvline(steps[0], color=GREY, linewidth=0.4, linestyle=":")
        label = "_nolegend_"  # One entry for all windows.
    if times is not None:
        # The formatter asks the locator of the ticks about their axis.
        locator = AutoDateLocator()
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    x = "step" if times is None else ""
    plain(axes, title=f"{title}: forecasts from each dotted line", x=x, y=name)
    legend(axes)
    panels = below.subplots(1, 2)
    labels = {"mae_by_step": f"mean absolute error, {name}", "r2_by_step": "R²"}
    for axes, (metric, label) in zip(panels, labels.items(), strict=True):
        for which, measured in errors.items():
            # None, where R2 is not defined, leaves a gap.
            values = np.array(measured[metric], float)
            steps = np.arange(1, len(values) + 1)
            colour = _COLOURS.get(which, GREY)
            # A model may be the linear forecast, and is then drawn on top of it.
            style = {
                "color": colour,
                "linewidth": 1.0,
                "zorder": 2 + (which == "model"),
            }
            axes.plot(steps, values, ".-", label=which, **style)
        plain(axes, x="steps ahead", y=label)
    legend(panels[0], below=True)  # The curves may be anywhere in the panel.
    return drawing
