"""Programs on a folder of Hugging Face, as on a run."""

import json
import os

import jax
import numpy as np
import pytest
from flax.core import meta

from ssm_jax.cli.pretrained import restore_pretrained
from ssm_jax.cli.templates.text import train_tokenizer
from ssm_jax.evaluation import losses_by_length
from ssm_jax.interop import save_mamba, save_pretrained
from ssm_jax.layers import Mamba, Mamba2
from ssm_jax.models import (
    Block,
    SequenceModel,
    StepHead,
    TokenEncoder,
    recurrent_gemma,
)
from ssm_jax.recurrences import SSD, SelectiveSSM
from tests.bad_inputs import refuses
from tests.cli import programs

TEXTS = [f"rain and {word} and snow, " * 30 for word in ("wind", "sun", "ice")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model with its tokenizer, as `save_pretrained` writes them."""
    folder = tmp_path_factory.mktemp("mamba")
    tokenizer = train_tokenizer(iter(TEXTS), 280)
    tokenizer.save(str(folder / "tokenizer.json"))
    save(folder, vocabulary=288)
    config = json.loads((folder / "config.json").read_text())
    config["eos_token_id"] = tokenizer.token_to_id("<|endoftext|>")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def save(folder, vocabulary):
    model = SequenceModel(
        encoder=TokenEncoder(d_model=16, vocabulary=vocabulary, std=0.02),
        block=Block(
            Mamba(SelectiveSSM(d_state=2), n_layers=1), norm="rms", prenorm=True
        ),
        n_layers=1,
        head=None,
    )
    tokens = np.zeros((1, 4), int)
    variables = meta.unbox(jax.jit(model.init)(jax.random.key(0), tokens))
    save_mamba(model, variables, folder)


@pytest.fixture
def texts(tmp_path):
    for i, text in enumerate(TEXTS):
        (tmp_path / f"{i}.txt").write_text(text)
    return tmp_path


def test_model_is_loaded_with_its_tokenizer(folder):
    restored = restore_pretrained(str(folder))
    task = restored.text
    tokens = task.encode("rain and wind")
    assert len(tokens) < 10 and tokens[0] == 0
    assert b"".join(map(task.decode, tokens[1:])) == b"rain and wind"
    assert task.spec.d_input == restored.model.encoder.vocabulary == 288


def test_model_of_bytes_needs_no_tokenizer(tmp_path):
    save(tmp_path, vocabulary=257)
    assert restore_pretrained(str(tmp_path)).text.tokenizer == "bytes"


def test_tokenizer_that_is_not_there_is_an_error(tmp_path):
    save(tmp_path, vocabulary=288)
    with refuses("tokenizer", "tokenizer.json", error=FileNotFoundError):
        restore_pretrained(str(tmp_path))


@pytest.mark.full
def test_prompt_is_continued(folder, monkeypatch, capfdbinary):
    words = f"--workdir={folder}", "--prompt=rain and", "--n_tokens=5"
    assert programs.run(monkeypatch, "generate", *words) in (0, None)
    out = capfdbinary.readouterr().out
    assert out.startswith(b"rain and")
    # The same again, and nothing else was written.
    assert programs.run(monkeypatch, "generate", *words) in (0, None)
    assert capfdbinary.readouterr().out == out
    names = ["config.json", "model.safetensors", "tokenizer.json"]
    assert sorted(os.listdir(folder)) == names


OTHERS = {
    "attention": recurrent_gemma(16, n_layers=3, n_heads=2, vocabulary=257, window=4),
    "head": SequenceModel(
        encoder=TokenEncoder(d_model=8, vocabulary=257, std=0.02),
        block=Block(Mamba2(SSD(d_head=4, d_state=3)), norm="rms", prenorm=True),
        n_layers=1,
        head=StepHead(257, use_bias=False),
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("model", OTHERS.values(), ids=OTHERS)
def test_models_of_other_layers_continue_a_prompt(
    model, tmp_path, monkeypatch, capfdbinary
):
    tokens = np.zeros((1, 4), int)
    variables = meta.unbox(jax.jit(model.init)(jax.random.key(0), tokens))
    save_pretrained(model, variables, tmp_path)
    words = f"--workdir={tmp_path}", "--prompt=rain", "--n_tokens=5"
    assert programs.run(monkeypatch, "generate", *words) in (0, None)
    assert capfdbinary.readouterr().out.startswith(b"rain")


@pytest.mark.full
def test_lengths_are_measured_and_printed(folder, texts, monkeypatch, capfd):
    words = f"--workdir={folder}", f"--data_dir={texts}", "--lengths=4,8"
    lengths = "--mode=length_extension", "--split=train"
    assert programs.run(monkeypatch, "evaluate", *words, *lengths) in (0, None)
    assert "each window from a zero state" in capfd.readouterr().out
    lengths = *lengths, "--json"
    assert programs.run(monkeypatch, "evaluate", *words, *lengths) in (0, None)
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {row["trained"] for row in rows} == {None}
    restored = restore_pretrained(str(folder), data_dir=str(texts))
    task = restored.text
    (at, _) = losses_by_length(
        restored.model,
        restored.variables,
        task.text("train"),
        [4, 8],
        edges=task.documents("train"),
    )
    np.testing.assert_allclose(rows[0]["loss"], at.loss, rtol=1e-5)
    assert len(os.listdir(folder)) == 3
    # Metrics of a split are those of a run.
    assert programs.run(monkeypatch, "evaluate", *words[:2]) == 2
    assert "--mode=length_extension" in capfd.readouterr().err


@pytest.mark.full
def test_model_is_exported_with_its_tokenizer(folder, tmp_path, monkeypatch):
    words = f"--workdir={folder}", f"--output={tmp_path / 'out'}", "--platforms=cpu"
    assert programs.run(monkeypatch, "export", *words) in (0, None)
    about = json.loads((tmp_path / "out" / "export.json").read_text())
    assert about["preprocessing"]["tokenizers"]["model"]["type"] == "BPE"
