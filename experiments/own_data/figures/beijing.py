r"""Forecasts of PM2.5 in Beijing, and the errors of all models by the hour ahead.

    python -m experiments.own_data.figures.beijing --data=runs/s5 --output=beijing.png

``--data`` is the work dir of an evaluated run of ``experiments/own_data/beijing.py``,
whose forecasts are drawn above, on two weeks of the test split. The errors below are
those of the records of ``size=small``, on the whole test split; bands are the sample
standard deviation over seeds. The lines of the baselines are dashed.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures import run
from experiments.own_data.beijing import Variant
from experiments.records import records
from ssm_jax.evaluation.run import FORECAST_FILE
from ssm_jax.plots.style import BLUE, GREY, ORANGE, PAGE, PALETTE, SMALL, figure, plain
from ssm_jax.training import WorkDir
from ssm_jax.variants import parse_variant

_MODELS = ("s5", "dlr", "ces", "gru")
_BASELINES = {"last value": "black", "seasonal": GREY}
_LABELS = {"mae": "mean absolute error, µg/m³", "r2": "R²"}


def draw(data: str) -> Figure:
    """Plots the forecasts of one run, and the errors of all records.

    Args:
      data: Work dir of the run.

    Raises:
      ValueError: The run is of another experiment, or not evaluated.
    """
    work = WorkDir(data)
    is_other_experiment = work.config().experiment != "own_data/beijing"
    if is_other_experiment or not (work.path / FORECAST_FILE).exists():
        raise ValueError(
            f"`--data` must be an evaluated run of own_data/beijing, got {data}; "
            "`python -m launch.evaluate --workdir=RUN` evaluates one."
        )
    drawing = figure(PAGE, 4.6)
    above, below = drawing.subfigures(2, 1, squeeze=False)[:, 0]
    model = parse_variant(work.config().variant, Variant).model
    _plot_forecasts(above.subplots(), work.read_arrays(FORECAST_FILE), model.upper())
    panels = below.subplots(1, 2)
    for axes, metric in zip(panels, _LABELS, strict=True):
        _plot_errors(axes, metric)
    panels[0].legend(fontsize=SMALL, frameon=False)
    return drawing


def _plot_forecasts(axes: Axes, arrays, model: str) -> None:
    """Measured values, and the forecasts of consecutive days."""
    days = np.arange(len(arrays["series"])) / 24
    axes.plot(days, arrays["series"], color=BLUE, linewidth=1.8, alpha=0.5)
    for first, predicted in zip(arrays["first"], arrays["model"], strict=True):
        at = (first + np.arange(len(predicted))) / 24
        axes.plot(at, predicted, color=ORANGE, linewidth=1.2)
        axes.axvline(first / 24, color=GREY, linewidth=0.5, linestyle=":")
    axes.plot([], [], color=BLUE, alpha=0.5, label="measured")
    axes.plot([], [], color=ORANGE, label=f"{model}, 24 hours from each dotted line")
    axes.legend(fontsize=SMALL, frameon=False, ncols=2)
    plain(axes, x="days of the test split", y="PM2.5, µg/m³")


def _plot_errors(axes: Axes, metric: str) -> None:
    """Mean and standard deviation over seeds of each model, and the baselines."""
    rows = [row for row in records() if row["experiment"] == "own_data/beijing"]
    for name, colour in zip(_MODELS, PALETTE, strict=True):
        errors = np.array(
            [
                row["forecast"]["model"][f"{metric}_by_step"]
                for row in rows
                if parse_variant(row["variant"], Variant) == Variant(name, "small")
            ]
        )
        hours, mean = np.arange(1, errors.shape[1] + 1), errors.mean(0)
        std = errors.std(0, ddof=1)
        axes.fill_between(hours, mean - std, mean + std, color=colour, alpha=0.15, lw=0)
        axes.plot(hours, mean, color=colour, linewidth=1.2, label=name.upper())
    for name, colour in _BASELINES.items():
        errors = rows[0]["forecast"][name][f"{metric}_by_step"]
        hours = np.arange(1, len(errors) + 1)
        axes.plot(hours, errors, "--", color=colour, linewidth=1.0, label=name)
    axes.set_xticks([1, 6, 12, 18, 24])
    plain(axes, x="hours ahead", y=_LABELS[metric])


if __name__ == "__main__":
    run(draw)
