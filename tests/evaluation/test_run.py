"""A run evaluated from its work dir: every token once, and losses by length."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from flax import linen as nn
from ml_collections import ConfigDict

from ssm_jax.cli import report
from ssm_jax.config import spec
from ssm_jax.evaluation import (
    Restored,
    corpus,
    evaluate_accuracy,
    evaluate_lengths,
    evaluate_memory,
    evaluate_run,
    loss_interval,
    restore,
    run as run_module,
)
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, StepHead, TokenEncoder
from ssm_jax.recurrences import DLR
from ssm_jax.tasks import Digits, Parity, TextFolder
from ssm_jax.training import Optimizer, TrainConfig, WorkDir, train
from ssm_jax.training.measure import n_evaluated
from tests.bad_inputs import refuses
from tests.tasks.raw_sets import novels


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The work dir of a run on tiny novels."""
    folder, run = (tmp_path_factory.mktemp(name) for name in ("novels", "run"))
    novels(folder, 12)
    model = spec(
        SequenceModel,
        encoder=TokenEncoder(d_model=4, vocabulary=257),
        block=Block(RecurrentLayer(DLR(d_state=4), ChannelMixing())),
        n_layers=1,
        head=None,
    )
    numbers = {"steps": 2, "evaluate_every": 2, "batch_size": 8}
    numbers["evaluation_batches"] = 1
    config = ConfigDict(
        {
            "experiment": "tests/text",
            "task": spec(TextFolder, data_dir=str(folder), length=8),
            "model": model,
            "optimizer": spec(Optimizer, learning_rate=1e-2),
            "training": spec(TrainConfig, **numbers, initial_state="carry"),
        }
    )
    train(config, str(run))
    return run


@pytest.mark.full
def test_losses_by_length_are_written(trained, monkeypatch):
    rows = evaluate_lengths(trained, [4, 8, 16], max_tokens=64)
    ways = [(row["window_state"], row["order"], row["length"]) for row in rows]
    assert ways == [
        *(("zero", "text", length) for length in (4, 8, 16)),
        ("carry", "text", 16),
        *(("carry", "shuffled", length) for length in (4, 8, 16)),
    ]
    assert {row["split"] for row in rows} == {"validation"}
    assert {row["logged_step"] for row in rows} == {2}
    task = restore(trained).text
    for row in rows:
        np.testing.assert_allclose(row["perplexity"], np.exp(row["loss"]))
        np.testing.assert_allclose(row["loss"], np.mean(row["loss_by_document"]))
        assert row["interval"] == list(loss_interval(row["loss_by_document"]))
        assert row["interval"][0] < row["loss"] < row["interval"][1]
        # With carried states the loss does not depend on the length.
        verdicts = ("strong", "weak", "none")
        assert row["extends"] in (
            verdicts if row["window_state"] == "zero" else (None,)
        )
        corpus_row = {name: row["corpus"][name] for name in row["corpus"]}
        assert corpus_row.pop("sha256") == corpus(task, "validation")["sha256"]
        assert corpus_row == {
            "task": "TextFolder",
            "folder": Path(task.data_dir).name,
            "split": "validation",
            "tokenizer": "bytes",
            "tokens": len(task.text("validation")),
            "documents": 2,
            "tokens_read": 64,
            "documents_read": 2,
        }
    lines = (trained / "length_extension.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    monkeypatch.setattr(Path, "replace", lambda *_: 1 / 0)  # killed before its end
    with pytest.raises(ZeroDivisionError):
        evaluate_lengths(trained, [4, 8, 16], max_tokens=64)
    assert (trained / "length_extension.jsonl").read_text().splitlines() == lines


@pytest.mark.full
def test_memory_is_written(trained):
    found = evaluate_memory(trained, [2, 8, 40], n_rows=2)
    text = restore(trained).text
    assert (found["trained"], found["length"]) == (text.length, 4 * text.length)
    assert found["starts"][0] == found["effective_remembrance"][0] == 0
    assert all(0 <= distance <= 1 for distance in found["effective_remembrance"])
    assert found["starts"][-1] == found["length"] - 1
    assert found["positions"] == [2, 8, 40]
    assert found["logged_step"] == 2
    for state in found["states"]:
        assert len(state["norm"]) == len(state["deviation"]) == 3
    assert json.loads((trained / "memory.json").read_text()) == found


@pytest.mark.full
def test_accuracy_by_length_is_written(tmp_path):
    model = spec(
        SequenceModel,
        encoder=TokenEncoder(d_model=4, vocabulary=3),
        block=Block(RecurrentLayer(DLR(d_state=4), ChannelMixing())),
        n_layers=1,
        head=StepHead(d_output=2),
    )
    numbers = {"steps": 1, "evaluate_every": 1, "evaluation_batches": 1}
    config = ConfigDict(
        {
            "experiment": "tests/parity",
            "task": spec(Parity, length=8),
            "model": model,
            "optimizer": spec(Optimizer, learning_rate=1e-2),
            "training": spec(TrainConfig, **numbers, batch_size=8),
        }
    )
    train(config, str(tmp_path))
    rows = evaluate_accuracy(tmp_path, [8, 16], n_rows=8)
    assert [row["length"] for row in rows] == [8, 16]
    assert {(row["step"], row["logged_step"], row["trained"]) for row in rows} == {
        (1, 1, 8)
    }
    lines = (tmp_path / "accuracy_by_length.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows


@pytest.mark.nightly
def test_other_data_have_records_of_their_own(trained, tmp_path):
    """Copied data are those of the run; others never replace its results."""
    own = Path(restore(trained).task.data_dir)
    moved = shutil.copytree(own, tmp_path / "moved")
    result = evaluate_run(trained, data_dir=str(moved))
    rows = evaluate_lengths(trained, [4, 8], max_tokens=64, data_dir=str(moved))
    kept = {
        name: (trained / name).read_bytes()
        for name in ("evaluation.json", "length_extension.jsonl", "inspection.npz")
    }
    assert json.loads(kept["evaluation.json"]) == result
    novels(tmp_path / "other né ws", 9)
    options = {"data_dir": str(tmp_path / "other né ws"), "allow_changed_data": True}
    other = evaluate_run(trained, **options)
    others = evaluate_lengths(trained, [4, 8], max_tokens=64, **options)
    assert other != result and others != rows
    record = trained / "evaluation-other_n_ws.json"
    assert json.loads(record.read_text()) == other and other["changed_data"]
    lines = (trained / "length_extension-other_n_ws.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == others
    assert {name: (trained / name).read_bytes() for name in kept} == kept
    assert report.row_of(WorkDir(trained))["corpus"]["folder"] == "moved"


@pytest.mark.nightly
def test_what_an_evaluation_by_length_lacks_is_said(trained, monkeypatch):
    max_tokens_used = []
    measure = run_module.losses_by_length

    def record_call(*args, max_tokens, **options):
        max_tokens_used.append(max_tokens)
        return measure(*args, max_tokens=max_tokens, **options)

    monkeypatch.setattr(run_module, "losses_by_length", record_call)
    edges = restore(trained).text.documents("validation")
    # No document holds the longest window, both together do.
    whole = int(edges[-1] - edges[0]) // 2 * 2
    rows = evaluate_lengths(trained, [whole // 2, whole])
    assert {row["error"] for row in rows} == {None}
    assert {row["documents_merged"] for row in rows} == {True}
    (sentence,) = rows[0]["missing"]
    assert "extends" in sentence
    assert "--lengths" in sentence
    # One document of two is read.
    rows = evaluate_lengths(trained, [8, 16], max_tokens=31)
    (sentence,) = rows[0]["missing"]
    assert "--max_tokens=32" in sentence
    rows = evaluate_lengths(trained, [8, 16], max_tokens=32)
    assert {row["documents_merged"] for row in rows} == {False}
    assert rows[0]["missing"] == []
    assert rows[0]["error"] is not None
    rows = evaluate_lengths(trained, [4, 8], max_tokens=64)
    (sentence,) = rows[0]["missing"]
    assert "--lengths" in sentence
    assert rows[0]["extends"] is None
    assert max_tokens_used[0] == 2**19


@pytest.mark.parametrize(
    ("longest", "n_groups", "n_files", "lacks"),
    [(2**20, 1, 2, "--lengths"), (2**20, 3, 3, ""), (2**15, 1, 1, "--split")],
)
def test_default_number_of_tokens_reads_several_documents(
    longest, n_groups, n_files, lacks
):
    tokens = max(2**19, run_module._WINDOWS * longest)
    sentences = run_module._explain_missing(
        [512, longest], 512, tokens, n_groups=n_groups, n_files=n_files
    )
    assert len(sentences) == bool(lacks)
    assert lacks in "".join(sentences)


@pytest.mark.full
@pytest.mark.parametrize("length", [5, 8, 13])
def test_the_whole_test_split_is_evaluated(trained, length, tmp_path, monkeypatch):
    """Training validates on one batch; `evaluate_run` covers every token once."""
    config = json.loads((trained / "config.json").read_text())
    assert config["training"]["evaluation_batches"] == 1
    run = restore(trained)
    task = dataclasses.replace(run.text, length=length)
    changed = dataclasses.replace(run, task=task)
    monkeypatch.setattr("ssm_jax.evaluation.run.restore", lambda *_, **__: changed)
    monkeypatch.setattr("ssm_jax.evaluation.run.inspect", lambda *_: None)
    targets_read = []

    def counted(step, parallel, task, *args, limit, batch_size, **options):
        for index in range(n_evaluated(task, "test", batch_size, limit)):
            batch = task.batch("test", index, batch_size, 0)
            targets_read.extend(batch.targets[batch.loss_mask].tolist())
        return {"loss": 0.0}

    monkeypatch.setattr("ssm_jax.evaluation.run.evaluate", counted)
    result = evaluate_run(trained)
    text = task.text("test")
    assert sorted(targets_read) == sorted(text[1:].tolist())
    assert result["corpus"]["tokens"] == len(text)
    assert result["logged_step"] == 2


@pytest.mark.full
def test_perplexity_follows_from_the_predictions_file(trained, tmp_path):
    path = tmp_path / "predictions.npz"
    measured = evaluate_run(trained, predictions_file=path)
    with np.load(path) as file:
        arrays = dict(file)
    n = restore(trained).task.n_examples("test")
    np.testing.assert_array_equal(arrays["id"], np.arange(n))
    counts = arrays["loss_mask"]
    loss = -arrays["log_p"][counts].mean(dtype=float)
    assert measured["perplexity"] == pytest.approx(np.exp(loss), rel=1e-5)
    hits = arrays["prediction"][counts] == arrays["target"][counts]
    assert measured["accuracy"] == pytest.approx(hits.mean(), rel=1e-6)


def test_run_on_another_task_is_rejected(monkeypatch):
    run = Restored(nn.Dense(1), {}, Digits(), TrainConfig(steps=1, batch_size=1), 1)
    monkeypatch.setattr("ssm_jax.evaluation.run.restore", lambda *_, **__: run)
    with refuses("workdir", rule="`TextFolder`"):
        evaluate_lengths("anywhere", [4, 8])
