"""A run that was stopped goes on to the numbers of the one that never was."""

import errno
import json
import math
import os
import shutil
import types
import warnings

import chex
import jax
import numpy as np
import pytest
from flax import traverse_util
from orbax.checkpoint import v1 as ocp

from ssm_jax.cli.errors import one_line_errors
from ssm_jax.evaluation import evaluate_run, predictions, restore
from ssm_jax.tasks import Digits, Shift
from ssm_jax.training import CheckpointError, TrainConfig, train, workdir
from ssm_jax.training.checkpointing import integrity
from tests.bad_inputs import refuses
from tests.tiers import tiered
from tests.training import tiny


def lines(run):
    """The metrics of a run, but for the time that they took."""
    text = (run / "metrics.jsonl").read_text()
    found = [json.loads(line) for line in text.splitlines()]
    assert all(line.pop("elapsed_s") > 0 for line in found)
    return found


def arrays(run, step):
    """What a checkpoint holds, byte for byte."""
    path = run / "checkpoints" / str(step)
    with warnings.catch_warnings(action="ignore"):  # that the devices must be the same
        found = ocp.load(str(path), checkpointable_name="state")
    assert {"key", "step", "params", "opt_state"} <= found.keys()
    leaves = traverse_util.flatten_dict(found, sep="/")
    assert all(isinstance(leaf, np.ndarray) for leaf in leaves.values())
    return {name: leaf.tobytes() for name, leaf in leaves.items()}


def contents(run):
    return {file: file.is_file() and file.read_bytes() for file in run.rglob("*")}


class Stopping:
    """Interrupts a task when it is asked for a batch of training."""

    def __init__(self, monkeypatch, cls):
        self.index = None
        batch = cls.batch

        def stopping(task, split, index, batch_size, seed):
            if split == "train" and index == self.index:
                raise KeyboardInterrupt
            return batch(task, split, index, batch_size, seed)

        monkeypatch.setattr(cls, "batch", stopping)

    def __call__(self, config, run, index):
        """Trains until that batch."""
        self.index = index
        with pytest.raises(KeyboardInterrupt):
            train(config, str(run))
        self.index = None


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run that was trained to its end."""
    run = tmp_path_factory.mktemp("finished")
    train(tiny.shift(), str(run))
    return run


@pytest.mark.full
def test_metrics_are_logged_when_they_are_asked_for(finished):
    training, validation = (
        {f"{split}/{name}" for name in ("loss", "mae", "r2", "r2_batch")}
        for split in ("train", "validation")
    )
    training |= {"train/gradient_norm", "train/largest_modulus"}
    evaluated = {3, 6, 7}
    assert [line["step"] for line in lines(finished)] == [2, 3, 4, 6, 7]
    for line in lines(finished):
        names = training | (validation if line["step"] in evaluated else set())
        assert line.keys() == {"step"} | names
        assert all(math.isfinite(value) for value in line.values())


# The task, the experiment, and the batches before which it is stopped: after step 1
# there is no checkpoint yet, after step 5 one of step 3 and metrics of step 4.
RUNS = {
    "digits": (Digits, tiny.digits(), (1, 5)),
    "carried": (Shift, tiny.shift(initial_state="carry"), (5,)),
    "noise": (Shift, tiny.shift(initial_state="noise", parallel="shard_map"), (5,)),
    "state_passing": (Shift, tiny.shift(initial_state="state_passing"), (5,)),
    "shard_map": (
        Shift,
        tiny.shift(initial_state="carry", gradient_windows=3, parallel="shard_map"),
        (5,),
    ),
}


@pytest.mark.parametrize(
    ("task", "config", "stops"),
    tiered(RUNS, fast=(), full=("carried",), unpack=True),
)
def test_stopped_run_gives_the_numbers_of_one_that_never_was(
    tmp_path, monkeypatch, task, config, stops
):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(config, str(whole))
    stop = Stopping(monkeypatch, task)
    for index in stops:
        stop(config, parts, index)
    assert [line["step"] for line in lines(parts)] == [2, 3, 4]
    train(config, str(parts))
    assert lines(parts) == lines(whole)
    assert arrays(parts, 7) == arrays(whole, 7)
    assert arrays(parts, 6) == arrays(whole, 6)


@pytest.mark.nightly
def test_gradient_norms_of_a_stopped_run_are_logged_once_and_come_back(
    tmp_path, monkeypatch
):
    """Before the first checkpoint; then the metrics are lost after it."""
    config = tiny.shift(gradient_steps=(16,))
    whole, run = tmp_path / "whole", tmp_path / "run"
    work = workdir.WorkDir(run)
    train(config, str(whole))
    stop = Stopping(monkeypatch, Shift)
    stop(config, run, 1)
    assert [line["step"] for line in work.metrics()] == [0]
    stop(config, run, 5)
    assert [line["step"] for line in work.metrics()] == [0, 2, 3, 4]
    work.rewind(2)
    train(config, str(run))
    found, wanted = (
        [{k: v for k, v in line.items() if k != "elapsed_s"} for line in each]
        for each in (work.metrics(), workdir.WorkDir(whole).metrics())
    )
    assert found == wanted


@pytest.mark.full
def test_time_of_a_run_goes_on_where_it_was(finished):
    times = [
        json.loads(line)["elapsed_s"]
        for line in (finished / "metrics.jsonl").read_text().splitlines()
    ]
    assert times == sorted(times)


@pytest.mark.full
def test_finished_run_takes_no_step(finished, monkeypatch):
    """And is still that of the machine that trained it."""
    monkeypatch.setattr(workdir, "environment", lambda: {"host": "another"})
    before = contents(finished)
    last = json.loads((finished / "metrics.jsonl").read_text().splitlines()[-1])
    monkeypatch.setattr("ssm_jax.training.measure.evaluate", None)
    assert train(tiny.shift(), str(finished)) == last
    assert contents(finished) == before


@pytest.mark.full
def test_environment_is_that_of_the_last_start_that_took_a_step(
    finished, tmp_path, monkeypatch
):
    run = workdir.WorkDir(shutil.copytree(finished, tmp_path / "run"))
    monkeypatch.setattr(workdir, "environment", lambda: {"host": "another"})
    train(tiny.shift(steps=8), str(run.path))
    assert run.read("run.json") == {"host": "another"}


@pytest.mark.full
def test_folder_of_another_experiment_is_left_alone(finished):
    before = contents(finished)
    with pytest.raises(ValueError, match="training.seed: 0 -> 1.*--workdir"):
        train(tiny.shift(seed=1), str(finished))
    assert contents(finished) == before


@pytest.mark.full
def test_folder_that_another_process_trains_in_is_left_alone(tmp_path, monkeypatch):
    """What is there may be evaluated; the run goes on when the other one has ended."""
    Stopping(monkeypatch, Shift)(tiny.shift(), tmp_path, 5)
    before = contents(tmp_path)
    with workdir.hold_lock(tmp_path / "lock"):
        with pytest.raises(ValueError, match=f"process {os.getpid()} on "):
            train(tiny.shift(), str(tmp_path))
        assert contents(tmp_path) == before
        assert evaluate_run(tmp_path, which="latest")["step"] == 3
    assert train(tiny.shift(), str(tmp_path))["step"] == 7


@pytest.mark.full
def test_run_does_not_go_on_from_a_step_of_another_config(tmp_path, monkeypatch):
    run, other = tmp_path / "run", tmp_path / "other"
    stop = Stopping(monkeypatch, Shift)
    stop(tiny.shift(), run, 5)
    stop(tiny.shift(seed=1), other, 5)
    shutil.rmtree(run / "checkpoints" / "3")
    shutil.copytree(other / "checkpoints" / "3", run / "checkpoints" / "3")
    metrics = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match="training.seed: 0 -> 1"):
        train(tiny.shift(), str(run))
    assert (run / "metrics.jsonl").read_bytes() == metrics


def diverging(**training):
    """A run whose parameters overflow at once: the loss of step 2 is not finite."""
    config = tiny.shift(**training)
    config.optimizer.update(kind="sgd", learning_rate=1e20)
    return config


@pytest.mark.full
def test_loss_that_is_not_finite_is_one_line_that_names_its_step(tmp_path, capsys):
    with pytest.raises(SystemExit) as exit, one_line_errors():
        train(diverging(log_every=5, evaluate_every=6), str(tmp_path))
    assert exit.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    for part in ("loss", "finite", "got nan", "step 2"):
        assert part in line


@pytest.mark.full
def test_state_that_is_not_finite_is_not_saved(tmp_path):
    """The learning rate is zero at the first step, and far too great at the second."""
    config = diverging(log_every=1, evaluate_every=1)
    config.optimizer.warmup_steps = 1
    with pytest.raises(FloatingPointError, match="step 2") as error:
        train(config, str(tmp_path))
    assert "step 1" in str(error.value)
    assert [line["step"] for line in lines(tmp_path)] == [1]
    assert restore(tmp_path, "latest").step == 1


def full(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_checkpoints(monkeypatch):
    """The disk is full when the second checkpoint is recorded."""
    write, count = integrity.write_record, [0]

    def once(*args):
        count[0] += 1
        return write(*args) if count[0] == 1 else full()

    monkeypatch.setattr(integrity, "write_record", once)
    return "step 6 .*disk.* step 3"


def fill_metrics(monkeypatch):
    """The disk is full when the line of step 6 is written."""

    def dumps(value, **kwargs):
        return full() if value.get("step") == 6 else json.dumps(value, **kwargs)

    replaced = types.SimpleNamespace(**vars(json) | {"dumps": dumps})
    monkeypatch.setattr(workdir, "json", replaced)
    return "No space left on device: .*metrics.jsonl"


@pytest.mark.parametrize("fill", tiered([fill_checkpoints, fill_metrics], 0, full=1))
def test_full_disk_is_one_line_and_loses_nothing(tmp_path, monkeypatch, finished, fill):
    message = fill(monkeypatch)
    with pytest.raises((OSError, CheckpointError), match=message) as error:
        train(tiny.shift(), str(tmp_path))
    assert "\n" not in str(error.value)
    assert restore(tmp_path, "latest").step == 3
    monkeypatch.undo()  # somebody made room; the same command goes on
    train(tiny.shift(), str(tmp_path))
    assert lines(tmp_path) == lines(finished)
    assert arrays(tmp_path, 7) == arrays(finished, 7)


REFUSED = {
    "no end": ("evaluation_batches", None, "number"),
    "devices": pytest.param("batch_size", 12, "multiple of 8", marks=pytest.mark.full),
}


@pytest.mark.parametrize(
    ("name", "value", "rule"), REFUSED.values(), ids=REFUSED.keys()
)
def test_what_cannot_be_trained_is_refused_before_there_is_a_folder(
    tmp_path, name, value, rule
):
    with refuses(name, value, rule=rule):
        train(tiny.shift(**{name: value}), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.full
def test_model_without_a_state_has_none_to_carry(tmp_path):
    config = tiny.shift(initial_state="carry")
    config.model.block.layer.recurrence.bidirectional = True
    with refuses("initial_state", rule="'zero'"):
        train(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_batch_greater_than_the_train_split_is_refused_likewise(tmp_path):
    with refuses("batch_size", 1352, rule="1347"):
        train(tiny.digits(batch_size=1352), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name",
    [
        "steps",
        "batch_size",
        "log_every",
        "evaluate_every",
        "evaluation_batches",
        "gradient_windows",
    ],
)
def test_numbers_that_are_not_positive_are_refused(name):
    numbers = {"steps": 1, "batch_size": 1, name: 0}
    with refuses(name, 0, rule="1"):
        TrainConfig(**numbers)


@pytest.mark.parametrize(("kind", "noise"), [("carry", 0.5), ("noise", 0.0)])
def test_noise_that_nothing_reads_is_refused(kind, noise):
    with refuses("initial_noise", noise):
        TrainConfig(steps=1, batch_size=1, initial_state=kind, initial_noise=noise)


def sharded(mesh, **training):
    """Digits with a model some of whose parameters are sharded on a mesh."""
    # From a width of 128 on some arrays have 64 KiB.
    fields = {"parallel": "shard_map", "mesh": mesh, "ema": 0.9, **training}
    return tiny.digits(width=128, **fields)


MESHES = ("data=2,model=4", "data=4,model=2", "data=1,model=8", "data=8", None)


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A run of 6 steps with parameters sharded over four devices."""
    run = tmp_path_factory.mktemp("sharded") / "run"
    train(sharded(MESHES[0], steps=6), str(run))
    return run


def parameters(run, step, **options):
    restored = restore(run, step, **options)
    leaves = jax.tree.leaves(restored.variables)
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


@pytest.mark.full
@pytest.mark.parametrize("mesh", tiered(MESHES, 0, full=2))
def test_sharded_run_continues_on_any_mesh(tmp_path, whole_run, mesh):
    """Bit for bit on the same one."""
    run = tmp_path / "run"
    train(sharded(MESHES[0], steps=3), str(run))
    train(sharded(mesh, steps=6), str(run))
    if mesh == MESHES[0]:
        assert lines(run) == lines(whole_run)
        np.testing.assert_array_equal(parameters(run, 6), parameters(whole_run, 6))
    # Adam divides by the gradient's own size, so that rounding weighs more.
    for one, other in zip(lines(run), lines(whole_run), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.full
def test_sharded_run_is_that_of_whole_parameters(tmp_path, whole_run):
    run = tmp_path / "run"
    train(sharded(None, steps=6), str(run))
    for one, other in zip(lines(run), lines(whole_run), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.full
def test_sharded_run_is_restored_whole_and_onto_a_mesh(whole_run):
    variables = restore(whole_run).variables
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(variables))
    onto = restore(whole_run, mesh="data=2,model=4")
    kernels = [
        leaf for leaf in jax.tree.leaves(onto.variables) if isinstance(leaf, jax.Array)
    ]
    assert kernels and all(leaf.sharding.spec for leaf in kernels)
    chex.assert_trees_all_equal(jax.device_get(onto.variables), variables)
    inputs = np.ones((8, 64, 1), np.float32)
    chex.assert_trees_all_close(
        onto.apply(inputs), restore(whole_run).apply(inputs), rtol=0, atol=1e-5
    )
    chex.assert_trees_all_close(
        *(
            predictions(restore(whole_run, mesh=mesh), "test")["logits"]
            for mesh in (None, "model=2")
        ),
        rtol=0,
        atol=1e-5,
    )
    alone, shared = (
        evaluate_run(whole_run, mesh=mesh) for mesh in (None, "data=4,model=2")
    )
    for name, value in alone.items():
        if isinstance(value, float):
            assert shared[name] == pytest.approx(value, rel=1e-5)


@pytest.mark.full
def test_changed_shard_is_refused(tmp_path, whole_run):
    run = tmp_path / "run"
    shutil.copytree(whole_run, run)
    path = max((run / "checkpoints").iterdir(), key=lambda step: int(step.name))
    file = max((path / "state").rglob("d/*"), key=lambda file: file.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum"):
        restore(run, int(path.name), mesh="data=2,model=4")


@pytest.mark.full
def test_sharded_run_starts_from_another(tmp_path, whole_run):
    run = tmp_path / "run"
    config = sharded(MESHES[1], steps=1, init_from=str(whole_run), seed=3)
    config.optimizer.learning_rate = 1e-12
    train(config, str(run))
    found, wanted = (restore(of).variables["params"] for of in (run, whole_run))
    chex.assert_trees_all_close(found, wanted, rtol=0, atol=1e-9)
