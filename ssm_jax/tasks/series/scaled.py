"""A series with its columns normalised and its gaps filled."""

import functools
from typing import NamedTuple

import numpy as np

from ssm_jax.tasks.series import columns

# Inputs and targets are float32; a difference of two targets is twice as large.
_LARGEST = float(np.finfo(np.float32).max) / 2


class Series(NamedTuple):
    """The columns of a task.

    Attributes:
      inputs: float32, ``(n, k)``, normalised.
      target: ``(n,)``: float64 values of the file, without gaps, or int64 indices of
        classes, 0 where they are missing.
      observed: bool, ``(n,)``, where the target is not missing.
      mean: Mean of the target over the train split; 0 for classes.
      std: Its standard deviation there; 1 for a constant and for classes.
      means: Mean of each column of the inputs over the train split.
      stds: Their standard deviations there.
    """

    inputs: np.ndarray
    target: np.ndarray
    observed: np.ndarray
    mean: float
    std: float
    means: tuple[float, ...]
    stds: tuple[float, ...]


@functools.lru_cache(maxsize=4)
def series(
    path: str,
    inputs: tuple[str, ...],
    target: str,
    *,
    classes: tuple[str, ...] | None,
    time: str | None,
    missing: str,
    train_fraction: float,
) -> Series:
    """Reads the columns of a `SeriesTask`, whose fields the arguments are."""
    if time is not None:
        _check_order(path, time)
    gaps = missing == "last"
    n_train = part(len(columns.column(path, target, "target")), train_fraction)
    features, means, stds = [], [], []
    for name in inputs:
        values = _values(path, name, "inputs", gaps)
        filled, observed, mean, std = _fill(values, n_train)
        features.append(_normalize(path, name, filled, mean, std))
        means, stds = [*means, mean], [*stds, std]
        features += [observed] if gaps else []
    x = np.stack(features, -1).astype(np.float32)
    moments = tuple(means), tuple(stds)
    if classes is None:
        values = _values(path, target, "target", gaps)
        filled, observed, mean, std = _fill(values, n_train)
        _normalize(path, target, filled, mean, std)
        return Series(x, filled, observed, mean, std, *moments)
    words = columns.column(path, target, "target")
    observed = ~columns.missing(words)
    _check_missing(path, target, observed, gaps)
    indices = _indices(path, target, classes, observed)
    return Series(x, indices, observed, 0.0, 1.0, *moments)


def part(n: int, fraction: float) -> int:
    """Returns a fraction of ``n`` rows, rounded down.

    Example:
      >>> part(10, 0.7 + 0.1)
      8
    """
    # Rounded first, as 0.7 + 0.1 is less than 0.8.
    return int(round(fraction * n, 6))


def _values(path, name, field, gaps):
    """A column as float64, NaN where it is missing."""
    words = columns.column(path, name, field)
    values = columns.numbers(words)
    if values is None or (np.abs(values) > _LARGEST).any():
        row = _first_bad(words, values)
        raise ValueError(
            f"`{field}` must be columns of numbers up to {_LARGEST:.3g}, got "
            f"{str(words[row])!r} of {name!r} in {columns.place(path, row)} of {path}; "
            "correct it, or leave the column out."
        )
    _check_missing(path, name, ~np.isnan(values), gaps)
    return values


def _first_bad(words, values):
    """The row of the first value that is no number, or too large."""
    if values is not None:
        return int(np.argmax(np.abs(values) > _LARGEST))
    return next(
        row
        for row in range(len(words))
        if columns.numbers(words[row : row + 1]) is None
    )


def _normalize(path, name, values, mean, std):
    """A column of mean 0 and deviation 1 in the train split, all of it finite."""
    normalized = (values - mean) / std
    too_large = np.abs(normalized) > _LARGEST
    if too_large.any():
        row = int(np.argmax(too_large))
        raise ValueError(
            f"`{name}` must be finite in float32 after it is normalised by the train "
            f"split (mean {mean:g}, deviation {std:g}), got {values[row]:g} in "
            f"{columns.place(path, row)} of {path}; correct it, or leave the column "
            "out."
        )
    return normalized


def _fill(values, n_train):
    """Values without gaps, where they are observed, and the mean and std of train."""
    observed = ~np.isnan(values)
    train_values = values[:n_train][observed[:n_train]]
    mean, std = _moments(train_values) if train_values.size else (0.0, 1.0)
    # The row of the last observed value, -1 before the first.
    last = np.maximum.accumulate(np.where(observed, np.arange(len(values)), -1))
    filled = np.where(last >= 0, values[last], mean)
    # The deviation of a constant is rounding, which would become noise of size 1.
    return filled, observed, mean, std if std > 1e-9 * abs(mean) else 1.0


def _moments(values):
    """The mean and the standard deviation of some numbers."""
    # A power of 2, which changes no digit: squares of tiny numbers would underflow.
    scale = np.ldexp(1.0, np.frexp(np.abs(values).max())[1])
    return float(values.mean()), float((values / scale).std() * scale)


def _indices(path, target, classes, observed):
    names = np.char.strip(columns.column(path, target, "target").astype(str))
    known = np.isin(names, classes) | ~observed
    if not known.all():
        raise ValueError(
            f"`classes` must have all values of {target!r}, got "
            f"{str(names[~known][0])!r} in {columns.place(path, np.argmin(known))} of "
            f"{path}; add it."
        )
    return np.argmax(names[:, None] == np.array(classes), -1)


def _check_missing(path, name, observed, gaps):
    if not gaps and not observed.all():
        raise ValueError(
            f"`missing` must be 'last' for a column with gaps, got 'error' with "
            f"{np.sum(~observed)} missing values in {name!r}, first in "
            f"{columns.place(path, np.argmin(observed))} of {path}; 'last' repeats the "
            "last value and marks it."
        )


def _check_order(path, name):
    times = columns.column(path, name, "time")
    timestamps = columns.times(times)
    if timestamps is None:
        raise ValueError(
            f"`time` must be a column of numbers or ISO 8601 dates, got {name!r} with "
            f"{str(times[0])!r} in {path}; None leaves the order unchecked."
        )
    if np.isnan(timestamps).any():
        row = int(np.argmax(np.isnan(timestamps)))
        raise ValueError(
            f"`time` must have a value in each row, got {str(times[row])!r} of "
            f"{name!r} in {columns.place(path, row)} of {path}; fill it in, or remove "
            "the row."
        )
    increases = np.diff(timestamps) > 0
    if not increases.all():
        row = int(np.argmin(increases)) + 1
        raise ValueError(
            f"`time` must increase from row to row, got {times[row]} after "
            f"{times[row - 1]} in {columns.place(path, row)} of {path}; sort the file."
        )
