"""The report says what the work folders hold, and the README what the records say."""

import json
from pathlib import Path

import numpy as np
import pytest

from launch import baselines, report, tables
from launch.cli import load
from ssm_jax.config import build
from ssm_jax.evaluation import evaluate_run, restore
from ssm_jax.recurrences import convolution_kernel
from ssm_jax.training import RunFolder, train

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run on the digits, evaluated."""
    config = load(str(ROOT / "experiments/dlr/digits.py"))
    config.training.update(steps=4, evaluate_every=2, log_every=1, batch_size=8)
    config.training.evaluation_batches = 2
    config.model.update(n_layers=1)
    config.optimizer.update(warmup_steps=0)
    path = tmp_path_factory.mktemp("runs") / "digits"
    train(config, str(path))
    return path, evaluate_run(path)


@pytest.mark.full
def test_a_row_is_what_the_folder_holds(run):
    path, measured = run
    row = report.row_of(RunFolder(path))
    assert row["experiment"] == "dlr/digits" and row["variant"] == ""
    assert row["metric"] == "test accuracy" and row["paper"] is None
    assert row["value"] == measured["accuracy"]
    assert row["baseline"] == measured["baseline"]
    assert row["steps"] == 4 and row["best_step"] in (2, 4)
    assert row["seconds"] == RunFolder(path).metrics()[-1]["elapsed_s"]
    json.dumps(row)


@pytest.mark.full
def test_inspection_is_of_the_model(run):
    path, _ = run
    restored = restore(path)
    found = np.load(path / "inspection.npz")
    recurrence = build(RunFolder(path).config().model).block.layer.recurrence
    params = restored.variables["params"]["block_0"]["layer"]["recurrent"]["recurrence"]
    modes = recurrence.modes(params)
    kernel = convolution_kernel(modes, 64)[:4]
    np.testing.assert_allclose(
        found["kernels"][0][:, 64:], kernel, rtol=1e-4, atol=1e-6
    )
    ahead = convolution_kernel(modes._replace(w=modes.w_backward), 64)[:4]
    backward = found["kernels"][0][:, :64][:, ::-1]
    np.testing.assert_allclose(backward, ahead, rtol=1e-4, atol=1e-6)
    assert found["lags"][[0, 64]].tolist() == [-64, 0]
    np.testing.assert_array_equal(found["log_abs"][0], modes.log_decay.log_abs)
    circle = 2 * np.pi * np.arange(32) / 32
    np.testing.assert_allclose(found["initial_phase"][0], circle, rtol=1e-6)
    np.testing.assert_allclose(found["predictions"].sum(-1), 1, rtol=1e-5)


@pytest.mark.full
def test_figures_are_drawn_into_the_folder(run):
    folder = RunFolder(run[0])
    paths = report.draw(folder, report.row_of(folder))
    assert {path.stem for path in paths} == {
        "curves", "kernels", "eigenvalues", "predictions"
    }  # fmt: skip
    assert all(path.stat().st_size > 5000 for path in paths)


@pytest.mark.full
def test_a_folder_without_evaluation_names_the_command(run, tmp_path):
    folder = RunFolder(tmp_path / "new")
    with folder.claimed(RunFolder(run[0]).config()):
        pass
    with pytest.raises(ValueError, match="trained to the end, got .* step 0 of 4"):
        report.row_of(folder)
    folder.log(4, elapsed_s=1.0)
    with pytest.raises(ValueError, match=r"launch\.evaluate --workdir="):
        report.row_of(folder)


def test_the_page_by_length_has_the_tables_of_the_records():
    rows = report.records()
    assert rows, "no run was recorded"
    assert any(row["lengths"] for row in rows), "no run was recorded by length"
    by_length = (report.RESULTS / "README.md").read_text()
    assert by_length == tables.by_length_page(rows)


@pytest.mark.full
def test_records_are_the_rows(run, tmp_path):
    row = report.row_of(RunFolder(run[0])) | {"variant": "a+16"}
    measured = row | {"seed": 1, "lengths": [{"length": 16}, {"length": 64}]}
    for each in (row, measured):
        report.record(each, tmp_path)
    assert report.records(tmp_path) == [row, measured]
    report.record(measured | {"lengths": []}, tmp_path)
    assert not report.records(tmp_path)[1]["lengths"]


@pytest.mark.full
def test_an_overridden_run_is_not_recorded(run):
    folder = RunFolder(run[0])
    with pytest.raises(ValueError, match="`--record` must be of an experiment as it"):
        report.check_published(folder, report.row_of(folder))


def test_every_record_has_its_baseline_and_no_reduced_run_a_published_figure():
    for row in report.records():
        assert row["baseline"][row["metric"].split()[-1]] is not None
        reduced = {"small", "quarter", "demo"} & set(row["variant"].split("+"))
        assert not (reduced and row["paper"])


@pytest.mark.full
def test_baselines_are_added_to_old_records(run, tmp_path):
    row = report.row_of(RunFolder(run[0]))
    old = {name: value for name, value in row.items() if name != "baseline"}
    for each in (old, old | {"experiment": "a/b"}):
        report.record(each, tmp_path)
    baselines.add(["dlr"], None, tmp_path)
    other, found = report.records(tmp_path)
    assert list(found) == list(row)
    # Of the whole split, where the run above measured two batches of it.
    assert found["baseline"]["accuracy"] == 0.1
    assert found["baseline"]["n_examples"] == 300
    assert "baseline" not in other
    with pytest.raises(ValueError, match="`--baselines` must name .*, got dl;"):
        baselines.add(["dl"], None, tmp_path)
