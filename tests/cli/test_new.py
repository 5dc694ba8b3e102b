"""`ssm-jax new`: the file that it writes is trained on the data of the user."""

import ast
import os
import shlex
from pathlib import Path

import numpy as np
import pytest

from ssm_jax.cli import config_file
from ssm_jax.cli.templates.forecast import forecast
from ssm_jax.config import build
from ssm_jax.evaluation import evaluate_run
from ssm_jax.training import train
from tests.bad_inputs import refuses
from tests.cli import programs


@pytest.fixture
def csv(tmp_path, monkeypatch):
    """A CSV of the user's working directory, of which it returns the name."""
    monkeypatch.chdir(tmp_path)
    hours = np.datetime64("2020-01-01T00") + np.arange(900)
    load = np.sin(2 * np.pi * np.arange(900) / 24)
    rows = [f"{hour},{value}" for hour, value in zip(hours, load, strict=True)]
    (tmp_path / "load.csv").write_text("\n".join(["when,load", *rows]))
    return "load.csv"


def write(monkeypatch, *words):
    return programs.run(monkeypatch, "new", "forecast", *words)


def test_experiment_is_written_and_builds(csv, monkeypatch, capsys):
    assert write(monkeypatch, f"--csv={csv}", "--output=mine.py") in (0, None)
    shown = capsys.readouterr().out
    assert "target   load" in shown and "season   24" in shown
    assert "ssm-jax train --config=mine.py --workdir=runs/mine" in shown
    assert "ssm-jax report --workdirs=runs/mine" in shown
    config = config_file.load("mine.py")
    task, model = build(config.task), build(config.model)
    assert (task.time, task.target, task.season) == ("when", "load", 24)
    assert model.head.d_output == task.spec.d_output == task.horizon
    batch = task.batch("train", 0, config.training.batch_size, seed=0)
    assert batch.inputs.shape[1:] == (task.window, task.spec.d_input)


def test_columns_that_are_not_read_are_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"n{n % 28},{n % 7},{2020 + n}" for n in range(100)]
    (tmp_path / "visits.csv").write_text("\n".join(["day of,visits,year", *rows]))
    assert write(monkeypatch, "--csv=visits.csv") in (0, None)
    shown = capsys.readouterr().out
    assert "unread   day of: 'n0' in line 2 is not a number or" in shown
    assert "unread   year" not in shown


def test_few_examples_to_evaluate_on_are_said(csv, monkeypatch, capsys):
    assert write(monkeypatch, f"--data={csv}") in (0, None)
    # 90 and 180 rows for windows of which each predicts 24 further ones.
    shown = capsys.readouterr().out
    assert (
        "check    validation has only 3 and test has only 7 windows that share no "
        "target, fewer than 30: their errors are rough\n"
    ) in shown
    hours = np.datetime64("2020-01-01T00") + np.arange(7_300)
    load = np.sin(2 * np.pi * np.arange(7_300) / 24)
    pairs = zip(hours, load, strict=True)
    rows = [f"{hour},{value}" for hour, value in pairs]
    Path(csv).write_text("\n".join(["when,load", *rows]))
    assert write(monkeypatch, f"--data={csv}", "--output=long.py") in (0, None)
    assert "check" not in capsys.readouterr().out
    np.savez("a.npz", inputs=np.zeros((100, 5)), targets=np.arange(100) % 2)
    words = "classify", "--data=a.npz", "--output=labelled.py"
    assert programs.run(monkeypatch, "new", *words) in (0, None)
    assert "validation has only 10 and test has only 10 examples" in (
        capsys.readouterr().out
    )


def test_windows_of_several_series_that_share_no_target_are_counted(csv):
    rows = Path(csv).read_text().splitlines()[1:]
    lines = ["when,shop,load"]
    for shop in "ab":
        lines += [row.replace(",", f",{shop},") for row in rows]
    Path("shops.csv").write_text("\n".join(lines))
    found = forecast("shops.csv", "shops.py").found
    (about,) = (value for name, value in found if name == "check")
    assert "validation has only 6 and test has only 14 windows" in about


def test_what_the_file_leaves_open_is_stated_by_flags(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    days = [f"{1 + n % 12:02}/{1 + n // 12:02}/2020" for n in range(120)]
    rows = [f"{day};{shop};1,{200 + n}" for n, day in enumerate(days) for shop in "ab"]
    (tmp_path / "a.csv").write_text("\n".join(["day;shop;visits", *rows, rows[-1]]))
    assert write(monkeypatch, "--data=a.csv") == 2
    assert "`--[no]day_first` states which" in capsys.readouterr().err
    flags = ["--data=a.csv", "--day_first", "--decimal=,", "--group=shop"]
    assert write(monkeypatch, *flags, "--duplicates=mean", "--step=1D") in (0, None)
    shown = capsys.readouterr().out
    assert "series" in shown and "2: a, b" in shown and "their mean is kept" in shown


@pytest.mark.parametrize(
    ("flag", "shown"),
    [
        ("--group=shop", "`--group` must be among the columns when, load"),
        ("--group=when", "`--data` must have at least 80 rows of most series"),
        ("--time=hour", "`--time` must"),
        ("--season=800", "`--season` must"),
        ("--step=often", "`--step` must"),
        ("--target=none", "`--target` must"),
        ("--encoding=none", "`--encoding` must"),
    ],
)
def test_errors_name_the_flags(csv, monkeypatch, capsys, flag, shown):
    assert write(monkeypatch, f"--data={csv}", flag) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and shown in error and error.count("\n") == 1


def test_columns_known_in_the_future_and_those_of_names_are_written(
    csv, tmp_path, monkeypatch, capsys
):
    hours, load = zip(
        *(row.split(",") for row in Path(csv).read_text().splitlines()[1:]), strict=True
    )
    lines = ["when,shop,goods,load,price"]
    for i, hour in enumerate(hours):
        for shop, goods in (("a", 1), ("a", 2), ("b", 1), ("b", 2)):
            value = load[i] if i < 870 else ""
            lines.append(f"{hour},{shop},{goods},{value},{i % 5}")
    (tmp_path / "shops.csv").write_text("\n".join(lines))
    flags = ["--data=shops.csv", "--known=price", "--target=load"]
    assert write(monkeypatch, *flags, "--output=mine.py") in (0, None)
    assert "4: a/1, a/2, b/1, b/2" in capsys.readouterr().out
    task = build(config_file.load("mine.py").task)
    assert task.known == ("price",) and task.group == ("shop", "goods")
    assert task.next_inputs().shape[0] == 4
    assert write(monkeypatch, *flags[:1], "--known=cost", "--target=load") == 2
    assert "`--known` must be among the columns" in capsys.readouterr().err


def test_ways_out_and_notes_name_the_flags(csv, tmp_path, monkeypatch, capsys):
    rows = Path(csv).read_text().splitlines()
    (tmp_path / "twice.csv").write_text("\n".join([*rows, rows[-1] + "1"]))
    assert write(monkeypatch, "--data=twice.csv", "--target=load") == 2
    error = capsys.readouterr().err
    assert "`--duplicates` keeps" in error and "`--group` names" in error
    irregular = [row for i, row in enumerate(rows) if i % 7 or not i]
    irregular += ["2020-03-01T00:20,1"]
    (tmp_path / "irregular.csv").write_text("\n".join(irregular))
    assert write(monkeypatch, "--data=irregular.csv") in (0, None)
    shown = capsys.readouterr().out
    assert "`--step` makes them equal, `--irregular` gives" in shown
    flags = ["--data=irregular.csv", "--irregular"]
    assert write(monkeypatch, *flags, "--output=mine.py") in (0, None)
    assert "the model is given the gaps" in capsys.readouterr().out
    config = config_file.load("mine.py")
    batch = build(config.task).batch("train", 0, 4, seed=0)
    assert batch.dt.max() > 1.5 and build(config.model).takes_dt
    assert write(monkeypatch, *flags, "--step=1h", "--output=no.py") == 2
    assert "`--irregular` must" in capsys.readouterr().err


@pytest.mark.nightly
def test_experiment_is_trained_and_beats_the_last_value(csv):
    forecast(csv, "mine.py")
    config = config_file.load("mine.py")
    config.training.update(steps=60, evaluate_every=60)
    train(config, "run")
    errors = evaluate_run("run")["forecast"]
    assert errors["model"]["mae"] < 0.5 * errors["last value"]["mae"]
    assert errors["seasonal"]["mae"] < 1e-6


NAMES = {
    "quotes": b'x""";import os;print(1);""".csv',
    "single quotes": b"x'+str(open('gone','w'))+'.csv",
    "backslash": b"x\\x.csv",
    "backslash at the end": b'x\\".csv',
    "braces": b"{x}{0}.csv",
    "new line": b'x\n\'"""raise SystemExit.csv',
    "not UTF-8": b"x\xff.csv",
    "control": b"x\x1b[2J.csv",
    "other way": "x\u202e.csv".encode(),
}


def without_strings(path):
    """The program of a file, as text, without the values of its strings."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_of_file_and_column_are_only_data(
    csv, name, tmp_path, monkeypatch, capsys
):
    # A header is a line, in which no other character may be the delimiter.
    column = (
        name.decode(errors="replace").replace('"', '""').translate({10: "", 59: ""})
    )
    text = (tmp_path / csv).read_text().replace("load", f'"{column}"', 1)
    name = os.fsdecode(name)
    (tmp_path / name).write_text(text)
    forecast(csv, "plain.py")
    assert write(monkeypatch, f"--csv={name}") in (0, None)
    assert capsys.readouterr().out.replace("\n", "").isprintable()
    written = tmp_path / "forecast.py"
    assert without_strings(written) == without_strings(tmp_path / "plain.py")
    task = build(config_file.load("forecast.py").task)
    assert task.file == name and task.n_examples("test") > 0
    # Nothing else was written, as by code in a name.
    assert len(os.listdir(tmp_path)) == 4


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_of_folders_and_labels_are_only_data(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(name)
    for folder in ("plain", name):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.txt").write_text("rain and snow " * 600)
    words = np.array([name.encode(errors="replace").decode().strip(), "b"])
    x, y = np.zeros((40, 5)), np.arange(40) % 2
    np.savez("plain.npz", inputs=x, targets=np.array(["a", "b"])[y])
    np.savez(tmp_path / f"{name}.npz", inputs=x, targets=words[y])
    for kind, end in (("text", ""), ("classify", ".npz")):
        for data, output in (("plain", f"{kind}0.py"), (name, f"{kind}1.py")):
            flags = f"--data={data}{end}", f"--output={output}"
            assert programs.run(monkeypatch, "new", kind, *flags) in (0, None)
        assert capsys.readouterr().out.replace("\n", "").isprintable()
        plain, other = (without_strings(tmp_path / f"{kind}{i}.py") for i in (0, 1))
        assert plain == other
        assert build(config_file.load(f"{kind}1.py").task).n_examples("test") > 0


def test_target_that_is_not_clear_is_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"{n % 7},{n % 5}" for n in range(100)]
    (tmp_path / "a.csv").write_text("\n".join(["wind,rain", *rows]))
    assert write(monkeypatch, "--data=a.csv") == 2
    error = capsys.readouterr().err
    assert "wind, rain" in error and "--target=NAME" in error
    assert len(error.splitlines()) == 1 and not (tmp_path / "forecast.py").exists()
    assert write(monkeypatch, "--data=a.csv", "--target=rain") in (0, None)
    assert "target   rain" in capsys.readouterr().out


@pytest.fixture
def stores(tmp_path, monkeypatch):
    """A folder of two CSVs of unlike dialects, of which it returns the name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stores").mkdir()
    dates = np.datetime64("2020-01-01") + np.arange(150)
    for name, sep in (("north", ","), ("it's {0}", ";")):
        rows = [f"{date}{sep}{n % 7}" for n, date in enumerate(dates)]
        text = "\n".join([f"day{sep}sales", *rows])
        (tmp_path / "stores" / f"{name}.csv").write_text(text)
    return "stores"


@pytest.mark.parametrize("data", ["stores", "stores/*.csv", "st?res/*o*.csv"])
def test_files_of_a_folder_or_a_pattern_are_series(data, stores, monkeypatch, capsys):
    n = 1 if "o*" in data else 2
    Path(stores, "README.txt").write_text("two stores")
    assert write(monkeypatch, f"--data={data}") in (0, None)
    shown = capsys.readouterr().out
    assert n == 1 or "series   2: it's {0}, north" in shown
    assert n == 1 or "files    2: it's {0}.csv, north.csv" in shown
    assert f"rows     {150 * n}, 2020-01-01 to" in shown
    task = build(config_file.load("forecast.py").task)
    assert (task.group, task.target, len(task.data_files())) == ("file", "sales", n)
    assert os.path.isabs(task.data_dir) and task.n_examples("test") > 0


def test_folder_without_tables_of_one_kind_is_refused(stores, tmp_path):
    with refuses("--data", "gone/*.csv", error=FileNotFoundError):
        forecast("gone/*.csv", "mine.py")
    (tmp_path / "stores/south.CSV").write_text("day,sales\n")
    with refuses("--data", "1 .CSV, 2 .csv", rule="one kind"):
        forecast(stores, "mine.py")
    (tmp_path / "empty").mkdir()
    with refuses("--data", "none in", rule="CSV"):
        forecast("empty", "mine.py")
    assert not (tmp_path / "mine.py").exists()


# ml_collections loads the experiment by a call that importlib wants replaced.
@pytest.mark.filterwarnings("ignore:.*load_module:DeprecationWarning")
@pytest.mark.nightly
def test_several_files_are_trained_on_and_reported(stores, monkeypatch, capfd):
    assert write(monkeypatch, "--data=stores/*.csv") in (0, None)
    lines = capfd.readouterr().out.splitlines()
    few_steps = [
        f"--config.{field}"
        for field in (
            "training.steps=3",
            "optimizer.warmup_steps=1",
            "model.n_layers=1",
        )
    ]
    for line in (line for line in lines if line.startswith("    ssm-jax")):
        _, program, *words = shlex.split(line)
        extra = few_steps if program == "train" else []
        assert programs.run(monkeypatch, program, *words, *extra) in (0, None), line
    assert "last value" in capfd.readouterr().out


def test_what_cannot_be_written_is_refused(csv, tmp_path):
    (tmp_path / "there.py").write_text("")
    with refuses("--output", "there.py"):
        forecast(csv, "there.py")
    with refuses("--output", "mine.txt"):
        forecast(csv, "mine.txt")
    for name in ("a:b.py", "a\nb.py", "a\udcff.py"):
        with refuses("--output", ascii(name)[1:-1]):
            forecast(csv, name)
    with refuses("target", "'Load'", rule="load"):
        forecast(csv, "mine.py", target="Load")
    with refuses("--data", "other.csv", error=FileNotFoundError):
        forecast("other.csv", "mine.py")
    assert not (tmp_path / "mine.py").exists()


def test_flag_of_data_has_two_names(csv, monkeypatch, capsys):
    assert write(monkeypatch, f"--data={csv}", "--output=a.py") in (0, None)
    assert write(monkeypatch, f"--csv={csv}", "--output=b.py") in (0, None)
    assert write(monkeypatch, "--output=c.py") == 2
    assert "`--data`" in capsys.readouterr().err


def test_flag_of_another_kind_is_refused(csv, monkeypatch, capsys):
    assert write(monkeypatch, f"--data={csv}", "--vocabulary=300") == 2
    assert "`--vocabulary`" in capsys.readouterr().err


def test_kind_is_one_that_is_known(csv, monkeypatch, capsys):
    assert programs.run(monkeypatch, "new", "picture", f"--csv={csv}") == 2
    assert "picture" in capsys.readouterr().err
