"""The report says what the work folders hold, and the README what the records say."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from ssm_jax.cli import report
from ssm_jax.cli.config_file import load
from ssm_jax.config import build
from ssm_jax.evaluation import evaluate_run, restore
from ssm_jax.evaluation.run import LENGTHS_FILE
from ssm_jax.recurrences import convolution_kernel
from ssm_jax.training import WorkDir, train
from tests.bad_inputs import refuses
from tests.cli import programs

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
    row = report.row_of(WorkDir(path))
    assert row["experiment"] == "dlr/digits" and row["variant"] == ""
    assert row["metric"] == "test accuracy" and row["paper"] is None
    assert row["value"] == measured["accuracy"]
    assert row["baseline"] == measured["baseline"]
    assert row["steps"] == 4 and row["best_step"] in (2, 4)
    assert measured["logged_step"] == 4
    assert row["seconds"] == WorkDir(path).metrics()[-1]["elapsed_s"]
    json.dumps(row)


@pytest.mark.full
def test_main_metric_that_is_null_is_refused(run, tmp_path):
    path, measured = run
    shutil.copytree(path, tmp_path / "run")
    work = WorkDir(tmp_path / "run")
    work.write("evaluation.json", measured | {"accuracy": None})
    with refuses(str(work.path / "evaluation.json"), "null", rule="accuracy"):
        report.row_of(work)


@pytest.mark.full
def test_inspection_is_of_the_model(run):
    path, _ = run
    restored = restore(path)
    arrays = WorkDir(path).read_arrays("inspection.npz")
    recurrence = build(WorkDir(path).config().model).block.layer.recurrence
    params = restored.variables["params"]["block_0"]["layer"]["recurrent"]["recurrence"]
    modes = recurrence.modes(params)
    kernel = convolution_kernel(modes, 64)
    ahead = convolution_kernel(modes._replace(w=modes.w_backward), 64)
    energy = np.square(kernel).sum(-1) + np.square(ahead).sum(-1)
    most = np.argsort(-energy)[:4]
    np.testing.assert_array_equal(arrays["channels"][0], most)
    shares = energy[most] / energy.sum()
    np.testing.assert_allclose(arrays["energies"][0], shares, rtol=1e-4)
    forward, backward = (
        arrays["kernels"][0][:, k] for k in (slice(64, 128), slice(64))
    )
    np.testing.assert_allclose(forward, kernel[most], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(backward[:, ::-1], ahead[most], rtol=1e-4, atol=1e-6)
    assert arrays["lags"][[0, 64]].tolist() == [-64, 0]
    np.testing.assert_array_equal(arrays["log_abs"][0], modes.log_decay.log_abs)
    circle = 2 * np.pi * np.arange(32) / 32
    np.testing.assert_allclose(arrays["initial_phase"][0], circle, rtol=1e-6)
    np.testing.assert_allclose(arrays["predictions"].sum(-1), 1, rtol=1e-5)


@pytest.mark.full
def test_examples_have_the_lowest_and_the_highest_losses(run):
    path, _ = run
    restored, arrays = restore(path), WorkDir(path).read_arrays("inspection.npz")
    batch = restored.task.batch("test", 0, 256, 0)
    logits, _ = restored.model.apply(restored.variables, batch.inputs)
    losses = -jax.nn.log_softmax(logits)[np.arange(256), batch.targets]
    order = np.argsort(losses)
    assert arrays["n_candidates"] == 256
    np.testing.assert_allclose(
        arrays["losses"], losses[order][np.r_[:5, -5:0]], rtol=1e-4
    )
    shown = zip(arrays["predictions"], arrays["targets"], strict=True)
    target_losses = [-np.log(probabilities[target]) for probabilities, target in shown]
    np.testing.assert_allclose(arrays["losses"], target_losses, rtol=1e-5)


@pytest.mark.full
def test_figures_are_drawn_into_the_folder(run):
    folder = WorkDir(run[0])
    paths = report.draw(folder, report.row_of(folder))
    assert {path.stem for path in paths} == {
        "curves", "kernels", "eigenvalues", "predictions"
    }  # fmt: skip
    assert all(path.stat().st_size > 5000 for path in paths)


@pytest.mark.full
def test_a_folder_without_evaluation_names_the_command(run, tmp_path):
    folder = WorkDir(tmp_path / "new")
    with folder.claim(WorkDir(run[0]).config()):
        pass
    with pytest.raises(ValueError, match="trained to the end, got .* step 0 of 4"):
        report.row_of(folder)
    folder.log(4, elapsed_s=1.0)
    with pytest.raises(ValueError, match="ssm-jax evaluate --workdir="):
        report.row_of(folder)


def evaluated_run(path, **training):
    """The folder of a run of four steps, evaluated, of which nothing was trained."""
    config = load(str(ROOT / "experiments/dlr/digits.py"))
    config.training.update(steps=4, **training)
    folder = WorkDir(path)
    with folder.claim(config):
        folder.log(4, elapsed_s=1.0)
    folder.write("evaluation.json", EVALUATION | {"logged_step": 4})
    return folder


EVALUATION = {"split": "test", "step": 4, "accuracy": 0.5}


def test_a_config_need_not_name_its_experiment(tmp_path, monkeypatch, capsys):
    folder = evaluated_run(tmp_path / "mine")
    config = json.loads((folder.path / "config.json").read_text())
    for name in ("experiment", "variant", "paper"):
        del config[name]
    (folder.path / "config.json").write_text(json.dumps(config))
    row = report.row_of(folder)
    assert (row["experiment"], row["variant"], row["paper"]) == ("mine", "", None)
    workdirs = f"--workdirs={folder.path}"
    assert programs.run(monkeypatch, "report", workdirs, "--nofigures") in (0, None)
    assert capsys.readouterr().out.splitlines()[2].startswith("| mine ")
    arguments = workdirs, "--nofigures", "--json"
    assert programs.run(monkeypatch, "report", *arguments) in (0, None)
    assert json.loads(capsys.readouterr().out) == row


@pytest.mark.parametrize("lacking", EVALUATION)
def test_an_evaluation_that_lacks_a_value_is_named(tmp_path, lacking):
    folder = evaluated_run(tmp_path / "run")
    values = {name: v for name, v in EVALUATION.items() if name != lacking}
    folder.write("evaluation.json", values)
    with refuses(f"{folder.path}/evaluation.json", next(iter(values))):
        report.row_of(folder)


def test_a_run_that_was_continued_is_to_be_evaluated_again(tmp_path):
    folder = evaluated_run(tmp_path / "run")
    assert report.row_of(folder)["value"] == 0.5
    folder.log(6, elapsed_s=2.0)
    with refuses("workdirs", "step 4 of 6", rule="after their last step"):
        report.row_of(folder)
    # Evaluations of earlier versions do not say what step the run had logged.
    folder.write("evaluation.json", EVALUATION)
    assert report.row_of(folder)["value"] == 0.5
    line = {"length": 16, "logged_step": 4}
    (folder.path / LENGTHS_FILE).write_text(json.dumps(line) + "\n")
    with refuses("workdirs", "--mode=length_extension", rule="after their last step"):
        report.row_of(folder)


DEEP = pytest.param("[" * 200_000, id="deep")


@pytest.mark.parametrize("line", ["3", "{", "\xff", DEEP])
def test_line_by_length_that_is_damaged_is_named(tmp_path, line):
    path = tmp_path / LENGTHS_FILE
    path.write_bytes(b'{"length": 16}\n' + line.encode("latin-1") + b"\n")
    with refuses(str(path), "line 2", rule="JSON object"):
        report.lines_of(path)


OTHERS = {
    "seed": ({"seed": 1}, None),
    "batch": ({"seed": 1, "batch_size": 8}, "training.batch_size: "),
    "evaluations": ({"seed": 1, "evaluate_every": 2}, "training.evaluate_every: "),
    "same seed": ({}, "leave one out"),
    "data": ({"seed": 1, "data": "b"}, "2 files of 12 bytes"),
    "same data": ({"seed": 1, "data": "a"}, None),
}


@pytest.mark.parametrize(("changes", "refused"), OTHERS.values(), ids=OTHERS.keys())
def test_runs_of_one_line_differ_in_their_seed_alone(
    monkeypatch, tmp_path, capsys, changes, refused
):
    for name, fields in (("first", {}), ("second", changes)):
        training = {key: value for key, value in fields.items() if key != "data"}
        folder = evaluated_run(tmp_path / name, **training)
        files = {"a": 1, "b": 2}[digest := fields.get("data", "a")]
        data = {"files": files, "bytes": 12, "modified": "today", "sha256": digest}
        folder.write_data(data, 0)
    workdirs = f"--workdirs={tmp_path}/first,{tmp_path}/second"
    status = programs.run(monkeypatch, "report", workdirs, "--nofigures")
    out, err = capsys.readouterr()
    if refused is None:
        assert status in (0, None) and "0.5000 ± 0.0000" in out
    else:
        assert status == 2 and refused in err and "`workdirs`" in err


def test_runs_measured_by_length_are_drawn_together(tmp_path):
    line = {"window_state": "zero", "order": "text", "trained": 16}
    lengths = [line | {"length": n, "perplexity": 9.0} for n in (16, 64)]
    rows = [
        {"experiment": "text", "variant": f"state_init={name}", "lengths": lengths}
        for name in ("zero", "carry")
    ]
    folders = [WorkDir(tmp_path / name) for name in ("zero", "carry")]
    for folder in folders:
        (folder.path / "figures").mkdir(parents=True)
    paths = report.draw_comparison(folders, rows)
    assert {path.relative_to(tmp_path).as_posix() for path in paths} == {
        f"{name}/figures/lengths_of_runs.{kind}"
        for name in ("zero", "carry")
        for kind in ("png", "pdf")
    }
    assert all(path.stat().st_size for path in paths)
    assert not report.draw_comparison(folders, [rows[0], rows[1] | {"lengths": []}])
