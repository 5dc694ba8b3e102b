"""Guesses the columns and the sizes of a forecast from a file."""

import bisect
from collections.abc import Mapping
from typing import Any

import numpy as np

from ssm_jax.tasks import user_files
from ssm_jax.tasks.series import columns

CALENDAR = ("year", "month", "week", "weekday", "day", "hour", "minute", "second")
"""Names of columns that are no target unless they are asked for."""

_MINUTE, _DAY = 60.0, 86_400.0
_MIN_ROWS = 80
_CLASSES = "biuSU"  # Kinds of dtypes of labels.


def guess(
    path: str, *, target: str | None = None, season: int | None = None
) -> dict[str, Any]:
    """Returns fields of a `SeriesTask` that forecasts a column of a file.

    Args:
      path: The file; see `ssm_jax.tasks.series.columns.read`.
      target: Column to forecast, which is then not the time. None means the first
        column of numbers that is neither the time nor one of `CALENDAR`.
      season: Period in steps. None means a day for steps below a day, a week for steps
        of a day, a year for steps of a month; without dates a day if there is a column
        ``hour`` whose first value recurs, and none otherwise.

    Returns:
      ``target``; ``time``, the first column if it increases, or else the first column
      of dates that does, also one with dates missing, which a task refuses;
      ``inputs``, all columns of numbers except the time and the year; ``season``;
      ``horizon``, one period, or 24 steps, and ``window``, three times as many, both
      fewer for a short file; and ``missing``.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: The file is no table, holds sequences with their classes or targets
        instead of a series, is too short, or has no column to forecast; or ``target``
        is not a column of numbers.
    """
    _check_is_series(path)
    table = columns.read(path)
    time = _time(table, target)
    numeric = [
        name
        for name, values in table.items()
        if name != time and _is_numeric(values) and name.lower() != "year"
    ]
    targets = [name for name in numeric if name.lower() not in CALENDAR]
    if not (target or targets) and time is not None and _is_numeric(table[time]):
        raise ValueError(
            f"`target` must be a column of numbers other than the time, got {time!r}, "
            f"which increases, as the only one of {path}; `--target={time}` forecasts "
            "it."
        )
    target = target or (targets or [""])[0]
    if target not in numeric:
        raise ValueError(
            f"`target` must be a column of numbers, {', '.join(numeric) or 'none'} of "
            f"{path}, got {target!r}; `--target` names it."
        )
    n = len(table[target])
    if n < _MIN_ROWS:
        raise ValueError(
            f"`file` must have at least {_MIN_ROWS} rows for a forecast, got {n} in "
            f"{path}; a tenth of them is for validation."
        )
    if season is None and time is not None:
        season = _season(table[time])
    if season is None and (hours := table.get("hour")) is not None:
        # The distance to the same hour of the next day.
        again = np.flatnonzero(hours[1:] == hours[0])
        season = int(again[0]) + 1 if again.size else None
    # The validation split, a tenth of the rows, holds several windows.
    held_out = n // 10
    horizon = max(1, min(season or 24, held_out // 8))
    window = max(1, min(3 * (season or 24), held_out // 2))
    gaps = any(columns.missing(table[name]).any() for name in numeric)
    return {
        "time": time,
        "target": target,
        "inputs": tuple(dict.fromkeys([target, *numeric])),
        "missing": "last" if gaps else "error",
        "window": window,
        "horizon": horizon,
        # A window holds a period, or the baseline is left out.
        "season": season if season is not None and season <= window else None,
    }


def unread(path: str, guesses: Mapping[str, Any]) -> dict[str, str]:
    """Returns the columns that a guess does not read, except the year.

    Args:
      path: The file.
      guesses: The result of `guess`.

    Returns:
      Why a column is not read, by its name.
    """
    known = guesses["inputs"] + (guesses["time"],)
    why = {
        name: _why(path, values)
        for name, values in columns.read(path).items()
        if name not in known and name.lower() != "year"
    }
    return why | {name: f"is of {kind}" for name, kind in columns.others(path).items()}


def _check_is_series(path):
    """Refuses the arrays of a set of sequences, whose targets have no order in time."""
    if not path.lower().endswith(".npz"):
        return
    file = user_files.npz(path)
    arrays = {name: file.layout(name) for name in file}
    for name, (shape, _) in arrays.items():
        if len(shape) < 2:
            continue
        rows = [column for column in arrays if arrays[column].shape == shape[:1]]
        labels = [column for column in rows if arrays[column].dtype.kind in _CLASSES]
        if name == "inputs" and "targets" in arrays:  # the names of `ArrayTask`
            target = "targets"
        # Beside a column of a series, further arrays are not read.
        elif labels and labels == rows:
            target = labels[0]
        else:
            continue
        dtype, kind, program = arrays[target].dtype, "regression", "regress"
        if dtype.kind in _CLASSES:
            kind, program = "classification", "classify"
        raise ValueError(
            f"`file` must be a series, with an array (n,) for each column, got {path} "
            f"with {name} {shape} and {target} {dtype} {arrays[target].shape}, a "
            f"{kind} set; `ssm-jax new {program}` trains on one with inputs and "
            "targets."
        )


def _why(path, values):
    """Why a column is neither an input nor the time."""
    rows = np.flatnonzero(~columns.missing(values))
    if not len(rows):
        return "has no value"
    if columns.times(values) is not None:
        return "is not the time: another column is, or it does not increase"
    # The first one that makes the values until there neither numbers nor dates.
    first = bisect.bisect_left(
        range(1, len(rows)),
        True,
        key=lambda n: columns.times(values[rows[:n]]) is None,
    )
    value, place = str(values[rows[first]]), columns.place(path, rows[first])
    shown = f"{value[: columns.SHOWN]!r}{'...' * (len(value) > columns.SHOWN)}"
    return f"{shown} in {place} is not a number or an ISO 8601 date"


def _is_numeric(values):
    floats = columns.numbers(values)
    return floats is not None and not np.isnan(floats).all()


def _time(table, target):
    """The name of the column of the time, or None."""
    for place, (name, values) in enumerate(table.items()):
        times = columns.times(values)
        if times is None or name == target:
            continue
        if columns.numbers(values) is None:
            # With a date missing it is the time, too, so that the task refuses it.
            times = times[~np.isnan(times)]
        elif place:
            continue  # Any number may happen to increase.
        if len(times) > 1 and (np.diff(times) > 0).all():
            return name
    return None


def _season(times):
    """The usual period in steps of a column of dates, or None."""
    seconds = columns.times(times)
    if seconds is None or columns.numbers(times) is not None:
        return None
    # `times` counts microseconds.
    step = float(np.median(np.diff(seconds[~np.isnan(seconds)]))) / 1e6
    if _MINUTE <= step < _DAY:
        return round(_DAY / step)
    if step == _DAY:
        return 7
    return 12 if 28 * _DAY <= step <= 31 * _DAY else None
