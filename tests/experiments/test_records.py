"""The records of runs: what is written is what was measured."""

from pathlib import Path

import pytest

from experiments.records import (
    add_baselines,
    check_published,
    experiment_config,
    record,
    record_path,
    records,
    row_config,
    validation_curve,
)
from ssm_jax.cli import report
from ssm_jax.cli.config_file import load
from ssm_jax.evaluation import evaluate_run
from ssm_jax.training import WorkDir, train
from tests.bad_inputs import refuses

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
def test_records_are_the_rows(run, tmp_path):
    row = report.row_of(WorkDir(run[0])) | {"variant": "a=16,b=c"}
    measured = row | {"seed": 1, "lengths": [{"length": 16}, {"length": 64}]}
    for item in (row, measured):
        record(item, tmp_path)
    assert records(tmp_path) == [row, measured]
    record(measured | {"lengths": []}, tmp_path)
    assert not records(tmp_path)[1]["lengths"]


@pytest.mark.full
def test_curve_is_the_validation_metric_by_step(run):
    folder = WorkDir(run[0])
    lines = [line for line in folder.metrics() if "validation/accuracy" in line]
    curve = validation_curve(folder, report.row_of(folder)["metric"])
    assert curve == {str(line["step"]): line["validation/accuracy"] for line in lines}
    assert [*curve] == ["2", "4"]
    assert validation_curve(folder, "test perplexity") == {}


@pytest.mark.full
def test_an_overridden_run_is_not_recorded(run):
    folder = WorkDir(run[0])
    with pytest.raises(ValueError, match="`--record` must be of an experiment as it"):
        check_published(folder, report.row_of(folder))


def test_every_record_has_its_baseline_and_no_reduced_run_a_published_figure():
    for row in records():
        assert row["baseline"][row["metric"].split()[-1]] is not None
        assert not ("size=" in row["variant"] and row["paper"])


def test_every_record_is_of_an_experiment_that_exists():
    """Its name is the one that the experiment gives, and its file's."""
    assert records()
    for row in records():
        config = row_config(row)
        assert (config.experiment, config.variant) == (
            row["experiment"],
            row["variant"],
        )
        assert record_path(row).is_file()


NAMES = ("../runs/other/payload", "/tmp/payload", "dlr/../x", "a:b/../../x", "a b", "")


@pytest.mark.parametrize("name", NAMES)
def test_name_in_a_run_is_no_path_to_elsewhere(name, tmp_path):
    experiment, _, variant = name.partition(":")
    row = {"experiment": experiment, "variant": variant, "seed": 0}
    for call in (row_config, record_path):
        with refuses("experiment", repr(name)):
            call(row)
    with pytest.raises(ValueError, match="int"):
        record_path(
            {"experiment": "dlr/digits", "variant": "", "seed": "0/../x"}, tmp_path
        )


@pytest.mark.full
def test_baselines_are_added_to_old_records(run, tmp_path):
    row = report.row_of(WorkDir(run[0]))
    old = {name: value for name, value in row.items() if name != "baseline"}
    for item in (old, old | {"experiment": "a/b"}):
        record(item, tmp_path)
    add_baselines(["dlr"], None, tmp_path)
    unknown, new = records(tmp_path)
    assert list(new) == list(row)
    # Of the whole split, where the run above measured two batches of it.
    assert new["baseline"]["accuracy"] == 0.1
    assert new["baseline"]["n_examples"] == 300
    assert "baseline" not in unknown
    with pytest.raises(ValueError, match="`--baselines` must name .*, got dl;"):
        add_baselines(["dl"], None, tmp_path)


def test_config_of_a_name_is_a_copy():
    config = experiment_config("dlr/digits")
    config.training.steps += 1
    assert experiment_config("dlr/digits").training.steps == config.training.steps - 1
