"""`ssm-jax predict` from a CSV to a file of forecasts, by a run of few steps."""

import csv
import json
import os

import numpy as np
import pytest

from ssm_jax.cli import config_file, predict as program, report
from ssm_jax.cli.templates.forecast import forecast
from ssm_jax.cli.templates.labelled import classify, regress
from ssm_jax.evaluation import predict, restore
from ssm_jax.tasks import TableFormat
from ssm_jax.tasks.series import dates
from ssm_jax.training import WorkDir, train
from tests.cli import programs
from tests.tasks import raw_sets

HOURS = 900


def write(name, first=0, last=HOURS, column="load", offset=""):
    hours = np.datetime64("2020-01-01T00") + np.arange(first, last)
    load = np.sin(2 * np.pi * np.arange(first, last) / 24)
    pairs = zip(hours, load, strict=True)
    rows = [f"{hour}:00{offset},{value}" for hour, value in pairs]
    with open(name, "w") as file:
        file.write("\n".join([f"when,{column}", *rows]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with ``load.csv`` and a run on it, evaluated at the start too."""
    path = tmp_path_factory.mktemp("forecast")
    before = os.getcwd()
    os.chdir(path)
    try:
        write("load.csv")
        forecast("load.csv", "mine.py")
        config = config_file.load("mine.py")
        config.training.update(steps=2, evaluate_every=2)
        config.optimizer.update(warmup_steps=0)
        train(config, "run")
    finally:
        os.chdir(before)
    return path


@pytest.mark.full
def test_program_writes_what_follows_new_rows(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert programs.run(monkeypatch, "evaluate", "--workdir=run") in (0, None)
    write("new.csv", 500, 960)
    words = ["--workdir=run", "--data=new.csv"]
    for suffix in ("csv", "npz"):
        output = f"--output=next.{suffix}"
        assert programs.run(monkeypatch, "predict", *words, output) in (0, None)
    with open("next.csv") as file:
        rows = [*csv.DictReader(file)]
    table = predict(restore("run"), "new.csv")
    assert list(rows[0]) == ["when", "step", "forecast", "lower", "upper"]
    assert rows[0]["when"] == "2020-02-10 00:00:00" and len(rows) == 24
    with np.load("next.npz") as arrays:
        for name, values in table.items():
            np.testing.assert_array_equal(arrays[name], values)
    found = [float(row["forecast"]) for row in rows]
    np.testing.assert_allclose(found, table["forecast"], rtol=1e-6)
    # The run was trained on other rows, and its own file need not be there.
    os.rename("load.csv", "moved.csv")
    capsys.readouterr()
    assert programs.run(monkeypatch, "predict", *words) in (0, None)
    assert capsys.readouterr().out.splitlines()[1].startswith("2020-02-10 00:00:00,1,")
    os.rename("moved.csv", "load.csv")


def test_times_of_utc_are_marked():
    times = np.array(["2024-01-01T23:00", "2024-01-02T00:00"], "M8[us]")
    table = {"when": times, "step": np.arange(2)}
    plain, marked = (program._csv(table, is_utc=utc) for utc in (False, True))
    assert plain.splitlines()[1] == "2024-01-01 23:00:00,0"
    assert marked.splitlines()[1] == "2024-01-01 23:00:00+00:00,0"
    days = {"when": times[1:]}
    assert program._csv(days, is_utc=False) == "when\n2024-01-02\n"
    assert program._csv(days, is_utc=True) == "when\n2024-01-02 00:00:00+00:00\n"


@pytest.mark.full
def test_times_of_rows_with_offsets_are_marked(folder, monkeypatch):
    monkeypatch.chdir(folder)
    write("local.csv", 500, 960, offset="+01:00")
    words = ["--workdir=run", "--data=local.csv", "--output=marked.csv"]
    assert programs.run(monkeypatch, "predict", *words) in (0, None)
    with open("marked.csv") as file:
        assert next(csv.DictReader(file))["when"] == "2020-02-09 23:00:00+00:00"
    # What was written is read as the times that it names.
    words = dates.parse(["2020-02-09 23:00:00+00:00"], TableFormat())
    assert words.is_utc and words.values[0] == 1e6 * (18_301 * 24 + 23) * 3_600
    parquet = pytest.importorskip("pyarrow.parquet")
    words = ["--workdir=run", "--data=local.csv", "--output=marked.parquet"]
    assert programs.run(monkeypatch, "predict", *words) in (0, None)
    assert parquet.read_schema("marked.parquet").field("when").type.tz == "UTC"


@pytest.mark.full
def test_new_labelled_rows_are_evaluated_apart(folder, monkeypatch):
    monkeypatch.chdir(folder)
    write("later.csv", 900, 1400)
    arguments = ["--workdir=run", "--data=later.csv"]
    assert programs.run(monkeypatch, "evaluate", *arguments) in (0, None)
    names = {path.name for path in (folder / "run").iterdir()}
    assert "evaluation-later.json" in names


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--data=none.csv"], "none.csv"),
        (["--data=other.csv"], "without 'load'; add them"),
        (["--data=few.csv"], "`--data` must have the 72 steps of a window"),
        (["--output=next.txt"], "`--output` must be a file that can be written"),
        (["--output=there/next.csv"], "`mkdir -p there` makes it"),
        (["--checkpoint=-1"], "`--checkpoint` must be best, latest or a step"),
    ],
    ids=["missing", "column", "short", "extension", "folder", "checkpoint"],
)
def test_what_cannot_be_predicted_is_refused(folder, monkeypatch, capsys, words, shown):
    monkeypatch.chdir(folder)
    write("other.csv", column="flow")
    write("few.csv", last=20)
    assert programs.run(monkeypatch, "predict", "--workdir=run", *words) == 2
    assert shown in capsys.readouterr().err


@pytest.mark.full
def test_file_that_was_there_stays_if_a_write_ends_early(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with open("kept.csv", "w") as file:
        file.write("before")
    monkeypatch.setattr("pathlib.Path.replace", lambda *of: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        programs.run(monkeypatch, "predict", "--workdir=run", "--output=kept.csv")
    with open("kept.csv") as file:
        assert file.read() == "before"


@pytest.mark.full
def test_initial_state_is_evaluated_and_restored_by_its_step(folder):
    """The head begins with zeros, which are the linear forecast."""
    start = restore(folder / "run", 0)
    batch = start.task.batch("test", 0, 8, seed=0)
    np.testing.assert_array_equal(start.apply(batch.inputs), 0)
    assert (folder / "run" / "statistics.npz").exists()


@pytest.mark.full
def test_new_recordings_are_predicted_and_evaluated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def fill(folder, n):
        rng = np.random.default_rng(n)
        for label, level in (("hi", 9_000), ("lo", -9_000)):
            for i in range(n):
                samples = level + rng.normal(size=20) * 99
                raw_sets.wav(tmp_path / folder / label / f"{i}.wav", samples)

    fill("a", 12)
    classify("a", "mine.py")
    config = config_file.load("mine.py")
    config.training.update(steps=2, evaluate_every=2)
    config.optimizer.update(warmup_steps=0)
    train(config, "run")
    (tmp_path / "a").rename(tmp_path / "moved")
    # More files than a batch has, in which the last one is not full.
    fill("new", 9)
    words = ["--workdir=run", "--data=new", "--output=new.csv"]
    assert programs.run(monkeypatch, "predict", *words) in (0, None)
    with open("new.csv") as file:
        rows = [*csv.DictReader(file)]
    assert list(rows[0]) == ["file", "prediction", "p(hi)", "p(lo)"]
    assert [row["file"] for row in rows[8:10]] == ["hi/8.wav", "lo/0.wav"]
    assert len(rows) == 18
    capsys.readouterr()
    words = ["--workdir=run", "--data=new", "--json"]
    assert programs.run(monkeypatch, "evaluate", *words) in (0, None)
    shown = json.loads(capsys.readouterr().out)
    right = [row["file"].startswith(row["prediction"]) for row in rows]
    np.testing.assert_allclose(shown["accuracy"], np.mean(right))
    with open("run/evaluation-new.json") as file:
        assert json.load(file) == shown
    fill("new/train", 1)
    assert programs.run(monkeypatch, "evaluate", *words) == 2
    assert "`--data` must have folders of the classes hi, lo" in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["arrays", "table"])
def test_new_labelled_examples_are_evaluated_apart(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    level = np.arange(60) % 2
    inputs = level[:, None] + 0.1 * rng.normal(size=(60, 6))
    suffix = {"arrays": "npz", "table": "csv"}[kind]

    def save(name, level, inputs, target=True):
        if kind == "arrays":
            arrays = {"inputs": inputs, "targets": level + 0.5}
            np.savez(name, **{k: v for k, v in arrays.items() if target or k[0] == "i"})
            return
        rows = [
            f"{i},{x}" + f",{'ab'[k]}" * target
            for i, (k, steps) in enumerate(zip(level, inputs, strict=True))
            for x in steps
        ]
        with open(name, "w") as file:
            file.write("\n".join(["id,x" + ",label" * target, *rows]))

    save(f"a.{suffix}", level, inputs)
    if kind == "arrays":
        regress("a.npz", "mine.py")
    else:
        classify("a.csv", "mine.py", target="label", example="id")
    config = config_file.load("mine.py")
    config.training.update(steps=2, evaluate_every=2)
    config.optimizer.update(warmup_steps=0)
    train(config, "run")
    assert programs.run(monkeypatch, "evaluate", "--workdir=run") in (0, None)
    own = (tmp_path / "run" / "evaluation.json").read_bytes()
    row = report.row_of(WorkDir("run"))
    os.remove(f"a.{suffix}")
    # More examples than a batch has, in which the last one is not full.
    save(f"later.{suffix}", np.tile(level, 3), np.tile(inputs, (3, 1)) + 5)
    words = ["--workdir=run", f"--data=later.{suffix}", "--json"]
    capsys.readouterr()
    words.append("--predictions=later.predictions.npz")
    assert programs.run(monkeypatch, "evaluate", *words) in (0, None)
    shown = json.loads(capsys.readouterr().out)
    with open("run/evaluation-later.json") as file:
        assert json.load(file) == shown
    assert shown["changed_data"] and shown["baseline"] is None
    with np.load("later.predictions.npz") as arrays:
        found = dict(arrays)
    assert len(found["id"]) == 180
    table = predict(restore("run", allow_changed_data=True), f"later.{suffix}")
    if kind == "arrays":
        wrong = found["prediction_in_units"][:, 0] - (np.tile(level, 3) + 0.5)
        np.testing.assert_allclose(
            found["prediction_in_units"][:, 0], table["prediction"], rtol=1e-5
        )
        r2 = 1 - np.mean(wrong**2) / 0.25
        np.testing.assert_allclose(shown["r2"], r2, rtol=1e-4)
    else:
        right = table["prediction"] == np.array(["a", "b"])[np.tile(level, 3)]
        np.testing.assert_allclose(shown["accuracy"], right.mean(), rtol=1e-6)
    # They are no result of the run.
    assert (tmp_path / "run" / "evaluation.json").read_bytes() == own
    assert report.row_of(WorkDir("run")) == row
    save(f"bare.{suffix}", level, inputs, target=False)
    words = ["--workdir=run", f"--data=bare.{suffix}"]
    assert programs.run(monkeypatch, "evaluate", *words) == 2
    shown = {"arrays": "`--data` must have the arrays inputs and targets"}
    error = capsys.readouterr().err
    assert shown.get(kind, "`target` must be among the columns id, x") in error
