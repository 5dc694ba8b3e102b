"""Series with their columns normalised and their gaps filled."""

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from ssm_jax.tasks.series import columns, timeline
from ssm_jax.tasks.series.dates import SECOND
from ssm_jax.tasks.series.naming import Group
from ssm_jax.tasks.series.timeline import Timeline

# Inputs and targets are float32; a difference of two targets is twice as large.
_LARGEST = float(np.finfo(np.float32).max) / 2
_DAY = 86_400 * SECOND
_PERIODS = {"hour": _DAY, "weekday": 7 * _DAY, "year": 365.2425 * _DAY}


@dataclasses.dataclass(frozen=True, eq=False)
class Moments:
    """Means and standard deviations of the train split of ``g`` series.

    Attributes:
      names: The names of the series.
      mean: Mean of the target, ``(g,)``.
      std: Its standard deviation, ``(g,)``.
      means: Means of the inputs, ``(g, c)``.
      stds: Their standard deviations, ``(g, c)``.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    std: np.ndarray
    means: np.ndarray
    stds: np.ndarray

    def of_target(self) -> dict[str, tuple[float, float]]:
        """Returns mean and standard deviation of the target by the name of a series."""
        pairs = zip(self.mean.tolist(), self.std.tolist(), strict=True)
        return dict(zip(self.names, pairs, strict=True))

    def of_input(self, index: int) -> dict[str, tuple[float, float]]:
        """Returns those of an input."""
        means, stds = self.means[:, index].tolist(), self.stds[:, index].tolist()
        return dict(zip(self.names, zip(means, stds, strict=True), strict=True))


class Ahead(NamedTuple):
    """The steps after the last target of ``g`` series, of which columns are known.

    Attributes:
      counts: Number of steps, from the first on, in which all these columns have a
        value, ``(g,)``, at most the horizon.
      times: The times of the steps, ``(g, horizon)``, NaN beyond the file; None without
        a time.
    """

    counts: np.ndarray
    times: np.ndarray | None


class Series(NamedTuple):
    """The columns of a task, of ``g`` series one after another.

    Attributes:
      timeline: The steps of the series.
      inputs: float32, ``(n, k)``, normalised by series. Those of known columns are
        values ``horizon`` steps later, and 0 where there are none in the file.
      between: float32, ``(n, k)``, ``inputs`` with gaps filled by lines between the
        values around them; None unless the task interpolates.
      next_observed: int64, ``(n, k)``, the step at which a column is observed next,
        ``n`` after the last; None with ``between``.
      target: ``(n,)``: float64 values of the file, without gaps, or int64 indices of
        classes, 0 where they are missing.
      observed: bool, ``(n,)``, where the target is not missing.
      mean: Mean of the target over the train split, ``(g,)``; 0 for classes.
      std: Its standard deviation there, ``(g,)``; 1 for a constant and for classes.
      means: Mean of each column of the inputs over the train split, ``(g, c)``.
      stds: Their standard deviations there, ``(g, c)``.
      ahead: What follows the last targets; None without known columns.
      notes: What a careful reader would want to know of how the file was read.
    """

    timeline: Timeline
    inputs: np.ndarray
    between: np.ndarray | None
    next_observed: np.ndarray | None
    target: np.ndarray
    observed: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    means: np.ndarray
    stds: np.ndarray
    ahead: Ahead | None
    notes: tuple[str, ...]

    def of_steps(self, steps: np.ndarray) -> np.ndarray:
        """Returns the index of the series of some steps."""
        return np.searchsorted(self.timeline.bounds, steps, "right") - 1


def series(
    table: columns.Table,
    inputs: tuple[str, ...],
    target: str,
    *,
    known: tuple[str, ...],
    horizon: int,
    classes: tuple[str, ...] | None,
    time: str | tuple[str, ...] | None,
    group: Group,
    order: timeline.Order,
    duplicates: timeline.Duplicates,
    step: str | None,
    calendar: tuple[str, ...],
    missing: str,
    mark_missing: bool,
    train_fraction: float,
    irregular: bool = False,
    moments: Moments | None = None,
) -> Series:
    """Reads the columns of a table for a `SeriesTask`, whose fields the others are.

    ``moments`` are those of another file, by which the columns are normalised. A series
    that it does not name is normalised by all of its own values.
    """
    # Kept for as long as the file is the one that it was read from.
    return _series(
        table,
        inputs,
        target,
        known,
        horizon,
        classes,
        time,
        group,
        order,
        duplicates,
        step,
        calendar,
        missing,
        mark_missing,
        train_fraction,
        irregular,
        moments,
    )


@functools.lru_cache(maxsize=4)
def _series(
    table,
    inputs,
    target,
    known,
    horizon,
    classes,
    time,
    group,
    order,
    duplicates,
    step,
    calendar,
    missing,
    mark_missing,
    train_fraction,
    irregular,
    moments,
):
    # The columns first: that there is none of a name is said before it is read.
    for name in inputs:
        table.column(name, "inputs")
    words = table.column(target, "target")
    all_steps = timeline.arrange(
        table, time=time, group=group, order=order, duplicates=duplicates, step=step
    )
    # Rows after the last target are of the future, and only known columns are read.
    targets = table.numbers(target).values if known else None
    steps = all_steps
    if targets is not None:
        steps = all_steps.until(~np.isnan(all_steps.average(targets)))
    gaps = missing != "error"
    features, between, following, means, stds = [], [], [], [], []
    complete = np.ones(int(all_steps.bounds[-1]), bool)
    for name in inputs:
        stored = None if moments is None else moments.of_input(len(means))
        of_column = all_steps if name in known else steps
        values = _values(table, name, "inputs", gaps, of_column, bool(known))
        column = _fill(values, of_column, train_fraction, stored, np.diff(steps.bounds))
        observed = column.observed
        features.append(_normalize(table, name, column.filled, column, of_column))
        if name in known:
            complete &= observed
            observed = _shift(observed, all_steps, steps, horizon)
            features[-1] = _shift(features[-1], all_steps, steps, horizon)
            # All that a window shows of it is known at its end, and on no line.
            between.append(features[-1])
            following.append(np.arange(len(observed)))
        else:
            between.append(_between(values, features[-1], column, steps))
            following.append(_next_observed(observed))
        if gaps and mark_missing:
            features.append(observed)
            between.append(observed)
            following.append(np.arange(len(observed)))
        means.append(column.mean)
        stds.append(column.std)
    for values in [] if steps.times is None else phases(steps.times, calendar).T:
        features.append(values)
        between.append(values)
        following.append(np.arange(len(values)))
    n = int(steps.bounds[-1])

    def stack(arrays, dtype: Any = np.float32):
        return np.stack(arrays, -1).astype(dtype) if arrays else np.empty((n, 0), dtype)

    interpolates = missing == "interpolate"
    shared = {
        "timeline": steps,
        "inputs": stack(features),
        "between": stack(between) if interpolates else None,
        "next_observed": stack(following, np.int64) if interpolates else None,
        "means": np.stack(means, -1),
        "stds": np.stack(stds, -1),
        "ahead": _ahead(complete, all_steps, steps, horizon) if known else None,
        "notes": _notes(table, steps, inputs, target, irregular),
    }
    for note in shared["notes"]:
        logging.info("%s: %s", table.path, note)
    if classes is None:
        values = _values(table, target, "target", gaps, steps, bool(known))
        if np.isnan(values).all():
            raise ValueError(
                f"`target` must have values, got {target!r} of {table.path}, of which "
                f"all {len(values):,} are missing; fill it in."
            )
        stored = None if moments is None else moments.of_target()
        column = _fill(values, steps, train_fraction, stored, np.diff(steps.bounds))
        _normalize(table, target, column.filled, column, steps)
        return Series(
            target=column.filled,
            observed=column.observed,
            mean=column.mean,
            std=column.std,
            **shared,
        )
    empty = columns.missing(words) & ~np.isin(np.char.strip(words.astype(str)), classes)
    if not gaps:
        _check_missing(table, target, ~empty)
    labels, observed = steps.last(_indices(table, target, classes, ~empty), empty)
    zero, one = np.zeros(len(steps.names)), np.ones(len(steps.names))
    return Series(target=labels, observed=observed, mean=zero, std=one, **shared)


def phases(times: np.ndarray, names: tuple[str, ...], harmonics: int = 1) -> np.ndarray:
    """Returns sines and cosines of the phase of the day, the week and the year.

    Args:
      times: Times of a `Timeline`, ``(n,)``.
      names: Of ``"hour"``, ``"weekday"`` and ``"year"``.
      harmonics: Number of multiples of each frequency.

    Returns:
      ``(n, 2 * harmonics * len(names))``.
    """
    waves = [np.empty((len(times), 0))]
    for name in names:
        phase = 2 * np.pi * (times % _PERIODS[name]) / _PERIODS[name]
        for k in range(1, harmonics + 1):
            waves.append(np.stack([np.sin(k * phase), np.cos(k * phase)], -1))
    return np.hstack(waves)


def part(n: int, fraction: float) -> int:
    """Returns a fraction of ``n`` rows, rounded down.

    Example:
      >>> part(10, 0.7 + 0.1)
      8
    """
    # Rounded first, as 0.7 + 0.1 is less than 0.8.
    return int(round(fraction * n, 6))


class _Column(NamedTuple):
    filled: np.ndarray  # (n,) without gaps
    observed: np.ndarray  # (n,)
    mean: np.ndarray  # (g,)
    std: np.ndarray  # (g,)


def _values(table, name, field, gaps, steps, has_future):
    """A column as float64 by steps, NaN where it is missing."""
    read = table.numbers(name)
    if read.values is None:
        raise ValueError(
            f"`{field}` must be columns of numbers up to {_LARGEST:.3g}, got "
            f"{table.shown(name, read.misfit)}."
        )
    too_large = np.abs(read.values) > _LARGEST
    if too_large.any():
        row = int(np.argmax(too_large))
        raise ValueError(
            f"`{field}` must be columns of numbers up to {_LARGEST:.3g}, got "
            f"{table.shown(name, row)}; correct it, or leave the column out."
        )
    if not gaps:
        # Rows of the future have no target, nor what is not known of it.
        is_read = steps.source >= 0 if has_future else np.ones(len(read.values), bool)
        _check_missing(table, name, ~np.isnan(read.values) | ~is_read)
    values = steps.average(read.values)
    if not gaps and np.isnan(values).any():
        raise ValueError(
            "`missing` must be 'last' or 'interpolate' where `step` inserts steps, got "
            f"'error' with {int(np.isnan(values).sum()):,} steps without a row in "
            f"{table.path}; 'last' repeats the last value and marks it."
        )
    return values


def _normalize(table, name, values, column, steps):
    """A column of mean 0 and deviation 1 in the train split, all of it finite."""
    sizes = np.diff(steps.bounds)
    mean, std = np.repeat(column.mean, sizes), np.repeat(column.std, sizes)
    normalized = (values - mean) / std
    too_large = np.abs(normalized) > _LARGEST
    if too_large.any():
        at = int(np.argmax(too_large))
        row = int(np.argmax(steps.source == at))
        raise ValueError(
            f"`{name}` must be finite in float32 after it is normalised by the train "
            f"split (mean {mean[at]:g}, deviation {std[at]:g}), got {values[at]:g} in "
            f"{table.place(row)} of {table.path}; correct it, or leave the column out."
        )
    return normalized


def _fill(values, steps, train_fraction, known, lengths):
    """Values without gaps, where they are observed, and the moments of train.

    ``lengths`` are those of the series up to their last targets.
    """
    observed = ~np.isnan(values)
    filled, means, stds = np.empty_like(values), [], []
    spans = zip(steps.names, steps.spans(), lengths.tolist(), strict=True)
    for name, (start, end), length in spans:
        one, seen = values[start:end], observed[start:end]
        # All rows of a series are new to a model that was trained on others.
        n_train = part(length, 1.0 if known else train_fraction)
        train_values = one[:n_train][seen[:n_train]]
        mean, std = _moments(train_values) if train_values.size else (0.0, 1.0)
        mean, std = (known or {}).get(name, (mean, std))
        # The step of the last observed value, -1 before the first.
        last = np.maximum.accumulate(np.where(seen, np.arange(len(one)), -1))
        filled[start:end] = np.where(last >= 0, one[last], mean)
        means.append(mean)
        # The deviation of a constant is rounding, which would become noise of size 1.
        stds.append(std if std > 1e-9 * abs(mean) else 1.0)
    return _Column(filled, observed, np.array(means), np.array(stds))


def _shift(values, all_steps, steps, horizon):
    """Values ``horizon`` steps later, by ``steps``; 0 where there are none."""
    shifted = np.zeros(int(steps.bounds[-1]), values.dtype)
    spans = zip(all_steps.spans(), steps.spans(), strict=True)
    for (first, last), (start, end) in spans:
        later = values[first + horizon : last][: end - start]
        shifted[start : start + len(later)] = later
    return shifted


def _ahead(complete, all_steps, steps, horizon):
    """What follows the last targets, where all known columns have a value or not."""
    counts, times = [], np.full((len(steps.names), horizon), np.nan)
    spans = zip(all_steps.spans(), np.diff(steps.bounds).tolist(), strict=True)
    for index, ((first, last), length) in enumerate(spans):
        known = complete[first + length : last][:horizon]
        counts.append(len(known) if known.all() else int(np.argmin(known)))
        if all_steps.times is not None:
            later = all_steps.times[first + length : last][:horizon]
            times[index, : len(later)] = later
    return Ahead(np.array(counts), None if all_steps.times is None else times)


def _next_observed(observed):
    """The step at which a column is observed next, ``n`` after the last."""
    n = len(observed)
    places = np.where(observed, np.arange(n), n)
    return np.minimum.accumulate(places[::-1])[::-1]


def _between(values, normalized, column, steps):
    """A normalised column whose gaps are filled by lines between observed values."""
    result, times = normalized.copy(), steps.times
    at = np.arange(len(values), dtype=np.float64) if times is None else times
    for start, end in steps.spans():
        seen = start + np.flatnonzero(column.observed[start:end])
        if len(seen) > 1:
            inner = slice(seen[0], seen[-1] + 1)
            result[inner] = np.interp(at[inner], at[seen], normalized[seen])
    return result


def _moments(values):
    """The mean and the standard deviation of some numbers."""
    # A power of 2, which changes no digit: squares of tiny numbers would underflow.
    scale = np.ldexp(1.0, np.frexp(np.abs(values).max())[1])
    return float(values.mean()), float((values / scale).std() * scale)


def _indices(table, target, classes, observed):
    names = np.char.strip(table[target].astype(str))
    known = np.isin(names, classes) | ~observed
    if not known.all():
        raise ValueError(
            f"`classes` must have all values of {target!r}, got "
            f"{table.shown(target, int(np.argmin(known)))}; add it."
        )
    return np.argmax(names[:, None] == np.array(classes), -1)


def _check_missing(table, name, observed):
    if not observed.all():
        raise ValueError(
            f"`missing` must be 'last' or 'interpolate' for a column with gaps, got "
            f"'error' with {np.sum(~observed)} missing values in {name!r}, first in "
            f"{table.place(np.argmin(observed))} of {table.path}; 'last' repeats the "
            "last value and marks it."
        )


def _notes(table, steps, inputs, target, irregular):
    """What was found in the file, in its columns and in its times."""
    notes = [*table.notes]
    for name in dict.fromkeys([*inputs, target]):
        if note := table.numbers(name).note:
            notes.append(f"of {name!r}, {note}")
    notes += steps.notes
    if steps.times is not None and steps.is_date:
        notes += timeline.describe_steps(steps, irregular=irregular)
    return tuple(notes)
