"""Guesses from files of which the time, the period and the columns are known."""

import numpy as np
import pytest

from ssm_jax.tasks import SeriesTask
from ssm_jax.tasks.series.guess import guess, unread
from tests.bad_inputs import refuses

STEPS = {"h": 24, "15m": 96, "D": 7, "s": None}
# The phases of which 1,000 steps have two periods.
CALENDARS = {
    "h": ("hour", "weekday"),
    "15m": ("hour",),
    "D": ("weekday", "year"),
    "s": (),
}


def write(path, times, n=1000, words=False):
    rng = np.random.default_rng(0)
    rows = ["year,when,wind,load,gas"]
    for i in range(n):
        gas = "" if i == 3 else rng.normal()
        wind = "N" if words else 2 * i
        rows.append(f"{2010 + i // 400},{times[i]},{wind},{rng.normal()},{gas}")
    path.write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize(("step", "season"), STEPS.items())
def test_columns_and_period_of_dates_are_found(step, season, tmp_path):
    number, unit = (15, "m") if step == "15m" else (1, step)
    times = np.datetime64("2020-01-01T00:00:00") + np.arange(1000) * np.timedelta64(
        number, unit
    )
    write(tmp_path / "a.csv", times, words=True)
    window = {"h": 168, "15m": 96, "D": 49, "s": 72}[step]
    assert guess(str(tmp_path / "a.csv")) == {
        "time": "when",
        "target": "load",
        "inputs": ("load", "gas"),
        "missing": "last",
        "window": window,
        "horizon": min(season or 24, 33),
        "season": season,
        **({"calendar": CALENDARS[step]} if CALENDARS[step] else {}),
    }


def test_number_that_increases_is_no_time_unless_it_comes_first(tmp_path):
    write(tmp_path / "a.csv", ["x"] * 1000)
    fields = guess(str(tmp_path / "a.csv"), target="gas", season=5)
    assert fields["time"] is None and fields["inputs"] == ("gas", "wind", "load")
    assert (fields["season"], fields["horizon"], fields["window"]) == (5, 5, 35)
    np.savez(tmp_path / "b.npz", at=2 * np.arange(99), load=np.zeros(99))
    assert guess(str(tmp_path / "b.npz"))["time"] == "at"


@pytest.mark.parametrize("first", [0, 1])
def test_number_of_the_row_is_neither_a_time_nor_an_input(tmp_path, first):
    np.savez(tmp_path / "a.npz", no=first + np.arange(99), load=np.arange(99) % 7)
    fields = guess(str(tmp_path / "a.npz"))
    assert fields["time"] is None and fields["inputs"] == ("load",)
    assert unread(str(tmp_path / "a.npz"), fields) == {"no": "counts the rows"}


def test_hour_that_does_not_recur_is_no_period(tmp_path):
    load = np.random.default_rng(0).normal(size=100)
    np.savez(tmp_path / "a.npz", load=load, hour=np.arange(100))
    fields = guess(str(tmp_path / "a.npz"))
    assert (fields["season"], fields["horizon"], fields["window"]) == (None, 3, 17)


@pytest.mark.parametrize(("kind", "season"), [("shop", 6), ("market", 9)])
def test_closed_days_and_hours_are_left_out(tmp_path, kind, season):
    hours = np.datetime64("2022-01-03T00") + np.arange(24 * 7 * 60)  # from a Monday
    hour, weekday = np.arange(len(hours)) % 24, np.arange(len(hours)) // 24 % 7
    is_open = (hour == 0) & (weekday < 6)
    if kind == "market":
        is_open = (hour >= 9) & (hour < 18) & (weekday < 5)
    rows = [f"{time},{i % 7}" for i, time in enumerate(hours[is_open])]
    (tmp_path / "a.csv").write_text("time,sales\n" + "\n".join(rows) + "\n")
    fields = guess(str(tmp_path / "a.csv"))
    assert "step" not in fields and fields["season"] == season
    task = SeriesTask(file="a.csv", data_dir=str(tmp_path), **fields)
    assert len(task.values()) == len(rows) and task.n_examples("test") > 10


@pytest.mark.parametrize("n", [80, 117])
def test_guess_for_a_short_file_has_windows_in_each_split(n, tmp_path):
    np.savez(tmp_path / "a.npz", load=np.random.default_rng(0).normal(size=n))
    fields = guess(str(tmp_path / "a.npz"))
    task = SeriesTask(file="a.npz", data_dir=str(tmp_path), **fields)
    assert all(task.n_examples(split) > 1 for split in ("train", "validation", "test"))


def test_file_without_a_forecast_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", load=np.zeros(79))
    with refuses("file", 79):
        guess(str(tmp_path / "a.npz"))
    with refuses("target", "'gas'", rule="load"):
        guess(str(tmp_path / "a.npz"), target="gas")
    np.savez(tmp_path / "b.npz", year=np.zeros(99), hour=np.zeros(99))
    with refuses("target", "''", rule="hour"):
        guess(str(tmp_path / "b.npz"))


INPUTS, VALUES = np.zeros((99, 5, 2)), np.linspace(0, 1, 99)
LABELS = np.arange(99) % 3
SETS = {
    "classes": ({"inputs": INPUTS, "targets": LABELS}, "targets int64 (99,)"),
    "classes, lengths": (
        {"inputs": INPUTS, "targets": LABELS, "lengths": LABELS, "names": ["a", "b"]},
        "targets int64 (99,)",
    ),
    "class of a step": ({"inputs": INPUTS, "targets": INPUTS[..., 0] > 0}, "bool"),
    "other names": ({"x": INPUTS, "y": LABELS.astype(str)}, "y <U"),
    "values": ({"inputs": INPUTS, "targets": VALUES}, "targets float64 (99,)"),
}


@pytest.mark.parametrize(("arrays", "shown"), SETS.values(), ids=SETS)
def test_set_of_sequences_is_refused(arrays, shown, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    kind = "regression" if "float" in shown else "classification"
    with refuses("file", shown, rule=f"a {kind} set"):
        guess(str(tmp_path / "a.npz"))


def test_column_beside_arrays_of_other_shapes_is_forecast(tmp_path):
    arrays = {
        "load": np.sin(VALUES * 9),
        "wind": LABELS,
        "images": INPUTS,
        "edges": np.eye(3),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    fields = guess(str(tmp_path / "a.npz"), target="load")
    assert fields["target"] == "load" and fields["inputs"] == ("load", "wind")


INCREASES = {"level": np.arange(99.0)}
OTHER = {"flow": np.random.default_rng(0).normal(size=99)}
FIRST = {
    "named": (INCREASES, "level", ("level", None)),
    "named, of several": (INCREASES | OTHER, "level", ("level", None)),
    "not named, of several": (INCREASES | OTHER, None, ("flow", "level")),
    "not named": (INCREASES, None, None),
    "not named, beside an hour": (INCREASES | {"hour": np.zeros(99)}, None, None),
}


@pytest.mark.parametrize(("table", "target", "wanted"), FIRST.values(), ids=FIRST)
def test_first_column_that_increases_is_the_target_if_it_is_named(
    table, target, wanted, tmp_path
):
    path = str(tmp_path / "a.npz")
    np.savez(path, **table)
    if wanted is None:
        with refuses("target", "'level', which increases", rule="--target=level"):
            guess(path, target=target)
    else:
        fields = guess(path, target=target)
        assert (fields["target"], fields["time"]) == wanted
        assert fields["inputs"][0] == wanted[0]


# Columns of a table beside its dates, and the target, or what the refusal shows.
TARGETS = {
    "the only one": ({"flow": 7}, "flow"),
    "beside a calendar": ({"hour": 24, "flow": 7}, "flow"),
    "beside a flag": ({"open": 2, "flow": 7}, "flow"),
    "a flag alone": ({"open": 2}, "open"),
    "named": ({"promo": 3, "Sales": 7, "price": 5}, "Sales"),
    "named, a flag": ({"price": 5, "y": 2}, "y"),
    "part of a name": ({"sales_a": 7, "price": 5}, ["sales_a, price", "--target="]),
    "two": ({"flow": 7, "level": 5}, ["flow, level in", "--target=NAME"]),
    "two flags": ({"open": 2, "promo": 2}, ["open, promo in"]),
    "two names": ({"sales": 7, "price": 5, "demand": 3}, ["sales, price, demand in"]),
    "many": ({f"c{i}": 3 + i for i in range(13)}, ["c0, c1, c2", "c9 and 3 more in"]),
}


@pytest.mark.parametrize(("periods", "wanted"), TARGETS.values(), ids=TARGETS)
def test_target_is_found_only_if_it_is_clear(periods, wanted, tmp_path):
    columns = {name: np.arange(99) % period for name, period in periods.items()}
    dates = np.datetime64("2020-01-01") + np.arange(99)
    path = str(tmp_path / "a.npz")
    np.savez(path, when=dates, **columns)
    if isinstance(wanted, str):
        fields = guess(path)
        assert fields["target"] == wanted and set(fields["inputs"]) == set(columns)
        return
    with refuses("target", wanted[0], rule=wanted[-1]):
        guess(path)
    first = next(iter(columns))
    assert guess(path, target=first)["target"] == first


@pytest.mark.parametrize("row", [0, 5, 399])
def test_date_that_is_missing_is_refused_with_its_line(tmp_path, row):
    dates = np.datetime64("2020-01-01") + np.arange(400)
    words = ["" if i == row else str(date) for i, date in enumerate(dates)]
    lines = [f"{word},{i % 7}" for i, word in enumerate(words)]
    (tmp_path / "a.csv").write_text("\n".join(["day,load", *lines]) + "\n")
    with refuses("time", "'' of 'day'", rule=f"line {row + 2}"):
        guess(str(tmp_path / "a.csv"))


def test_columns_that_are_not_read_say_why(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    dates = np.datetime64("2020-01-01") + np.arange(100)
    table = {
        "day": dates,
        "again": dates,
        "load": np.arange(100) % 7,
        "year": np.full(100, 2020),
        "empty": np.full(100, np.nan),
        "place": ["a"] * 100,
        "raw": [b"\xff"] * 100,
    }
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    reasons = unread(path, guess(path))
    words = {"again": "time", "empty": "no value", "place": "'a'", "raw": "binary"}
    assert reasons.keys() == words.keys()
    assert all(word in reasons[name] for name, word in words.items())


BAD = ["1..5", "0x10", "1_000", "inf", "01/02/2024", "x" * 99]


@pytest.mark.parametrize("bad", BAD)
def test_value_that_is_no_number_is_shown_with_its_line(tmp_path, bad):
    rows = [[f"2024-01-01 {i % 24:02d}:00", f"{i}.5", f"{i % 7}"] for i in range(100)]
    rows = [
        [f"2024-01-{1 + i // 24:02d}" + row[0][10:], *row[1:]]
        for i, row in enumerate(rows)
    ]
    rows[60][1] = bad
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["day,level,load", *map(",".join, rows)]) + "\n")
    reasons = unread(str(path), guess(str(path)))
    assert reasons.keys() == {"level"}
    assert f"'{bad[:40]}'" in reasons["level"] and "line 62 " in reasons["level"]
    assert len(reasons["level"]) < 120
    rows[30][0] = bad
    path.write_text("\n".join(["day,level,load", *map(",".join, rows)]) + "\n")
    with refuses("time", f"'{bad[:40]}'", rule="of 'day' in line 32"):
        guess(str(path))


@pytest.mark.parametrize("dtype", ["V8", "f4,f4", "M8", "m8"])
def test_array_that_is_no_column_is_left_out_with_its_dtype(tmp_path, dtype):
    path = str(tmp_path / "a.npz")
    np.savez(path, value=np.zeros(100, dtype), load=np.arange(100) % 7)
    fields = guess(path)
    assert fields["target"] == "load"
    assert str(np.dtype(dtype)) in unread(path, fields)["value"]
    fields["time"] = "value"
    task = SeriesTask(file="a.npz", data_dir=str(tmp_path), **fields)
    with refuses("time", "'value' of dtype"):
        task.n_examples("train")


def write_shops(path, repeated):
    """Rows of three shops, of which some days of one are there twice."""
    days = np.arange("2022-01-01", "2022-07-20", dtype="datetime64[D]")
    rng = np.random.default_rng(0)
    rows = [
        f"{day},{shop},{rng.normal():.3f}"
        for i, day in enumerate(days)
        for shop in ("north", "south", "west")
        for _ in range(1 + (shop == "north" and i < repeated))
    ]
    path.write_text("\n".join(["day,shop,sales", *rows]) + "\n")


def test_a_day_that_a_shop_has_twice_does_not_hide_the_shops(tmp_path):
    write_shops(tmp_path / "a.csv", 1)
    with refuses("time", "2022-01-01", rule="such row; `duplicates`") as error:
        guess(str(tmp_path / "a.csv"), target="sales")
    assert "of a series" in str(error.value) and "group" not in str(error.value)
    guesses = guess(str(tmp_path / "a.csv"), target="sales", duplicates="last")
    assert (guesses["group"], guesses["duplicates"]) == ("shop", "last")
    # A column that leaves many times twice names no series.
    write_shops(tmp_path / "b.csv", 90)
    with refuses("time", "2022-01-01", rule="; `group` names"):
        guess(str(tmp_path / "b.csv"), target="sales")


def test_dates_with_offsets_are_said_to_be_converted(tmp_path):
    hours = np.datetime64("2024-01-01T00", "h") + np.arange(400)
    for offset in ("+01:00", "Z"):
        write(tmp_path / "a.csv", [f"{hour}:00{offset}" for hour in hours], 400)
        guesses = guess(str(tmp_path / "a.csv"), target="load")
        task = SeriesTask(data_dir=str(tmp_path), file="a.csv", **guesses)
        assert ("times are converted to UTC" in task.notes()) == (offset != "Z")
