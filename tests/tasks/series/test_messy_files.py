"""Files as people have them: read as a careful person would, or refused in one line."""

import datetime
import re
import zoneinfo
from pathlib import Path

import numpy as np
import pytest

from ssm_jax.tasks import SeriesTask
from ssm_jax.tasks.series import naming
from ssm_jax.tasks.series.dates import parse
from ssm_jax.tasks.series.guess import guess, suspects, unread
from ssm_jax.tasks.series.table_format import TableFormat
from ssm_jax.tasks.series.timeline import parse_step, usual_step
from tests.bad_inputs import refuses

N = 100
DATES = [datetime.date(2024, 1, 1) + datetime.timedelta(i) for i in range(N)]
HOURS = [
    datetime.datetime(2024, 10, 25) + datetime.timedelta(hours=i) for i in range(N)
]
VALUES = np.array([10 + i % 7 + i % 10 / 10 for i in range(N)])
PLAIN = [f"{value:.1f}" for value in VALUES]
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
MONTHS = "Januar Februar März April Mai Juni Juli".split()


def csv(values=PLAIN, dates=DATES, *, sep=",", header="date,value", end="\n"):
    """A file of dates and values."""
    lines = [header.replace(",", sep)]
    lines += [f"{date}{sep}{value}" for date, value in zip(dates, values, strict=True)]
    return end.join(lines) + end


def with_value(word, row=44):
    return csv([word if i == row else value for i, value in enumerate(PLAIN)])


def with_lines(*lines, at=50):
    """The plain file with further lines."""
    rows = csv().split("\n")
    return "\n".join([*rows[:at], *lines, *rows[at:]])


def dates_as(form):
    return csv(dates=[date.strftime(form) for date in DATES], sep=";")


def hours_as(form):
    return csv(dates=[hour.strftime(form) for hour in HOURS])


def gaps(*rows):
    values = VALUES.copy()
    values[list(rows)] = np.nan
    return values


NINTH = range(4, N, 9)
LARGE = np.arange(1200.0, 1300.0)
# The content, the values that are read, and what the notes say of it.
READ = {
    "semicolons": (csv(sep=";"), VALUES, "semicolons"),
    "tabs": (csv(sep="\t"), VALUES, "tabs"),
    "bars": (csv(sep="|"), VALUES, "bars"),
    "blanks": (csv(sep="   "), VALUES, "blanks"),
    "blanks after commas": (csv(sep=", ", header="date,value"), VALUES, ""),
    "statement of the delimiter": ("sep=;\n" + csv(sep=";"), VALUES, ""),
    "decimal commas": (
        csv([value.replace(".", ",") for value in PLAIN], sep=";"),
        VALUES,
        "commas are decimal signs",
    ),
    "commas in quotes": (
        csv([f'"{value.replace(".", ",")}"' for value in PLAIN]),
        VALUES,
        "commas are decimal signs",
    ),
    "points between thousands": (
        csv([f"1.{200 + i},50" for i in range(N)], sep=";"),
        LARGE + 0.5,
        "'.' is between thousands",
    ),
    "commas between thousands": (
        csv([f'"1,{200 + i}.5"' for i in range(N)]),
        LARGE + 0.5,
        "',' is between thousands",
    ),
    "whole thousands between commas": (
        csv([f'"1,{200 + i}"' for i in range(N)]),
        LARGE,
        "',' is between thousands",
    ),
    "apostrophes": (csv([f"1'{200 + i}" for i in range(N)]), LARGE, "thousands"),
    "hard blanks": (csv([f"1\xa0{200 + i}" for i in range(N)]), LARGE, "thousands"),
    "title": ("Sensor 7\n\n" + csv(), VALUES, "skipped 1 line above the header"),
    "remarks": ("# by hand\n# a, b\n" + csv(), VALUES, "skipped 2 lines above"),
    "header that is a remark": (csv(header="# date,value"), VALUES, ""),
    "units": (csv(header="date,value\n,mm"), VALUES, "line 2, which has units"),
    "delimiters at the end": (csv([f"{v}," for v in PLAIN]), VALUES, "delimiter"),
    "empty last column": (
        csv([f"{v}," for v in PLAIN], header="date,value,"),
        VALUES,
        "neither a name nor a value",
    ),
    "repeated header": (with_lines("date,value"), VALUES, "repeated header"),
    "empty lines": (with_lines("", ""), VALUES, "2 lines without a value"),
    "lines of commas": (with_lines(",", " , "), VALUES, "2 lines without a value"),
    "mark of UTF-8": (csv().encode("utf-8-sig"), VALUES, ""),
    "UTF-16": (csv().encode("utf-16"), VALUES, ""),
    "UTF-16 without a mark": (csv().encode("utf-16-be"), VALUES, ""),
    "Windows-1252": (csv(header="date,µg/m³").encode("cp1252"), VALUES, "cp1252"),
    "lines of Windows": (csv(end="\r\n"), VALUES, ""),
    "lines of old Macintoshes": (csv(end="\r"), VALUES, ""),
    **{
        f"missing {word!r}": (
            csv([word if i in NINTH else value for i, value in enumerate(PLAIN)]),
            gaps(*NINTH),
            "",
        )
        for word in (
            "",
            " ",
            "-",
            "--",
            "?",
            "..",
            "NA",
            "n/a",
            "NaN",
            "null",
            "missing",
        )
    },
    "percent": (csv([f"{v}%" for v in PLAIN]), VALUES, "the unit '%'"),
    "unit in each row": (csv([f"{v} kWh" for v in PLAIN]), VALUES, "the unit 'kWh'"),
    "currency": (csv([f"${v}" for v in PLAIN]), VALUES, "the currency '$'"),
    "typographic minus": (csv([f"\u2212{v}" for v in PLAIN]), -VALUES, ""),
    "exponents of Fortran": (csv([f"{v}D+02" for v in PLAIN]), 100 * VALUES, ""),
    "a fraction after whole numbers": (
        csv([5] * (N - 1) + [2.5]),
        np.array([5.0] * (N - 1) + [2.5]),
        "",
    ),
    **{
        f"dates as {form}": (dates_as(form), VALUES, note)
        for form, note in {
            "%d.%m.%Y": "day first",
            "%d.%m.%y": "day first",
            "%d/%m/%Y": "day first",
            "%m/%d/%Y": "month first",
            "%Y/%m/%d": "",
            "%Y%m%d": "YYYYMMDD",
            "%b %d, %Y": "",
            "%d %B %Y": "",
            "%d-%b-%y": "",
            "%Y-%m-%dT00:00:00Z": "",
            "%Y-%m-%d 00:00:00.000+00:00": "",
        }.items()
    },
    "dates without zeros": (
        csv(dates=[f"{d.year}-{d.month}-{d.day}" for d in DATES]),
        VALUES,
        "",
    ),
    "German months": (
        csv(dates=[f"{d.day}. {MONTHS[d.month - 1]} {d.year}" for d in DATES]),
        VALUES,
        "",
    ),
    "dates with and without a time": (
        csv(dates=[f"{d} 00:00" if i % 2 else d for i, d in enumerate(DATES)]),
        VALUES,
        "",
    ),
    **{
        f"{unit} since 1970": (
            csv(dates=[scale * (1_704_067_200 + 86_400 * i) for i in range(N)]),
            VALUES,
            f"{unit} since 1970",
        )
        for unit, scale in (("s", 1), ("ms", 1_000), ("us", 10**6))
    },
    "date after the index of a frame": (
        csv(dates=[f"{i},{d}" for i, d in enumerate(DATES)], header=",date,value"),
        VALUES,
        "column 1 has no name",
    ),
    "newest first": (
        csv(PLAIN[::-1], DATES[::-1]),
        VALUES,
        "sorted by time, since 99 rows",
    ),
    "row that is repeated": (
        with_lines(csv().split("\n")[49]),
        VALUES,
        "the first is kept, where 1 row",
    ),
    "missing rows": (
        "\n".join(
            line for i, line in enumerate(csv().split("\n")) if i not in (50, 51)
        ),
        gaps(49, 50),
        "inserted 2 steps",
    ),
}
# Files of hours, of which the first is of the time.
HOURLY = {
    "half days": (hours_as("%m/%d/%Y %I:%M %p"), "month first"),
    "offsets": (
        csv(dates=[
            hour.replace(tzinfo=datetime.UTC).astimezone(BERLIN).isoformat()
            for hour in HOURS
        ]),
        "",
    ),
    "calendar in columns": (
        "No,Year,Month,Day,Hour,value\n"
        + "".join(
            f"{i},{h.year},{h.month},{h.day},{h.hour},{v}\n"
            for i, (h, v) in enumerate(zip(HOURS, PLAIN, strict=True), 1)
        ),
        "",
    ),
    "date and time in columns": (
        csv(
            [value.replace(".", ",") for value in PLAIN],
            [hour.strftime("%d/%m/%Y;%H.%M.%S") for hour in HOURS],
            sep=";",
            header="Date,Time,value",
        ),
        "day first",
    ),
}  # fmt: skip
# The content, and what the error shows of the value, its place, and the way out.
REFUSED = {
    "nothing": ("", "empty", "write"),
    "header alone": ("date,value\n", "none", "add"),
    "no header": (csv(header="").lstrip(), "2024-01-01", "line 1", "add a line"),
    "short line": (with_lines("7"), "got 1", "line 51", "correct"),
    "long line": (with_lines("2024-02-20,1,5"), "got 3", "line 51", "correct"),
    "names of all columns but one": (
        csv(dates=[f"{i},{d}" for i, d in enumerate(DATES)]),
        "got 3",
        "line 2",
        "header",
    ),
    "two columns of a name": (
        csv([f"{v},1" for v in PLAIN], header="date,value,value"),
        "'value'",
        "rename",
    ),
    "footer": (csv() + "Total,6\n", "'Total'", "'date' in line 102", "remove"),
    "cut line": (csv() + "2024-0,6\n", "'2024-0'", "'date' in line 102", "remove"),
    "open quote": (with_value('"9'), "'\"9'", "column 'value', line 46", "correct"),
    "zero byte": (with_value("1\0"), "zero byte", "line 46", "correct"),
    "text of no encoding": (
        with_value("Z\x81").encode("latin-1"),
        "Z\\x81",
        "line 46",
        "save it as UTF-8",
    ),
    **{
        f"number {word}": (with_value(word), repr(word), "'value' in line 46")
        for word in ("inf", "1e400", "3.5e39", "1_000", "١٢", "(1.5)", "<0.1", "1.5.2")
    },
    "other unit": (
        csv([f"{v} {'m' if i == 44 else 'km'}" for i, v in enumerate(PLAIN)]),
        "'km'",
        "line 46",
        "correct",
    ),
    "comma of a fraction or of thousands": (
        csv([f"1,{200 + i}" for i in range(N)], sep=";"),
        "'1,200'",
        "line 2",
        "`decimal`",
    ),
    "day or month": (
        csv(dates=[f"{1 + i % 12:02}/{1 + i // 12:02}/2024" for i in range(N)]),
        "'02/01/2024'",
        "line 3",
        "`day_first`",
    ),
    "month of a year or day of a month": (
        csv(dates=[f"{d:%b}-{d:%d}" for d in DATES]),
        "'Jan-01'",
        "line 2",
        "four digits",
    ),
    "no value": (csv([""] * N), "'value'", "all 100 are missing", "fill it in"),
    "year or day": (dates_as("%y-%m-%d"), "'24-01-01'", "line 2", "`day_first`"),
    "day that does not exist": (
        csv(dates=[*DATES[:44], "2024-02-30", *DATES[45:]]),
        "'2024-02-30'",
        "line 46",
        "remove",
    ),
    "offset in one row": (
        csv(dates=[f"{d}T00:00{'Z' * (i == 44)}" for i, d in enumerate(DATES)]),
        "'2024-02-14T00:00Z'",
        "line 46",
        "correct",
    ),
    "time twice": (with_lines("2024-02-18,9"), "'2024-02-18'", "line 51", "mean"),
    "hour that is repeated in autumn": (
        csv(dates=[
            hour.replace(tzinfo=datetime.UTC).astimezone(BERLIN).isoformat()[:16]
            for hour in HOURS
        ]),
        "'2024-10-27T02:00'",
        "line 51",
        "`time_zone`",
    ),
}  # fmt: skip


def write(folder, content):
    path = Path(folder, "a.csv")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def task_of(path, **fields):
    fields = guess(path, target=fields.get("target")) | fields
    return SeriesTask(file="a.csv", data_dir=str(Path(path).parent), **fields)


def list_times(task):
    times = task.times()
    assert times is not None
    return times.tolist()


@pytest.mark.parametrize("name", READ)
def test_file_is_read_as_a_careful_person_would(name, tmp_path):
    content, values, note = READ[name]
    path = write(tmp_path, content)
    task = task_of(path)
    np.testing.assert_allclose(task.values(), values, rtol=1e-12)
    assert note in "; ".join(task.notes())
    # Nothing else is left out without a word.
    assert not task.notes() or note or "between" in task.notes()[0]
    assert set(unread(path, guess(path)).values()) <= {"counts the rows"}
    assert list_times(task) == [
        datetime.datetime(2024, 1, 1) + datetime.timedelta(i) for i in range(N)
    ]


@pytest.mark.parametrize("name", HOURLY)
def test_hours_are_found_in_one_column_or_in_several(name, tmp_path):
    content, note = HOURLY[name]
    task = task_of(write(tmp_path, content))
    np.testing.assert_allclose(task.values(), VALUES, rtol=1e-12)
    assert list_times(task) == HOURS
    assert note in "; ".join(task.notes())


@pytest.mark.parametrize("name", REFUSED)
def test_file_that_is_not_clear_is_refused_with_the_place_and_a_way_out(name, tmp_path):
    content, *shown = REFUSED[name]
    path = write(tmp_path, content)
    with pytest.raises(ValueError, match=re.escape(path)) as refusal:
        task_of(path).n_examples("train")
    message = str(refusal.value)
    assert "\n" not in message and len(message) < 450
    for part in shown:
        assert part in message


def test_same_numbers_as_pandas_where_pandas_is_right(tmp_path):
    pandas = pytest.importorskip("pandas")
    for name in ("semicolons", "tabs", "lines of Windows", "missing 'NA'"):
        path = write(tmp_path, READ[name][0])
        sep = {"semicolons": ";", "tabs": "\t"}.get(name, ",")
        frame = pandas.read_csv(path, sep=sep)
        np.testing.assert_array_equal(task_of(path).values(), frame["value"])


def test_words_for_yes_and_no_are_inputs_and_no_target(tmp_path):
    rows = [f"{d},{'yes' if i % 3 else 'no'}" for i, d in enumerate(DATES)]
    path = write(tmp_path, csv(dates=rows, header="date,open,value"))
    fields = guess(path)
    assert fields["target"] == "value" and fields["inputs"] == ("value", "open")
    assert "yes is read as 1" in "; ".join(task_of(path).notes())


@pytest.mark.parametrize("form", ["%b-%y", "%y-%b", "%b %y", "%b'%y"])
@pytest.mark.parametrize("order", [1, -1])
def test_months_of_years_with_two_digits_are_told_from_days(tmp_path, form, order):
    # All numbers are such as days have, and from one row to the next the month changes.
    months = [datetime.date(2010 + i // 12, i % 12 + 1, 1) for i in range(N)][::order]
    path = write(tmp_path, csv(dates=[month.strftime(form) for month in months]))
    task = task_of(path)
    assert [time.date() for time in list_times(task)] == months[::order]
    assert f"{months[0].strftime(form)} is read as a month of" in task.notes()[0]
    assert guess(path)["season"] == 12


def test_numbers_that_no_day_has_are_years():
    times = parse(["Jan-32", "Mar-32"], TableFormat()).values
    expected = np.array(["2032-01-01", "2032-03-01"], "M8[us]")
    assert times is not None
    np.testing.assert_array_equal(times, expected.astype(np.int64))


def test_words_with_numbers_are_no_months(tmp_path):
    rows = [f"{d},item{10 + i % 7},ab{i % 90 + 10}" for i, d in enumerate(DATES)]
    path = write(tmp_path, csv(dates=rows, header="date,item,code,value"))
    fields = guess(path)
    assert fields["time"] == "date" and fields["inputs"] == ("value",)
    assert set(unread(path, fields)) == {"item", "code"}


def test_target_without_a_value_is_refused(tmp_path):
    path = write(tmp_path, csv([","] * N, header="date,a,b"))
    for stated, shown in ((None, "'a', 'b'"), ("b", "'b'")):
        with refuses("target", shown, rule="all 100 are missing"):
            guess(path, target=stated)
    with refuses("target", "'b'", rule="all 100 are missing"):
        SeriesTask(file=path, target="b", missing="last").n_examples("train")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("words", [("-1e308", "1e308"), ("inf", "inf"), ("1e400",)])
@pytest.mark.parametrize("column", ["first", "value", "other"])
@pytest.mark.parametrize("dated", [True, False])
def test_numbers_that_overflow_are_refused_without_a_warning(
    tmp_path, words, column, dated
):
    columns = {"first": [f"{i}.5" for i in range(N)], "value": PLAIN, "other": PLAIN}
    columns[column] = [*columns[column][: N - len(words)], *words]
    if dated:
        columns = {"date": [*map(str, DATES)], **columns}
    rows = [",".join(row) for row in zip(*columns.values(), strict=True)]
    path = write(tmp_path, "\n".join([",".join(columns), *rows]) + "\n")
    if words[0] == "inf" and column != "value":
        # Such a column is no number, and is left out with its reason.
        assert "'inf'" in unread(path, guess(path, target="value"))[column]
        return
    with pytest.raises(ValueError, match=re.escape(words[0])):
        SeriesTask(file=path, **guess(path, target="value")).n_examples("train")


def test_codes_with_zeros_in_front_are_no_numbers(tmp_path):
    path = write(
        tmp_path, csv(dates=[f"{d},007" for d in DATES], header="date,no,value")
    )
    fields = guess(path)
    assert fields["inputs"] == ("value",)
    assert "'007' in line 2" in unread(path, fields)["no"]


def test_number_that_may_stand_for_a_missing_one_is_said_and_kept(tmp_path):
    path = write(
        tmp_path, csv([-999 if i in NINTH else v for i, v in enumerate(PLAIN)])
    )
    assert np.sum(task_of(path).values() == -999) == len(NINTH)
    assert "-999 occurs 11 times" in suspects(path, guess(path))["value"]


@pytest.mark.parametrize("by", ["shop", "date"])
def test_series_of_a_long_file_are_told_apart(tmp_path, by):
    rows = [(d, s, i % 5 + 10 * s) for i, d in enumerate(DATES) for s in range(3)]
    rows.sort(key=lambda row: row[:2] if by == "date" else row[1::-1])
    lines = [f"{d},{'ABC'[s]},{v}" for d, s, v in rows]
    path = write(tmp_path, "\n".join(["date,shop,value", *lines]) + "\n")
    task = task_of(path, window=5, horizon=2, season=None)
    assert guess(path)["group"] == "shop" and task.series_names() == ("A", "B", "C")
    expected = [i % 5 + 10 * s for s in range(3) for i in range(N)]
    np.testing.assert_array_equal(task.values(), expected)
    for split in ("train", "validation", "test"):
        n = task.n_examples(split)
        batch = task.batch(split, 0, n, seed=0)
        values = task.in_units(batch.targets, split, 0, n, seed=0)
        # No window goes from one series to another: each has its own values.
        assert ((values // 10) == (values[:, :1] // 10)).all()
        # Each series is normalised by its own train split, and so they are equal here.
        thirds = batch.inputs[np.argsort(values[:, 0] // 10, kind="stable")]
        assert len(thirds) % 3 == 0
    assert np.bincount(task.series_of_windows("test")).tolist() == [19, 19, 19]
    assert task.next_inputs().shape == (3, 5, task.spec.d_input)
    values = task.next_in_units(np.zeros((3, 2)))[:, 0] // 10
    np.testing.assert_array_equal(values, [0, 1, 2])


def test_series_too_short_for_a_split_is_named(tmp_path, caplog):
    rows = [f"{d},{'long' if i < 90 else 'short'},{i % 5}" for i, d in enumerate(DATES)]
    path = write(tmp_path, "\n".join(["date,shop,value", *rows]) + "\n")
    task = SeriesTask(
        file="a.csv", data_dir=str(tmp_path), time="date", group="shop",
        target="value", window=3, horizon=2,
    )  # fmt: skip
    task.n_examples("test")
    assert "1 of 2 series" in caplog.text and ": short" in caplog.text
    assert path in caplog.text


def test_repeated_hour_is_told_apart_by_the_time_zone(tmp_path):
    content, *_ = REFUSED["hour that is repeated in autumn"]
    path = write(tmp_path, content)
    berlin = TableFormat(time_zone="Europe/Berlin")
    task = SeriesTask(
        file="a.csv", data_dir=str(tmp_path), format=berlin,
        **guess(path, format=berlin),
    )  # fmt: skip
    np.testing.assert_allclose(task.values(), VALUES)
    assert list_times(task) == HOURS


@pytest.mark.parametrize(("step", "hours"), [("6h", 6), ("1D", 24), ("2h", 2)])
def test_rows_within_a_step_are_averaged(tmp_path, step, hours):
    write(tmp_path, hours_as("%Y-%m-%d %H:%M"))
    task = SeriesTask(
        file="a.csv", data_dir=str(tmp_path), time="date", target="value", step=step,
        window=1, horizon=1, missing="last",
    )  # fmt: skip
    expected = [VALUES[first : first + hours].mean() for first in range(0, N, hours)]
    np.testing.assert_allclose(task.values(), expected)


def test_months_are_those_of_the_calendar(tmp_path):
    write(tmp_path, csv())
    task = SeriesTask(
        file="a.csv", data_dir=str(tmp_path), time="date", target="value", step="1M",
        window=1, horizon=1, missing="last",
    )  # fmt: skip
    months = np.array([date.month for date in DATES])
    expected = [VALUES[months == month].mean() for month in (1, 2, 3, 4)]
    np.testing.assert_allclose(task.values(), expected)


def test_line_between_values_shows_nothing_beyond_the_window(tmp_path):
    write(tmp_path, csv(["" if i in (11, 12, 13) else v for i, v in enumerate(PLAIN)]))
    fields = {"time": "date", "target": "value", "window": 6, "horizon": 1}
    task = SeriesTask(
        file="a.csv", data_dir=str(tmp_path), missing="interpolate",
        mark_missing=False, **fields,
    )  # fmt: skip
    train = VALUES[[i for i in range(70) if i not in (11, 12, 13)]]
    batch = task.batch("train", 0, task.n_examples("train"), seed=0)
    windows = {
        tuple(np.round(x[:, 0] * train.std() + train.mean(), 3)) for x in batch.inputs
    }
    # The windows that end in the gap repeat the last value; those beyond have a line.
    end = np.round([*VALUES[8:11], *[VALUES[10]] * 3], 3)
    line = VALUES[10] + (VALUES[14] - VALUES[10]) * np.arange(1, 4) / 4
    beyond = np.round([*VALUES[9:11], *line, VALUES[14]], 3)
    assert any(np.allclose(window, beyond, atol=2e-3) for window in windows)
    # Its target would be missing where it ends before the gap does.
    assert any(np.allclose(window, end, atol=2e-3) for window in windows)
    assert batch.inputs.shape[-1] == 1


def test_file_that_grew_is_read_again_by_a_new_object_alone(tmp_path):
    path = write(tmp_path, csv())
    fields = guess(path)
    task = SeriesTask(file="a.csv", data_dir=str(tmp_path), **fields)
    assert len(task.values()) == N
    later = DATES[-1] + datetime.timedelta(1)
    write(tmp_path, csv() + f"{later},99.0\n")
    assert len(task.values()) == N
    again = SeriesTask(file="a.csv", data_dir=str(tmp_path), **fields)
    assert again.values()[-1] == 99.0
    assert again.next_inputs()[0, -1, 0] != task.next_inputs()[0, -1, 0]


def test_phase_of_the_time_is_an_input(tmp_path):
    write(tmp_path, hours_as("%Y-%m-%d %H:%M"))
    fields = {"time": "date", "target": "value", "window": 5, "horizon": 1}
    task = SeriesTask(
        file="a.csv", data_dir=str(tmp_path), calendar=("hour", "weekday"), **fields
    )
    batch = task.batch("test", 0, 1, seed=0)
    assert batch.inputs.shape[-1] == task.spec.d_input == 5
    hour = 2 * np.pi * np.array([HOURS[75 + i].hour for i in range(5)]) / 24
    np.testing.assert_allclose(batch.inputs[0, :, 1], np.sin(hour), atol=1e-6)
    np.testing.assert_allclose(batch.inputs[0, :, 2], np.cos(hour), atol=1e-6)


@pytest.mark.parametrize("seconds", [1e-6, 0.25, 1, 90, 1_234_567, 3_600, 14 * 86_400])
def test_usual_step_is_the_distance_of_two_rows(tmp_path, seconds):
    first = np.datetime64("2024-01-01T00:00:00.000000")
    times = first + (1e6 * seconds * np.arange(N)).astype("timedelta64[us]")
    path = write(tmp_path, csv(dates=times))
    steps = task_of(path)._series.timeline
    step = usual_step(steps)
    assert step is not None and parse_step(step).size == 1e6 * seconds


STORES, GOODS = ("N", "S", "a/b"), (7, 12)


def sales(days=100, *, kind=True):
    """Rows of each store and kind of goods, by day; each pair has its own level."""
    lines = ["Store,Kind,Dept,Date,Sales,Price" if kind else "Store,Dept,Date,Sales"]
    for i, day in enumerate(DATES[:days]):
        for s, store in enumerate(STORES):
            for d, goods in enumerate(GOODS):
                value = 100 * s + 10 * d + i % 7
                cells = [store, f"T{s % 2}"] if kind else [store]
                cells += [goods, day, value] + [1.5 + (i + s) % 3] * kind
                lines.append(",".join(map(str, cells)))
    return "\n".join(lines) + "\n"


def test_two_columns_that_name_the_series_together_are_found(tmp_path):
    path = write(tmp_path, sales())
    fields = guess(path, target="Sales")
    assert fields["group"] == ("Store", "Dept") and fields["time"] == "Date"
    assert fields["inputs"] == ("Sales", "Price")
    task = SeriesTask(file=path, **fields)
    assert task.series_names() == (
        "N/7", "N/12", "S/7", "S/12", '"a/b"/7', '"a/b"/12'
    )  # fmt: skip
    found = {name: values.tolist() for name, values in task.series_columns().items()}
    assert found == {
        "Store": ["N", "N", "S", "S", "a/b", "a/b"],
        "Dept": ["7", "12"] * 3,
    }
    n = task.n_examples("test")
    batch = task.batch("test", 0, n, seed=0)
    values = task.in_units(batch.targets, "test", 0, n, seed=0)
    # No window goes from one series to another: each has a level of its own.
    assert ((values // 10) == (values[:, :1] // 10)).all()
    assert np.bincount(task.series_of_windows("test")).tolist() == [n // 6] * 6
    assert unread(path, fields) == {"Kind": "'T0' in line 2 is not a number or a date"}


def test_columns_of_the_name_are_stated(tmp_path):
    path = write(tmp_path, sales(kind=False))
    for stated in ("Store,Dept", "Store, Dept", ("Store", "Dept")):
        assert guess(path, group=stated)["group"] == ("Store", "Dept")
    with refuses("group", "'Shop'", rule="Store, Dept"):
        guess(path, group="Store,Shop")
    with refuses("group", "''", rule="name in each row"):
        guess(
            write(tmp_path, sales().replace("S,T1,7", "S,T1,", 1)), group="Store,Dept"
        )


def test_times_that_seldom_recur_are_explained_by_no_two_columns(tmp_path):
    rows = [f"{d},{i % 3},{i % 4},{PLAIN[i]}" for i, d in enumerate(DATES)]
    # Two mistakes, each of which one of the columns does not explain.
    rows += [f"{DATES[96]},0,1,5.0", f"{DATES[97]},2,1,5.0"]
    path = write(tmp_path, "\n".join(["date,a,b,value", *rows]) + "\n")
    with refuses("time", "'2024-04-06'", rule="`group`"):
        task_of(path, target="value").n_examples("train")


def test_names_of_several_columns_differ_if_their_values_do():
    rows = [
        ("a/b", "c"),
        ("a", "b/c"),
        ('"a', "b"),
        ("a\nb", "c"),
        ("", "x"),
        ("x", ""),
    ]
    names = [naming.join(row, ("p", "q")) for row in rows]
    assert len({*names}) == len(rows)
    assert [naming.split(name, ("p", "q")) for name in names] == rows
    assert naming.join(["a/b"], "p") == "a/b" and naming.split("a/b", "p") == ("a/b",)
    assert naming.split("", None) == ()
