"""Trained models restored from the work dir, on any number of devices."""

import errno
import json
import os
import shutil
import subprocess
import sys
import unittest.mock
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

from ssm_jax.evaluation import evaluate_lengths, evaluate_run, restore
from ssm_jax.tasks import Digits
from ssm_jax.training import CheckpointError, WorkDir, train
from ssm_jax.training.checkpointing import integrity
from tests.bad_inputs import refuses
from tests.cli import programs
from tests.training import tiny

pytestmark = pytest.mark.full  # Of a run on eight devices.

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The work dir of a run on eight devices."""
    run = tmp_path_factory.mktemp("run")
    train(tiny.digits(log_every=1, evaluate_every=1, steps=5), str(run))
    return run


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it in another place."""
    return shutil.copytree(trained, tmp_path / "elsewhere")


def validation_metrics(run):
    """The validation metrics of the run, by step."""
    text = (run / "metrics.jsonl").read_text()
    return {
        line["step"]: {
            name.removeprefix("validation/"): value
            for name, value in line.items()
            if name.startswith("validation/")
        }
        for line in map(json.loads, text.splitlines())
    }


def launch_evaluate(run, *arguments):
    """Evaluates in a separate process with one device."""
    return subprocess.run(
        [sys.executable, "-m", "launch.evaluate", f"--workdir={run}", *arguments],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_model_predicts_as_it_did_in_validation(run):
    restored = restore(run, "latest")
    assert restored.task == Digits()
    assert (restored.step, restored.training.steps) == (5, 5)
    chex.assert_trees_all_equal_dtypes(
        restored.variables["params"]["head"]["linear"]["dense"]["bias"],
        np.zeros(10, np.float32),
    )
    batch = restored.task.batch("validation", 0, 150, seed=0)
    logits, _ = jax.jit(restored.model.apply)(restored.variables, batch.inputs)
    accuracy = np.mean(np.argmax(logits, -1) == batch.targets)
    assert accuracy == pytest.approx(validation_metrics(run)[5]["accuracy"])


@pytest.mark.parametrize(
    ("versions", "reader"),
    [({}, "commit 4db8fba"), ({"ssm_jax": "0.0.9"}, "ssm_jax 0.0.9")],
)
def test_run_of_another_version_names_the_version_that_reads_it(run, versions, reader):
    config = json.loads((run / "config.json").read_text())
    config["model"]["block"]["cls"] = "ssm_jax.models.block:Renamed"
    (run / "config.json").write_text(json.dumps(config))
    (run / "run.json").write_text(json.dumps({"versions": versions}))
    with pytest.raises(ValueError, match=f"read it with {reader}") as error:
        restore(run)
    message = str(error.value)
    assert "`workdir`" in message and "'ssm_jax.models.block:Renamed'" in message
    assert str(run) in message and "\n" not in message


def test_best_latest_and_step_select_their_checkpoints(run):
    scores = {step: line["accuracy"] for step, line in validation_metrics(run).items()}
    losses = {step: -line["loss"] for step, line in validation_metrics(run).items()}
    best = max(scores, key=lambda step: (scores[step], losses[step], step))
    assert restore(run).step == restore(run, "best").step == best
    assert restore(run, "latest").step == 5
    assert restore(run, 4).step == 4
    names = ", ".join(sorted(path.name for path in (run / "checkpoints").iterdir()))
    for step in (9, 400):
        with pytest.raises(CheckpointError, match=f"{step}.*{names}"):
            restore(run, step)


@pytest.mark.parametrize("which", ["bset", "", "4", True, -1, 4.0, None, ["best"]])
def test_any_other_checkpoint_is_rejected(run, unchecked, which):
    with pytest.raises(ValueError) as error:
        restore(run, which)
    assert str(error.value).startswith(
        f"`which` must be 'best', 'latest' or the number of a step, got {which!r}; "
    )


def test_step_can_be_a_numpy_integer(run, unchecked):
    assert restore(run, np.int64(4)).step == 4


def test_best_without_a_finite_metric_is_rejected(run):
    for folder in (run / "checkpoints").iterdir():
        record = integrity.read_record(folder)
        record["metrics"]["validation/accuracy"] = float("nan")
        (folder / "integrity.json").unlink()
        integrity.write_record(folder, record)
    with refuses("which", rule="'latest'", error=CheckpointError):
        restore(run, "best")
    assert restore(run, "latest").step == 5


def test_several_processes_are_rejected(run, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    for evaluate in (evaluate_run, lambda run: evaluate_lengths(run, [2, 4])):
        with refuses("jax.process_count()", 2, rule="1"):
            evaluate(run)
    assert not (run / "evaluation.json").exists()


def test_restoring_does_not_modify_the_workdir(run):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    restore(run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_metrics_of_a_workdir_that_cannot_be_written_are_not_lost(
    run, monkeypatch, caplog, capsys
):
    before = sorted(run.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
        arguments = f"--workdir={run}", "--split=validation", "--json"
        assert programs.run(patch, "evaluate", *arguments) in (0, None)
    result = json.loads(capsys.readouterr().out)
    assert f"{run} is read-only" in caplog.text and sorted(run.rglob("*")) == before
    full = OSError(errno.ENOSPC, "No space left on device", "evaluation.json")
    monkeypatch.setattr(WorkDir, "write", unittest.mock.Mock(side_effect=full))
    with pytest.raises(OSError, match="evaluation.json"):
        evaluate_run(run, split="validation")
    assert json.dumps(result) in caplog.text


@pytest.mark.nightly
def test_run_on_eight_devices_evaluated_on_one(run):
    done = launch_evaluate(run, "--split=validation", "--checkpoint=latest", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["step"], result["split"]) == (5, "validation")
    for name, value in validation_metrics(run)[5].items():
        assert result[name] == pytest.approx(value, rel=1e-6)
    assert json.loads((run / "evaluation.json").read_text()) == result


def test_data_dir_of_a_task_without_one_is_rejected(run):
    with refuses("config.task.data_dir", rule="field"):
        restore(run, data_dir="/data")


def test_missing_run_is_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match="run.*nowhere"):
        restore(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_run_without_a_checkpoint_is_rejected(run):
    shutil.rmtree(run / "checkpoints")
    for which in ("best", "latest"):
        with pytest.raises(CheckpointError, match="step"):
            restore(run, which)
