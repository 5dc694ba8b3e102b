"""State passing after training: the runs, and what is measured of them."""

import json

import pytest

from experiments.longssm import state_passing
from experiments.longssm.state_passing import StatePassing, measure, run_config, runs
from experiments.records import experiment_config
from ssm_jax.training import WorkDir
from tests.cli.test_tables import cells
from tests.tasks.raw_sets import novels


def test_runs_differ_in_their_initial_states_and_in_where_they_begin(tmp_path):
    found = {
        run["run"]: run_config(run, "texts", tmp_path / "zero").training
        for run in runs()
        if (run["model"], run["seed"]) == ("mamba", 1)
    }
    kinds = {name: training.initial_state for name, training in found.items()}
    assert kinds == state_passing.STATE_INITS
    assert {training.seed for training in found.values()} == {1}
    begins = {name: training.init_from for name, training in found.items()}
    continued = str(tmp_path / "zero")
    assert begins == {
        "zero": None,
        "carry": None,
        "others": None,
        "noise": None,
        "passing": continued,
        "control": continued,
    }
    assert found["passing"].steps == found["control"].steps == found["zero"].steps // 4


def test_page_has_the_means_of_the_seeds(tmp_path, monkeypatch):
    row = {"model": "s5", "run": "zero", "extends": "none", "growth": 2.0}
    rows = [
        row
        | {"seed": seed, "remembrance": 0.5, "perplexity": {"16": x, "32768": 3 * x}}
        for seed, x in enumerate((7.0, 9.0))
    ]
    record = {"rows": rows, "device": "cpu", "n_devices": 1, "cpus": 2, "commit": "a"}
    path = tmp_path / "record.json"
    monkeypatch.setattr(state_passing, "RECORD", path)
    assert not StatePassing().markdown([])
    path.write_text(json.dumps(record))
    text = StatePassing().markdown([])
    line = cells(text.split("\n\n")[1])[1]
    assert line[:4] == ["s5", "zero", "8.00 ± 1.41", "24.00 ± 4.24"]
    assert line[4:] == ["none, none", "0.500 ± 0.000", "2.00 ± 0.00"]


@pytest.mark.nightly
def test_continued_run_is_measured_after_the_one_that_it_continues(
    tmp_path, monkeypatch
):
    def tiny(name):
        config = experiment_config(name)
        config.model.encoder.d_model = 8
        config.training.update(steps=4, batch_size=8, evaluate_every=4)
        config.training.evaluation_batches = 1
        return config

    monkeypatch.setattr(state_passing, "experiment_config", tiny)
    monkeypatch.setattr(state_passing, "LENGTHS", (16, 32, 64))
    (tmp_path / "texts").mkdir()
    for name in ("train", "validation", "test"):
        novels(tmp_path / "texts" / name, 40)
    zero = {"model": "s5", "seed": 0, "run": "zero"}
    rows = [
        measure(str(tmp_path / "texts"), tmp_path / "runs", zero | {"run": name})
        for name in ("zero", "passing")
    ]
    assert [row["steps"] for row in rows] == [4, 1]
    for row in rows:
        assert [*row["perplexity"]] == ["16", "32", "64"]
        assert 0 <= row["remembrance"] <= 1
        assert row["growth"] > 0
    assert json.dumps(rows)
    work = WorkDir(tmp_path / "runs/s5-passing-0")
    assert work.config().training.init_from == str(tmp_path / "runs/s5-zero-0")
