"""Every figure is a program that draws itself into a file."""

from pathlib import Path

import numpy as np
import pytest

from experiments.dlr import digits, listops_subtrees
from experiments.dlr.figures import error_by_height
from ssm_jax.evaluation import evaluate_run
from ssm_jax.training import train
from tests.bad_inputs import refuses
from tests.cli import programs

FOLDER = programs.ROOT / "experiments"
FIGURES = [
    ".".join(path.relative_to(programs.ROOT).with_suffix("").parts)
    for path in sorted(FOLDER.glob("*/figures/*.py"))
    if path.stem != "__init__"
]
NEED_DATA = ("error_by_height", "temperatures", "pretrained")
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
def subtrees(tmp_path_factory) -> str:
    """Work dir of a run of two steps on ListOps-SubTrees."""
    config = listops_subtrees.get_config("size=small")
    config.task.update(n_train=20, n_validation=10, n_test=20)
    config.task.update(min_length=8, max_length=32, length=32)
    config.model.update(n_layers=1)
    config.optimizer.warmup_steps = 0
    config.training.update(steps=2, batch_size=8, evaluate_every=2)
    workdir = str(tmp_path_factory.mktemp("subtrees"))
    train(config, workdir)
    return workdir


@pytest.mark.full
def test_errors_by_height_are_those_of_the_evaluation(subtrees):
    counts = error_by_height.count(subtrees)
    batch = counts.task.batch("test", 0, 20, seed=0)
    assert counts.subtrees.sum() == batch.loss_mask.sum()
    assert (counts.subtrees.sum(0) == np.bincount(batch.inputs.flat)[11:15]).all()
    assert (counts.errors <= counts.subtrees).all()
    missed = counts.errors.sum() / counts.subtrees.sum()
    assert abs(1 - missed - evaluate_run(subtrees)["accuracy"]) < 1e-6


@pytest.mark.full
def test_errors_by_height_of_runs_are_drawn(subtrees, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = "experiments.dlr.figures.error_by_height"
    data = f"--data={subtrees},{subtrees}"
    assert programs.run(monkeypatch, name, data) in (0, None)
    assert "height    subtrees  error" in capsys.readouterr().out
    assert Path("error_by_height.png").stat().st_size > 5000


@pytest.mark.full
def test_errors_by_height_need_a_run_on_the_task(tmp_path):
    config = digits.get_config()
    config.optimizer.warmup_steps = 0
    config.training.update(steps=1, evaluate_every=1)
    train(config, str(tmp_path))
    with refuses("--data", "Digits", rule="ListOpsSubTrees"):
        error_by_height.count(str(tmp_path))
