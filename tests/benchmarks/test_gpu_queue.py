"""The commands of ``benchmarks/gpu_queue.md`` name experiments that can be built."""

import shlex
from pathlib import Path

import pytest

from benchmarks.__main__ import SUITES
from experiments import coverage, overview
from experiments.dlr import atomic, long_shift
from experiments.papers import PAPERS
from experiments.records import records
from ssm_jax.cli.config_file import load
from ssm_jax.cli.summary import name_of
from ssm_jax.config import build

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "benchmarks" / "gpu_queue.md").read_text().splitlines()
TRAINED = [
    dict(flag.split("=", 1) for flag in shlex.split(line)[3:])
    for line in LINES
    if line.startswith("python -m launch.train ")
]
SUITES_NAMED = [
    shlex.split(line)[3] for line in LINES if line.startswith("python -m benchmarks ")
]
EXPERIMENTS = [command["--config"] for command in TRAINED]
RECORDED = {name_of(row) for row in records()}


def cell(experiment):
    """As in the tables of the papers, without the folder and the ending of the file."""
    return experiment.removeprefix("experiments/").replace(".py", "")


@pytest.mark.parametrize("command", TRAINED, ids=lambda of: cell(of["--config"]))
def test_experiment_builds_and_is_written_as_its_records_are_named(command):
    experiment = command["--config"]
    config = load(str(ROOT / experiment))
    assert cell(experiment) == f"{config.experiment}:{config.variant}".rstrip(":")
    model, task = build(config.model), build(config.task)
    if model.head is not None:
        assert model.head.d_output == task.spec.d_output
    reads_data = "--data_dir" in coverage.command(cell(experiment))
    assert ("--data_dir" in command) == reads_data
    assert build(config.training).steps == config.training.steps
    build(config.optimizer)


def test_no_two_runs_share_a_work_dir_and_none_has_other_flags():
    known = {"--config", "--workdir"}
    assert all(known <= run.keys() <= known | {"--data_dir"} for run in TRAINED)
    assert len({command["--workdir"] for command in TRAINED}) == len(TRAINED)
    assert len(set(EXPERIMENTS)) == len(TRAINED)


def test_tables_are_run_or_queued():
    queued = {cell(experiment) for experiment in EXPERIMENTS}
    assert not queued & RECORDED
    runs = queued | RECORDED
    one, two, three = (set(table.cells) for table in PAPERS["dlr"].tables[:3])
    shorter = {name for name in one if name.endswith("length=512")}
    assert runs >= (one - shorter) | two | three
    assert len(one - shorter) == 4 * len(atomic.TASKS)
    assert len(two) == len(long_shift.PAPER)
    of_paper = {
        name: {table.name: set(table.cells) for table in paper.tables}
        for name, paper in PAPERS.items()
    }
    for table in ("Table 3", "Table 4"):
        assert runs >= of_paper["etsmlp"][table]
    for table in ("Table 1", "Table 2", "Figures 3 and 4", "Figure 12"):
        assert runs >= of_paper["fru"][table]
    for table in ("Figure 4", "Figure 8"):
        assert runs >= of_paper["longssm"][table]
    assert overview.queued() == queued


def test_benchmarks_are_suites():
    assert SUITES_NAMED
    assert {name.removeprefix("--suite=") for name in SUITES_NAMED} <= SUITES.keys()
