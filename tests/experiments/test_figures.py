"""Every figure is a program that draws itself into a file."""

from pathlib import Path

import numpy as np
import pytest

from experiments.dlr import pathfinder_segmentation
from experiments.dlr.figures import segmentation
from ssm_jax.cli import report
from ssm_jax.evaluation import evaluate_run
from ssm_jax.training import WorkDir, train
from tests.bad_inputs import refuses
from tests.cli import programs
from tests.training import tiny

FOLDER = programs.ROOT / "experiments"
FIGURES = [
    ".".join(path.relative_to(programs.ROOT).with_suffix("").parts)
    for path in sorted(FOLDER.glob("*/figures/*.py"))
    if path.stem != "__init__"
]
NEED_DATA = ("segmentation", "temperatures", "pretrained")
ALONE = [name for name in FIGURES if not name.endswith(NEED_DATA)]


def test_there_are_figures_of_each_paper():
    assert {name.split(".")[1] for name in FIGURES} == {
        "dlr", "etsmlp", "fru", "longssm"
    }  # fmt: skip
    assert len(ALONE) == len(FIGURES) - len(NEED_DATA)


@pytest.mark.full
@pytest.mark.parametrize("name", ALONE)
def test_figure_is_drawn_into_a_new_folder(name, tmp_path, monkeypatch, capsys):
    output = tmp_path / "new" / "figure.png"
    assert programs.run(monkeypatch, name, f"--output={output}") in (0, None)
    assert capsys.readouterr().out == f"{output}\n"
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


@pytest.fixture(scope="module")
def segmented(tmp_path_factory) -> str:
    """Work dir of a run of two steps on Pathfinder-Segmentation."""
    config = pathfinder_segmentation.get_config("pixels=64,size=small")
    config.task.update(n_train=20, n_validation=10, n_test=20)
    config.model.update(n_layers=1)
    config.optimizer.warmup_steps = 0
    config.training.update(steps=2, batch_size=8, evaluate_every=1)
    workdir = str(tmp_path_factory.mktemp("segmented"))
    train(config, workdir)
    return workdir


@pytest.mark.full
def test_masks_of_runs_are_drawn(segmented, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = "experiments.dlr.figures.segmentation"
    data = f"--data={segmented},{segmented}"
    assert programs.run(monkeypatch, name, data) in (0, None)
    assert "macro-F1" in capsys.readouterr().out
    assert Path("segmentation.png").stat().st_size > 5000


@pytest.mark.full
def test_segmentation_is_ranked_and_reported_by_macro_f1(segmented):
    folder = WorkDir(segmented)
    measured = evaluate_run(segmented)
    best = max(folder.metrics(), key=lambda line: line["validation/macro_f1"])
    assert measured["step"] == best["step"]
    batch, logits = segmentation.predict(segmented)
    found = np.load(folder.path / "inspection.npz")
    np.testing.assert_array_equal(batch.targets, found["targets"][: len(batch.targets)])
    predicted = found["predictions"][: len(logits)].argmax(-1)
    assert np.mean(predicted == logits.argmax(-1)) > 0.999
    row = report.row_of(folder)
    assert row["metric"] == "test macro_f1"
    assert row["value"] == measured["macro_f1"]
    assert 0.3 < row["baseline"]["macro_f1"] < 1 / 3
    names = {path.stem for path in report.draw(folder, row)}
    assert names >= {"curves", "predictions"}


@pytest.mark.full
def test_masks_need_a_run_on_the_task(tmp_path):
    train(tiny.shift(steps=1), str(tmp_path))
    with refuses("--data", "Shift", rule="PathfinderSegmentation"):
        segmentation.predict(str(tmp_path))
