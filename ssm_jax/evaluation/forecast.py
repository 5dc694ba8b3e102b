"""Errors of forecasts by the distance of the predicted step, beside baselines."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ssm_jax.evaluation.restore import Restored
from ssm_jax.tasks.base import Split, n_batches, rows_of_batch
from ssm_jax.tasks.series.windows import SeriesTask
from ssm_jax.types import Array, Float

MODEL = "model"
"""Name of the model among the forecasts."""

_WINDOWS = 14


def forecasts(restored: Restored, split: Split) -> dict[str, np.ndarray]:
    """Returns the forecasts of a split by a model and by the baselines of its task.

    Args:
      restored: A model of a `SeriesTask` without classes.
      split: The split, which is read whole and in order.

    Returns:
      Arrays ``(n, horizon)`` in the units of the file: ``"target"``, ``"model"`` and
      those of `SeriesTask.baselines`; the rows are the windows in the order of time.

    Raises:
      ValueError: The task is no forecast.
    """
    task, size = _forecast_task(restored), restored.training.batch_size
    parts = []
    for index in range(n_batches(task, split, size) or 0):
        request = split, index, size, 0
        batch = rows_of_batch(task, *request)
        predicted = np.asarray(restored.predict(batch.inputs))
        arrays = {
            "target": task.in_units(batch.targets, *request),
            MODEL: task.in_units(predicted, *request),
            **task.baselines(*request),
        }
        parts.append({name: x[batch.loss_mask] for name, x in arrays.items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def next_forecast(restored: Restored) -> np.ndarray:
    """Returns the forecast of the steps that follow the last row of the file.

    Columns are normalised by the rows of the train split, so the file must be the one
    that the model was trained on, as `restore` checks: new rows need a new run.

    Args:
      restored: A model of a `SeriesTask` without classes.

    Returns:
      ``(horizon,)`` in the units of the file, the step after the last row first; of a
      task with ``group`` ``(g, horizon)``, in the order of `SeriesTask.series_names`.

    Raises:
      ValueError: The task is no forecast.
    """
    task = _forecast_task(restored)
    predicted = restored.predict(task.next_inputs())
    forecasts = task.next_in_units(np.asarray(predicted))
    return forecasts if task.group is not None else forecasts[0]


def forecast_errors(
    arrays: Mapping[str, Float[Array, "n h"]],
) -> dict[str, dict[str, Any]]:
    """Computes the errors of forecasts, over all steps and by the step predicted.

    Args:
      arrays: The result of `forecasts`.

    Returns:
      For the model and each baseline a dict with ``mae`` and ``r2`` over all steps, and
      lists ``mae_by_step`` and ``r2_by_step``, of which the first entry belongs to the
      first step after the window. R2 is None where all targets are equal.

    Example:
      >>> target = np.array([[1.0, 2.0], [3.0, 6.0]])
      >>> arrays = {"target": target, "model": target + [[0.0, 1.0], [0.0, -1.0]]}
      >>> forecast_errors(arrays)["model"]
      {'mae': 0.5, 'r2': 0.857..., 'mae_by_step': [0.0, 1.0], 'r2_by_step': [1.0, 0.75]}
    """
    target = np.asarray(arrays["target"], np.float64)
    result = {}
    for name in arrays.keys() - {"target"}:
        errors = np.asarray(arrays[name], np.float64) - target
        result[name] = {
            "mae": float(np.abs(errors).mean()),
            "r2": _r2(errors.ravel(), target.ravel()),
            "mae_by_step": np.abs(errors).mean(0).tolist(),
            "r2_by_step": [_r2(*pair) for pair in zip(errors.T, target.T, strict=True)],
        }
    # The model first, then the baselines by name.
    names = sorted(result, key=lambda name: (name != MODEL, name))
    return {name: result[name] for name in names}


def forecast_panel(
    task: SeriesTask, split: Split, arrays: Mapping[str, Float[Array, "n h"]]
) -> dict[str, np.ndarray]:
    """Selects consecutive windows of a split for a figure, those of the first series.

    Args:
      task: The task.
      split: The split of `forecasts`.
      arrays: The result of `forecasts`.

    Returns:
      ``series``, the values around the windows, NaN where they are missing; ``first``,
      the positions in it of the first steps that the windows predict; ``model``, their
      predictions, ``(w, horizon)``; and of a task with dates ``times``, those of the
      values, datetime64.
    """
    series = task.series_of_windows(split)
    rows, chosen = task.first_targets(split)[series == series[0]], [0]
    for index, row in enumerate(rows):
        # Side by side, so that no step is predicted twice.
        if row >= rows[chosen[-1]] + task.horizon and len(chosen) < _WINDOWS:
            chosen.append(index)
    start, end = rows[0] - task.window, rows[chosen[-1]] + task.horizon
    panel = {
        "series": task.values()[start:end],
        "first": rows[chosen] - start,
        MODEL: np.asarray(arrays[MODEL])[chosen],
    }
    times = task.times()
    if times is not None and times.dtype.kind == "M":
        panel["times"] = times[start:end]
    return panel


def _forecast_task(restored):
    """The task of a model that forecasts."""
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
