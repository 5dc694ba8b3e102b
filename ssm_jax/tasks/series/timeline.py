"""The order of rows in time: series, sorted rows, equal times, gaps and steps."""

import itertools
import re
from typing import Literal, NamedTuple

import numpy as np

from ssm_jax.tasks.series import naming
from ssm_jax.tasks.series.columns import Table
from ssm_jax.tasks.series.dates import SECOND
from ssm_jax.tasks.series.naming import Group

Order = Literal["error", "sort"]
"""What is done with rows that are not in the order of time."""

Duplicates = Literal["error", "first", "last", "mean"]
"""What is done with rows of one time."""

_UNITS = {"s": 1, "min": 60, "h": 3_600, "D": 86_400, "W": 7 * 86_400}
_MONTHS = {"M": 1, "Q": 3, "Y": 12}
_STEP = re.compile(r"((?:\d+(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?)?\s*(s|min|h|D|W|M|Q|Y)?")
_MAX_INSERTED = 100  # steps for each row
_DAY, _WEEK = 86_400 * SECOND, 7 * 86_400 * SECOND
_EPOCH_MONDAY = 4  # 1970-01-05 was a Monday.


class Step(NamedTuple):
    """A distance in time.

    Attributes:
      size: Microseconds, or units of a column of numbers; 0 of calendar months.
      months: Number of calendar months; 0 of other steps.
    """

    size: float
    months: int = 0


class Timeline(NamedTuple):
    """The rows of a file as steps of one or several series, one after another.

    Attributes:
      names: Names of the ``g`` series; ``("",)`` of a file of one.
      bounds: Where each series starts and the last one ends, ``(g + 1,)``.
      times: float64, ``(n,)``, the time of each step; None without a column of it.
      is_date: Whether ``times`` are microseconds since 1970.
      source: The step that each row of the file belongs to, -1 of one that is left out,
        ``(r,)``.
      notes: What a careful reader would want to know.
      is_utc: Whether ``times`` are of UTC, as dates with offsets are.
    """

    names: tuple[str, ...]
    bounds: np.ndarray
    times: np.ndarray | None
    is_date: bool
    source: np.ndarray
    notes: tuple[str, ...] = ()
    is_utc: bool = False

    def spans(self) -> list[tuple[int, int]]:
        """Returns where each series starts and ends."""
        return list(itertools.pairwise(self.bounds.tolist()))

    def until(self, observed: np.ndarray) -> "Timeline":
        """Returns the steps of each series up to the last that is observed.

        Args:
          observed: bool, ``(n,)``.

        Returns:
          A timeline with all series, also one of which no step is observed; of rows of
          later steps ``source`` is -1.
        """
        kept = np.zeros(len(observed), bool)
        for start, end in self.spans():
            seen = np.flatnonzero(observed[start:end])
            kept[start : start + (seen[-1] + 1 if seen.size else 0)] = True
        counts = np.concatenate([[0], np.cumsum(kept)])
        # The last entry of the steps is that of rows which are left out, -1.
        moved = np.where(np.append(kept, False), np.append(counts[:-1], -1), -1)
        return self._replace(
            bounds=counts[self.bounds],
            times=None if self.times is None else self.times[kept],
            source=moved[self.source],
        )

    def intervals(self) -> np.ndarray:
        """Returns the time since the step before, ``(n,)``, NaN at the first ones."""
        assert self.times is not None
        intervals = np.diff(self.times, prepend=np.nan)
        # Series without a step start where the next one does, or at the end.
        firsts = self.bounds[:-1]
        intervals[firsts[firsts < len(intervals)]] = np.nan
        return intervals

    def average(self, values: np.ndarray) -> np.ndarray:
        """Returns the mean of the rows of each step that have a value, NaN without one.

        Args:
          values: float64 by rows of the file, ``(r,)``.

        Returns:
          float64, ``(n,)``.
        """
        n, rows = int(self.bounds[-1]), (self.source >= 0) & ~np.isnan(values)
        at, counted = self.source[rows], np.zeros(n)
        np.add.at(counted, at, 1.0)
        # Divided before they are added: two large numbers would overflow.
        means = np.zeros(n)
        np.add.at(means, at, values[rows] / counted[at])
        return np.where(counted > 0, means, np.nan)

    def last(self, values: np.ndarray, missing: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns the last value of the rows of each step, and where there is one.

        Args:
          values: Integers by rows of the file, ``(r,)``.
          missing: Where they are missing, bool, ``(r,)``.
        """
        n, rows = int(self.bounds[-1]), (self.source >= 0) & ~missing
        found, observed = np.zeros(n, values.dtype), np.zeros(n, bool)
        found[self.source[rows]] = values[rows]
        observed[self.source[rows]] = True
        return found, observed


def parse_step(text: str) -> Step:
    """Reads a step such as ``15min``, ``1h``, ``1D``, ``1W``, ``1M``, ``1Q`` or ``1Y``.

    A number alone is in the units of a column of numbers.

    Raises:
      ValueError: It is none.

    Example:
      >>> parse_step("15min").size / SECOND, parse_step("Q").months
      (900.0, 3)
    """
    match = _STEP.fullmatch(text.strip())
    number = float(match[1] or 1) if match and match[0] else 0.0
    unit = match[2] if match else None
    if not number or (unit in _MONTHS and number != int(number)):
        raise ValueError(
            f"`step` must be a number and a unit of s, min, h, D, W, M, Q or Y, got "
            f"{text!r}; '15min' and '1D' are two."
        )
    if unit in _MONTHS:
        return Step(0.0, int(number) * _MONTHS[unit])
    return Step(number * (_UNITS[unit] * SECOND if unit else 1.0))


def arrange(
    table: Table,
    *,
    time: str | tuple[str, ...] | None,
    group: Group,
    order: Order,
    duplicates: Duplicates,
    step: str | None,
) -> Timeline:
    """Returns the order of the rows of a table.

    Args:
      table: The table.
      time: The column, or columns, of the time; see `Table.times`. None means that the
        rows are in the order of time.
      group: The column, or columns, of the name of the series.
      order: What is done with rows that are not in the order of time.
      duplicates: What is done with rows of one time in one series.
      step: The distance of steps; rows within one step are averaged, and steps without
        a row are inserted, where all columns are missing. None means that each row is a
        step.

    Raises:
      ValueError: A time is missing or none, a name of a series is missing, rows are not
        in order or have equal times and that is not allowed, or there is no time for a
        step.
    """
    codes, names = series_of_rows(table, group)
    if time is None:
        if step is not None:
            raise ValueError(
                f"`step` must be None without `time`, got {step!r}; name the column of "
                "the time."
            )
        rows = np.argsort(codes, kind="stable")
        return _timeline(names, codes[rows], None, True, rows, len(codes), ())
    times = _times(table, time, group)
    values = times.values
    assert values is not None  # `_times` refuses other columns.
    rows = np.argsort(codes, kind="stable")
    notes = [times.note] if times.note else []
    falls = (np.diff(values[rows]) < 0) & (np.diff(codes[rows]) == 0)
    if falls.any():
        if order == "error":
            _refuse_order(table, time, rows, int(np.argmax(falls)))
        rows = np.lexsort((values, codes))
        notes.append(f"sorted by time, since {_rows(falls)} before the row above")
    same = (np.diff(values[rows]) == 0) & (np.diff(codes[rows]) == 0)
    kept, source = rows, None
    if same.any():
        if duplicates == "error":
            has_group = group is not None
            _refuse_duplicates(table, time, times, rows, same, has_group=has_group)
        which = "their mean is" if duplicates == "mean" else f"the {duplicates} is"
        notes.append(f"{which} kept, where {_rows(same)} at the time of another")
        # Positions of the steps, of which equal times have one.
        at = np.concatenate([[0], np.cumsum(~same)])
        firsts = np.concatenate([[True], ~same])
        lasts = np.concatenate([~same, [True]])
        source = np.full(len(rows), -1)
        chosen = {"first": firsts, "last": lasts, "mean": np.ones(len(rows), bool)}
        source[rows[chosen[duplicates]]] = at[chosen[duplicates]]
        kept = rows[firsts]
    of_rows = names, codes[kept], values[kept], times.is_date
    if step is None:
        found = _timeline(*of_rows, kept, len(codes), notes, source)
        return found._replace(is_utc=times.is_utc)
    if source is None:
        source = np.full(len(rows), -1)
        source[rows] = np.arange(len(rows))
    found = _resample(*of_rows, source, parse_step(step), notes)
    return found._replace(is_utc=times.is_utc)


def series_of_rows(table: Table, group: Group) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns the index of the series of each row, ``(r,)``, and their names.

    Args:
      table: The table.
      group: The column, or columns, of the name of the series.

    Returns:
      Series in the order of their first rows, with names as of
      `ssm_jax.tasks.series.naming.join`; ``("",)`` of a file of one.

    Raises:
      ValueError: There is no such column, or a row has no name.
    """
    n = len(table[next(iter(table))])
    codes, words = np.zeros(n, int), []
    for column in naming.columns(group):
        words.append(np.char.strip(table.column(column, "group").astype(str)))
        empty = words[-1] == ""
        if empty.any():
            row = int(np.argmax(empty))
            raise ValueError(
                "`group` must have a name in each row, got "
                f"{table.shown(column, row)}; fill it in, or remove the row."
            )
        known, own = np.unique(words[-1], return_inverse=True)
        # Counted anew after each column, so that the numbers stay small.
        codes = np.unique(codes * len(known) + own, return_inverse=True)[1]
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    # In the order of the file.
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    names = zip(*(column[first[order]].tolist() for column in words), strict=True)
    found = tuple(naming.join(row, group) for row in names)
    return rank[codes], found or ("",)


def usual_step(timeline: Timeline) -> str | None:
    """Returns the most frequent distance of two times of one series, as a step.

    Returns:
      Text that `parse_step` reads; None without a time, or for fewer than two.
    """
    times, is_date = timeline.times, timeline.is_date
    if times is None:
        return None
    inner = np.ones(max(len(times) - 1, 0), bool)
    # Series without a step have no border.
    ends = np.unique(timeline.bounds)[1:-1]
    inner[ends - 1] = False
    distances = np.diff(times)[inner]
    distances = distances[distances > 0]
    if not distances.size:
        return None
    if not is_date:
        found, counts = np.unique(distances, return_counts=True)
        return f"{found[np.argmax(counts)]:.12g}"
    if (months := _in_months(times, distances, inner)) is not None:
        unit = {12: "Y", 3: "Q"}.get(months, "M")
        return f"{months // _MONTHS[unit]}{unit}"
    found, counts = np.unique(distances, return_counts=True)
    seconds = float(found[np.argmax(counts)]) / SECOND
    for unit in ("W", "D", "h", "min"):
        if seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:.12g}{unit}"
    return f"{seconds:.12g}s"


def count_irregular(timeline: Timeline, step: str) -> tuple[int, int]:
    """Returns how many steps are longer than usual, and how many fall off its grid.

    Args:
      timeline: With times.
      step: The usual step.
    """
    gaps = others = 0
    for start, end in timeline.spans():
        assert timeline.times is not None
        if start == end:
            continue
        places = _places(timeline.times[start:end], parse_step(step), timeline.is_date)
        distances = np.diff(places)
        whole = np.abs(distances - np.round(distances)) < 1e-6
        others += int((~whole | (np.round(distances) < 1)).sum())
        gaps += int((whole & (np.round(distances) > 1)).sum())
    return gaps, others


def describe_steps(timeline: Timeline, *, irregular: bool = False) -> list[str]:
    """Returns notes on dates that are not evenly spaced, none if they are.

    Args:
      timeline: With dates.
      irregular: Whether a model is given the distances of steps.
    """
    assert timeline.times is not None
    step = usual_step(timeline)
    if step is None:
        return []
    gaps, others = count_irregular(timeline, step)
    if gaps and not others and are_business_days(timeline, step):
        return ["rows are of business days"]
    n = len(timeline.times) - 1
    way_out = (
        "`step` of the task makes them equal, `irregular` gives the model the gaps"
    )
    if irregular:
        way_out = "the model is given the gaps"
    if others > n / 10:
        distance = np.median(np.diff(timeline.times)) / SECOND
        return [f"steps are irregular, with a median of {distance:,.0f} s; {way_out}"]
    if not gaps and not others:
        return []
    return [
        f"of {n:,} steps, {gaps:,} are longer than {step} by whole steps, and "
        f"{others:,} differ otherwise; {way_out}"
    ]


def are_business_days(timeline: Timeline, step: str | None) -> bool:
    """Whether steps are of days without weekends."""
    assert timeline.times is not None
    # 1970 began on a Thursday.
    weekdays = np.floor(timeline.times / _DAY).astype(int) % 7
    return step == "1D" and not np.isin(weekdays, (2, 3)).any()


def following(
    timeline: Timeline, series: int, n: int, step: str | None
) -> np.ndarray | None:
    """Returns the times of the steps after the last one of a series.

    Steps of months keep the day of the month, or its end. Where steps are left out, as
    on weekends or at night, the days of the week and the times of day are those that
    occur.

    Args:
      timeline: With times.
      series: Index of the series.
      n: Number of steps.
      step: The distance of steps. None means the usual one.

    Returns:
      As ``times`` of the timeline, ``(n,)``; None if more than a tenth of the distances
      are no multiple of the usual one, or there is none.
    """
    assert timeline.times is not None
    text = step or usual_step(timeline)
    gaps, others = (0, 0) if text is None else count_irregular(timeline, text)
    if text is None or others > len(timeline.times) / 10:
        return None
    last = float(timeline.times[timeline.bounds[series + 1] - 1])
    ahead = np.arange(1, n + 1)
    found = parse_step(text)
    if found.months:
        date = np.datetime64(round(last), "us")
        month = date.astype("datetime64[M]")
        passed = date - month.astype("datetime64[us]")
        day, a_month = np.timedelta64(1, "D"), np.timedelta64(1, "M")
        months = month + (found.months * ahead).astype("timedelta64[M]")
        first = months.astype("datetime64[D]")
        lengths = (months + a_month).astype("datetime64[D]") - first
        # Of a longer month, as of the 31st of January, the end.
        is_end = date.astype("datetime64[D]") + day == month + a_month
        days = np.minimum(passed.astype("timedelta64[D]"), lengths - day)
        days = lengths - day if is_end else days
        times = (first + days).astype("datetime64[us]") + passed % day
        return times.astype("datetime64[us]").astype(np.int64).astype(np.float64)
    if not timeline.is_date or not gaps or _WEEK % found.size:
        return last + found.size * ahead
    # Rows may leave out weekends, or the hours in which a shop is closed.
    known = np.unique(timeline.times % _WEEK)
    per_week = round(_WEEK / found.size)
    steps = last + found.size * np.arange(1, per_week * (n // len(known) + 2))
    return steps[np.isin(steps % _WEEK, known)][:n]


def _rows(flags):
    n = int(flags.sum())
    return f"{n:,} row{'s are' if n > 1 else ' is'}"


def _in_months(times, distances, inner):
    """The usual number of months between times of one day of the month, or None."""
    if np.median(distances) < 27 * _DAY:
        return None
    months = np.diff(_month_index(times))[inner]
    found, counts = np.unique(months[months > 0], return_counts=True)
    return int(found[np.argmax(counts)]) if found.size else None


def _month_index(times):
    """Months since 1970 of times in microseconds, whole numbers."""
    return (
        times.astype("int64")
        .astype("datetime64[us]")
        .astype("datetime64[M]")
        .astype(int)
    )


def _times(table, time, group):
    """The times of the rows, which are all there."""
    names = (time,) if isinstance(time, str) else time
    for name in names:
        table.column(name, "time")
    times = table.times(time, group)
    name = names[0]
    if times.values is None:
        raise ValueError(
            f"`time` must be dates or numbers, got {table.shown(name, times.misfit)}."
        )
    gaps = np.isnan(times.values)
    if gaps.any():
        row = int(np.argmax(gaps))
        raise ValueError(
            f"`time` must have a value in each row, got {table.shown(name, row)}; fill "
            "it in, or remove the row."
        )
    return times


def _refuse_order(table, time, rows, place):
    name = time if isinstance(time, str) else time[-1]
    before, row = rows[place], rows[place + 1]
    raise ValueError(
        f"`time` must increase from row to row, got {table.shown(name, row)} after "
        f"{str(table[name][before])!r}; `order='sort'` sorts the rows, and `group` "
        "names the column of a file of several series."
    )


def _refuse_duplicates(table, time, times, rows, same, *, has_group):
    name, place = time if isinstance(time, str) else time[-1], int(np.argmax(same))
    got, before = table.shown(name, rows[place + 1]), table.place(rows[place])
    hint = ""
    if times.is_date and _are_clock_changes(times.values[rows][1:][same]):
        hint = "`time_zone` of the format tells the repeated hour apart; "
    of_series = " of a series" if has_group else ""
    n = int(same.sum())
    several = "`group` names the column of a file of several series"
    keeps = "`duplicates` keeps the first, the last or the mean"
    # Where most times recur the file is more likely one of several series.
    ways = [several, keeps] if n > len(same) // 2 else [keeps, several]
    way_out = keeps if has_group else ", and ".join(ways)
    raise ValueError(
        f"`time` must differ from row to row{of_series}, got {got} as in {before}, the "
        f"first of {n:,} such {'row' if n == 1 else 'rows'}; {hint}{way_out}."
    )


def _are_clock_changes(times):
    """Whether times are of the hours at which clocks are set back somewhere."""
    dates = times.astype("int64").astype("datetime64[us]")
    months = _month_index(times) % 12 + 1
    weekdays = (np.floor(times / _DAY).astype(int) - _EPOCH_MONDAY) % 7
    hours = (dates - dates.astype("datetime64[D]")) / np.timedelta64(1, "h")
    return bool((np.isin(months, (4, 9, 10, 11)) & (weekdays == 6) & (hours < 4)).all())


def _places(times, step, is_date):
    """Where times are, in steps from the first."""
    if step.months:
        return (_month_index(times) - _month_index(times[:1])) / step.months
    return (times - times[0]) / step.size


def _timeline(names, codes, times, is_date, kept, n_rows, notes, source=None):
    """A timeline whose steps are rows of the file."""
    if source is None:
        source = np.full(n_rows, -1)
        source[kept] = np.arange(len(kept))
    bounds = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(names)))])
    return Timeline(names, bounds, times, is_date, source, tuple(notes))


def _resample(names, codes, times, is_date, source, step, notes):
    """A timeline of equal steps."""
    if step.months and not is_date:
        raise ValueError(
            "`step` must be a number for a column of numbers, got one of months; leave "
            "the unit out."
        )
    new_times, target, bounds = [], np.empty(len(times), int), [0]
    for series in range(len(names)):
        rows = np.flatnonzero(codes == series)
        at, starts = _grid(times[rows], step)
        target[rows] = bounds[-1] + at
        new_times.append(starts)
        bounds.append(bounds[-1] + len(starts))
    n_filled = len(np.unique(target))
    if inserted := bounds[-1] - n_filled:
        notes.append(f"inserted {inserted:,} steps without a row, as missing")
    if merged := len(times) - n_filled:
        notes.append(f"averaged {merged:,} rows with others of their step")
    moved = np.where(source >= 0, target[source], -1)
    return Timeline(
        names, np.array(bounds), np.concatenate(new_times), is_date, moved, tuple(notes)
    )


def _grid(times, step):
    """The step of each time, and the times of all steps between the first and last."""
    if step.months:
        months = _month_index(times)
        first = months[0] - months[0] % step.months
        at = (months - first) // step.months
        starts = first + step.months * np.arange(at[-1] + 1)
        dates = starts.astype("datetime64[M]").astype("datetime64[us]")
        return at, dates.astype(np.int64).astype(np.float64)
    places = (times - times[0]) / step.size
    if places[-1] > (bound := _MAX_INSERTED * len(times)):
        raise ValueError(
            f"`step` must give at most {bound:,} steps for {len(times):,} rows, got "
            f"{places[-1]:.3g}; choose a longer one."
        )
    if np.abs(places - np.round(places)).max() < 1e-6:
        at, origin = np.round(places).astype(int), times[0]
    else:
        # On full hours and the like, counted from the epoch.
        origin = np.floor(times[0] / step.size) * step.size
        at = np.floor((times - origin) / step.size).astype(int)
    return at, origin + step.size * np.arange(at[-1] + 1)
