"""Every figure is a program that draws itself into a file."""

from pathlib import Path

import numpy as np
import pytest

from experiments.dlr import (
    atomic,
    digits,
    listops_subtrees,
    pathfinder_segmentation,
)
from experiments.dlr.figures import (
    atomic as figures_atomic,
    error_by_height,
    segmentation,
)
from ssm_jax.cli import report
from ssm_jax.config import build
from ssm_jax.evaluation import evaluate_run, restore
from ssm_jax.training import WorkDir, train
from tests.bad_inputs import refuses
from tests.cli import programs
from tests.tiers import tiered
from tests.training import tiny

FOLDER = programs.ROOT / "experiments"
FIGURES = [
    ".".join(path.relative_to(programs.ROOT).with_suffix("").parts)
    for path in sorted(FOLDER.glob("*/figures/*.py"))
    if path.stem != "__init__"
]
NEED_DATA = (
    "error_by_height", "segmentation", "temperatures", "pretrained",
    "dlr.figures.atomic", "own_data.figures.beijing",
)  # fmt: skip
ALONE = [name for name in FIGURES if not name.endswith(NEED_DATA)]
# The other one has gradients over 65,536 steps.
QUICK = [name for name in ALONE if not name.endswith("proposition_1")]


def test_there_are_figures_of_each_paper():
    assert {name.split(".")[1] for name in FIGURES} == {
        "dlr", "etsmlp", "fru", "longssm", "own_data"
    }  # fmt: skip
    assert len(ALONE) == len(FIGURES) - len(NEED_DATA)


@pytest.mark.parametrize("name", tiered(ALONE, 0, full=1))
def test_figure_is_drawn_into_a_new_folder(name, tmp_path, monkeypatch, capsys):
    output = tmp_path / "new" / "figure.png"
    assert programs.run(monkeypatch, name, f"--output={output}") in (0, None)
    printed = capsys.readouterr().out.splitlines()
    assert printed == [str(output), str(output.with_suffix(".pdf"))]
    assert output.stat().st_size > 5000


@pytest.mark.full
def test_figure_of_a_file_is_drawn_from_it(tmp_path, monkeypatch):
    series = tmp_path / "series.csv"
    rows = [f"{i},{2010 + i % 3},{i % 24}" for i in range(240)]
    series.write_text("\n".join(["No,year,TEMP", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    name = "experiments.fru.figures.temperatures"
    assert programs.run(monkeypatch, name, f"--data={series}") in (0, None)
    assert Path("temperatures.png").stat().st_size > 5000


def test_figure_of_atomic_tasks_has_a_panel_for_each_run(tmp_path):
    batches = {}
    for name in ("select", "mips"):
        config, work = atomic.get_config(f"task={name}"), WorkDir(tmp_path / name)
        config.task.length = 200
        with work.claim(config):
            work.write("evaluation.json", {"r2": 0.25})
        batch = build(config.task).batch("test", 0, 2, seed=0)
        batches[name] = batch
        np.savez(
            work.path / "inspection.npz",
            inputs=batch.inputs,
            targets=batch.targets,
            predictions=-batch.targets,
        )
    select, mips = figures_atomic.draw(f"{tmp_path}/select,{tmp_path}/mips").subfigs
    (above, below), (_, vectors) = select.axes, mips.axes
    assert above.get_title(loc="left") == "select: input"
    assert "0.25" in below.get_title(loc="left")
    line, marks = above.get_lines()
    np.testing.assert_array_equal(line.get_ydata(), batches["select"].inputs[-1, :, 0])
    targets = batches["select"].targets[-1, :, 0]
    np.testing.assert_array_equal(marks.get_ydata(), targets)
    for line, values in zip(below.get_lines(), (targets, -targets), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), values)
        np.testing.assert_array_equal(line.get_xdata(), np.arange(232, 264))
    target, _ = vectors.get_lines()
    targets = batches["mips"].targets[-1, -128:, 0]
    np.testing.assert_array_equal(target.get_ydata(), targets)


def test_figure_of_another_experiment_is_refused(tmp_path):
    with WorkDir(tmp_path).claim(digits.get_config()):
        pass
    with refuses("--data", tmp_path, rule="dlr/atomic"):
        figures_atomic.draw(str(tmp_path))


def train_briefly(config, workdir) -> str:
    """Trains one layer on 20 examples; returns the work dir."""
    config.task.update(n_train=20, n_validation=10, n_test=20)
    config.model.update(n_layers=1)
    config.optimizer.warmup_steps = 0
    config.training.update(steps=2, batch_size=8, evaluate_every=1)
    train(config, str(workdir))
    return str(workdir)


@pytest.fixture(scope="module")
def subtrees(tmp_path_factory) -> str:
    """Work dir of a run of two steps on ListOps-SubTrees."""
    config = listops_subtrees.get_config("size=small")
    config.task.update(min_length=8, max_length=32, length=32)
    return train_briefly(config, tmp_path_factory.mktemp("subtrees"))


@pytest.mark.nightly
def test_errors_by_height_are_those_of_the_evaluation(subtrees):
    counts = error_by_height.count(subtrees)
    batch = counts.task.batch("test", 0, 20, seed=0)
    assert counts.subtrees.sum() == batch.loss_mask.sum()
    assert (counts.subtrees.sum(0) == np.bincount(batch.inputs.flat)[11:15]).all()
    assert (counts.errors <= counts.subtrees).all()
    error = counts.errors.sum() / counts.subtrees.sum()
    assert abs(1 - error - evaluate_run(subtrees)["accuracy"]) < 1e-6


@pytest.mark.nightly
def test_errors_by_height_of_runs_are_drawn(subtrees, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = "experiments.dlr.figures.error_by_height"
    data = f"--data={subtrees},{subtrees}"
    assert programs.run(monkeypatch, name, data) in (0, None)
    assert "height    subtrees  error" in capsys.readouterr().out
    assert Path("error_by_height.png").stat().st_size > 5000


@pytest.mark.nightly
def test_errors_by_height_need_a_run_on_the_task(tmp_path):
    config = digits.get_config()
    config.optimizer.warmup_steps = 0
    config.training.update(steps=1, evaluate_every=1)
    train(config, str(tmp_path))
    with refuses("--data", "Digits", rule="ListOpsSubTrees"):
        error_by_height.count(str(tmp_path))


@pytest.fixture(scope="module")
def segmented(tmp_path_factory) -> str:
    """Work dir of a run of two steps on Pathfinder-Segmentation."""
    config = pathfinder_segmentation.get_config("pixels=64,size=small")
    return train_briefly(config, tmp_path_factory.mktemp("segmented"))


@pytest.mark.nightly
def test_masks_of_runs_are_drawn(segmented, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = "experiments.dlr.figures.segmentation"
    data = f"--data={segmented},{segmented}"
    assert programs.run(monkeypatch, name, data) in (0, None)
    assert "macro-F1" in capsys.readouterr().out
    assert Path("segmentation.png").stat().st_size > 5000


@pytest.mark.nightly
def test_segmentation_is_ranked_and_reported_by_macro_f1(segmented):
    folder = WorkDir(segmented)
    measured = evaluate_run(segmented)
    best = max(folder.metrics(), key=lambda line: line["validation/macro_f1"])
    assert measured["step"] == best["step"]
    restored = restore(segmented)
    arrays = folder.read_arrays("inspection.npz")
    logits, _ = restored.model.apply(restored.variables, arrays["inputs"])
    predicted = arrays["predictions"].argmax(-1)
    assert np.mean(predicted == logits.argmax(-1)) > 0.999
    row = report.row_of(folder)
    assert row["metric"] == "test macro_f1"
    assert row["value"] == measured["macro_f1"]
    assert 0.3 < row["baseline"]["macro_f1"] < 1 / 3
    names = {path.stem for path in report.draw(folder, row)}
    assert names >= {"curves", "predictions"}


@pytest.mark.nightly
def test_masks_need_a_run_on_the_task(tmp_path):
    train(tiny.shift(steps=1), str(tmp_path))
    with refuses("--data", "Shift", rule="PathfinderSegmentation"):
        segmentation.predict(str(tmp_path))
