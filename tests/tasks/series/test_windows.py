"""SeriesTask: windows, scales and baselines compared with loops over a file's rows."""

import json

import numpy as np
import pytest

from ssm_jax import tasks
from ssm_jax.tasks.series import columns
from tests.bad_inputs import refuses
from tests.tiers import tiered

WINDOW, HORIZON, SEASON = 5, 4, 3
# Two columns of 60 rows, of which the train split has 42 and validation 6.
RNG = np.random.default_rng(0)
LEVEL = RNG.normal(30, 7, 60)
FLOW = RNG.normal(-2, 3, 60)
GAPS = (0, 1, 20, 21, 50)


def write(path, level=LEVEL, flow=FLOW, header="day,level,flow", delimiter=","):
    lines = [header.replace(",", delimiter)]
    for day, (a, b) in enumerate(zip(level, flow, strict=True)):
        cells = [
            f"{np.datetime64('2020-01-01') + np.timedelta64(day, 'D')}",
            *map(str, (a, b)),
        ]
        lines.append(delimiter.join("" if c == "nan" else c for c in cells))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")


def task(folder, file="a.csv", **fields):
    options = {
        "target": "level",
        "inputs": ("flow", "level"),
        "time": "day",
        "window": WINDOW,
        "horizon": HORIZON,
        "season": SEASON,
        "train_fraction": 0.7,
        "validation_fraction": 0.15,
    }
    return tasks.SeriesTask(file=file, data_dir=str(folder), **(options | fields))


def definition(level, flow):
    """Windows of the test split, their targets and both baselines, row by row."""
    mean = {name: np.nanmean(x[:42]) for name, x in (("f", flow), ("l", level))}
    std = {name: np.nanstd(x[:42]) for name, x in (("f", flow), ("l", level))}
    filled, last_value = [], mean["l"]
    for value in level:
        last_value = last_value if np.isnan(value) else value
        filled.append(last_value)
    windows = []
    # The first target of the split is in row 51; the window is of rows before it.
    for first in range(51 - WINDOW, 60 - WINDOW - HORIZON + 1):
        rows = range(first, first + WINDOW)
        ahead = range(first + WINDOW, first + WINDOW + HORIZON)
        if any(np.isnan(level[t]) for t in ahead):
            continue
        x = [
            [
                (flow[t] - mean["f"]) / std["f"],
                1,
                (filled[t] - mean["l"]) / std["l"],
                float(not np.isnan(level[t])),
            ]
            for t in rows
        ]
        season = [filled[t - 3] for t in ahead[:3]] + [filled[ahead[3] - 6]]
        windows.append((x, [level[t] for t in ahead], [filled[rows[-1]]] * 4, season))
    inputs, *target_columns = (np.array(part) for part in zip(*windows, strict=True))
    targets, last, season = target_columns
    return inputs, (targets - mean["l"]) / std["l"], last, season


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_windows_and_baselines_are_those_of_the_rows(tmp_path, gaps, delimiter):
    level = LEVEL.copy()
    level[list(GAPS)] = np.nan if gaps else level[list(GAPS)]
    write(tmp_path / "a.csv", level, delimiter=delimiter)
    it = task(tmp_path, missing="last" if gaps else "error")
    x, targets, last, seasonal = definition(level, FLOW)
    batch = it.batch("test", 0, len(x), seed=0)
    assert it.n_examples("test") == len(x) and batch.loss_mask.all()
    expected = x if gaps else x[..., ::2]
    np.testing.assert_allclose(batch.inputs, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch.targets, targets, rtol=1e-5, atol=1e-6)
    baselines = it.baselines("test", 0, len(x), seed=0)
    np.testing.assert_allclose(baselines["last value"], last)
    np.testing.assert_allclose(baselines["seasonal"], seasonal)
    mean, std = np.nanmean(level[:42]), np.nanstd(level[:42])
    values = it.in_units(batch.targets, "test", 0, len(x), 0)
    np.testing.assert_allclose(values, targets * std + mean, rtol=1e-6)


def test_window_with_a_missing_target_is_left_out_of_the_train_split(tmp_path):
    level = LEVEL.copy()
    level[list(GAPS)] = np.nan
    write(tmp_path / "a.csv", level)
    complete = 42 - WINDOW - HORIZON + 1
    # Rows 20 and 21 are among the targets of the windows that start at 12 to 16.
    assert task(tmp_path, missing="last").n_examples("train") == complete - 5


def test_differences_are_taken_from_the_last_value(tmp_path):
    write(tmp_path / "a.csv")
    plain, it = task(tmp_path), task(tmp_path, differences=True)
    last = plain.baselines("train", 0, 8, 3)["last value"]
    values = it.in_units(np.zeros((8, HORIZON)), "train", 0, 8, 3)
    np.testing.assert_allclose(values, last)
    targets, expected = (t.batch("train", 0, 8, 3).targets for t in (it, plain))
    std = LEVEL[:42].std()
    expected = expected - (last - LEVEL[:42].mean()) / std
    np.testing.assert_allclose(targets, expected, rtol=1e-4, atol=1e-5)


def test_class_is_that_of_a_step_after_the_window(tmp_path):
    names = np.array(["dry", "wet"])[(LEVEL > 30).astype(int)]
    write(tmp_path / "a.csv", names)
    options = {"inputs": ("flow",), "classes": ("wet", "dry"), "season": None}
    for ahead in (0, 2):
        batch = task(tmp_path, horizon=ahead, **options).batch("test", 0, 3, seed=0)
        at = 51 + np.arange(3)
        np.testing.assert_array_equal(batch.targets, names[at] == "dry")


@pytest.mark.parametrize("suffix", tiered(["npz", "parquet"]))
def test_other_formats_have_the_windows_of_the_csv(tmp_path, suffix):
    write(tmp_path / "a.csv")
    table = {"level": LEVEL, "flow": FLOW}
    if suffix == "npz":
        np.savez(tmp_path / "a.npz", **table)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    expected = task(tmp_path).batch("train", 0, 8, seed=0)
    batch = task(tmp_path, f"a.{suffix}", time=None).batch("train", 0, 8, seed=0)
    np.testing.assert_array_equal(batch.inputs, expected.inputs)
    np.testing.assert_array_equal(batch.targets, expected.targets)


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_columns_that_no_field_names_are_not_read(tmp_path, suffix):
    if suffix == "npz":
        wide = np.zeros((60, 2))
        np.savez(tmp_path / "a.npz", level=LEVEL, flow=FLOW, wide=wide, rest=LEVEL)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        table = {"level": LEVEL, "flow": FLOW, "rest": LEVEL}
        parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    task(tmp_path, f"a.{suffix}", time=None).batch("train", 0, 8, seed=0)
    table_columns = columns.read(str(tmp_path / f"a.{suffix}"))
    assert list(table_columns) == ["level", "flow", "rest"]
    assert table_columns["level"] is table_columns["level"]  # read once
    (tmp_path / f"a.{suffix}").unlink()
    assert table_columns["flow"].shape == (60,)
    with pytest.raises(FileNotFoundError):
        table_columns["rest"]


# Without the checks of annotations, which read the first column.
@pytest.mark.usefixtures("unchecked")
def test_column_larger_than_the_bytes_of_its_file_may_be_is_refused(
    tmp_path, monkeypatch
):
    def write_csv(path):
        path.write_text("word,level\n" + "x" * 9_000 + ",0\n" + "x,0\n" * 99)

    def write_parquet(path):
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"level": np.zeros(100_000)}), path)

    def write_words(path):
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        table = pyarrow.table({"level": ["x" * 9_000] * 99 + [None]})
        parquet.write_table(table, path)
        assert path.stat().st_size < 2_000

    for suffix, write, size in (
        # As strings of one width.
        ("csv", write_csv, "3,600,000 of 'word'"),
        ("parquet", write_parquet, "800,000 of 'level'"),
        ("parquet", write_words, "3,600,000 of 'level'"),
    ):
        folder = tmp_path / write.__name__
        folder.mkdir()
        for name in ("a", "b"):
            write(folder / f"{name}.{suffix}")
        assert columns.read(str(folder / f"a.{suffix}"))["level"].size
        with monkeypatch.context() as patched:
            patched.setattr("ssm_jax.files.MAX_BYTES", 2_000)
            with refuses("file", size, rule="bytes"):
                columns.read(str(folder / f"b.{suffix}"))["level"]


def test_constant_column_is_zero(tmp_path):
    write(tmp_path / "a.csv", flow=np.full(60, 0.1))
    constant = task(tmp_path).batch("train", 0, 8, seed=0).inputs[..., 0]
    np.testing.assert_allclose(constant, 0, atol=1e-12)


FIELDS = {
    "horizon": ({"horizon": 0}, "horizon", 0),
    "season": ({"season": 6}, "season", 6),
    "fractions": ({"train_fraction": 0.9}, "train_fraction", 0.9),
    "no validation": ({"validation_fraction": 0.0}, "train_fraction", "0.7 and 0.0"),
    "classes": ({"classes": ("a",)}, "classes", "('a',)"),
    "window": ({"window": 0}, "window", 0),
    "missing": ({"missing": "first"}, "missing", "first"),
}


@pytest.mark.parametrize(("fields", "name", "value"), FIELDS.values(), ids=FIELDS)
def test_field_out_of_range_is_refused(fields, name, value, tmp_path, unchecked):
    with refuses(name, value):
        task(tmp_path, **fields)


def with_value(word, row=7):
    return [word if t == row else value for t, value in enumerate(LEVEL)]


TINY = 1e-30 * np.sign(FLOW)
FILES = {
    "column": ({}, {"target": "Level"}, "target", "Level"),
    "word": (
        {"level": with_value("high")},
        {},
        "inputs",
        "'high' of 'level' in line 9",
    ),
    **{
        # In the last row, too, which is of the test split alone.
        f"{value} in {row}": (
            {"level": with_value(value, row)},
            {},
            "inputs",
            f"{value!r} of 'level' in line {row + 2}",
        )
        for value in ("inf", "1e400", "1e200", "-1e308", "2e38")
        for row in (7, 59)
    },
    "large by its scale": (
        {"flow": [*TINY[:59], 1e20]},
        {},
        "flow",
        "1e+20 in line 61",
    ),
    "gap": ({"level": with_value("nan")}, {}, "missing", "1 missing"),
    "gap in a line": ({"level": with_value("nan")}, {}, "missing", "first in line 9"),
    "class": ({}, {"classes": ("1", "2")}, "classes", LEVEL[0]),
    "order": ({}, {"time": "flow"}, "time", FLOW[1]),
    "first time": ({"flow": ["nan", *range(59)]}, {"time": "flow"}, "time", "line 2"),
    "no time": ({"flow": ["x"] * 60}, {"time": "flow"}, "time", "'x'"),
    "long": ({}, {"window": 60}, "window", 60),
}


@pytest.mark.parametrize(
    ("table", "fields", "name", "value"), FILES.values(), ids=FILES
)
def test_file_that_does_not_fit_is_refused(table, fields, name, value, tmp_path):
    write(tmp_path / "a.csv", **table)
    with refuses(name, value):
        task(tmp_path, **fields).batch("test", 0, 2, seed=0)


def test_value_of_any_size_that_float32_holds_is_normalised(tmp_path):
    """Squares of the values themselves would underflow, or overflow float32."""
    expected = (LEVEL - LEVEL[:42].mean()) / LEVEL[:42].std()
    for scale in (2.0**-1020, 1e-200, 1.0, 1e36):
        write(tmp_path / f"{scale}.csv", LEVEL * scale)
        it = task(tmp_path, f"{scale}.csv")
        batch = it.batch("test", 0, 1, seed=0)
        np.testing.assert_allclose(batch.inputs[0, :, 1], expected[46:51], rtol=1e-5)
        values = it.in_units(batch.targets, "test", 0, 1, 0)[0]
        np.testing.assert_allclose(values, LEVEL[51:55] * scale, rtol=1e-5)


def test_column_without_a_line_is_missing_where_it_is_empty(tmp_path):
    (tmp_path / "a.csv").write_text("level\n1\n\n3\n\n\n")
    (values,) = columns.read(str(tmp_path / "a.csv")).values()
    assert values.tolist() == ["1", "", "3"]


def csv_with(line, cells, header="day,level,place", n=2000):
    """The bytes of a CSV whose ``line``, from 1, has other cells."""
    rows = [f"2020-01-01,{i},a" for i in range(n)]
    rows[line - 2] = cells
    return "\n".join([header, *rows, ""]).encode("latin-1")


CSVS = {
    "quote that is not closed": (
        csv_with(1501, '2020-01-01,"5,a'),
        """'"5,a'""",
        "column 'level', line 1501",
    ),
    "quote that is closed by another": (
        csv_with(1501, '2020-01-01,5,"a').replace(b"1990,a", b'1990,"a'),
        """'"a'""",
        "column 'place', line 1501",
    ),
    "text after a quote": (
        csv_with(7, '"2,0",5,"a"b'),
        """'"a"b'""",
        "column 'place', line 7",
    ),
    "quote in the header": (
        csv_with(7, "1,2,3", 'day,"level,place'),
        '"level',
        "line 1",
    ),
    "long field": (
        csv_with(1000, f"1,2,{'x' * 200_000}"),
        "'xxxx",
        "column 'place', line 1000",
    ),
    "no text": (csv_with(1999, "1,2,Z\x81rich"), r"Z\x81rich'", "line 1999"),
    "numbers as the header": (b"1.5,2\n2.5,3\n", "1.5, 2", "line 1"),
    "a date as the header": (
        b"2020-01-01,7\n2020-01-02,8\n",
        "2020-01-01, 7",
        "line 1",
    ),
    "one number as the header": (b"7\n8\n", "got 7", "line 1"),
    "lines of another length": (b'a,b\n1,"x\ny"\n1\n', "got 1", "line 4"),
}


@pytest.mark.parametrize(("content", "value", "place"), CSVS.values(), ids=CSVS)
def test_csv_that_cannot_be_read_whole_is_refused(tmp_path, content, value, place):
    (tmp_path / "a.csv").write_bytes(content)
    with refuses("file", value, rule=place) as error:
        columns.read(str(tmp_path / "a.csv"))
    assert str(tmp_path / "a.csv") in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize(
    "header", ["day,level", "0,1", "1990,1991", ",level", "0", '"a, b",c']
)
def test_header_is_one_of_names(tmp_path, header):
    (tmp_path / "a.csv").write_text(f"{header}\n{'5,' * (',' in header)}6\n")
    assert all(
        len(column) == 1 for column in columns.read(str(tmp_path / "a.csv")).values()
    )


def test_files_that_are_no_tables_are_refused(tmp_path):
    with refuses("file", "a.csv", error=FileNotFoundError):
        task(tmp_path).n_examples("test")
    for name, text, rule in (
        ("b.csv", "a,b\n\n1,2\n\n1\n", "in line 5"),
        ("c.csv", "a,b\n", "a value"),
        ("d.dat", "a\n", "end in"),
        ("e.npz", "", "whole"),
        ("f.csv", "a,b, a\n1,2,3\n", "got 'a' more than once"),
    ):
        (tmp_path / name).write_text(text)
        with refuses("file", name, rule=rule):
            columns.read(str(tmp_path / name))


def test_parquet_with_two_columns_of_one_name_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    table = pyarrow.Table.from_arrays([pyarrow.array([1.0])] * 3, ["a", "b", "a"])
    parquet.write_table(table, path)
    with refuses("file", path, rule="got 'a' more than once"):
        columns.read(str(path))


OTHERS = {
    "bytes": ([b"a", b"\xff"], "binary"),
    "lists": ([[1.0, 2.0], [3.0, 4.0]], "list<"),
    "lists of several lengths": ([[1.0], [2.0, 3.0]], "list<"),
    "dicts": ([{"a": 1}, {"a": 2}], "struct<"),
}


@pytest.mark.parametrize(("values", "kind"), OTHERS.values(), ids=OTHERS)
def test_parquet_column_of_another_type_is_refused_where_it_is_read(
    tmp_path, values, kind
):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = str(tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table({"level": [1.0, 2.0], "other": values}), path)
    table = columns.read(path)
    assert table.column("level", "target").tolist() == [1.0, 2.0]
    for field in ("target", "inputs", "time"):
        with refuses(field, "'other'", rule=f"type {kind}") as error:
            table.column("other", field)
        assert path in str(error.value)


def test_damaged_parquet_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 and no more")
    with refuses("file", path):
        columns.read(str(path))


@pytest.mark.parametrize("differences", [False, True])
def test_preprocessing_makes_inputs_and_scales_forecasts_back(tmp_path, differences):
    write(tmp_path / "a.csv")
    series = task(tmp_path, inputs=("flow", "level"), differences=differences)
    about = json.loads(json.dumps(series.preprocessing()))
    values = {"level": LEVEL, "flow": FLOW}
    batch = series.batch("test", 0, 1, seed=0)
    start = int(series.first_targets("test")[0]) - series.window
    rows = slice(start, start + series.window)
    inputs = [
        (values[column["name"]][rows] - column["mean"]) / column["std"]
        for column in about["columns"]
    ]
    np.testing.assert_allclose(batch.inputs[0], np.stack(inputs, -1), atol=1e-5)
    target = about["target"]
    offset = target["mean"]
    if target["differences"]:
        offset = values[target["name"]][rows][-1]
    forecast = batch.targets * target["std"] + offset
    expected = series.in_units(batch.targets, "test", 0, 1, seed=0)
    np.testing.assert_allclose(forecast, expected, rtol=1e-6)
