"""Two processes that train one run, as one process with all devices does."""

import json
import re
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

from ssm_jax.training import train
from ssm_jax.training.checkpointing import Checkpoints
from tests.tasks.raw_sets import novels
from tests.tiers import tiered
from tests.training import tiny
from tests.training.processes import Processes, write_experiment
from tests.training.test_loop import arrays, lines

pytestmark = pytest.mark.full

LONG = {"steps": 20_000, "evaluate_every": 10_000}
WELL = [0, 0]


def leaves(run: Path, step: int) -> dict[str, np.ndarray]:
    """The arrays of a step, by name."""
    import orbax.checkpoint as ocp

    state = run / "checkpoints" / str(step) / "state"
    checkpointer = ocp.PyTreeCheckpointer()
    # Whole arrays, also of what was sharded.
    whole = jax.tree.map(
        lambda _: ocp.RestoreArgs(restore_type=np.ndarray),
        checkpointer.metadata(state).item_metadata.tree,
    )
    tree = checkpointer.restore(state, restore_args=whole)
    found = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in found}


def distance(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The norm of the difference of all arrays, relative to that of the arrays."""
    assert one.keys() == other.keys()
    numbers = [name for name in one if np.issubdtype(one[name].dtype, np.inexact)]
    square = sum(np.sum(np.abs(one[name] - other[name]) ** 2) for name in numbers)
    whole = sum(np.sum(np.abs(other[name]) ** 2) for name in numbers)
    return float(np.sqrt(square / whole))


# From a width of 128 on some arrays have 64 KiB.
SHARDED = {"parallel": "shard_map", "width": 128}
CASES = {
    # Dropout, BatchNorm, a finite set whose rows are read by process.
    "digits-pmap": ("digits", {"parallel": "pmap"}),
    "digits-shard_map": ("digits", {"parallel": "shard_map"}),
    # Carried states, whose rows belong to a process.
    "carried-pmap": ("shift", {"parallel": "pmap", "initial_state": "state_passing"}),
    "carried-shard_map": ("shift", {"parallel": "shard_map", "initial_state": "carry"}),
    # Scores of targets, which each process has of all.
    "noise-pmap": ("noise", {"parallel": "pmap"}),
    "noise-shard_map": ("noise", {"parallel": "shard_map"}),
    # Parameters sharded within a process, and over both.
    "digits-model=2": ("digits", SHARDED | {"mesh": "data=4,model=2"}),
    "digits-model=8": ("digits", SHARDED | {"mesh": "data=1,model=8"}),
}


@pytest.mark.parametrize(
    ("name", "fields"),
    tiered(CASES, 0, full=["noise-pmap", "digits-model=8"], unpack=True),
)
def test_two_processes_take_the_steps_of_one(tmp_path, name, fields):
    """20 steps of SGD with momentum, to 1e-5 of the norm of all that is saved."""
    fields = {**fields, "steps": 20, "log_every": 10, "evaluate_every": 10}
    # With a rate of 1e-2 the carried states amplify rounding, on any number of devices.
    optimizer = {"kind": "sgd", "momentum": 0.9, "learning_rate": 1e-3}
    alone, together = tmp_path / "alone", tmp_path / "together"
    file = tmp_path / "experiment.py"
    write_experiment(file, name, fields, optimizer)
    with Processes(file, together) as started:
        train_here(name, fields | {"mesh": None}, optimizer, alone)
        ended = started.ended()
    assert [process.status for process in ended] == WELL, ended[0].text
    assert distance(leaves(together, 20), leaves(alone, 20)) < 1e-5
    for one, other in zip(lines(together), lines(alone), strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    # Only the first process writes: each line is there once.
    assert [line["step"] for line in lines(together)] == [10, 20]
    assert json.loads((together / "run.json").read_text())["processes"] == 2


OWN_DATA = """
import sys

from ssm_jax.config import spec
from ssm_jax.models import TokenEncoder
from ssm_jax.tasks import TextFolder
from tests.training import tiny


def get_config():
    config = tiny.shift(steps=1, batch_size=8)
    # A disk of its own for each process.
    folder = f"{FOLDER}/{int('--process_id=1' in sys.argv)}"
    config.task = spec(TextFolder, data_dir=folder, length=8)
    config.model = tiny.model(None)
    config.model.encoder = spec(TokenEncoder, d_model=4, vocabulary=257)
    return config
"""


@pytest.mark.nightly
def test_processes_that_read_different_data_end_before_the_first_step(tmp_path):
    file, run = tmp_path / "experiment.py", tmp_path / "run"
    file.write_text(f"FOLDER = {str(tmp_path)!r}\n{OWN_DATA}")
    for name in ("0", "1"):
        novels(tmp_path / name, 12)
    with (tmp_path / "1" / "05.txt").open("a") as text:
        text.write(" and more")
    with Processes(file, run) as started:
        ended = started.ended()
    assert [process.status for process in ended] == [2, 2]
    for index, process in enumerate(ended):
        (line,) = [x for x in process.text.splitlines() if x.startswith("error: ")]
        assert "`task` must read the same data in every process" in line
        assert f"process 0 in 1, and in process {index}" in line
    assert not run.exists()


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["pmap", "shard_map"])
def test_gradient_of_two_processes_is_that_of_one(tmp_path, kind):
    """A step of SGD at rate 1 without momentum changes parameters by the gradient."""
    fields = {"steps": 1, "log_every": 1, "evaluate_every": 1, "parallel": kind}
    optimizer = {"kind": "sgd", "learning_rate": 1.0, "schedule": "constant"}
    optimizer |= {"warmup_steps": 0, "clip_norm": None, "schedule_steps": None}
    file, together, alone = (tmp_path / name for name in ("a.py", "together", "alone"))
    write_experiment(file, "digits", fields, optimizer)
    with Processes(file, together) as started:
        train_here("digits", fields, optimizer, alone)
        assert [process.status for process in started.ended()] == WELL
    assert distance(leaves(together, 1), leaves(alone, 1)) < 1e-6


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("index", [0, 1])
def test_signal_to_one_ends_all_after_the_same_step(tmp_path, number, index):
    file, run = tmp_path / "experiment.py", tmp_path / "run"
    write_experiment(file, "digits", LONG, {})
    with Processes(file, run) as started:
        started.until(lambda: n_lines(run) > 3)
        started.signal(index, number)
        ended = started.ended()
    statuses = [143, 143]
    if number == signal.SIGINT:
        statuses[index] = 130
    assert [process.status for process in ended] == statuses
    step = Checkpoints(run / "checkpoints").latest_step
    assert f"interrupted after step {step}, which is saved" in ended[0].text


@pytest.mark.nightly
def test_second_signal_ends_a_process_at_once(tmp_path):
    """Also by SIGTERM, of which JAX itself would take no second one."""
    file, run = tmp_path / "experiment.py", tmp_path / "run"
    write_experiment(file, "digits", LONG, {})
    with Processes(file, run, "--heartbeat_timeout=10") as started:
        started.until(lambda: n_lines(run) > 3)
        started.signal(1, signal.SIGINT)
        started.signal(1, signal.SIGTERM)
        other, ended = started.ended(timeout_s=60)
    # Of two signals that are pending at a time, either may be handled first.
    assert ended.status in (130, 143) and other.status in (2, -signal.SIGABRT)
    assert "interrupted after" not in other.text


# Numbers of processes, and of devices of each.
ONE, TWO = (1, 8), (2, 4)
FEWER = [(1, 1), (1, 2), (1, 4)]


@pytest.mark.nightly
@pytest.mark.parametrize("after", ["data=1,model=8", "data=4,model=2"])
@pytest.mark.parametrize("count", [2, 4])
def test_run_with_sharded_parameters_goes_on_after_a_kill(tmp_path, count, after):
    """On eight devices: bit for bit on the same mesh, to 1e-5 on another one."""
    fields = SHARDED | {"steps": 40, "evaluate_every": 2, "log_every": 1}
    # Adam would amplify rounding where a gradient is near zero.
    optimizer = {"kind": "sgd", "momentum": 0.9, "learning_rate": 1e-3}
    whole, run = tmp_path / "whole", tmp_path / "run"
    before, file = tmp_path / "before.py", tmp_path / "after.py"
    write_experiment(before, "digits", fields | {"mesh": "data=1,model=8"}, optimizer)
    write_experiment(file, "digits", fields | {"mesh": after}, optimizer)
    devices = {"count": count, "devices": 8 // count}
    with Processes(before, whole, **devices) as started:
        assert [process.status for process in started.ended()] == [0] * count
    with Processes(before, run, "--heartbeat_timeout=10", **devices) as started:
        started.until(lambda: n_lines(run) > 10)
        started.signal(1, signal.SIGKILL)
        started.ended(timeout_s=60)
    with Processes(file, run, **devices) as started:
        assert [process.status for process in started.ended()] == [0] * count
    found, wanted = leaves(run, 40), leaves(whole, 40)
    if after == "data=1,model=8":
        assert lines(run) == lines(whole)
        assert {k: v.tobytes() for k, v in found.items()} == {
            k: v.tobytes() for k, v in wanted.items()
        }
    assert distance(found, wanted) < 1e-5
    for one, other in zip(lines(run), lines(whole), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("after", [*FEWER, ONE, TWO])
@pytest.mark.parametrize("before", [ONE, TWO])
def test_run_continues_on_other_devices(tmp_path, before, after):
    """Saved on eight devices; bit for bit where these are the same in both."""
    file, whole, run = (tmp_path / name for name in ("a.py", "whole", "run"))
    first = tmp_path / "first.py"
    fields = {"initial_state": "carry"}
    write_experiment(file, "shift", fields, {})
    write_experiment(first, "shift", {**fields, "steps": 3}, {})
    for experiment, workdir, (count, devices) in (
        (file, whole, before),
        (first, run, before),
        (file, run, after),
    ):
        with Processes(experiment, workdir, count=count, devices=devices) as started:
            assert [process.status for process in started.ended()] == [0] * count
    assert distance(leaves(run, 7), leaves(whole, 7)) < 1e-5
    for one, other in zip(lines(run), lines(whole), strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    if before == after:
        assert lines(run) == lines(whole)
        assert arrays(run, 7) == arrays(whole, 7)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("lost", "number"),
    # A process that is stopped is that of a host without connection.
    [(0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGSTOP)],
)
def test_lost_process_ends_the_other_in_time(tmp_path, lost, number):
    file, run = tmp_path / "experiment.py", tmp_path / "run"
    write_experiment(file, "digits", LONG, {})
    with Processes(file, run, "--heartbeat_timeout=10") as started:
        started.until(lambda: n_lines(run) > 3)
        started.signal(lost, number)
        assert not started.reached(lambda: False)  # Until one has ended.
        started.signal(lost, signal.SIGKILL)
        ended = started.ended(timeout_s=40)
    assert ended[lost].status == -signal.SIGKILL
    # By the error of a collective, or by JAX as it misses the other's heartbeats.
    assert ended[1 - lost].status in (2, -signal.SIGABRT)
    printed = ended[1 - lost].text.splitlines()
    # What Gloo prints to a file may come at the end of its process.
    ours = [line for line in printed if not line.startswith("[Gloo]")]
    assert "the same command continues" in ours[-1]
    # Neither errors of JAX nor its stack.
    assert not [line for line in printed if re.match(r"[WEF]\d{4} | +@ |\*\*\*", line)]


@pytest.mark.nightly
def test_missing_process_is_an_error(tmp_path):
    file, run = tmp_path / "experiment.py", tmp_path / "run"
    write_experiment(file, "digits", {}, {})
    with Processes(file, run, "--connect_timeout=3", ids=[0]) as started:
        (ended,) = started.ended(timeout_s=60)
    assert ended.status == -signal.SIGABRT
    assert "all processes must connect within 3 s" in ended.text.splitlines()[-1]
    assert not run.exists()


@pytest.mark.nightly
def test_work_dir_of_another_run_is_an_error_of_all(tmp_path):
    file, run = tmp_path / "experiment.py", tmp_path / "run"
    write_experiment(file, "digits", {"seed": 1}, {})
    train(tiny.digits(), str(run))
    with Processes(file, run) as started:
        ended = started.ended(timeout_s=60)
    for process in ended:
        assert process.status == 2
        assert "`workdir` must be new or of the same config" in process.text


@pytest.mark.nightly
def test_error_of_one_process_ends_the_other(tmp_path):
    """The second process cannot read its data; the first waits for its gradient."""
    file, run = tmp_path / "experiment.py", tmp_path / "run"
    write_experiment(file, "digits", LONG, {})
    text = file.read_text().replace("    return", _BROKEN + "    return")
    file.write_text(text)
    with Processes(file, run, "--heartbeat_timeout=10") as started:
        ended = started.ended(timeout_s=90)
    assert ended[1].status == 2 and "no such disk" in ended[1].text.splitlines()[-1]
    assert ended[0].status != 0
    assert "the same command continues" in ended[0].text.splitlines()[-1]


_BROKEN = """
    import jax
    from ssm_jax.tasks import Digits

    batch = Digits.batch

    def broken(self, split, index, batch_size, seed, *, rows=None):
        if jax.process_index() == 1 and split == "train" and index == 4:
            raise OSError("no such disk")
        return batch(self, split, index, batch_size, seed, rows=rows)

    Digits.batch = broken
"""


def train_here(name, fields, optimizer, run):
    """Trains in this process, on all its devices."""
    config = getattr(tiny, name)(**fields)
    config.optimizer.update(**optimizer)
    train(config, str(run))


def n_lines(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return metrics.read_text().count("\n") if metrics.exists() else 0
