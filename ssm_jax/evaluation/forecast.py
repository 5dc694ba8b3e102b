"""Errors of forecasts by the distance of the predicted step, beside baselines."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ssm_jax.evaluation.restore import Restored
from ssm_jax.tasks.base import Split, n_batches, rows_of_batch
from ssm_jax.tasks.series.windows import SeriesTask
from ssm_jax.types import Array, Float

LEVEL = 0.9
"""Probability that an interval holds the value, if errors stay as they were."""

MODEL = "model"
"""Name of the model among the forecasts."""

_PANELS, _WINDOWS = 6, 14


def forecasts(restored: Restored, split: Split) -> dict[str, np.ndarray]:
    """Returns the forecasts of a split by a model and by the baselines of its task.

    Args:
      restored: A model of a `SeriesTask` without classes.
      split: The split, which is read whole and in order.

    Returns:
      Arrays ``(n, horizon)`` in the units of the file: ``"target"``, ``"model"`` and
      those of `SeriesTask.baselines`; the rows are the windows in the order of time.
      ``"scale"``, ``(n, 1)``, is what the targets of a window are divided by in
      training.

    Raises:
      ValueError: The task is no forecast.
    """
    task, size = forecast_task(restored), restored.training.batch_size
    parts = []
    for index in range(n_batches(task, split, size) or 0):
        request = split, index, size, 0
        batch = rows_of_batch(task, *request)
        predicted = np.asarray(restored.apply(batch.inputs, **batch.flags))
        arrays = {
            "scale": task.scale(*request),
            "target": task.in_units(batch.targets, *request),
            MODEL: task.in_units(predicted, *request),
            **task.baselines(*request),
        }
        parts.append({name: x[batch.loss_mask] for name, x in arrays.items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def next_forecast(restored: Restored) -> np.ndarray:
    """Returns the forecast of the steps that follow the last row of the file.

    `ssm_jax.evaluation.predict` returns them with their times and intervals, and those
    of other data.

    Args:
      restored: A model of a `SeriesTask` without classes.

    Returns:
      ``(horizon,)`` in the units of the file, the step after the last row first; of a
      task with ``group`` ``(g, horizon)``, in the order of `SeriesTask.series_names`.

    Raises:
      ValueError: The task is no forecast.
    """
    task = forecast_task(restored)
    predicted = restored.apply(task.next_inputs(), dt=task.next_dt())
    forecasts = task.next_in_units(np.asarray(predicted))
    return forecasts if task.group is not None else forecasts[0]


def interval_widths(
    arrays: Mapping[str, Float[Array, "n _"]], level: float = LEVEL
) -> dict[str, np.ndarray]:
    """Computes how wide intervals around forecasts are, by split conformal prediction.

    The errors of the validation split, which no parameter was fitted to, are ordered;
    an interval reaches as far as the ``ceil((n + 1) level)``-th of them. It holds the
    next value with that probability if its error is like these, whatever their
    distribution. Of a series whose level or spread changes, it is not.

    Args:
      arrays: The result of `forecasts` on the validation split.
      level: The probability.

    Returns:
      For the model and each baseline the distance of both ends from the forecast, for
      each step predicted, divided by ``scale``, ``(horizon,)``. It is infinite if the
      split has too few windows.

    References:
      Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, `Distribution-Free Predictive
      Inference for Regression <https://arxiv.org/abs/1604.04173>`_, 2018
    """
    target, scale = arrays["target"], arrays["scale"]
    rank, widths = math.ceil((len(target) + 1) * level), {}
    for name in arrays.keys() - {"target", "scale"}:
        errors = np.sort(np.abs(arrays[name] - target) / scale, 0)
        no_end = np.full(errors.shape[1], np.inf)
        widths[name] = errors[rank - 1] if rank <= len(errors) else no_end
    return widths


def forecast_errors(
    arrays: Mapping[str, Float[Array, "n _"]],
    widths: Mapping[str, Float[Array, " h"]] | None = None,
) -> dict[str, dict[str, Any]]:
    """Computes the errors of forecasts, over all steps and by the step predicted.

    Args:
      arrays: The result of `forecasts`.
      widths: The result of `interval_widths`.

    Returns:
      For the model and each baseline a dict with ``mae``, ``rmse`` and ``r2`` over all
      steps, and lists ``mae_by_step`` and ``r2_by_step``, of which the first entry
      belongs to the first step after the window. R2 is None where all targets are
      equal. With ``widths`` also ``coverage``, the share of targets that are in the
      interval, and ``coverage_by_step``.

    Example:
      >>> target = np.array([[1.0, 2.0], [3.0, 6.0]])
      >>> arrays = {"target": target, "model": target + [[0.0, 1.0], [0.0, -1.0]]}
      >>> errors = forecast_errors(arrays)["model"]
      >>> errors["mae"], errors["mae_by_step"], errors["r2_by_step"]
      (0.5, [0.0, 1.0], [1.0, 0.75])
    """
    target = np.asarray(arrays["target"], np.float64)
    result = {}
    for name in arrays.keys() - {"target", "scale"}:
        errors = np.asarray(arrays[name], np.float64) - target
        result[name] = {
            "mae": float(np.abs(errors).mean()),
            "rmse": float(np.sqrt(np.square(errors).mean())),
            "r2": _r2(errors.ravel(), target.ravel()),
            "mae_by_step": np.abs(errors).mean(0).tolist(),
            "r2_by_step": [_r2(*pair) for pair in zip(errors.T, target.T, strict=True)],
        }
        if widths is not None:
            inside = np.abs(errors) <= widths[name] * arrays["scale"]
            result[name]["coverage"] = float(inside.mean())
            result[name]["coverage_by_step"] = inside.mean(0).tolist()
    # The model first, then the baselines by name.
    names = sorted(result, key=lambda name: (name != MODEL, name))
    return {name: result[name] for name in names}


def errors_by_series(
    task: SeriesTask, split: Split, arrays: Mapping[str, Float[Array, "n _"]]
) -> dict[str, dict[str, float]]:
    """Computes the mean absolute errors of forecasts of each series of a file.

    Args:
      task: The task.
      split: The split of `forecasts`.
      arrays: The result of `forecasts`.

    Returns:
      For the model and each baseline a dict with the error by the name of the series,
      of those that have a window in the split.
    """
    of_series, names = task.series_of_windows(split), task.series_names()
    target = arrays["target"]
    return {
        which: {
            names[index]: float(
                np.abs(arrays[which] - target)[of_series == index].mean()
            )
            for index in np.unique(of_series)
        }
        for which in sorted(arrays.keys() - {"target", "scale"})
    }


def forecast_panels(
    task: SeriesTask,
    split: Split,
    arrays: Mapping[str, Float[Array, "n _"]],
    widths: Mapping[str, Float[Array, " h"]] | None = None,
) -> dict[str, dict[str, np.ndarray]]:
    """Selects consecutive windows of a split for figures, of the first six series.

    Args:
      task: The task.
      split: The split of `forecasts`.
      arrays: The result of `forecasts`.
      widths: The result of `interval_widths`.

    Returns:
      By the name of the series a dict: ``series``, the values around the windows, NaN
      where they are missing; ``first``, the positions in it of the first steps that the
      windows predict; ``model`` and the baselines by name, what they predict,
      ``(w, horizon)``; with ``widths`` also ``lower`` and ``upper``, the ends of the
      intervals of the model, ``(w, horizon)``; and of a task with dates ``times``,
      those of the values, datetime64.
    """
    of_series, names = task.series_of_windows(split), task.series_names()
    values, times, first = task.values(), task.times(), task.first_targets(split)
    half = None if widths is None else widths[MODEL] * arrays["scale"]
    panels = {}
    for series in np.unique(of_series)[:_PANELS]:
        windows = np.flatnonzero(of_series == series)
        rows, chosen = first[windows], [0]
        for index, row in enumerate(rows):
            # Side by side, so that no step is predicted twice.
            if row >= rows[chosen[-1]] + task.horizon and len(chosen) < _WINDOWS:
                chosen.append(index)
        part = slice(rows[0] - task.window, rows[chosen[-1]] + task.horizon)
        panel = {"series": values[part], "first": rows[chosen] - part.start}
        for name in sorted(arrays.keys() - {"target", "scale"}):
            panel[name] = np.asarray(arrays[name])[windows[chosen]]
        if half is not None:
            ends = half[windows[chosen]]
            panel |= {"lower": panel[MODEL] - ends, "upper": panel[MODEL] + ends}
        if times is not None and times.dtype.kind == "M":
            panel["times"] = times[part]
        panels[names[series]] = panel
    return panels


def panels_to_arrays(
    panels: Mapping[str, Mapping[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Returns the result of `forecast_panels` as arrays of one file."""
    arrays = {"names": np.array([*panels])}
    for index, panel in enumerate(panels.values()):
        # Those of the first series as in files with no other.
        start = f"{index}/" if index else ""
        arrays |= {f"{start}{name}": array for name, array in panel.items()}
    return arrays


def panels_of_arrays(
    arrays: Mapping[str, np.ndarray],
) -> dict[str, dict[str, np.ndarray]]:
    """Returns what `panels_to_arrays` was given."""
    names = arrays.get("names", np.array([""])).tolist()
    panels: dict[str, dict[str, np.ndarray]] = {name: {} for name in names}
    for key, array in arrays.items():
        index, slash, name = key.partition("/")
        if slash and index.isdecimal():
            panels[names[int(index)]][name] = array
        elif key != "names":
            panels[names[0]][key] = array
    return panels


def forecast_task(restored: Restored) -> SeriesTask:
    """Returns the task of a model that forecasts.

    Raises:
      ValueError: It is another model.
    """
    task = restored.task
    if not isinstance(task, SeriesTask) or task.classes is not None:
        raise ValueError(
            "`restored` must be a model of a SeriesTask without classes, got "
            f"{type(task).__name__}; `evaluate_run` has the metrics of other tasks."
        )
    return task


def _r2(errors, target):
    """R2 of a vector of targets; None if they have no variance."""
    if np.ptp(target) == 0:
        return None
    return float(1 - np.mean(np.square(errors)) / np.var(target))
