"""Claims: their configs, how they are judged, and that a program continues."""

import dataclasses
import json

import pytest

from experiments import claims
from experiments.claims import Claim, at_best_rate, run_claim
from experiments.records import experiment_config
from experiments.synthetic.claims import CLAIMS
from ssm_jax.config import build
from ssm_jax.evaluation import accuracy_by_length

TINY = Claim(
    "tiny",
    "Tiny",
    "A statement.\n",
    "synthetic/state_tracking:task=parity,model={model}",
    {"tanh": "solves", "sigmoid": "cannot"},
    level=0.5,
    read_at=12,
    lengths=(6, 12),
    measured={"shortest": None},
    learning_rates=(1e-3, 1e-2),
    seeds=2,
)


@pytest.fixture
def short(monkeypatch):
    """Experiments of two steps on short words."""

    def config_of(name):
        config = experiment_config(name)
        config.task.length = 6
        config.training.update(
            steps=2, batch_size=8, evaluate_every=2, evaluation_batches=1
        )
        return config

    monkeypatch.setattr(claims, "experiment_config", config_of)
    monkeypatch.setattr(claims, "N_ROWS", 8)


@pytest.mark.parametrize("name", CLAIMS)
def test_models_are_experiments_and_lengths_hold_that_of_the_training(name):
    claim = CLAIMS[name]
    for model in claim.expected:
        config = experiment_config(claim.experiment.format(model=model))
        task = build(config.task, "config.task")
        assert task.length in claim.lengths
        assert dataclasses.replace(task, **claim.measured).length == task.length
    assert claim.read_at in claim.lengths
    assert {claim.reference(model) for model in claim.expected} <= {*claim.expected}
    assert {*claim.beside} <= {*claim.expected}
    assert next(iter(claim.expected.values())) == "solves"
    assert {run["seed"] for run in claim.runs()} == {0, 1, 2}
    assert len({run["learning_rate"] for run in claim.runs()}) >= 3


@pytest.mark.full
def test_words_that_are_measured_fill_their_rows(tmp_path, short, monkeypatch):
    words = []

    def measure(restored, lengths, *, task, **options):
        words.append((restored.task.shortest, task.shortest))
        return accuracy_by_length(restored, lengths, task=task, **options)

    monkeypatch.setattr(claims, "accuracy_by_length", measure)
    TINY.measure(next(TINY.runs()), tmp_path / "run")
    assert set(words) == {(2, None)}


@pytest.mark.full
def test_record_goes_on_where_it_was_interrupted(tmp_path, short, monkeypatch):
    monkeypatch.setattr(claims, "RECORDS", tmp_path)
    record = tmp_path / "tiny.json"
    half = dataclasses.replace(TINY, expected={"tanh": "solves"})
    run_claim(half, tmp_path / "runs", record)
    before = json.loads(record.read_text())["rows"]
    run_claim(TINY, tmp_path / "runs", record)
    rows = json.loads(record.read_text())["rows"]
    assert rows[: len(before)] == before
    assert len(before) == 4
    done = [{key: row[key] for key in next(TINY.runs())} for row in rows]
    assert done == [*TINY.runs()]
    for row in rows:
        assert [*row["accuracy"]] == [*row["float64"]] == ["6", "12"]
        assert 0 <= row["validation"] <= 1
    text = TINY.markdown(())
    assert "8 of 8 runs" in text
    assert text.count("\n| tanh ") == text.count("\n| sigmoid ") == 1


def test_claim_without_a_record_has_no_table(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "RECORDS", tmp_path)
    assert TINY.markdown(()) == ""


def test_learning_rate_is_chosen_by_validation():
    rows = [
        {"learning_rate": rate, "seed": seed, "validation": value, "last": 1 - value}
        for rate, values in ((1e-3, (0.5, 0.7)), (1e-2, (0.8, 0.6)))
        for seed, value in enumerate(values)
    ]
    assert at_best_rate(rows) == rows[2:]


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        ((1.0, 0.99, 1.0), "solves"),
        ((1.0, 0.98, 1.0), "neither"),
        ((0.55, 0.45, 0.5), "cannot"),
        ((0.56, 0.5, 0.5), "less"),
        ((0.9, 0.91, 0.89), "less"),
        ((0.96, 0.97, 0.96), "neither"),
        ((0.5, 1.0, 0.9), "neither"),
    ],
)
def test_verdict(accuracies, verdict):
    assert TINY.verdict(accuracies, (1.0, 1.0, 1.0)) == verdict
