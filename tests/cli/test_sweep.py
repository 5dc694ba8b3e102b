"""Sweeps: the runs of a grid, their work dirs, table and Slurm script."""

import csv
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from ssm_jax.cli import sweep
from ssm_jax.cli.grid import cells
from ssm_jax.cli.sweep import sweep_table
from ssm_jax.tasks import Digits
from ssm_jax.training import WorkDir
from ssm_jax.training.workdir import PARTS
from tests.bad_inputs import refuses
from tests.cli import programs
from tests.cli.test_train import DIGITS

# ml_collections loads the experiment by a call that importlib wants replaced.
pytestmark = pytest.mark.filterwarnings("ignore:.*load_module:DeprecationWarning")
DIGITS_FILE = ["sweep", "--config=experiments/dlr/digits.py"]


def row(value, validation, metric="test accuracy"):
    name = metric.split()[-1]
    return {
        "metric": metric,
        "value": value,
        "validation": validation,
        "baseline": {"name": "majority class", name: 0.1, "n_examples": 100},
        "best_step": 4,
        "seconds": 2.0,
        "date": "2026-01-01",
        "experiment": "dlr/digits",
        "variant": "",
    }


def test_table_averages_over_seeds_and_the_best_in_validation_is_first():
    results = [
        ({"rate": "low", "training.seed": "0"}, row(0.9, 0.5)),
        ({"rate": "low", "training.seed": "1"}, row(0.7, 0.7)),
        ({"rate": "high", "training.seed": "0"}, row(0.4, 0.8)),
        ({"rate": "high", "training.seed": "1"}, None),
    ]
    head, _, first, second = sweep_table(results).splitlines()
    names = [cell.strip() for cell in head.strip("|").split("|")]
    assert names[0] == "rate" and names[-2:] == ["seeds", "failed"]
    high, low = (
        dict(
            zip(
                names,
                [cell.strip() for cell in line.strip("|").split("|")],
                strict=True,
            )
        )
        for line in (first, second)
    )
    assert (high["rate"], high["seeds"], high["failed"]) == ("high", "1", "1")
    assert (low["rate"], low["seeds"], low["failed"]) == ("low", "2", "0")
    # The sample standard deviation of .9 and .7.
    assert low["test accuracy"].startswith("0.8000 ± 0.1414"), low
    assert high["baseline"] == low["baseline"] == "0.1000"
    assert low["validation accuracy"].startswith("0.6000 ± 0.1414"), low


def test_the_smallest_perplexity_is_first():
    results = [
        ({"rate": "low"}, row(5.0, 5.0, "test perplexity")),
        ({"rate": "high"}, row(4.0, 4.0, "test perplexity")),
    ]
    assert sweep_table(results).splitlines()[2].startswith("| high")


def test_figure_has_a_line_for_each_other_value_and_the_spread_of_seeds():
    results = [
        (
            {"lr": lr, "model.norm": norm, "training.seed": seed},
            row(float(lr) + int(seed), 0.5),
        )
        for lr in ("0.01", "0.1")
        for norm in ("scalar", "layer")
        for seed in ("0", "1")
    ]
    figure = sweep.sweep_figure(results)
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_xlabel() == "lr" and axes.get_xscale() == "log"
    assert axes.get_legend_handles_labels()[1] == [
        "trivial baseline",
        "norm scalar",
        "norm layer",
    ]
    line = axes.containers[0].lines[0]
    assert line.get_xdata().tolist() == [0.01, 0.1]
    assert line.get_ydata() == pytest.approx([0.51, 0.6])


def test_no_figure_where_only_seeds_vary():
    assert sweep.sweep_figure([({"training.seed": "0"}, row(0.5, 0.5))]) is None


def test_a_run_is_done_if_its_best_step_is_evaluated_on_the_test_split(tmp_path):
    line = [*DIGITS_FILE, "--config.training.steps=4"]
    (cell,) = cells(line, ["training.seed=0"], str(tmp_path))
    work = WorkDir(cell.workdir)
    assert not sweep.is_done(cell)
    with work.claim(cell.config):
        for step, accuracy in ((2, 0.75), (4, 0.5)):
            work.log(step, **{"validation/accuracy": accuracy})
    assert not sweep.is_done(cell)
    evaluation = {"split": "test", "step": 2, "logged_step": 4}
    for changes in ({}, {"split": "validation"}, {"step": 4}, {"logged_step": 2}):
        work.write("evaluation.json", evaluation | changes)
        assert sweep.is_done(cell) == (not changes)


def test_slurm_script_is_the_array_of_the_runs(tmp_path):
    line = ["sweep", "--grid=a=1,2", "--slurm", "a b.sh", "--slurm=x"]
    line += ["--workdir", "slurm x"]
    script = sweep.slurm_script(line, 6, "slurm x")
    assert "#SBATCH --array=0-5\n" in script
    assert re.search(r"#SBATCH --output='/.*slurm x/slurm-%A_%a.out'\n", script)
    path = tmp_path / "array.sh"
    path.write_text(script)
    subprocess.run(["bash", "-n", path], check=True)
    # The command of one job, with the shell's own splitting into words.
    command = script[script.index("status=0") :]
    names = 'ssm-jax() { printf \'%s\\n\' "$@"; }; srun() { "$@"; }'
    said = subprocess.run(
        ["bash", "-c", f"{names}\n{command}"],
        env={"SLURM_ARRAY_TASK_ID": "3"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said == ["sweep", "--grid=a=1,2", "--workdir", "slurm x", "--row=3"]


WORDS = ("'", '"; touch gone', "$(touch gone)", "`touch gone`", "a\ntouch gone", "\\")


def test_words_of_the_command_line_are_no_commands_of_the_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = ["sweep", *(f"--config.task.target={word}" for word in WORDS)]
    script = sweep.slurm_script(line, 2, "50 % $(touch gone)")
    assert "/50 %% $(touch gone)/slurm-%A_%a.out'\n" in script
    said = 'ssm-jax() { printf \'%s\\0\' "$@"; }; srun() { "$@"; }'
    script = f"{said}\n{script}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    said = os.fsdecode(done.stdout).split("\0")
    assert said[: len(line)] == line
    assert os.listdir(tmp_path) == []
    with refuses("--workdir", "a\\ntouch", rule="printable"):
        sweep.slurm_script(line, 2, "a\ntouch gone")


@pytest.mark.parametrize(("status", "requeued"), [(0, ""), (1, ""), (143, "requeue 7")])
def test_job_that_a_signal_ended_is_queued_again(tmp_path, status, requeued):
    script = sweep.slurm_script(["sweep", "--grid=a=1,2"], 2, str(tmp_path))
    assert {"#SBATCH --requeue", "#SBATCH --signal=TERM@120"} <= {*script.splitlines()}
    commands = f'srun() {{ return {status}; }}; scontrol() {{ echo "$@"; }}'
    done = subprocess.run(
        ["bash", "-c", f"{commands}\n{script}"],
        env={"SLURM_JOB_ID": "7", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.strip()) == (status, requeued)


@pytest.mark.parametrize("fails", ["train", "evaluate_run", "row_of"])
def test_a_run_that_fails_ends_no_other(monkeypatch, tmp_path, capsys, caplog, fails):
    """Whatever the error, of the first of two runs of a config without names."""

    def fail_first(name, path):
        if name == fails and str(path).endswith("seed=0"):
            raise AttributeError("a bug")

    def train(config, workdir, **_):
        fail_first("train", workdir)
        work = WorkDir(workdir)
        with work.claim(ConfigDict({name: config[name] for name in PARTS})):
            work.log(4, elapsed_s=1.0, **{"validation/accuracy": 0.25})

    def evaluate_run(workdir, **_):
        fail_first("evaluate_run", workdir)
        evaluation = {"split": "test", "step": 4, "accuracy": 0.5, "logged_step": 4}
        WorkDir(workdir).write("evaluation.json", evaluation)

    def row_of(folder):
        fail_first("row_of", folder.path)
        return summarise(folder)

    summarise = sweep.report.row_of
    monkeypatch.setattr(sweep, "train", train)
    monkeypatch.setattr(sweep, "evaluate_run", evaluate_run)
    monkeypatch.setattr(sweep.report, "row_of", row_of)
    grid = "--grid=training.seed=0,1"
    workdir = f"--workdir={tmp_path}/runs"
    assert programs.run(monkeypatch, "sweep", *DIGITS, workdir, grid) == 1
    out = capsys.readouterr().out
    line = [cell.strip() for cell in out.splitlines()[2].strip("|").split("|")]
    assert line == ["0.2500", "0.5000", "", "1", "1", "1"]
    assert "seed=0: a bug" in caplog.text and "AttributeError" in caplog.text
    with (tmp_path / "runs" / "sweep.csv").open() as file:
        assert [row["value"] for row in csv.DictReader(file)] == ["", "0.5"]


def test_a_finished_run_is_not_compared_with_runs_on_other_data(tmp_path, monkeypatch):
    line = [*DIGITS_FILE, "--config.training.steps=4"]
    (cell,) = cells(line, ["training.seed=0"], str(tmp_path))
    work = WorkDir(cell.workdir)
    data = {"files": 1, "bytes": 12, "modified": "today", "sha256": "a"}
    with work.claim(cell.config):
        work.log(4, elapsed_s=1.0, **{"validation/accuracy": 0.25})
        work.write_data(data, 0)
    evaluation = {"split": "test", "step": 4, "accuracy": 0.5, "logged_step": 4}
    work.write("evaluation.json", evaluation)
    monkeypatch.setattr(sweep, "fingerprint_of", lambda task: data)
    assert sweep.train_and_evaluate(cell)["value"] == 0.5
    changed = data | {"sha256": "b", "bytes": 13}
    monkeypatch.setattr(sweep, "fingerprint_of", lambda task: changed)
    with refuses("task", "1 file of 13 bytes", rule="--allow_changed_data"):
        sweep.train_and_evaluate(cell)
    assert sweep.train_and_evaluate(cell, allow_changed_data=True)["value"] == 0.5


def launch(monkeypatch, root, *arguments):
    grid = "--grid=optimizer.learning_rate=1e-3,1e-2", "--grid=training.seed=0,1"
    return programs.run(
        monkeypatch, "sweep", *DIGITS, f"--workdir={root}", *grid, *arguments
    )


@pytest.mark.nightly
def test_a_sweep_continues_where_it_was_left(monkeypatch, tmp_path, capsys):
    """Runs by index, as jobs of an array, one lost and one cut short, then all."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert launch(monkeypatch, whole) in (0, None)
    printed = capsys.readouterr().out
    for index in (0, 3):
        assert launch(monkeypatch, parts, f"--row={index}") in (0, None)
    rate = "optimizer.learning_rate=1e-3"
    first = parts / rate / "training.seed=0"
    (first / "evaluation.json").unlink()
    shutil.copytree(whole / rate / "training.seed=1", parts / rate / "training.seed=1")
    (parts / rate / "training.seed=1" / "evaluation.json").unlink()
    metrics_file = (
        parts / "optimizer.learning_rate=1e-2" / "training.seed=1" / "metrics.jsonl"
    )
    before = metrics_file.stat().st_mtime_ns
    capsys.readouterr()
    assert launch(monkeypatch, parts) in (0, None)
    assert metrics_file.stat().st_mtime_ns == before
    assert (parts / "sweep.png").exists()
    with (
        (whole / "sweep.csv").open() as whole_file,
        (parts / "sweep.csv").open() as parts_file,
    ):
        runs, again = list(csv.DictReader(whole_file)), list(csv.DictReader(parts_file))
    assert len(runs) == 4
    measured = "optimizer.learning_rate", "training.seed", "validation", "value"
    for a, b in zip(runs, again, strict=True):
        assert [a[name] for name in measured] == [b[name] for name in measured]
        stored = json.loads((Path(a["workdir"]) / "evaluation.json").read_text())
        assert float(a["value"]) == stored["accuracy"]
    assert "test accuracy" in printed


@pytest.mark.full
@pytest.mark.parametrize(
    "arguments, words",
    [
        ((), "`--grid` must name a field"),
        (("--grid=training.seed=0", "--row=1"), "`--row` must be below 1"),
        (("--grid=training.steps=0,4",), "`steps`"),
    ],
)
def test_bad_flags_are_refused_before_anything_is_trained(
    monkeypatch, tmp_path, capsys, arguments, words
):
    root = tmp_path / "sweep"
    flags_ = *DIGITS, f"--workdir={root}", *arguments
    assert programs.run(monkeypatch, "sweep", *flags_) == 2
    assert words in capsys.readouterr().err
    assert not root.exists()


@pytest.mark.full
def test_slurm_writes_the_script_and_trains_nothing(monkeypatch, tmp_path, capsys):
    script = tmp_path / "array.sh"
    assert launch(monkeypatch, tmp_path / "runs", f"--slurm={script}") in (0, None)
    assert "4 runs" in capsys.readouterr().out
    assert "--array=0-3" in script.read_text()
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.full
def test_a_task_without_test_examples_is_refused_before_anything_is_trained(
    monkeypatch, tmp_path, capsys
):
    n_examples = Digits.n_examples

    def without_test(task, split):
        if split == "test":
            raise ValueError("`file` must have examples of the test split, got none.")
        return n_examples(task, split)

    monkeypatch.setattr(Digits, "n_examples", without_test)
    assert launch(monkeypatch, tmp_path / "runs") == 2
    assert "examples of the test split" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
