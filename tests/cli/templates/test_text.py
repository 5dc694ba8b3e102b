"""`ssm-jax new text`: what it finds in awkward folders, and what it chooses."""

import os
import shlex

import numpy as np
import pytest

from ssm_jax.cli import config_file
from ssm_jax.cli.templates.text import SEPARATOR, text
from ssm_jax.config import build
from tests.bad_inputs import refuses
from tests.cli import programs

WORDS = ["rain", "wind", "sun", "snöw"]


def prose(n, seed=0):
    return " and ".join(np.random.default_rng(seed).choice(WORDS, n // 8))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a folder of twelve texts, which is returned."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts" / "deep").mkdir(parents=True)
    for i in range(12):
        path = tmp_path / "texts" / ("deep" if i % 2 else "") / f"{i}.txt"
        path.write_text(prose(4000, i))
    return tmp_path / "texts"


def test_experiment_is_written_and_builds(folder, monkeypatch, capsys):
    assert programs.run(monkeypatch, "new", "text", "--data=texts") in (0, None)
    shown = capsys.readouterr().out
    assert "files      12: 8 train, 2 validation, 2 test" in shown
    config = config_file.load("text.py")
    task, model = build(config.task), build(config.model)
    assert task.tokenizer == "bytes" and task.data_dir == str(folder)
    assert model.encoder.vocabulary == task.vocabulary == 257
    task.batch("train", 0, config.training.batch_size, seed=0)
    assert task.n_examples("test") > 4
    lines = [line for line in shown.splitlines() if line.startswith("    ssm-jax")]
    programs_shown = [shlex.split(line)[1] for line in lines]
    assert programs_shown == ["train", "evaluate", "evaluate", "generate", "report"]
    (lengths,) = [w for w in shlex.split(lines[2]) if w.startswith("--lengths=")]
    lengths = [int(n) for n in lengths.removeprefix("--lengths=").split(",")]
    assert task.length in lengths and lengths[-1] < task.n_tokens("test") // 2


def test_faults_of_files_are_printed_by_name(folder, monkeypatch, capsys):
    (folder / "empty.txt").touch()
    (folder / "latin.txt").write_bytes(b"caf\xe9" * 100)
    (folder / "wide.txt").write_text(prose(4000), encoding="utf-16")
    (folder / "image.txt").write_bytes(bytes(300))
    (folder / "a.md").write_text("# a")
    (folder / os.fsdecode(b"z\xff\n.txt")).write_bytes(b"\xff" * 100)
    assert programs.run(monkeypatch, "new", "text", "--data=texts") in (0, None)
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert "image.txt (binary), latin.txt (not UTF-8), wide.txt (UTF-16)" in shown
    assert "empty      empty.txt" in shown and "unread     a.md" in shown


def test_tokenizer_is_trained_and_written_beside(folder):
    written = text("texts", "mine.py", vocabulary=300)
    task = build(config_file.load("mine.py").task)
    assert task.tokenizer == str(folder.parent / "mine.json")
    assert task.vocabulary <= 300 and task.separator == SEPARATOR
    plain = "snöw and \0 日本"
    tokens = task.encode(plain)
    # Any text comes back, and that of the folder takes fewer tokens than bytes.
    assert b"".join(map(task.decode, tokens[1:])).decode() == plain
    assert len(task.encode("rain and wind")) < 8
    assert dict(written.found)["vocabulary"] == task.vocabulary
    with refuses("--output", "mine.json"):
        (folder.parent / "mine.py").unlink()
        text("texts", "mine.py", vocabulary=300)


def test_one_file_is_enough(folder):
    for path in folder.rglob("*.txt"):
        path.unlink()
    (folder / "input.txt").write_text(prose(9000))
    found = dict(text("texts", "one.py").found)
    assert found["files"] == "1, of which each split reads a part"


REFUSED = {
    "too little": (["short"] * 5, "4,096 of train", ValueError),
    "nothing": ([], ".txt", ValueError),
}


@pytest.mark.parametrize("vocabulary", [None, 300])
@pytest.mark.parametrize("name", REFUSED)
def test_too_little_text_is_refused(name, vocabulary, folder):
    texts, rule, error = REFUSED[name]
    for path in folder.rglob("*.txt"):
        path.unlink()
    for i, words in enumerate(texts):
        (folder / f"{i}.txt").write_text(words)
    (folder / "notes.md").write_text("# notes")
    with refuses("--data", str(folder), rule=rule, error=error):
        text("texts", "mine.py", vocabulary=vocabulary)
    assert os.listdir(folder.parent) == ["texts"]


def test_what_is_no_folder_is_refused(folder):
    for name in ("nowhere", "texts/0.txt"):
        with refuses("--data", name, error=FileNotFoundError):
            text(name, "mine.py")


# ml_collections loads the experiment by a call that importlib wants replaced.
@pytest.mark.filterwarnings("ignore:.*load_module:DeprecationWarning")
@pytest.mark.nightly
def test_printed_commands_run(folder, monkeypatch, capfd):
    assert programs.run(monkeypatch, "new", "text", "--data=texts") in (0, None)
    lines = capfd.readouterr().out.splitlines()
    for line in (line for line in lines if line.startswith("    ssm-jax")):
        _, program, *words = shlex.split(line)
        extra = ["--config.training.steps=20"] if program == "train" else []
        assert programs.run(monkeypatch, program, *words, *extra) in (0, None), line
    shown = capfd.readouterr().out
    assert "test perplexity" in shown
