"""Tables of several files: what is joined, and files that differ from the others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssm_jax.tasks import LongTable, SeriesTask, fingerprint
from ssm_jax.tasks.series import columns
from ssm_jax.tasks.series.guess import guess, suspects, unread
from tests.bad_inputs import refuses

N = 100
DATES = np.datetime64("2024-01-01") + np.arange(N)
SALES = 10 + np.arange(N) % 7 + 0.5


def text(
    sep=",", names=("day", "sales", "price"), scale=1, dates: Any = DATES, decimal="."
):
    """A CSV with a column for each name; the sales are ``scale * SALES``."""
    of_name = {
        "day": dates,
        "sales": scale * SALES[: len(dates)],
        "price": np.arange(len(dates)) % 5 + 0.25,
    }
    cells = [
        [
            str(value) if name == "day" else str(value).replace(".", decimal)
            for value in of_name.get(name, range(N))
        ]
        for name in names
    ]
    rows = [sep.join(row) for row in zip(*cells, strict=False)]
    return "\n".join([sep.join(names), *rows]) + "\n"


@pytest.fixture
def folder(tmp_path):
    """Three files of unlike dialects, whose columns have unlike orders."""
    (tmp_path / "b.csv").write_text(text())
    days = [f"{d[8:]}.{d[5:7]}.{d[:4]}" for d in DATES.astype(str)]
    mixed = text(";", ("price", "sales", "day"), 2, days, decimal=",")
    (tmp_path / "a.csv").write_bytes(mixed.encode("utf-16"))
    (tmp_path / "10.csv").write_text(text("\t", scale=3))
    return tmp_path


def task_of(folder, **fields):
    fields = guess(f"{folder}/*.csv", target="sales") | fields
    return SeriesTask(data_dir=str(folder), file="*.csv", **fields)


def test_files_of_unlike_dialects_and_orders_are_series(folder):
    task = task_of(folder)
    assert task.series_names() == ("10", "a", "b")
    assert (task.group, task.time, task.inputs) == ("file", "day", ("sales", "price"))
    expected = np.concatenate([3 * SALES, 2 * SALES, SALES])
    np.testing.assert_array_equal(task.values(), expected)
    times = task.times()
    assert times is not None and (times.reshape(3, N) == DATES).all()
    notes = "; ".join(task.notes())
    assert "values are between tabs (10.csv)" in notes
    assert "dates are day first (a.csv)" in notes
    assert task.next_inputs().shape[0] == 3


def empty(folder):
    (folder / "c.csv").write_text("")
    return "c.csv", "empty"


def header_alone(folder):
    (folder / "c.csv").write_text("day,sales,price\n")
    return "c.csv", "rows"


def further_column(folder):
    (folder / "c.csv").write_text(text(names=("day", "sales", "promo", "price")))
    return "c.csv with 'promo', unlike 10.csv", "same columns"


def lacking_column(folder):
    (folder / "0.csv").write_text(text(names=("day", "sales")))
    return "0.csv without 'price', unlike 10.csv", "leave it out"


def other_name(folder):
    (folder / "c.csv").write_text(text(names=("Day", "sales", "price")))
    return "c.csv with 'Day' and without 'day'", "same columns"


def bad_number(folder):
    (folder / "c.csv").write_text(text().replace("16.5", "16.5.1", 1))
    return "'16.5.1' of 'sales' in line 8 of c.csv of", "number"


def bad_date(folder):
    (folder / "c.csv").write_text(text() + "Total,6,1\n")
    return "'Total' of 'day' in line 102 of c.csv of", "date"


def short_line(folder):
    (folder / "c.csv").write_text(text() + "2024-05-01,6\n")
    return "in line 102", "c.csv"


def time_twice(folder):
    (folder / "c.csv").write_text(text() + "2024-04-09,6,1\n")
    return "in line 102 of c.csv of", "as in line 101 of c.csv"


def other_kind(folder):
    rows = {"day": DATES, "sales": SALES, "price": SALES}
    np.savez(folder / "c.csv.npz", **rows)
    (folder / "c.csv.npz").rename(folder / "c.npz")
    return ".csv, .npz", "one kind"


def own_column_of_files(folder):
    for name in ("10", "a", "b"):
        (folder / f"{name}.csv").write_text(text(names=("day", "sales", "file")))
    return "one in 10.csv", "no column 'file'"


REFUSED = [
    empty, header_alone, further_column, lacking_column, other_name, bad_number,
    bad_date, short_line, time_twice, other_kind, own_column_of_files,
]  # fmt: skip


@pytest.mark.parametrize("change", REFUSED)
def test_file_that_differs_is_named(change, folder):
    shown, rule = change(folder)
    name = "time" if change in (bad_date, time_twice) else ""
    name = name or ("target" if change is bad_number else "file")
    with refuses(name, shown, rule=rule) as refusal:
        path = f"{folder}/*"
        SeriesTask(file=path, **guess(path, target="sales")).n_examples("train")
    assert len(str(refusal.value)) < 450


def test_dates_in_one_file_and_numbers_in_another_are_no_time(folder):
    (folder / "c.csv").write_text(text(dates=np.arange(N) + 5))
    table = columns.read(f"{folder}/*.csv")
    assert table.times("day").values is None
    with refuses("time", "line 2 of c.csv", rule="no date, unlike"):
        task_of(folder, time="day").n_examples("train")


def test_number_of_the_row_in_each_file_is_no_input(folder):
    for path in folder.iterdir():
        path.write_text(text(names=("no", "day", "sales")))
    path = f"{folder}/*.csv"
    fields = guess(path)
    assert fields["inputs"] == ("sales",) and fields["time"] == "day"
    assert unread(path, fields) == {"no": "counts the rows"}


def test_files_that_follow_each_other_may_be_one_series(folder):
    for i, path in enumerate(sorted(folder.iterdir())):
        path.write_text(text(dates=DATES + np.timedelta64(N * i, "D")))
    path = f"{folder}/*.csv"
    assert "no two share a time" in suspects(path, guess(path, target="sales"))["file"]
    task = task_of(folder, group=None)
    assert task.series_names() == ("",) and len(task.values()) == 3 * N


def test_all_files_are_of_the_fingerprint_and_read_again_if_they_change(folder):
    task, before = task_of(folder), fingerprint.fingerprint_of(task_of(folder))
    assert before and before["files"] == 3
    assert set(task.data_files()) == {"10.csv", "a.csv", "b.csv"}
    (folder / "b.csv").write_text(text(scale=9))
    changed = fingerprint.fingerprint_of(task_of(folder))
    assert changed and not fingerprint.same(before, changed)
    assert task_of(folder).values()[-1] == 9 * SALES[-1]
    (folder / "c.csv").write_text(text())
    assert task_of(folder).series_names() == ("10", "a", "b", "c")


def test_names_are_those_of_the_pattern_and_folders_may_have_any_name(tmp_path):
    base = tmp_path / "[1] a*"
    for name in ("x", "y"):
        (base / name).mkdir(parents=True)
        (base / name / "data.csv").write_text(text())
    (base / "x[1].csv").write_text(text(scale=2))
    assert [*columns.files(f"{base}/*/data.csv")] == ["x/data.csv", "y/data.csv"]
    table = columns.read(f"{base}/*/data.csv")
    assert np.unique(table["file"]).tolist() == ["x/data", "y/data"]
    alone = columns.read(f"{base}/x[1].csv")
    assert "file" not in alone and alone["sales"][0] == str(2 * SALES[0])
    (base / "x/data.tsv").write_text(text("\t"))
    table = columns.read(f"{base}/x/*")
    assert np.unique(table["file"]).tolist() == ["data.csv", "data.tsv"]


def test_pattern_without_a_file_is_no_file(tmp_path):
    task = SeriesTask(data_dir=str(tmp_path), file="*.csv", target="x")
    with refuses("file", "*.csv", error=FileNotFoundError):
        task.n_examples("train")
    assert [*task.data_files()] == ["*.csv"]


def test_files_of_parquet_are_joined(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for name, scale in (("a", 1), ("b", 2)):
        rows = {"day": DATES, "sales": scale * SALES, "shop": [name] * N}
        parquet.write_table(pyarrow.table(rows), tmp_path / f"{name}.parquet")
    path = f"{tmp_path}/*.parquet"
    task = SeriesTask(file=path, **guess(path))
    assert task.series_names() == ("a", "b") and task.inputs == ("sales",)
    np.testing.assert_array_equal(task.values(), np.concatenate([SALES, 2 * SALES]))


def test_each_file_may_be_an_example_of_a_long_table(tmp_path):
    for i in range(20):
        rows = "\n".join(f"{t},{'ab'[i % 2]}" for t in range(5))
        Path(tmp_path, f"{i}.csv").write_text(f"x,label\n{rows}\n")
    task = LongTable(
        data_dir=str(tmp_path), file="*.csv", example="file", target="label",
        features=("x",), length=5, classes=("a", "b"),
    )  # fmt: skip
    assert task.n_examples("train") == 16 and len(task.data_files()) == 20
