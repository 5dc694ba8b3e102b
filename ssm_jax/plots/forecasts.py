"""Forecasts of a series beside its values, and their errors by the step predicted."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ssm_jax.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PAGE,
    PURPLE,
    SMALL,
    figure,
    plain,
)

_COLOURS = {"model": ORANGE, "last value": GREEN, "seasonal": PURPLE}


def forecasts(
    series: np.ndarray,
    found: Mapping[str, np.ndarray],
    errors: Mapping[str, Mapping[str, Any]],
    *,
    name: str,
    title: str,
) -> Figure:
    """Plots forecasts of consecutive windows.

    Args:
      series: Values of the series, ``(t,)``, NaN where they are missing.
      found: Under ``"first"`` the positions in ``series`` of the first values that
        windows predict, ``(w,)``; under ``"model"`` the predictions, ``(w, horizon)``.
      errors: The result of `ssm_jax.evaluation.forecast_errors`.
      name: Name of the series, the label of its axis.
      title: Name of the model.

    Returns:
      A figure with the series and the predictions above, and below the mean absolute
      error and R2 of the model and of each baseline over the step predicted.
    """
    drawing = figure(PAGE, 4.4)
    above, below = drawing.subfigures(2, 1, squeeze=False)[:, 0]
    axes = above.subplots()
    axes.plot(series, color=BLUE, linewidth=1.6, alpha=0.5, label=name)
    label = "model"
    for first, predicted in zip(found["first"], found["model"], strict=True):
        steps = first + np.arange(len(predicted))
        axes.plot(steps, predicted, color=ORANGE, linewidth=1.0, label=label)
        axes.axvline(first, color=GREY, linewidth=0.4, linestyle=":")
        label = "_nolegend_"  # One entry for all windows.
    plain(axes, title=f"{title}: forecasts from each dotted line", x="step", y=name)
    axes.legend(fontsize=SMALL, frameon=False, ncols=2)
    panels = below.subplots(1, 2)
    labels = {"mae_by_step": f"mean absolute error, {name}", "r2_by_step": "R²"}
    for axes, (metric, label) in zip(panels, labels.items(), strict=True):
        for which, measured in errors.items():
            # None, where R2 is not defined, leaves a gap.
            values = np.array(measured[metric], float)
            steps = np.arange(1, len(values) + 1)
            colour = _COLOURS.get(which, GREY)
            axes.plot(steps, values, ".-", color=colour, label=which, linewidth=1.0)
        plain(axes, x="steps ahead", y=label)
    # Above the panel: the curves may be anywhere in it.
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    panels[0].legend(fontsize=SMALL, frameon=False, ncols=len(errors), **place)
    return drawing
