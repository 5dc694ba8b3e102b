"""Dates are read alike by numpy and by fields, and it is known whether of UTC."""

import numpy as np
import pytest

from ssm_jax.tasks.series import dates
from ssm_jax.tasks.series.table_format import TableFormat

COLUMNS = {
    "days": ["2024-02-28", "2024-02-29"],
    "no date": ["2024-02-28", "2023-02-29"],
    "minutes": ["2024-01-01 10:00", "2024-01-01T11:30:05"],
    "offsets": ["2024-01-01T10:00+01:00", "2024-01-01 10:00 -0530", ""],
    "marks of UTC": ["2024-01-01T10:00Z", "2024-01-01T10:00 UTC"],
    "hour 24": ["2024-01-01T24:00", "2024-01-02T01:00"],
    "leap second": ["2016-12-31 23:59:60"],
    "fraction": ["2024-01-01T10:00:00.25"],
    "half a day": ["2024-01-01 10:00 pm"],
    "year 0": ["0000-01-01"],
    "first and last year": ["0001-01-01", "9999-12-31 23:59:59"],
    "other digits": ["٢٠٢٤-01-01"],
}


@pytest.mark.parametrize("words", COLUMNS.values(), ids=COLUMNS)
def test_dates_of_iso_8601_are_those_of_their_fields(words, monkeypatch):
    found = dates.parse(words, TableFormat())
    monkeypatch.setattr(dates, "_iso_dates", lambda matches: None)
    by_fields = dates.parse(words, TableFormat())
    assert found[1:] == by_fields[1:]
    np.testing.assert_array_equal(found.values, by_fields.values)


@pytest.mark.parametrize(
    ("offset", "zone", "is_utc", "note"),
    [
        ("", None, False, ""),
        ("Z", None, True, ""),
        ("+01:00", None, True, "times are converted to UTC"),
        ("", "Europe/Berlin", True, "times are converted to UTC"),
        ("Z", "Europe/Berlin", True, "`time_zone` is not used, since"),
    ],
)
def test_offsets_and_time_zones_are_said(offset, zone, is_utc, note):
    words = [f"2024-01-01 {hour}:00{offset}" for hour in (10, 11)]
    times = dates.parse(words, TableFormat(time_zone=zone))
    assert times.is_utc == is_utc and times.note.startswith(note)
    assert bool(times.note) == bool(note)
    calendar = {"year": np.array([2024.0])}
    of_zone = dates.from_calendar(calendar, TableFormat(time_zone=zone))
    assert of_zone.is_utc == (zone is not None)
