"""A language model from its work folder: measured by length, and writing on."""

import itertools
import json

import numpy as np
import pytest
from flax import linen as nn
from ml_collections import ConfigDict

from ssm_jax.config import spec
from ssm_jax.evaluation import Restored, Sampling, evaluate_lengths, generate, restore
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, TokenEncoder
from ssm_jax.recurrences import DLR
from ssm_jax.tasks import Digits, TextFolder
from ssm_jax.training import Optimizer, Training, train
from tests.tasks.raw_sets import novels


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run on tiny novels."""
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
    config = ConfigDict(
        {
            "experiment": "tests/text",
            "task": spec(TextFolder, data_dir=str(folder), length=8),
            "model": model,
            "optimizer": spec(Optimizer, learning_rate=1e-2),
            "training": spec(Training, **numbers, initial_state="previous"),
        }
    )
    train(config, str(run))
    return run


def test_lengths_are_measured_and_written_down(trained):
    rows = evaluate_lengths(trained, [4, 8, 16], max_tokens=64)
    assert [(row["start"], row["order"]) for row in rows[::3]] == [
        ("zero", "text"),
        ("previous", "text"),
        ("previous", "shuffled"),
    ]
    assert [row["length"] for row in rows[:3]] == [4, 8, 16]
    assert {row["split"] for row in rows} == {"validation"}
    for row in rows:
        np.testing.assert_allclose(row["perplexity"], np.exp(row["loss"]))
        assert row["extends"] in ("strong", "weak", "none")
    lines = (trained / "length_extension.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows


def test_text_is_written_on(trained):
    restored = restore(trained)
    task = restored.task
    assert isinstance(task, TextFolder)
    steps = generate(
        restored.model,
        restored.variables,
        [task.encode("The é")],
        sampling=Sampling(top_k=20),
    )
    written = b"".join(
        task.spell(int(step.tokens[0])) for step in itertools.islice(steps, 10)
    )
    assert len(written) >= 10


def test_tokens_spell_what_they_encode(trained):
    task = restore(trained).task
    assert isinstance(task, TextFolder)
    text = "Où est-il?"
    assert b"".join(map(task.spell, task.encode(text))) == b"\n\n" + text.encode()
    words = TextFolder(data_dir=task.data_dir, tokenizer="words", vocabulary=50)
    known = words.spell(3).decode().strip()
    spelt = b"".join(map(words.spell, words.encode(f"{known} zzzz"))).decode()
    assert spelt == f"\n\n{known} <unknown> "


def test_run_on_another_task_has_no_lengths(monkeypatch):
    run = Restored(nn.Dense(1), {}, Digits(), Training(steps=1, batch_size=1), 1)
    monkeypatch.setattr("ssm_jax.evaluation.run.restore", lambda *_, **__: run)
    with pytest.raises(
        ValueError, match="^`workdir` must be of a run on a `TextFolder`"
    ):
        evaluate_lengths("anywhere", [4, 8])
