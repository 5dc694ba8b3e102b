"""`ssm-jax new classify` and `regress`: labels and numbers of arrays and tables."""

import shlex

import numpy as np
import pytest

from ssm_jax.cli import config_file
from ssm_jax.cli.templates.labelled import classify, regress
from ssm_jax.config import build
from ssm_jax.tasks import LongTable
from tests.bad_inputs import refuses
from tests.cli import programs

RNG = np.random.default_rng(0)
N, LENGTH = 60, 12
KIND = np.arange(N) % 3
SERIES = np.sin(np.arange(LENGTH) * (0.2 + 0.2 * KIND[:, None])) + KIND[:, None]
WORDS = np.array(["slow", "mid", "fäst \"'{}"])
TOKENS = RNG.integers(0, 9, (N, LENGTH))
ARRAYS = {
    "words": (SERIES, WORDS[KIND], {"classes": tuple(sorted(WORDS))}),
    "integers": (
        1000 * SERIES[..., None],
        10 * KIND - 5,
        {"classes": ("-5", "5", "15")},
    ),
    "bools": (SERIES, KIND == 0, {"classes": ("False", "True")}),
    "tokens": (TOKENS, KIND, {"inputs": "token", "d_input": 9}),
    "each step": (TOKENS, TOKENS % 4, {"per_step": True, "d_output": 4}),
    "large integers": (10_000 * TOKENS, KIND, {"inputs": "vector", "d_input": 1}),
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("inputs", "targets", "fields"), ARRAYS.values(), ids=ARRAYS)
def test_experiment_on_labelled_arrays_builds(inputs, targets, fields):
    np.savez("a.npz", inputs=inputs, targets=targets)
    classify("a.npz", "mine.py")
    config = config_file.load("mine.py")
    task, model = build(config.task), build(config.model)
    for name, value in fields.items():
        assert getattr(task, name) == value
    batch = task.batch("train", 0, config.training.batch_size, seed=0)
    assert model.head.d_output == task.spec.d_output == len(task.classes)
    assert batch.targets.max() == task.spec.d_output - 1
    if task.inputs == "vector":
        every = task.batch("train", 0, task.n_examples("train"), seed=0).inputs
        np.testing.assert_allclose(every.mean((0, 1)), 0, atol=1e-4)
        np.testing.assert_allclose(every.std((0, 1)), 1, atol=1e-4)


def test_experiment_on_numbers_builds():
    targets = np.stack([1e4 * KIND, SERIES.sum(1)], 1)
    np.savez("a.npz", inputs=SERIES, targets=targets)
    regress("a.npz", "mine.py")
    task = build(config_file.load("mine.py").task)
    batch = task.batch("test", 0, 6, seed=0)
    assert batch.targets.shape == (6, 2) and np.abs(batch.targets).max() < 10
    request = "test", 0, 6, 0
    values = task.in_units(batch.targets, *request)
    assert all(np.isclose(targets, row, atol=1.0).all(1).any() for row in values)
    np.savez("b.npz", inputs=SERIES, targets=SERIES.sum(1))
    regress("b.npz", "one.py")
    task = build(config_file.load("one.py").task)
    assert task.batch("train", 0, 8, seed=0).targets.shape == (8, 1)


def table(path, *, gap="", label=WORDS):
    """Writes a CSV whose rows are shuffled among examples, and returns the steps."""
    steps = 5 + np.arange(N) % 4
    rows = [
        f"p{i};{1000 * SERIES[i, t]};{gap if t == 2 else i};note;"
        + '"'
        + str(label[KIND[i]]).replace('"', '""')
        + '"'
        for t in range(8)
        for i in range(N)
        if t < steps[i]
    ]
    path.write_text("\n".join(["id;x;y;text;label", *rows]))
    return steps


def test_experiment_on_a_table_builds(tmp_path, monkeypatch, capsys):
    steps = table(tmp_path / "long.csv", gap="NA")
    flags = "--data=long.csv", "--example=id", "--target=label"
    assert programs.run(monkeypatch, "new", "classify", *flags) in (0, None)
    shown = capsys.readouterr().out
    assert "5 to 8 steps" in shown and "missing" in shown and "text" in shown
    assert "3: " in shown and "(20)" in shown
    task = build(config_file.load("classify.py").task)
    assert isinstance(task, LongTable) and task.features == ("x", "y")
    assert set(task.classes) == set(WORDS) and task.class_weight is None
    n = task.n_examples("train")
    batch = task.batch("train", 0, n, seed=0)
    assert (
        batch.mask is not None
        and sorted(batch.mask.sum(1)) == sorted(steps[i] for i in range(N))[:n]
        or n < N
    )
    valid = batch.inputs[batch.mask]
    np.testing.assert_allclose(valid[:, 0].mean(), 0, atol=1e-4)
    assert np.isfinite(batch.inputs).all()


def test_imbalance_is_said_and_weighed():
    np.savez("a.npz", inputs=SERIES, targets=np.arange(N) % 10 == 0)
    found = dict(classify("a.npz", "mine.py").found)
    assert "90%" in found["imbalance"]
    assert build(config_file.load("mine.py").task).spec.class_weight == "balanced"


def test_what_is_no_label_or_number_names_the_other_program(tmp_path):
    np.savez("floats.npz", inputs=SERIES, targets=SERIES.sum(1))
    np.savez("words.npz", inputs=SERIES, targets=WORDS[KIND])
    np.savez("ids.npz", inputs=SERIES, targets=np.arange(N))
    table(tmp_path / "long.csv", label=[0.5, 1.5, 2.0])
    options = {"example": "id", "target": "label"}
    with refuses("--data", "floats.npz", rule="new regress"):
        classify("floats.npz", "mine.py")
    with refuses("--data", "ids.npz", rule="new regress"):
        classify("ids.npz", "mine.py")
    with refuses("--target", "long.csv", rule="new regress"):
        classify("long.csv", "mine.py", **options)
    with refuses("--data", "words.npz", rule="new classify"):
        regress("words.npz", "mine.py")
    with refuses("--target", "text", rule="new classify"):
        regress("long.csv", "mine.py", example="id", target="text")
    regress("long.csv", "mine.py", **options)
    task = build(config_file.load("mine.py").task)
    values = task.in_units(task.batch("test", 0, 6, seed=0).targets, "test", 0, 6, 0)
    assert {0.5, 1.5, 2.0} >= {round(v, 4) for v in values[:, 0].tolist()}


BAD = {
    "few": ({"inputs": SERIES[:6], "targets": KIND[:6]}, "20"),
    "names": ({"X": SERIES, "y": KIND}, "X, y"),
    "one class": ({"inputs": SERIES, "targets": 0 * KIND}, "from 2 to"),
    "pairs": ({"inputs": np.zeros((N, 2, 3, 4)), "targets": KIND}, "pair=True"),
}


@pytest.mark.parametrize(("arrays", "shown"), BAD.values(), ids=BAD)
def test_arrays_that_do_not_fit_are_refused(arrays, shown, tmp_path):
    np.savez("a.npz", **arrays)
    with refuses("--data", "a.npz", rule=shown):
        classify("a.npz", "mine.py")
    assert not (tmp_path / "mine.py").exists()


def test_columns_are_asked_for(tmp_path):
    table(tmp_path / "long.csv")
    with refuses("--example", "long.csv", rule="id, x, y, text, label"):
        classify("long.csv", "mine.py", target="label")
    with refuses("--target", "wrong"):
        classify("long.csv", "mine.py", example="id", target="wrong")


# ml_collections loads the experiment by a call that importlib wants replaced.
@pytest.mark.filterwarnings("ignore:.*load_module:DeprecationWarning")
@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["words", "table"])
def test_printed_commands_run(kind, tmp_path, monkeypatch, capfd):
    flags = ["--data=a.npz"]
    if kind == "table":
        table(tmp_path / "a.csv")
        flags = ["--data=a.csv", "--example=id", "--target=label"]
    np.savez("a.npz", inputs=SERIES, targets=WORDS[KIND])
    assert programs.run(monkeypatch, "new", "classify", *flags) in (0, None)
    lines = capfd.readouterr().out.splitlines()
    for line in (line for line in lines if line.startswith("    ssm-jax")):
        _, program, *words = shlex.split(line)
        extra = ["--config.training.steps=60"] if program == "train" else []
        assert programs.run(monkeypatch, program, *words, *extra) in (0, None), line
    assert "test accuracy" in capfd.readouterr().out
