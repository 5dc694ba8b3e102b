"""A trained model comes back from its folder alone, on any number of devices."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

from ssm_jax.evaluation import restore
from ssm_jax.tasks import Digits
from ssm_jax.training import CheckpointError, train
from tests.training import tiny

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run on eight devices."""
    run = tmp_path_factory.mktemp("run")
    train(tiny.digits(log_every=1, evaluate_every=1, steps=5), str(run))
    return run


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it, far from where it was trained."""
    return shutil.copytree(trained, tmp_path / "elsewhere")


def measured(run):
    """What the run itself measured in validation, by step."""
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
    """Evaluates in a process of its own, which has one device."""
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
    assert accuracy == pytest.approx(measured(run)[5]["accuracy"])


def test_best_latest_and_a_step_are_what_they_say(run):
    scores = {step: line["accuracy"] for step, line in measured(run).items()}
    best = min(step for step in scores if scores[step] == max(scores.values()))
    assert restore(run).step == restore(run, "best").step == best
    assert restore(run, "latest").step == 5
    assert restore(run, 4).step == 4
    with pytest.raises(CheckpointError, match="step 9 of .* must be whole"):
        restore(run, 9)


def test_restoring_changes_nothing_in_the_folder(run):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    restore(run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_trained_on_eight_devices_evaluated_on_one(run):
    done = launch_evaluate(run, "--split=validation", "--checkpoint=latest")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["step"], result["split"]) == (5, "validation")
    for name, value in measured(run)[5].items():
        assert result[name] == pytest.approx(value, rel=1e-6)
    assert json.loads((run / "evaluation.json").read_text()) == result


def test_data_folder_of_a_task_without_one_is_refused(run):
    with pytest.raises(ValueError, match="`config.task.data_dir` must be a field of"):
        restore(run, data_dir="/data")


def test_missing_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="must hold a run, got .*nowhere"):
        restore(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_run_without_a_checkpoint_is_refused(run):
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(CheckpointError, match="must hold a whole step"):
        restore(run)


def test_flipped_bit_is_one_line_to_the_caller(run):
    bias = "params%2Fhead%2Flinear%2Fdense%2Fbias"
    file = run / "checkpoints" / "5" / "state" / bias / "0"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    done = launch_evaluate(run, "--checkpoint=latest")
    assert done.returncode == 2
    assert done.stdout == ""
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: step 5 of ")
    assert "a changed leaf `params/head/linear/dense/bias`" in line
    assert "Traceback" not in done.stderr
