"""The template of an own model, and a CSV, used where the package is installed."""

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly  # Minutes: an environment, and whole programs.

ROOT = Path(__file__).parents[1]
SHORT = (
    "--config.training.steps=4",
    "--config.training.evaluate_every=2",
    "--config.task.length=8",
)

IN_NNX = """
import sys
import numpy as np
from flax import nnx
from ssm_jax import restore
run = restore(sys.argv[1], packages=["own_model"])
batch = run.task.batch("test", 0, 4, seed=0)
y, _ = run.model.apply(run.variables, batch.inputs)
model = nnx.bridge.ToNNX(run.model, rngs=nnx.Rngs(0)).lazy_init(batch.inputs)
nnx.update(model, run.variables["params"])
np.testing.assert_allclose(model(batch.inputs)[0], y, rtol=1e-5, atol=1e-5)
"""


@pytest.fixture(scope="module")
def run_in(tmp_path_factory):
    """Runs a program of a new environment, where ssm_jax is installed from here."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    source = folder / "source"
    shutil.copytree(ROOT / "ssm_jax", source / "ssm_jax")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    lock = ROOT / "requirements.lock"
    subprocess.run([*pip, "-r", lock], check=True, capture_output=True)
    subprocess.run([*pip, "--no-deps", source], check=True, capture_output=True)

    def run(where, program, *arguments):
        names = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | names
        return subprocess.run(
            [folder / "bin" / program, *arguments],
            cwd=where,
            env=env,
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # A model of bytes need not write UTF-8.
            timeout=600,
        )

    return run


def test_template_is_trained_continued_evaluated_and_reported(run_in, tmp_path):
    template = shutil.copytree(ROOT / "examples" / "own_model", tmp_path / "own")
    run, elsewhere = str(tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    train = ("train", "--config=experiment.py", f"--workdir={run}", *SHORT)
    assert (process := run_in(template, "ssm-jax", *train)).returncode == 0, (
        process.stderr
    )
    # The end of a finished run is found again, by its checkpoint.
    again = run_in(template, "ssm-jax", *train)
    assert "continuing after step 4" in again.stderr
    evaluate = ("evaluate", f"--workdir={run}")
    refused = run_in(template, "ssm-jax", *evaluate)
    assert refused.returncode == 2
    assert "--packages=own_model" in refused.stderr
    # In another folder the package must be installed.
    named = (*evaluate, "--packages=own_model", "--json")
    assert run_in(elsewhere, "ssm-jax", *named).returncode == 2
    install = ("-m", "pip", "install", "--quiet", "--no-deps", str(template))
    assert run_in(template, "python", *install).returncode == 0
    process = run_in(elsewhere, "ssm-jax", *named)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["step"] in (2, 4)
    process = run_in(elsewhere, "python", "-c", IN_NNX, run)
    assert process.returncode == 0, process.stderr
    export = ("export", f"--workdir={run}", "--packages=own_model", "--output=exported")
    assert (process := run_in(elsewhere, "ssm-jax", *export)).returncode == 0, (
        process.stderr
    )
    assert (elsewhere / "exported" / "forward.stablehlo").exists()
    table = run_in(elsewhere, "ssm-jax", "report", f"--workdirs={run}")
    assert "own_model" in table.stdout


def test_template_writes_text(run_in, tmp_path):
    template = shutil.copytree(ROOT / "examples" / "own_model", tmp_path / "own")
    texts, run = tmp_path / "texts", str(tmp_path / "run")
    texts.mkdir()
    for i in range(6):
        (texts / f"{i}.txt").write_text(f"One text, and number {i}. " * 40)
    experiment = ("--config=experiment.py:data=text", f"--data_dir={texts}")
    process = run_in(
        template, "ssm-jax", "train", *experiment, f"--workdir={run}", *SHORT
    )
    assert process.returncode == 0, process.stderr
    options = (f"--workdir={run}", "--packages=own_model", "--n_tokens=5")
    process = run_in(template, "ssm-jax", "generate", *options, "--prompt=One")
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("One")


def test_forecaster_of_a_csv_is_trained_and_drawn(run_in, tmp_path):
    rows = [f"{hour % 24},{hour % 24 + hour / 999}" for hour in range(900)]
    (tmp_path / "load.csv").write_text("\n".join(["hour,load", *rows]))
    steps = "--config.training.steps=60"  # More than the warmup.
    for command in (
        ("new", "forecast", "--csv=load.csv"),
        ("train", "--config=forecast.py", "--workdir=runs/forecast", steps),
        ("evaluate", "--workdir=runs/forecast"),
        ("report", "--workdirs=runs/forecast"),
    ):
        process = run_in(tmp_path, "ssm-jax", *command)
        assert process.returncode == 0, process.stderr
    assert "last value" in process.stdout and "seasonal" in process.stdout
    assert (tmp_path / "runs" / "forecast" / "figures" / "forecast.png").exists()


def test_contracts_of_the_template_hold(tmp_path):
    template = shutil.copytree(ROOT / "examples" / "own_model", tmp_path / "own")
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=template,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stdout
