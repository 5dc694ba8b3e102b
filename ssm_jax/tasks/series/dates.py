"""Dates and times that are written as words or as whole numbers."""

import calendar
import datetime
import re
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ssm_jax.tasks.series import numbers
from ssm_jax.tasks.series.numbers import Misfit
from ssm_jax.tasks.series.table_format import TableFormat

CALENDAR = ("year", "month", "day", "hour", "minute", "second")
"""Names of columns that together are a date, from the largest unit on."""

SECOND = 1e6
"""Microseconds, in which dates are counted."""

_EPOCH = datetime.datetime(1970, 1, 1)
_YEARS = (1700, 2300)  # of dates that are whole numbers
_LARGEST = 1e300  # Differences of larger numbers overflow.
# The first letters of the months in English, German, French, Spanish, Italian and
# Portuguese, which no two months share.
_MONTHS = (
    "jan jän ene gen", "feb fév fev feb", "mar mär maa", "apr avr abr", "may mai mag",
    "jun juin giu", "jul juil lug", "aug aoû ago aou", "sep set", "oct okt ott out",
    "nov", "dec dez déc dic",
)  # fmt: skip
_PREFIXES = {
    prefix: month
    for month, prefixes in enumerate(_MONTHS, 1)
    for prefix in prefixes.split()
}

_TIME = (
    r"(?:[T ,]\s*(?P<H>\d{1,2})(?:[:.](?P<M>\d{2})(?:[:.](?P<S>\d{2})"
    r"(?:[.,](?P<f>\d{1,9}))?)?)?(?:\s?(?P<half>[AaPp])\.?[Mm]\.?)?)?"
    r"\s?(?P<zone>Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?"
)
_MONTH = r"(?P<month>[^\W\d_]{3,12})\.?"
_SHORT_MONTH = r"(?P<month>[^\W\d_]{3,4})\.?"
_FORMS = {
    form: re.compile(pattern)
    for form, pattern in {
        "numeric": r"(?P<a>\d{1,4})(?P<s>[-/.])(?P<b>\d{1,2})(?P=s)(?P<c>\d{1,4})\.?"
        + _TIME,
        "day month": r"(?P<d>\d{1,2})(?:st|nd|rd|th|\.)?[-\s]*" + _MONTH
        + r"[-,\s]*(?P<y>\d{4}|\d{2})" + _TIME,
        "month day": _MONTH + r"\s*(?P<d>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<y>\d{4})"
        + _TIME,
        "month": _MONTH + r"[-,\s]*(?P<y>\d{4})",
        "year month": r"(?P<y>\d{4})[-/.\s]?" + _MONTH,
        "month, two digits": _SHORT_MONTH + r"[-/\s]?['’]?(?P<y>\d{2})",
        "two digits, month": r"['’]?(?P<y>\d{2})[-/\s]?" + _SHORT_MONTH,
        "digits": r"(?P<y>\d{4})(?P<m>\d{2})(?P<d>\d{2})"
        r"(?:[T_ ]?(?P<H>\d{2}):?(?P<M>\d{2})?:?(?P<S>\d{2})?)?(?P<zone>Z)?",
        "year and month": r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})",
        "month and year": r"(?P<m>\d{1,2})[/.-](?P<y>\d{4})",
        "quarter": r"(?P<y>\d{4})[-/\s]?Q(?P<q>[1-4])",
        "quarter and year": r"Q(?P<q>[1-4])[-/\s]?(?P<y>\d{4})",
        "week": r"(?P<y>\d{4})-?W(?P<w>\d{2})(?:-?(?P<wd>[1-7]))?",
    }.items()
}  # fmt: skip
_ISO = re.compile(r"(?!0000)\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?", re.ASCII)
# Positions of year, month and day in "a/b/c".
_ORDERS = {"year first": "abc", "day first": "cba", "month first": "cab"}


class Times(NamedTuple):
    """A column that was read as dates or times.

    Attributes:
      values: float64, ``(n,)``, in microseconds since 1970 (of UTC, if the dates have
        an offset or the format a time zone), or numbers in the units of the file; NaN
        where they are missing. None if a value is neither.
      misfit: The first such value; None without one.
      is_date: Whether values are dates and no other numbers.
      is_utc: Whether they are of UTC: the dates have an offset, or the format a time
        zone.
      note: What a careful reader would want to know of how they were read.
    """

    values: np.ndarray | None
    misfit: Misfit | None = None
    is_date: bool = True
    is_utc: bool = False
    note: str = ""


def parse(
    words: Sequence[str], format: TableFormat, series: Sequence[str] | None = None
) -> Times:
    """Reads a column of words as dates.

    These are dates of ISO 8601, with or without a time and an offset; day, month and
    year, of which the whole column, or ``day_first`` of the format, decides what comes
    first; months by name in six languages; months, quarters and weeks; and times of 24
    or of 12 hours. The hour 24 is the first of the next day. ``Jan-10`` is a month of
    2010 if the whole column shows that the number is no day.

    Args:
      words: The column.
      format: How the table is written.
      series: The name of the series of each row, for the hour that is repeated when
        clocks are set back. None means one series.

    Example:
      >>> times = parse(["30.01.2024 23:30", "31.01.2024 00:30"], TableFormat())
      >>> float(np.diff(times.values)[0]) / SECOND
      3600.0
    """
    words = [" ".join(word.split()) for word in words]
    known = np.flatnonzero(~numbers.missing(words, format))
    cells = [words[row] for row in known.tolist()]
    values = np.full(len(words), np.nan)
    if not cells:
        return Times(values)
    # The form that most of the column has, or would have but for its bad values.
    matches = {form: list(map(p.fullmatch, cells)) for form, p in _forms(cells).items()}
    counts = {form: len(found) - found.count(None) for form, found in matches.items()}
    form = max(counts, key=lambda form: counts[form])
    found: Any = matches[form]
    if counts[form] < len(cells):
        return Times(None, _misfit(known[found.index(None)]))
    dates, misfit, note = _dates(form, found, format)
    if misfit is not None:
        return Times(None, misfit._replace(row=int(known[misfit.row])))
    zones = [_zone(match) for match in found]
    names = None if series is None else [series[row] for row in known.tolist()]
    shifted, misfit = _to_utc(dates, zones, format, names)
    if misfit is not None:
        return Times(None, misfit._replace(row=int(known[misfit.row])))
    values[known] = shifted
    has_offsets = any(zones)
    notes = [note] if note else []
    if np.any(shifted != dates):
        notes.append("times are converted to UTC")
    if has_offsets and format.time_zone is not None:
        notes.append("`time_zone` is not used, since dates have offsets")
    is_utc = has_offsets or format.time_zone is not None
    return Times(values, is_utc=is_utc, note="; ".join(notes))


def is_date(word: str) -> bool:
    """Whether a word has one of the forms of a date.

    Example:
      >>> is_date("1. Mai 2024"), is_date("1.5")
      (True, False)
    """
    matches = (pattern.fullmatch(word) for pattern in _FORMS.values())
    parts = (match.groupdict() for match in matches if match)
    return any("month" not in part or _month_name(part) for part in parts)


def n_dates(words: Sequence[str]) -> int:
    """Returns how many words have one of the forms of a date."""
    return sum(is_date(word.strip()) for word in words)


def from_numbers(values: np.ndarray) -> Times:
    """Returns whole numbers as the dates that their range suggests, or as they are.

    Args:
      values: float64, ``(n,)``, NaN where they are missing.

    Returns:
      Dates, if all numbers are ``YYYYMMDD``, or seconds, milli-, micro- or nanoseconds
      of the years from 1973 on; otherwise the numbers, if none is above 1e300.

    Example:
      >>> from_numbers(np.array([20240228.0, 20240229.0])).is_date
      True
      >>> from_numbers(np.array([0.1, 0.2])).is_date
      False
    """
    known = values[~np.isnan(values)]
    if (too_large := np.abs(values) > _LARGEST).any():
        misfit = _misfit(np.argmax(too_large), f"is beyond {_LARGEST:g}")
        return Times(None, misfit, is_date=False)
    if not known.size or not (known == np.floor(known)).all():
        return Times(values, is_date=False)
    low, high = known.min(), known.max()
    if _YEARS[0] * 10_000 < low and high < _YEARS[1] * 10_000:
        words = [f"{value:.0f}" for value in np.where(np.isnan(values), 0, values)]
        gaps = np.isnan(values)
        words = ["" if gap else word for word, gap in zip(words, gaps, strict=True)]
        times = parse(words, TableFormat())
        if times.values is not None:
            return times._replace(note="numbers are read as dates, YYYYMMDD")
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        # From 1973, since smaller numbers are rather counted.
        if 1e8 * scale <= low and high < 1e10 * scale:
            note = f"numbers are read as {unit} since 1970"
            return Times(values / scale * SECOND, note=note)
    return Times(values, is_date=False)


def from_calendar(
    columns: Mapping[str, np.ndarray],
    format: TableFormat,
    series: Sequence[str] | None = None,
) -> Times:
    """Returns the dates of columns such as year, month, day and hour.

    Args:
      columns: float64, ``(n,)``, by names of `CALENDAR`, with the year.
      format: Its time zone is that of the dates.
      series: As for `parse`.

    Example:
      >>> columns = {"year": np.array([2024.0]), "month": np.array([2.0])}
      >>> np.datetime64(int(from_calendar(columns, TableFormat()).values[0]), "us")
      np.datetime64('2024-02-01T00:00:00.000000')
    """
    arrays = [columns.get(name) for name in CALENDAR]
    n = len(columns["year"])
    starts = (1970, 1, 1, 0, 0, 0)
    filled = [
        np.full(n, start) if array is None else array
        for start, array in zip(starts, arrays, strict=True)
    ]
    values = np.full(n, np.nan)
    known = np.flatnonzero(~np.isnan(filled).any(0))
    dates = []
    for row in known:
        date = _date(*(float(array[row]) for array in filled))
        if date is None:
            return Times(None, _misfit(row, "is no date together with other columns"))
        dates.append(date)
    names = None if series is None else [series[row] for row in known.tolist()]
    shifted, _ = _to_utc(dates, [""] * len(dates), format, names)
    values[known] = shifted
    return Times(values, is_utc=format.time_zone is not None)


def _misfit(row, reason="is not a date"):
    return Misfit(int(row), reason, "correct it, or remove the row")


def _forms(cells) -> Mapping[str, re.Pattern[str]]:
    """The forms of some of the values, all of them where these have none."""
    sample = cells[:: max(1, len(cells) // 50)]
    some = {
        form: pattern
        for form, pattern in _FORMS.items()
        if any(map(pattern.fullmatch, sample))
    }
    return some or _FORMS


def _dates(form, matches, format):
    """Dates of matches without their offsets, a misfit by its place, and a note."""
    if form == "numeric":
        return _numeric_dates(matches, format)
    note = ""
    if "two digits" in form and (misfit := _check_years(matches)) is not None:
        return [], misfit, ""
    if "two digits" in form:
        note = f"{matches[0][0]} is read as a month of {_year(matches[0]['y'])}"
    dates = []
    for place, match in enumerate(matches):
        date = _READ[form](match.groupdict())
        if date is None:
            return [], _misfit(place), ""
        dates.append(date)
    return dates, None, note


def _check_years(matches):
    """A misfit unless the numbers beside months are years, and no days."""
    parts = [match.groupdict() for match in matches]
    months = [_month_name(part) for part in parts]
    if None in months:
        return _misfit(months.index(None))
    pairs = [(month, int(part["y"])) for month, part in zip(months, parts, strict=True)]
    # 2024 is a leap year.
    if any(_date(2024, *pair, 0, 0, 0) is None for pair in pairs):
        return None
    # From one row to the next the month changes rather than the year, but it does, too.
    counts = np.array([12 * _year(part["y"]) for part in parts]) + months
    steps = np.abs(np.diff(counts))
    steps = steps[steps > 0]
    if len({number for _, number in pairs}) > 1 and np.median(steps) < 12:
        return None
    way_out = "write years with four digits"
    return Misfit(0, "may be a month of a year or a day of a month", way_out)


def _numeric_dates(matches, format):
    """As `_dates`, where the whole column decides what is the day and the month."""
    if (iso_dates := _iso_dates(matches)) is not None:
        return iso_dates, None, ""
    parts = [match.groupdict() for match in matches]
    orders = {}
    for name, letters in _ORDERS.items():
        fields = [[part[letter] for letter in letters] for part in parts]
        dates = [
            _timed(part, _year(year), month, day) if _has_width(part, letters) else None
            for part, (year, month, day) in zip(parts, fields, strict=True)
        ]
        orders[name] = dates
    if format.day_first is not None:
        orders.pop("month first" if format.day_first else "day first")
        if len(parts[0]["a"]) <= 2:
            orders.pop("year first")
    fits = [name for name, dates in orders.items() if None not in dates]
    if not fits:
        name = max(orders, key=lambda name: len(parts) - orders[name].count(None))
        return [], _misfit(orders[name].index(None)), ""
    if "day first" in fits and all(part["s"] == "." for part in parts):
        fits = ["day first"]
    # Of two possible orders with equal dates, such as 01/01, either will do.
    if any(orders[name] != orders[fits[0]] for name in fits):
        place = next(
            i
            for i, dates in enumerate(zip(*(orders[n] for n in fits), strict=True))
            if len(set(dates)) > 1
        )
        way_out = "`day_first` of the format states which"
        return [], Misfit(place, f"may be {' or '.join(fits)}", way_out), ""
    # Of dates with a year of four digits in front there is nothing to say.
    plain = len(parts[0]["a"]) == 4
    return orders[fits[0]], None, "" if plain else f"dates are {fits[0]}"


def _iso_dates(matches):
    """Dates of whole seconds as ISO 8601 has them, by numpy; None of others."""
    ends = [match.start("zone") if match["zone"] else None for match in matches]
    texts = [m.string[:end].rstrip() for m, end in zip(matches, ends, strict=True)]
    if not all(map(_ISO.fullmatch, texts)):
        return None
    try:
        seconds = np.array(texts, "datetime64[s]").astype(np.int64)
    except ValueError:  # The hour 24, or no date.
        return None
    return seconds * float(SECOND)


def _has_width(part, letters):
    """Whether the fields of a date have the digits of a year, a month and a day."""
    year, month, day = (len(part[letter]) for letter in letters)
    if not (month <= 2 and day <= 2 and year in (2, 4)):
        return False
    # Years of two digits in front are written with hyphens alone.
    return year == 4 or letters != "abc" or part["s"] == "-"


def _year(digits):
    if len(digits) == 4:
        return int(digits)
    return int(digits) + (1900 if int(digits) >= 70 else 2000)


def _timed(part, year, month, day):
    """The date and time of the fields of a match, or None."""
    hour = int(part.get("H") or 0)
    if half := part.get("half"):
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half in "pP" else 0)
    fraction = float(f"0.{part.get('f') or 0}")
    seconds = int(part.get("S") or 0) + fraction
    return _date(
        int(year), int(month), int(day), hour, int(part.get("M") or 0), seconds
    )


def _date(year, month, day, hour, minute, second):
    """Microseconds since 1970, or None if there is no such date."""
    whole = (year, month, day, hour, minute)
    if any(value != int(value) for value in whole):
        return None
    year, month, day, hour, minute = map(int, whole)
    if not (1 <= year <= 9999 and 1 <= month <= 12):
        return None
    if not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    # 24:00 is the first moment of the next day; 60 seconds are those of a leap second.
    in_day = 0 <= hour < 24 or (hour, minute, second) == (24, 0, 0)
    if not (in_day and 0 <= minute < 60 and 0 <= second <= 60):
        return None
    days = datetime.datetime(year, month, day) - _EPOCH
    return (days.days * 86_400 + hour * 3_600 + minute * 60 + second) * SECOND


def _month_name(part):
    name = part["month"].lower()
    # Juin and juil before jun and jul.
    return next((_PREFIXES[name[:n]] for n in (4, 3) if name[:n] in _PREFIXES), None)


def _named(part):
    month = _month_name(part)
    return (
        None
        if month is None
        else _timed(part, _year(part["y"]), month, part.get("d") or 1)
    )


def _week(part):
    try:
        date = datetime.date.fromisocalendar(
            int(part["y"]), int(part["w"]), int(part["wd"] or 1)
        )
    except ValueError:
        return None
    return _date(date.year, date.month, date.day, 0, 0, 0)


def _month(part):
    return _timed(part, part["y"], part["m"], 1)


def _quarter(part):
    return _timed(part, part["y"], 3 * int(part["q"]) - 2, 1)


_READ: dict[str, Callable[[dict[str, Any]], float | None]] = {
    "day month": _named,
    "month day": _named,
    "month": _named,
    "year month": _named,
    "month, two digits": _named,
    "two digits, month": _named,
    "digits": lambda part: _timed(part, part["y"], part["m"], part["d"]),
    "year and month": _month,
    "month and year": _month,
    "quarter": _quarter,
    "quarter and year": _quarter,
    "week": _week,
}


def _zone(match):
    return (match["zone"] or "") if "zone" in match.re.groupindex else ""


def _to_utc(dates, zones, format, series):
    """Dates with their offsets taken off, and a misfit by its place."""
    dates = np.array(dates, np.float64)
    mixed = [bool(zone) != bool(zones[0]) for zone in zones]
    if any(mixed):
        reason = "has an offset and other rows have none, or the other way round"
        return dates, _misfit(mixed.index(True), reason)
    if zones and zones[0]:
        return dates - SECOND * np.array([_offset(zone) for zone in zones]), None
    if format.time_zone is None:
        return dates, None
    zone, earlier, moments = zoneinfo.ZoneInfo(format.time_zone), set(), []
    for date, name in zip(dates, series or [""] * len(dates), strict=True):
        local = _EPOCH + datetime.timedelta(microseconds=date)
        # The hour that is repeated in autumn: the first of two equal times is before
        # the change of clocks.
        aware = local.replace(tzinfo=zone, fold=int((name, date) in earlier))
        earlier.add((name, date))
        offset = zone.utcoffset(aware) or datetime.timedelta()
        moments.append(date - SECOND * offset.total_seconds())
    return np.array(moments), None


def _offset(zone):
    """Seconds east of Greenwich."""
    if zone in ("Z", "UTC", "GMT"):
        return 0
    digits = zone[1:].replace(":", "")
    seconds = 3_600 * int(digits[:2]) + 60 * int(digits[2:] or 0)
    return -seconds if zone[0] == "-" else seconds
