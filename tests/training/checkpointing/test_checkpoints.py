"""What is restored is what was saved, or an error says which step and leaf is not."""

import errno
import json
import math
import os
import resource
import shutil
import threading
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ssm_jax.training.checkpointing import CheckpointError, Checkpoints, integrity

LEAVES = {
    "float32": np.array([[1.5, -0.0, np.nan], [np.inf, 1e-45, 3.0]], np.float32),
    "bfloat16": jnp.arange(5, dtype=jnp.bfloat16) / 3,
    "complex64": np.array([1 + 2j, -0.0 - 3j], np.complex64),
    "int32": jnp.int32(7),
    "uint32": np.array([0, 2**32 - 1], np.uint32),
    "int64": np.array([-(2**62)]),
    "bool": np.array([True, False]),
    "large_zeros": np.zeros((300, 300), np.float32),
    "empty": np.zeros((0, 4), np.float32),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "key": jax.random.key(3),
    "keys": jax.random.split(jax.random.key(4), (2, 3)),
    "key_rbg": jax.random.key(5, impl="rbg"),
    "python_number": 2.5,
}


class Moments(NamedTuple):
    mean: jax.Array
    square: jax.Array | None


def state_of(step):
    rng = np.random.default_rng(step)
    w = rng.standard_normal((40, 30)).astype(np.float32)
    return {
        "params": {"block_0": {"w": w, "b": np.zeros(64, np.float32)}},
        "moments": (Moments(jnp.asarray(w**2), None), {"count": jnp.int32(step)}),
        "key": jax.random.key(step),
    }


def bits(tree):
    """The tree with each leaf as bytes: what bit for bit equality compares."""

    def of(leaf):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(
            leaf.dtype, jax.dtypes.prng_key
        ):
            leaf = jax.random.key_data(leaf)
        return np.asarray(leaf).tobytes()

    return jax.tree.map(of, tree)


def data_file(folder, step):
    """The largest file of a step, which holds array data."""
    files = [path for path in (folder / str(step)).rglob("*") if path.is_file()]
    return max(files, key=lambda path: path.stat().st_size)


def flip(path, position):
    """Flips one bit of a file; the position is a part of its length, in [0, 1)."""
    data = bytearray(path.read_bytes())
    bit = int(position * 8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def tree_of(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.fixture
def folder(tmp_path):
    """A folder with steps 1 and 2."""
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        checkpoints.save(1, state_of(1), {"position": 1.0})
        checkpoints.save(2, state_of(2), {"position": 2.0})
    return tmp_path / "checkpoints"


def test_every_kind_of_leaf_comes_back_bit_for_bit(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, LEAVES)
    restored = checkpoints.restore(LEAVES).state
    assert bits(restored) == bits(LEAVES)
    for name, leaf in restored.items():
        saved = LEAVES[name]
        saved = saved if isinstance(saved, jax.Array) else np.asarray(saved)
        assert (leaf.dtype, leaf.shape) == (saved.dtype, saved.shape)


def test_structure_and_all_that_goes_with_a_step_come_back(tmp_path):
    metrics, config = {"loss": 0.1 + 0.2, "elapsed_s": 3.0}, {"n": 3}
    with Checkpoints(tmp_path, config=config) as checkpoints:
        checkpoints.save(5, state_of(5), metrics)
    restored = Checkpoints(tmp_path).restore(jax.eval_shape(lambda: state_of(5)))
    assert restored.step == 5
    assert bits(restored.state) == bits(state_of(5))
    chex.assert_trees_all_equal_structs(restored.state, state_of(5))
    assert restored.metrics == metrics
    assert restored.config == config


def test_top_level_keys_may_be_left_out(folder):
    target = {"params": state_of(0)["params"]}
    restored = Checkpoints(folder).restore(target).state
    assert bits(restored) == bits({"params": state_of(2)["params"]})


@pytest.mark.full
def test_state_may_be_donated_and_overwritten_after_save(tmp_path):
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    on_device, on_host = jnp.zeros(200_000), np.zeros(200_000)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"device": on_device, "host": on_host})
        step(on_device).block_until_ready()
        on_host += 1
    assert on_device.is_deleted()
    target = {"device": np.zeros(200_000, np.float32), "host": on_host}
    restored = checkpoints.restore(target).state
    chex.assert_trees_all_equal(restored, jax.tree.map(np.zeros_like, target))


def test_latest_and_best_are_both_kept(tmp_path):
    scores = {1: 0.9, 2: 0.9, 3: 0.2, 4: float("nan"), 5: 0.5, 6: None}
    for step, score in scores.items():  # each save by a process of its own
        with Checkpoints(tmp_path, best_metric="accuracy") as process:
            metrics = {} if score is None else {"accuracy": score}
            process.save(step, state_of(step), metrics=metrics)
    checkpoints = Checkpoints(tmp_path, best_metric="accuracy")
    assert checkpoints.latest_step == 6
    assert checkpoints.best_step == 2
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [2, 5, 6]
    restored = checkpoints.restore(state_of(0), step=checkpoints.best_step)
    assert bits(restored.state) == bits(state_of(2))
    assert Checkpoints(tmp_path).best_step is None


def test_best_is_kept_within_one_process(tmp_path):
    with Checkpoints(tmp_path, best_metric="r2") as checkpoints:
        for step, score in enumerate([0.1, 0.9, 0.5, 0.6, -2.0]):
            checkpoints.save(step, state_of(step), metrics={"r2": score})
    assert checkpoints.best_step == 1
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [1, 3, 4]


@pytest.mark.parametrize("failing", ["write_record", "remove"])
def test_best_and_latest_steps_survive_a_save_that_fails(
    tmp_path, monkeypatch, failing
):
    options = {"best_metric": "accuracy"}
    scores = [0.9, 0.1, 0.2, 0.95]

    def save(checkpoints, step):
        checkpoints.save(step, state_of(step), {"accuracy": scores[step - 1]})

    with Checkpoints(tmp_path, **options) as checkpoints:
        for step in (1, 2, 3):
            save(checkpoints, step)
    monkeypatch.setattr(integrity, failing, lambda *of: 1 / 0)
    with pytest.raises(CheckpointError), Checkpoints(tmp_path, **options) as failed:
        save(failed, 4)
    recorded = [1, 2, 3] if failing == "write_record" else [1, 2, 3, 4]
    assert integrity.recorded_steps(tmp_path) == recorded
    for step in recorded:
        restored = Checkpoints(tmp_path).restore(state_of(0), step=step)
        assert bits(restored.state) == bits(state_of(step))
    assert failed.best_step == (1 if failing == "write_record" else 4)


NAN = float("nan")
# Accuracies and losses by step, and which is the best. The digits demo evaluated the
# first of its two steps of equal accuracy.
BEST = {
    "digits": ([0.95, 0.98, 0.97, 0.98, 0.96], [0.2, 0.079, 0.05, 0.02, 0.03], 3),
    "lower loss, earlier": ([0.9, 0.9, 0.9], [0.2, 0.3, 0.4], 0),
    "all equal": ([0.9, 0.9, 0.1], [0.2, 0.2, 0.1], 1),
    "loss is NaN": ([0.9, 0.9, 0.1], [0.2, NAN, 0.1], 0),
    "losses are NaN": ([0.9, 0.9, 0.1], [NAN, NAN, 0.1], 1),
    "loss is missing": ([0.9, 0.9, 0.1], [0.2, None, 0.1], 0),
    "metric is NaN": ([0.1, NAN, 0.05], [0.2, 0.1, 0.3], 0),
    "metric is infinite": ([0.1, math.inf, -math.inf], [0.2, 0.1, 0.3], 0),
    "metrics are NaN": ([NAN, NAN, None], [0.2, 0.1, 0.3], None),
}


@pytest.mark.parametrize(("accuracies", "losses", "best"), BEST.values(), ids=BEST)
def test_of_equal_steps_the_best_has_the_lower_loss_or_is_later(
    tmp_path, accuracies, losses, best
):
    options = {"best_metric": "accuracy", "tie_metric": "loss"}
    # From step 1 on: the initial state, of step 0, has an advantage.
    best = None if best is None else best + 1
    for step, values in enumerate(zip(accuracies, losses, strict=True), 1):
        metrics = zip(("accuracy", "loss"), values, strict=True)
        metrics = {name: value for name, value in metrics if value is not None}
        with Checkpoints(tmp_path, **options) as process:  # a start each
            process.save(step, {"step": np.int32(step)}, metrics=metrics)
    checkpoints = Checkpoints(tmp_path, **options)
    assert checkpoints.best_step == best
    if best is not None:
        restored = checkpoints.restore({"step": np.int32(0)}, step=best)
        assert restored.state["step"] == best


@pytest.mark.parametrize("tie_metric", [None, "loss"])
def test_of_equal_scores_the_later_is_the_best(tmp_path, tie_metric):
    options = {"best_metric": "r2", "tie_metric": tie_metric}
    with Checkpoints(tmp_path, **options) as checkpoints:
        for step, score in enumerate([-3.0, -1.0, -1.0, NAN, -2.0, -4.0]):
            checkpoints.save(step, {"w": np.ones(1)}, metrics={"r2": score})
    assert checkpoints.best_step == 2


@pytest.mark.parametrize("position", [0.0, 0.3, 0.999])
def test_flipped_bit_is_refused_and_its_file_named(tmp_path, position):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(2, {"w": np.ones(3)})
        checkpoints.save(3, {"params": LEAVES, "w": np.ones(3)})
    changed = data_file(tmp_path, 3)
    flip(changed, position)
    for target in ({"params": LEAVES}, {"w": np.ones(3)}):
        with pytest.raises(CheckpointError) as error:
            checkpoints.restore(target)
        message = str(error.value)
        assert message.startswith(f"step 3 of {tmp_path} must be as it was saved")
        assert str(changed.relative_to(tmp_path / "3")) in message
        assert f"delete {tmp_path / '3'} " in message
        assert "\n" not in message


def test_flipped_bit_in_any_file_is_refused(folder):
    files = [path for path in (folder / "2").rglob("*") if path.stat().st_size]
    for number, path in enumerate(filter(os.path.isfile, files)):
        saved = path.read_bytes()
        flip(path, np.random.default_rng(number).random() * 0.99)
        with pytest.raises(CheckpointError, match=f"step 2 .*{path.name}"):
            Checkpoints(folder).restore(state_of(0))
        path.write_bytes(saved)
    assert bits(Checkpoints(folder).restore(state_of(0)).state) == bits(state_of(2))


DEEP = pytest.param("[" * 200_000, id="deep")


@pytest.mark.parametrize("text", ["3", "[]", "{}", "null", '{"record": 1}', "{", DEEP])
def test_record_of_another_form_is_refused(folder, text):
    (folder / "2" / "integrity.json").write_text(text + "\n")
    with pytest.raises(CheckpointError, match="step 2 .* got a changed integrity.json"):
        Checkpoints(folder, best_metric="loss").restore(state_of(0))


def warnings(caplog):
    """Messages but those of Orbax, which says more where a program logs to stderr."""
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


@pytest.mark.full
def test_any_truncated_or_missing_file_falls_back_and_says_so(folder, caplog):
    files = [path for path in (folder / "2").rglob("*") if path.is_file()]
    for path in files:
        saved = path.read_bytes()
        for cut in {0, len(saved) // 2, len(saved) - 1, None} - {len(saved), -1}:
            path.unlink() if cut is None else path.write_bytes(saved[:cut])
            caplog.clear()
            restored = Checkpoints(folder).restore(state_of(0))
            assert restored.step == 1
            assert restored.metrics == {"position": 1}
            assert bits(restored.state) == bits(state_of(1))
            (message,) = warnings(caplog)
            assert message.startswith("step 2 ")
            assert path.name in message
            assert message.endswith("The step before it is tried.")
            path.write_bytes(saved)


def test_no_fallback_from_the_step_that_was_asked_for(folder):
    data_file(folder, 2).write_bytes(b"")
    with pytest.raises(CheckpointError, match="step 2 .* complete, got 0 bytes"):
        Checkpoints(folder).restore(state_of(0), step=2)


@pytest.mark.parametrize("step", [7, 0, -1])
def test_step_that_was_not_kept_is_told_those_that_were(folder, tmp_path, step):
    message = f"`step` must be one that was kept in .*, got {step}; kept: 1, 2."
    with pytest.raises(CheckpointError, match=message):
        Checkpoints(folder).restore(state_of(0), step=step)
    with pytest.raises(CheckpointError, match=f"got {step}; kept: none."):
        Checkpoints(tmp_path / "nowhere").restore(state_of(0), step=step)


def test_nothing_whole_is_an_error(folder, tmp_path):
    for step in (1, 2):
        data_file(folder, step).write_bytes(b"")
    for directory in (folder, tmp_path / "nowhere"):
        with pytest.raises(CheckpointError, match="must hold a complete step"):
            Checkpoints(directory).restore(state_of(0))


def test_training_goes_on_over_a_truncated_step(folder):
    data_file(folder, 2).write_bytes(b"")
    with Checkpoints(folder) as checkpoints:
        assert checkpoints.restore(state_of(0)).step == 1
        checkpoints.save(2, state_of(22))
    restored = Checkpoints(folder).restore(state_of(0))
    assert restored.step == 2
    assert bits(restored.state) == bits(state_of(22))
    assert {path.name for path in folder.iterdir()} == {"1", "2"}


def test_unusable_step_is_kept_until_there_is_a_newer_whole_one(folder, monkeypatch):
    data_file(folder, 2).write_bytes(b"")
    monkeypatch.setattr(integrity, "write_record", lambda folder, record: 1 / 0)
    with pytest.raises(CheckpointError), Checkpoints(folder) as checkpoints:
        checkpoints.restore(state_of(0))
        checkpoints.save(2, state_of(22))
    assert {path.name for path in folder.iterdir()} == {"1", "2", "2.unreadable"}
    monkeypatch.undo()
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(3, state_of(3))
    assert {path.name for path in folder.iterdir()} == {"1", "3"}


@pytest.mark.parametrize("move", [shutil.copytree, os.rename])
def test_folder_of_another_step_is_passed_over_and_replaced(folder, caplog, move):
    move(folder / "2", folder / "7")
    step = max(int(path.name) for path in folder.iterdir() if path.name != "7")
    told = f"step 7 of {folder} must be the directory of step 7, got that of step 2"
    with pytest.raises(CheckpointError, match=told):
        Checkpoints(folder).restore(state_of(0), step=7)
    with Checkpoints(folder) as checkpoints:
        restored = checkpoints.restore(state_of(0))
        assert restored.step == step
        assert bits(restored.state) == bits(state_of(step))
        (message,) = warnings(caplog)
        assert message.startswith(told)
        assert message.endswith("name it 2. The step before it is tried.")
        checkpoints.save(3, state_of(3))
    names = {path.name for path in folder.iterdir()}
    assert names == ({"1", "3"} if move is os.rename else {"2", "3"})


def test_copied_step_is_not_the_best(tmp_path, caplog):
    options = {"best_metric": "accuracy", "tie_metric": "loss"}
    with Checkpoints(tmp_path, **options) as checkpoints:
        for step, accuracy in enumerate([0.5, 0.9, 0.1, 0.2]):
            checkpoints.save(step, {"w": np.ones(1)}, metrics={"accuracy": accuracy})
    shutil.copytree(tmp_path / "1", tmp_path / "5")
    assert checkpoints.best_step == 1
    assert "not counted among the best: step 5 of" in caplog.text


@pytest.mark.parametrize("name", ["07", "٧", "7.old"])
def test_folder_of_another_name_is_no_step(folder, name):
    shutil.copytree(folder / "2", folder / name)
    assert Checkpoints(folder).latest_step == 2
    assert Checkpoints(folder).restore(state_of(0)).step == 2


def test_step_of_another_config_is_refused_and_told_the_differences(tmp_path):
    config = {"task": {"data_dir": "/a", "sizes": [1, 2]}, "steps": 3, "rate": 0.5}
    with Checkpoints(tmp_path, config=config) as checkpoints:
        checkpoints.save(1, state_of(1))
    target = state_of(0)
    target["params"]["block_0"]["w"] = np.zeros((40, 31), np.float32)
    other = {"task": {"data_dir": "/a", "sizes": [1, 3]}, "steps": 4}
    with pytest.raises(CheckpointError) as error:  # before the shapes that follow
        Checkpoints(tmp_path, config=other).restore(target)
    for part in (
        f"step 1 of {tmp_path} must be of the config of its run",
        "rate: absent -> 0.5; steps: 4 -> 3; task.sizes: (1, 3) -> (1, 2)",
    ):
        assert part in str(error.value)
    assert "\n" not in str(error.value)
    moved = config | {"task": {"data_dir": "/b", "sizes": [1, 2]}}
    for same in (config, moved, None):
        assert Checkpoints(tmp_path, config=same).restore(state_of(0)).step == 1


OTHER_MODELS = {
    "shape": ({"params": {"block_0": {"w": np.zeros((40, 31), np.float32)}}}, "/b`"),
    "dtype": ({"key": np.zeros(2, np.uint32)}, "`key` must be key<fry>"),
    "more": ({"params": state_of(0)["params"], "ema": np.ones(3)}, "`ema` must be abs"),
    "fewer": ({"params": {"block_0": {"b": np.zeros(64, np.float32)}}}, "w` must be f"),
}


@pytest.mark.parametrize(
    ("target", "message"), OTHER_MODELS.values(), ids=OTHER_MODELS.keys()
)
def test_another_model_is_refused_and_never_falls_back(folder, target, message):
    with pytest.raises(CheckpointError, match=message):
        Checkpoints(folder).restore(target)


def test_shapes_of_a_mismatch_are_both_told(folder):
    target = state_of(0)
    target["params"]["block_0"]["w"] = np.zeros((40, 31), np.float32)
    with pytest.raises(
        CheckpointError,
        match=r"`params/block_0/w` must be float32\(40, 30\) .* got float32\(40, 31\)",
    ):
        Checkpoints(folder).restore(target)


@pytest.mark.full
@pytest.mark.parametrize("n_devices", [1, 2])
def test_saved_on_eight_devices_restored_on_fewer(tmp_path, n_devices):
    def spread(n, spec):
        mesh = Mesh(np.array(jax.devices()[:n]), ("data",))
        return NamedSharding(mesh, spec)

    w = np.arange(16.0, dtype=np.float32)
    state = {
        "w": jax.device_put(w, spread(8, PartitionSpec())),
        "carried": jax.device_put(w, spread(8, PartitionSpec("data"))),
        "key": jax.device_put(jax.random.key(1), spread(8, PartitionSpec())),
    }
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state)
    fewer = spread(n_devices, PartitionSpec())
    target = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=fewer), state
    )
    restored = checkpoints.restore(target).state
    assert bits(restored) == bits(state)
    assert all(leaf.sharding == fewer for leaf in restored.values())


@pytest.mark.parametrize("raised_at", ["save", "close", "restore"])
def test_failed_background_save_is_raised_later(tmp_path, monkeypatch, raised_at):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state_of(1))
    checkpoints.wait()

    def full(folder, record):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(integrity, "write_record", full)
    checkpoints.save(2, state_of(2))
    later = {
        "save": lambda: checkpoints.save(3, state_of(3)),
        "close": checkpoints.close,
        "restore": lambda: checkpoints.restore(state_of(0)),
    }
    with pytest.raises(
        CheckpointError, match="step 2 must be written to .* No space"
    ) as error:
        later[raised_at]()
    assert str(tmp_path) in str(error.value)
    assert "bytes free" in str(error.value)
    assert "step 1 is complete" in str(error.value)
    assert "\n" not in str(error.value)

    monkeypatch.undo()  # there is space again: the same command goes on
    with Checkpoints(tmp_path) as again:
        assert again.restore(state_of(0)).step == 1
        again.save(2, state_of(2))
    assert bits(again.restore(state_of(0)).state) == bits(state_of(2))


def test_error_of_the_block_is_not_replaced_by_that_of_the_save(tmp_path, monkeypatch):
    monkeypatch.setattr(integrity, "write_record", lambda folder, record: 1 / 0)
    with pytest.raises(KeyboardInterrupt), Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state_of(1))
        raise KeyboardInterrupt


def test_save_returns_before_the_step_is_on_the_disk(tmp_path, monkeypatch):
    go_on, write_record = threading.Event(), integrity.write_record

    def late(folder, record):
        go_on.wait()
        write_record(folder, record)

    monkeypatch.setattr(integrity, "write_record", late)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state_of(1))
        assert checkpoints.latest_step is None
        go_on.set()
        checkpoints.wait()
        assert checkpoints.latest_step == 1


def test_leftovers_of_a_killed_save_are_ignored_then_removed(folder, caplog):
    (folder / "3.orbax-checkpoint-tmp" / "state").mkdir(parents=True)
    (folder / "4").mkdir()  # killed between Orbax's rename and the record
    before = tree_of(folder)
    reader = Checkpoints(folder)
    assert reader.latest_step == 2
    assert reader.restore(state_of(0)).step == 2
    assert "step 4" in caplog.text
    assert tree_of(folder) == before
    with Checkpoints(folder) as writer:
        writer.save(4, state_of(4))
    assert writer.restore(state_of(0)).step == 4
    assert {path.name for path in folder.iterdir()} == {"2", "4"}


def test_reading_changes_nothing_in_the_folder(folder, tmp_path):
    before = tree_of(tmp_path)
    with Checkpoints(folder, best_metric="loss") as checkpoints:
        checkpoints.restore(state_of(0))
    with Checkpoints(tmp_path / "nowhere") as checkpoints:
        assert checkpoints.latest_step is None
        assert checkpoints.best_step is None
    assert tree_of(tmp_path) == before


def test_step_that_is_not_newer_is_refused(folder):
    with (
        Checkpoints(folder) as checkpoints,
        pytest.raises(CheckpointError, match="`step` must be greater than 2"),
    ):
        checkpoints.save(2, state_of(2))


@pytest.mark.parametrize("name", ["a/b", "a.b", "a/b/c"])
def test_two_leaves_of_one_path_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="one path .* `a.b.*` and `a.b"):
        Checkpoints(tmp_path).save(1, {name: 1, "a": {"b": 2}})


def test_record_says_what_is_stored(folder):
    record = json.loads((folder / "2" / "integrity.json").read_text())["record"]
    assert record["step"] == 2
    assert record["leaves"]["params/block_0/w"] == "float32(40, 30)"
    assert all(len(checksum) == 64 for _, checksum in record["files"].values())


def test_orbax_keeps_its_tracebacks_to_itself(tmp_path, caplog):
    """What the user sees of a full disk is one error; here files may not grow."""
    noise = np.random.default_rng(0).normal(size=10_000)  # not compressible
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        with pytest.raises(CheckpointError, match="step 1 must be written") as error:
            with Checkpoints(tmp_path) as checkpoints:
                checkpoints.save(1, {"w": noise})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(error.value)
    assert not [record for record in caplog.records if record.exc_info]


def rewrite(folder, step, fields):
    """Replaces fields of a record, with a checksum that fits, as anyone may."""
    path = folder / str(step) / integrity.RECORD
    record = json.loads(path.read_text())["record"]
    for name, value in fields.items():
        known = record[name]
        record[name] = known | value if isinstance(value, dict) else value
    checksum = integrity._record_checksum(record)
    text = json.dumps({"checksum": checksum, "record": record})
    path.write_text(text + "\n")


RECORDS = {
    "step": ({"step": "2"}, "changed"),
    "metrics": ({"metrics": {"position": "2"}}, "changed"),
    "leaves": ({"leaves": {"params/w": 1}}, "changed"),
    "files": ({"files": {"x": 3}}, "changed"),
    "no list": ({"files": []}, "changed"),
    "file elsewhere": ({"files": {"../1/integrity.json": [1, ""]}}, "no ../1/"),
    "file of root": ({"files": {"/etc/hostname": [1, ""]}}, "no /etc/hostname"),
    "file without end": ({"files": {"/dev/zero": [0, ""]}}, "no /dev/zero"),
    "tuple": ({"leaves": {"pending/a": "float32((((1"}}, "float32((((1"),
    "code": ({"leaves": {"pending/a": "float32(9**9**9,)"}}, "9**9**9"),
    "dtype": ({"leaves": {"pending/a": "float33(2,)"}}, "float33"),
    "depth": ({"leaves": {"pending" + "/a" * 10_000: "float32(2,)"}}, "10000"),
    "memory": ({"leaves": {"pending/a": f"float32({2**60},)"}}, "memory"),
    "memory of many": (
        {"leaves": {f"pending/{i}": f"float32({2**31},)" for i in range(500)}},
        "memory",
    ),
}


@pytest.mark.parametrize(("fields", "shown"), RECORDS.values(), ids=RECORDS)
def test_record_that_fits_its_checksum_is_still_not_trusted(folder, fields, shown):
    rewrite(folder, 2, fields)
    with pytest.raises(CheckpointError) as refusal:
        Checkpoints(folder).restore(state_of(0), step=2)
    assert shown in str(refusal.value) and "\n" not in str(refusal.value)
    assert Checkpoints(folder, best_metric="position").best_step in (1, 2)
