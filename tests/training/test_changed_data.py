"""A run says that its data changed: where it is continued and where it is restored."""

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ml_collections import ConfigDict

from ssm_jax import tasks
from ssm_jax.config import Config, spec
from ssm_jax.evaluation import evaluate_lengths, evaluate_run, restore
from ssm_jax.models import PooledHead, StepHead, TokenEncoder, VectorEncoder
from ssm_jax.training import Optimizer, TrainConfig, WorkDir, train
from tests.bad_inputs import refuses
from tests.cli import programs
from tests.tasks.raw_sets import BEIJING
from tests.tiers import tiered
from tests.training import tiny

pytestmark = pytest.mark.full  # Whole runs.

VECTORS = spec(VectorEncoder, d_model=4)
TOKENS = spec(TokenEncoder, d_model=4, vocabulary=257)


class Data(NamedTuple):
    """A task on files.

    Attributes:
      task: Its spec; ``data_dir`` is set for each test.
      encoder: The spec of the encoder of its model.
      head: The head of its model.
      file: A file of the data, relative to ``data_dir``.
    """

    task: Config
    encoder: Config
    head: Any
    file: str


KINDS = {
    "npz": Data(
        spec(
            tasks.ArrayTask,
            file="arrays.npz",
            length=20,
            inputs="vector",
            d_input=2,
            targets="classification",
            d_output=20,
            per_step=True,
        ),
        VECTORS,
        StepHead(d_output=20),
        "arrays.npz",
    ),
    "csv": Data(
        spec(
            tasks.SeriesTask,
            file=BEIJING,
            target="cbwd",
            inputs=("TEMP", "DEWP"),
            classes=("NW", "cv", "SE", "NE"),
            window=6,
            horizon=0,
            stride=9,
        ),
        VECTORS,
        PooledHead(d_output=4),
        BEIJING,
    ),
    "text": Data(spec(tasks.TextFolder, length=8), TOKENS, None, "novels/00.txt"),
    "array_record": Data(
        spec(
            tasks.TFDSTask,
            name="imdb_reviews/plain_text/1.0.0",
            feature="text",
            inputs="bytes",
            length=16,
            n_classes=2,
            n_validation=10,
        ),
        TOKENS,
        PooledHead(d_output=2),
        "imdb_reviews/plain_text/1.0.0/*train.array_record*",
    ),
}


@pytest.fixture
def data(sets_dir, tmp_path) -> Path:
    """A copy of the data sets that a test may change."""
    return Path(shutil.copytree(sets_dir, tmp_path / "data"))


def config(kind, folder, **training):
    kept = KINDS[kind]
    numbers = {"batch_size": 8, "evaluate_every": 1, "evaluation_batches": 1}
    config = ConfigDict(
        {
            "experiment": "tests/data",
            "task": kept.task.copy_and_resolve_references(),
            "model": tiny.model(kept.head),
            "optimizer": spec(Optimizer, learning_rate=1e-2),
            "training": spec(TrainConfig, **numbers | training),
        }
    )
    config.model.encoder = kept.encoder
    # The folder of the texts is that of the task.
    config.task.data_dir = str(folder / "novels" if kind == "text" else folder)
    return config


def change(kind, folder):
    (path,) = folder.glob(KINDS[kind].file)
    with path.open("ab") as file:
        file.write(b"\n")


@pytest.mark.parametrize("kind", tiered(list(KINDS), 0, full=("csv",)))
def test_changed_data_are_refused_unless_they_are_allowed(kind, data, tmp_path, caplog):
    run = tmp_path / "run"
    train(config(kind, data, steps=1), str(run))
    before = WorkDir(run).data()
    assert [each["step"] for each in before] == [0]
    # Copied and touched data are the same, wherever they are.
    moved = Path(shutil.copytree(data, tmp_path / "moved"))
    for path in moved.rglob("*"):
        os.utime(path)
    train(config(kind, moved, steps=2), str(run))
    assert WorkDir(run).data() == before
    change(kind, data)
    metrics = (run / "metrics.jsonl").read_bytes()
    where = config(kind, data, steps=3)
    data_dir = where.task.data_dir
    with refuses("task", str(run), rule="--allow_changed_data"):
        train(where, str(run))
    assert (run / "metrics.jsonl").read_bytes() == metrics
    with refuses("task", str(run), rule="allow_changed_data=True"):
        restore(run, data_dir=data_dir)
    # Whose data are nowhere to be seen is restored.
    restored = restore(run, data_dir=str(tmp_path / "nowhere"))
    assert not restored.changed_data
    assert f"data of {run} changed" not in caplog.text
    restored = restore(run, data_dir=data_dir, allow_changed_data=True)
    assert restored.changed_data and f"data of {run} changed" in caplog.text
    # From then on the run is one of these data, but for the steps before.
    train(where, str(run), allow_changed_data=True)
    assert [each["step"] for each in WorkDir(run).data()] == [0, 2]
    assert not restore(run, 3, data_dir=data_dir).changed_data
    with refuses("task", str(run)):
        restore(run, 2, data_dir=data_dir)
    train(where, str(run))  # Finished.


@pytest.mark.full
def test_changed_data_are_refused_of_the_initial_model(data, tmp_path):
    """Its normalisation is of the data, and it may be the best one."""
    run = tmp_path / "run"
    train(config("csv", data, steps=1, evaluate_at_start=True), str(run))
    assert restore(run, 0).step == 0
    change("csv", data)
    with refuses("task", str(run), rule="allow_changed_data=True"):
        restore(run, 0)
    assert restore(run, 0, allow_changed_data=True).changed_data


def test_run_without_a_fingerprint_goes_on(data, tmp_path):
    """One of an earlier version."""
    run = tmp_path / "run"
    train(config("text", data, steps=1), str(run))
    (run / "data.json").unlink()
    change("text", data)
    assert not restore(run).changed_data
    train(config("text", data, steps=2), str(run))
    (found,) = WorkDir(run).data()
    assert found["step"] == 1


@pytest.mark.nightly
def test_programs_go_on_with_changed_data_where_they_are_told_to(
    data, tmp_path, monkeypatch, capfd
):
    run = tmp_path / "run"
    train(config("text", data, steps=1), str(run))
    change("text", data)
    output = f"--output={tmp_path}/exported"
    lengths = "--mode=length_extension", "--lengths=4,8", "--max_tokens=64"
    for program, *arguments in (
        ("evaluate",),
        ("evaluate", *lengths),
        ("generate", "--n_tokens=1"),
        ("export", output, "--platforms=cpu"),
    ):
        line = program, f"--workdir={run}", *arguments
        assert programs.run(monkeypatch, *line) == 2
        (error,) = capfd.readouterr().err.strip().splitlines()
        assert "`task`" in error and "--allow_changed_data" in error
        assert programs.run(monkeypatch, *line, "--allow_changed_data") in (0, None)
    assert (WorkDir(run).read("evaluation.json") or {})["changed_data"] is True


def test_evaluation_of_the_same_data_says_nothing(data, tmp_path):
    run = tmp_path / "run"
    train(config("text", data, steps=1), str(run))
    assert "changed_data" not in evaluate_run(run)
    assert evaluate_lengths(run, [4, 8], max_tokens=64)
