"""The entry point of training, as its caller meets it: in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from ssm_jax.evaluation import evaluate_run

pytestmark = pytest.mark.full  # Whole programs.

ROOT = Path(__file__).parents[2]
DIGITS = (
    "--config=experiments/dlr/digits.py",
    "--config.model.n_layers=1",
    "--config.model.encoder.d_model=4",
    "--config.model.block.layer.recurrence.d_state=4",
    "--config.optimizer.warmup_steps=0",
    "--config.training.steps=4",
    "--config.training.log_every=1",
    "--config.training.evaluate_every=2",
)


def launch(run, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "launch.train", f"--workdir={run}", *arguments],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run, and how the process ended that trained it."""
    run = tmp_path_factory.mktemp("runs") / "digits"
    return run, launch(run, *DIGITS)


def test_run_ends_well_and_says_how_far_it_is(trained):
    run, done = trained
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    for step in (1, 2, 3, 4):
        assert f" step {step} of 4: train/loss " in done.stderr
    assert f"in {run}" in done.stderr.splitlines()[-1]
    assert "Warning" not in done.stderr


def test_run_leaves_all_that_its_folder_promises(trained):
    run, _ = trained
    names = {path.name for path in run.iterdir()}
    files = {"config.json", "run.json", "metrics.jsonl", "lock"}
    assert names == files | {"checkpoints"}
    lines = [
        json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert [line["step"] for line in lines if "validation/accuracy" in line] == [2, 4]
    config = json.loads((run / "config.json").read_text())
    assert config["training"]["steps"] == 4
    assert config["optimizer"]["schedule_steps"] == 4
    assert json.loads((run / "run.json").read_text())["platform"] == "cpu"


def test_trained_on_one_device_evaluated_on_eight(trained):
    run, _ = trained
    assert json.loads((run / "run.json").read_text())["n_devices"] == 1
    assert jax.device_count() == 8
    result = evaluate_run(run, split="validation", which="latest")
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    for name in ("loss", "accuracy"):
        assert result[name] == pytest.approx(last[f"validation/{name}"], rel=1e-6)


@pytest.mark.nightly
def test_debugging_names_the_operation_and_compiled_programs_are_kept(tmp_path):
    run, cache = tmp_path / "run", tmp_path / "cache"
    done = launch(
        run,
        *DIGITS,
        "--config.optimizer.learning_rate=1e30",
        "--config.optimizer.schedule=constant",
        "--writers=tensorboard",
        f"--compile_cache={cache}",
        "--debug_nans",
    )
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    for part in ("error: no operation may make a NaN, got ", "at step 2, in ", ".py:"):
        assert part in line
    assert list(cache.glob("jit_step-*"))
    assert list((run / "tensorboard").glob("events.*"))
