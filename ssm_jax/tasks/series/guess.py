"""Guesses the columns and the sizes of a forecast from a file."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from ssm_jax.tasks import user_files
from ssm_jax.tasks.series import columns, dates, naming, timeline
from ssm_jax.tasks.series.columns import Table
from ssm_jax.tasks.series.csv_rows import SHOWN
from ssm_jax.tasks.series.naming import Group
from ssm_jax.tasks.series.table_format import TableFormat

CALENDAR = ("year", "month", "week", "weekday", "day", "hour", "minute", "second")
"""Names of columns that are no target unless they are asked for."""

_TARGET_NAMES = (
    "target", "y", "value", "values", "close", "sales", "demand", "load", "count", "ot"
)  # fmt: skip
"""Names that say that a column is the target, of which only one may be there."""

_TIME_NAMES = ("time", "date", "datum", "fecha", "data", "stamp", "day", "epoch", "ts")
_DAY = 86_400.0
_MIN_ROWS = 80
_LONGEST = 512  # Steps of a window of several periods; it is read at every step.
_CLASSES = "biuSU"  # Kinds of dtypes of labels.
_SENTINELS = (-99999, -9999, -999, -99, 9999, 99999)
# Of a column of dates, the part that must be dates for the others to be errors.
_MOST = 0.8
_FEW = 0.05  # Part of the steps that may be without a row for a guess of `step`.
_FEW_MISTAKES = 0.01  # Part of the rows that may repeat a time of their series.
_SHOWN = 10  # columns in an error
_PAIRED = 10  # columns of which two together may name the series
_ROWS_OF_PAIR = 5  # at least, of a series that two columns name


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the user states, and what the file shows otherwise.

    Attributes:
      target: Column to forecast, which is then not the time. None means the only
        column of numbers that is neither the time nor one of `CALENDAR`, or of several
        the only one whose name says it, such as ``value`` or ``sales``. Of yes and no,
        or 0 and 1, it is only where there is no other.
      season: Period in steps. None means a day for steps below a day, a week for steps
        of a day, a year for steps of a month or a quarter; without dates a day if there
        is a column ``hour`` whose first value recurs, and none otherwise.
      time: Column of the time.
      group: Column of the name of the series, or several with commas between them.
      known: Columns that are known in the future, or their names with commas between
        them. Rows after the last target, without one, are then of the future.
      order: As of a `SeriesTask`; None sorts rows that are not in order.
      duplicates: As of a `SeriesTask`; None means the first where rows are equal in all
        columns, and an error otherwise.
      step: As of a `SeriesTask`; None means the usual step, if the times lie on its
        grid and some are missing.
      irregular: As of a `SeriesTask`; rows are then no steps of a grid.
    """

    target: str | None = None
    season: int | None = None
    time: str | None = None
    group: Group = None
    known: str | tuple[str, ...] = ()
    order: timeline.Order | None = None
    duplicates: timeline.Duplicates | None = None
    step: str | None = None
    irregular: bool = False


def guess(
    path: str, *, format: TableFormat | None = None, **stated: Any
) -> dict[str, Any]:
    """Returns fields of a `SeriesTask` that forecasts a column of a file.

    Args:
      path: The file; see `ssm_jax.tasks.series.columns.read`.
      format: How it is written.
      **stated: Fields of `Choices`.

    Returns:
      ``target``; ``time``, a column of dates, columns of a calendar, or a first column
      of numbers that increases and does not count the rows; ``inputs``, all columns of
      numbers except these and the year; ``season``; ``horizon``, one period, or 24
      steps, and ``window``, up to seven periods, both fewer for a short file; and
      ``missing``. Also ``group``, ``order``, ``duplicates``, ``step`` and ``calendar``
      where the file needs them, and ``known`` and ``irregular`` where they are stated.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: The file is no table, holds sequences with their classes or targets
        instead of a series, is too short, or has no column to forecast, or several; a
        value among dates is none; rows have equal times; or ``target`` is not a column
        of numbers.
    """
    _check_is_series(path)
    choices, format = Choices(**stated), format or TableFormat()
    table = columns.read(path, format)
    time = choices.time or _time(table, choices.target)
    if time is not None:
        for name in (time,) if isinstance(time, str) else time:
            table.column(name, "time")
    used = {time} if isinstance(time, str) else set(time or ())
    group = _stated_group(table, choices.group)
    group = group or _group(table, time, choices.target)
    of_group = {*naming.columns(group)}
    numeric = [
        name
        for name in table
        if name not in used | of_group
        and _is_numeric(table, name)
        and name.lower() != "year"
        and (name == choices.target or not _counts_rows(table, name))
    ]
    target = _target(table, numeric, choices.target, time)
    found = _timeline_fields(table, time, group, choices)
    known = _known(table, numeric, target, choices.known)
    all_steps = steps = _arrange(table, time, group, found)
    if known:
        found["known"] = known
        steps = all_steps.until(~np.isnan(all_steps.average(_values(table, target))))
    # Half of the series are at least as long.
    n = int(np.median(np.diff(steps.bounds)))
    if n < _MIN_ROWS:
        each = "" if group is None else f" of most series of {group!r}"
        raise ValueError(
            f"`file` must have at least {_MIN_ROWS} rows{each} for a forecast, got {n} "
            f"in {path}; a tenth of them is for validation."
        )
    season = choices.season
    if season is None:
        season = _season(table, steps)
    # The validation split, a tenth of the rows, holds several horizons.
    horizon = max(1, min(season or 24, n // 30))
    window = _window(n, season)
    inputs = tuple(dict.fromkeys([target, *numeric]))
    averages = (
        (all_steps if name in known else steps).average(_values(table, name))
        for name in inputs
    )
    has_gaps = any(np.isnan(values).any() for values in averages)
    fields = {
        "time": time,
        "target": target,
        "inputs": inputs,
        "missing": "last" if has_gaps else "error",
        "window": window,
        "horizon": horizon,
        # A window holds a period, or the baseline is left out.
        "season": season if season is not None and season <= window else None,
    }
    if choices.season is not None and fields["season"] is None:
        raise ValueError(
            f"`season` must be at most {window}, the longest window for the {n:,} rows "
            f"of {path}, got {choices.season}; leave it out, or add rows."
        )
    return fields | found


def unread(
    path: str, guesses: Mapping[str, Any], format: TableFormat | None = None
) -> dict[str, str]:
    """Returns the columns that a guess does not read, except the year.

    Args:
      path: The file.
      guesses: The result of `guess`.
      format: How the file is written.

    Returns:
      Why a column is not read, by its name.
    """
    table, time = columns.read(path, format or TableFormat()), guesses["time"]
    known = {*guesses["inputs"], *naming.columns(guesses.get("group"))}
    known |= {time} if isinstance(time, str) or time is None else set(time)
    why = {
        name: _why(table, name)
        for name in table
        if name not in known and name.lower() != "year"
    }
    return why | {name: f"is of {kind}" for name, kind in table.others.items()}


def suspects(
    path: str, guesses: Mapping[str, Any], format: TableFormat | None = None
) -> dict[str, str]:
    """Returns what may be meant otherwise than it is read.

    These are inputs with a number that may stand for a missing one, such as -999, and
    files that are series of their own and may be parts of one.

    Args:
      path: The file.
      guesses: The result of `guess`.
      format: How the file is written.

    Returns:
      What is suspected of a column, by its name.
    """
    table, found = columns.read(path, format or TableFormat()), {}
    for name in guesses["inputs"]:
        values = _values(table, name)
        values = values[~np.isnan(values)]
        for sentinel in _SENTINELS:
            others = values[values != sentinel]
            count = len(values) - len(others)
            if not count or len(others) < 2:
                continue
            # Beyond all others by more than their whole range.
            low, high = others.min(), others.max()
            if min(abs(sentinel - low), abs(sentinel - high)) > max(high - low, 10):
                found[name] = (
                    f"{sentinel} occurs {count:,} times and may stand for a missing "
                    "value, which `missing` of the format states"
                )
    if len(table.parts) > 1 and guesses.get("group") == table.file_column:
        if _follow(table, guesses["time"]):
            found[columns.FILE] = (
                "each file is a series, and no two share a time: GROUP = None makes "
                "them one"
            )
    return found


def _follow(table, time):
    """Whether the times of each file are after those of the file before."""
    if time is None:
        return False
    times = [part.times(time).values for part in table.parts]
    pairs = zip(times, times[1:], strict=False)
    return all(np.nanmax(one) < np.nanmin(other) for one, other in pairs)


def _check_is_series(path):
    """Refuses the arrays of a set of sequences, whose targets have no order in time."""
    # Of several, one shows what they are.
    path = str(next(iter(columns.files(path).values())))
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


def _time(table: Table, target: str | None) -> str | tuple[str, ...] | None:
    """The column of the time, the columns of a calendar, or None."""
    dated, ordered = [], []
    for place, name in enumerate(table):
        if name == target:
            continue
        times = table.times(name)
        if times.values is None:
            continue
        known = times.values[~np.isnan(times.values)]
        increases = len(known) > 1 and all(
            _increases(part.times(name).values) for part in table.parts
        )
        if times.is_date and len(known) > 1:
            # Numbers may look like dates.
            named = any(part in name.lower() for part in _TIME_NAMES)
            if place == 0 or named or table.numbers(name).values is None:
                dated.append(name)
                ordered += [name] if increases else []
        # Any number may happen to increase.
        elif place == 0 and increases and not _counts_rows(table, name):
            ordered.append(name)
    if ordered:
        return ordered[0]
    # Dates without times, beside a column of times of the day.
    if dated and (joined := _date_and_time(table, dated[0])) is not None:
        return joined
    found = dated[0] if dated else _calendar(table, target)
    if found is None:
        _check_dates(table, target)
    return found


def _increases(values):
    known = values[~np.isnan(values)]
    # Compared, as differences of large numbers overflow.
    return bool((known[1:] > known[:-1]).all())


def _check_dates(table, target):
    """Refuses a column of dates of which a few are none, as the last line of a file."""
    for name in table:
        times = table.times(name)
        if name == target or times.values is not None or not times.is_date:
            continue
        # Of several files, the one with the misfit: they may write dates differently.
        part = next(part for part in table.parts if part.times(name).values is None)
        words = part[name].astype(str).tolist()
        if dates.n_dates(words) >= _MOST * len(words):
            raise ValueError(
                f"`time` must be dates, got {table.shown(name, times.misfit)}."
            )


def _date_and_time(table, date):
    """A column of dates and one of times of the day, if there is one."""
    values = table.times(date).values
    days = values[~np.isnan(values)]
    if (days % (_DAY * dates.SECOND) != 0).any():
        return None
    for name in table:
        if name == date or table[name].dtype.kind not in "UO":
            continue
        if _is_numeric(table, name) or table.times(name).values is not None:
            continue
        if table.times((date, name)).values is not None:
            return date, name
    return None


def _calendar(table, target):
    """Columns that are a date together, from the largest unit on, or None."""
    by_unit = {
        name.lower(): name
        for name in table
        if name.lower() in dates.CALENDAR and name != target
    }
    names = []
    for unit in dates.CALENDAR:
        if unit not in by_unit:
            break
        names.append(by_unit[unit])
    if len(names) < 2 or table.times(tuple(names)).values is None:
        return None
    return tuple(names)


def _group(table, time, target) -> Group:
    """The column, or two, of the name of the series of a file of several, or None."""
    if table.file_column is not None or time is None:
        return table.file_column
    values = table.times(time).values
    if values is None or np.isnan(values).any() or (np.diff(values) > 0).all():
        return None
    used = {time} if isinstance(time, str) else set(time)
    # Where most times recur, a few of them that recur in one series may be mistakes.
    recur = len(np.unique(values)) <= len(values) // 2
    mistakes = int(_FEW_MISTAKES * len(values)) if recur else 0
    # Whether a column is one of numbers, and the series of each row by it.
    codes_of, found = {}, []
    for name in table:
        if name in used or name == target:
            continue
        words = table[name]
        is_word = table.numbers(name).values is None
        if not (is_word or words.dtype.kind in "iuU") or columns.missing(words).any():
            continue
        codes, names = timeline.series_of_rows(table, name)
        # A measured number has about as many values as rows.
        if not 2 <= len(names) <= len(words) // 2 or np.bincount(codes).min() < 2:
            continue
        codes_of[name] = not is_word, codes
        if _explains(values, codes, mistakes):
            found.append((not is_word, len(names), name))
    if found:
        return min(found)[2]
    # Of two columns together, only where most times recur.
    if not recur:
        return None
    pairs = itertools.combinations([*codes_of][:_PAIRED], 2)
    for pair in pairs:
        numbers = sum(codes_of[name][0] for name in pair)
        codes, names = timeline.series_of_rows(table, pair)
        if len(names) <= len(values) // _ROWS_OF_PAIR and _explains(values, codes, 0):
            found.append((numbers, len(names), pair))
    return min(found)[2] if found else None


def _explains(values, codes, mistakes):
    """Whether times recur, or rows are not in order, in other series alone.

    Up to ``mistakes`` times may recur in one series.
    """
    rows = np.lexsort((values, codes))
    again = (np.diff(values[rows]) == 0) & (np.diff(codes[rows]) == 0)
    repeated = len(np.unique(values)) < len(values)
    in_file = np.argsort(codes, kind="stable")
    falls = (np.diff(values[in_file]) < 0) & (np.diff(codes[in_file]) == 0)
    return again.sum() <= mistakes and (repeated or not falls.any())


def _stated_group(table, stated):
    """The columns that name the series, which may be between commas, or None."""
    names = _between_commas(table, stated)
    for name in naming.columns(names):
        table.column(name, "group")
    return names


def _between_commas(table, stated):
    """Names of columns as a tuple, and one, which may have a comma, as it is."""
    if isinstance(stated, str) and stated not in table and "," in stated:
        return tuple(name.strip() for name in stated.split(","))
    return stated


def _known(table, numeric, target, stated):
    """The columns that are known in the future."""
    names = naming.columns(_between_commas(table, stated or ()))
    for name in names:
        table.column(name, "known")
        if name not in numeric or name == target:
            raise ValueError(
                "`known` must be columns of numbers other than the target, got "
                f"{name!r} of {table.path}; leave it out."
            )
    return names


def _target(table, numeric, stated, time):
    targets = [] if stated else _targets(table, numeric)
    if not (stated or targets) and isinstance(time, str) and _is_numeric(table, time):
        raise ValueError(
            f"`target` must be a column of numbers other than the time, got {time!r}, "
            f"which increases, as the only one of {table.path}; `--target={time}` "
            "forecasts it."
        )
    if len(targets) > 1:
        further = len(targets) - _SHOWN
        more = f" and {further} more" if further > 0 else ""
        raise ValueError(
            "`target` must be stated for a file of several columns of numbers, got "
            f"{', '.join(targets[:_SHOWN])}{more} in {table.path}; `--target=NAME` "
            "names the one to forecast."
        )
    target = stated or (targets or [""])[0]
    empty = [stated] if stated else [] if numeric else [*table]
    empty = [name for name in empty if name in table and _is_empty(table, name)]
    if empty:
        n = len(table[empty[0]])
        raise ValueError(
            f"`target` must have values, got {', '.join(map(repr, empty))} of "
            f"{table.path}, of which all {n:,} are missing; fill it in, or choose "
            "another."
        )
    if target in table and target not in numeric:
        read = table.numbers(target)
        if read.misfit is not None:
            raise ValueError(
                "`target` must be a column of numbers, got "
                f"{table.shown(target, read.misfit)}."
            )
    if not numeric and not stated and (misfit := _first_misfit(table, time)):
        raise ValueError(f"`target` must be a column of numbers, got none: {misfit}.")
    if target not in numeric:
        raise ValueError(
            f"`target` must be a column of numbers, {', '.join(numeric) or 'none'} of "
            f"{table.path}, got {target!r}; `--target` names it."
        )
    return target


def _targets(table, numeric):
    """The columns that may be the target: one, if it is clear."""
    targets = [name for name in numeric if name.lower() not in CALENDAR]
    named = [name for name in targets if name.strip().lower() in _TARGET_NAMES]
    if len(named) == 1:
        return named
    # Rather a quantity than a flag.
    quantities = [
        name for name in targets if not np.isin(_values(table, name), (0, 1)).all()
    ]
    return quantities or targets


def _first_misfit(table, time):
    """The first value that keeps a column from being one of numbers, or None."""
    for name in table:
        misfit = table.numbers(name).misfit
        if misfit is not None and name != time and table.times(name).values is None:
            return table.shown(name, misfit)
    return None


def _timeline_fields(table, time, group, choices):
    """The fields of the task on the order of rows, where they are needed."""
    found: dict[str, Any] = {} if group is None else {"group": group}
    for name in ("order", "duplicates", "step"):
        if (value := getattr(choices, name)) is not None:
            found[name] = value
    if choices.irregular:
        found["irregular"] = True
    values = None if time is None else table.times(time, group).values
    if values is None or np.isnan(values).any():
        return found
    labels = np.zeros(len(values), int)
    if group is not None:
        labels, _ = timeline.series_of_rows(table, group)
    rows = np.argsort(labels, kind="stable")
    falls = (np.diff(values[rows]) < 0) & (np.diff(labels[rows]) == 0)
    if "order" not in found and falls.any():
        found["order"] = "sort"
        rows = np.lexsort((values, labels))
    same = (np.diff(values[rows]) == 0) & (np.diff(labels[rows]) == 0)
    if "duplicates" not in found and same.any():
        pairs = np.flatnonzero(same)
        equal = all(
            (table[name][rows[pairs]] == table[name][rows[pairs + 1]]).all()
            for name in table
        )
        if equal:
            found["duplicates"] = "first"
    if "step" not in found and not choices.irregular:
        steps = _arrange(table, time, group, found)
        step = timeline.usual_step(steps)
        if step is not None and steps.is_date:
            gaps, others = timeline.count_irregular(steps, step)
            # Where many are left out, as the days or hours in which a shop is closed,
            # the rows that there are follow each other.
            if 0 < gaps <= _FEW * len(values) and not others:
                found["step"] = step
    if table.times(time, group).is_date and (names := _phases(values)):
        found["calendar"] = names
    return found


def _phases(times):
    """The phases of time that a series shows: those of which it has two periods."""
    distances = np.diff(np.unique(times)).astype(np.float64) / dates.SECOND
    span, step = float(np.sum(distances)), float(np.median(distances))
    phases = {"hour": _DAY, "weekday": 7 * _DAY, "year": 365 * _DAY}
    return tuple(
        name
        for name, period in phases.items()
        if step <= period / 7 and span >= 2 * period
    )


def _arrange(table, time, group, found):
    return timeline.arrange(
        table,
        time=time,
        group=group,
        order=found.get("order", "error"),
        duplicates=found.get("duplicates", "error"),
        step=found.get("step"),
    )


def _why(table, name):
    """Why a column is neither an input nor the time."""
    words = table[name]
    if _is_empty(table, name):
        return "has no value"
    if _counts_rows(table, name):
        return "counts the rows"
    read = table.numbers(name)
    times = table.times(name)
    if times.values is not None:
        return "is not the time: another column is, or it does not increase"
    misfit = times.misfit if times.is_date else read.misfit or times.misfit
    reason = misfit.reason
    if reason in ("is not a number", "is not a date"):
        reason = "is not a number or a date"
    value = str(words[misfit.row])
    dots = "..." if len(value) > SHOWN else ""
    return f"{value[:SHOWN]!r}{dots} in {table.place(misfit.row)} {reason}"


def _values(table: Table, name: str) -> np.ndarray:
    """A column of numbers."""
    values = table.numbers(name).values
    assert values is not None  # Of other columns it is not asked for.
    return values


def _window(n, season):
    """The steps of a window: some periods, that fit four times into the train split."""
    most, period = max(1, int(0.7 * n) // 4), season or 24
    # Without a period more steps would say little.
    for count in (7, 3, 2) if season else (3, 2):
        if count * period <= min(most, _LONGEST):
            return count * period
    return min(period, most)


def _rows_per(period, steps):
    """The usual number of steps of one series in a period of time; None if it is 1."""
    first, last = steps.spans()[0]
    _, counts = np.unique(steps.times[first:last] // period, return_counts=True)
    usual = int(np.median(counts))
    return usual if usual > 1 else None


def _is_numeric(table, name):
    floats = table.numbers(name).values
    return floats is not None and not np.isnan(floats).all()


def _is_empty(table, name):
    """Whether all values of a column are missing."""
    read = table.numbers(name).values
    return columns.missing(table[name]).all() or (
        read is not None and bool(np.isnan(read).all())
    )


def _counts_rows(table, name):
    """Whether a column is the number of the row in its file, from 0 or 1 on."""
    if name == table.file_column:
        return False
    return all(_counts_rows_of_file(part, name) for part in table.parts)


def _counts_rows_of_file(table, name):
    if table[name].dtype.kind not in "iuU":
        return False
    values = table.numbers(name).values
    if values is None or len(values) < 2 or values[0] not in (0, 1):
        return False
    return bool((values[1:] == values[:-1] + 1).all())


def _season(table, steps):
    """The usual period in steps, or None."""
    if steps.times is not None and steps.is_date:
        text = timeline.usual_step(steps)
        step = timeline.parse_step(text) if text is not None else None
        if step is not None and step.months:
            # Of years, and of steps that do not divide one, there is none.
            return 12 // step.months if step.months in (1, 2, 3, 4, 6) else None
        seconds = 0.0 if step is None else step.size / dates.SECOND
        others = 0 if text is None else timeline.count_irregular(steps, text)[1]
        if step is None or others > len(steps.times) / 10:
            return None
        if 60 <= seconds <= _DAY:
            # Fewer than usual where steps are left out each night or weekend.
            period = _DAY if seconds < _DAY else 7 * _DAY
            return _rows_per(period * dates.SECOND, steps)
        if seconds == 7 * _DAY:
            return 52
        return None
    hour = next((name for name in table if name.lower() == "hour"), None)
    if hour is None:
        return None
    # The distance to the same hour of the next day.
    hours = table[hour]
    again = np.flatnonzero(hours[1:] == hours[0])
    return int(again[0]) + 1 if again.size else None
