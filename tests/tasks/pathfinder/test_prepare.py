"""Preparation of Pathfinder: reproducible files, written atomically."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

from ssm_jax import tasks
from ssm_jax.tasks.pathfinder import prepare as prepare
from ssm_jax.tasks.pathfinder.prepare import write_images
from ssm_jax.tasks.pathfinder.settings import PATHFINDER
from tests.bad_inputs import refuses

COUNTS = {"train": 121, "validation": 15, "test": 15}
N = sum(COUNTS.values())
SIZES = {f"n_{split}": count for split, count in COUNTS.items()}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    """Five files: three of them for training, of 50, 50 and 21 images."""
    monkeypatch.setattr(prepare, "_PER_SHARD", 50)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "_PER_SHARD", 50)
        write_images(folder, PATHFINDER[32], n=N, workers=1)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Returns all files under a directory, including hidden ones."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.full
def test_prepared_images_are_those_that_are_drawn_without_a_folder(prepared):
    read = tasks.Pathfinder(data_dir=str(prepared), **SIZES)
    drawn = tasks.Pathfinder(**SIZES)
    for split, n in COUNTS.items():
        for index, batch_size, seed in ((0, n, 0), (1, 4, 3)):
            batch = read.batch(split, index, batch_size, seed)
            expected = drawn.batch(split, index, batch_size, seed)
            for x, y in zip(batch[:3], expected[:3], strict=True):
                np.testing.assert_array_equal(x, y)
                assert x.dtype == y.dtype


def test_a_task_may_take_fewer_images_than_are_prepared(prepared):
    few = tasks.Pathfinder(data_dir=str(prepared), **SIZES | {"n_test": 6})
    whole = tasks.Pathfinder(data_dir=str(prepared), **SIZES)
    batch, expected = (task.batch("test", 0, 6, seed=0) for task in (few, whole))
    np.testing.assert_array_equal(batch.inputs, expected.inputs)


@pytest.mark.full
def test_tfds_reads_the_set_by_itself(prepared):
    builder = tfds.builder_from_directory(str(prepared / "pathfinder32" / "1.0.0"))
    drawn = tasks.Pathfinder(**SIZES)
    for split, n in COUNTS.items():
        batch = drawn.batch(split, 0, n, seed=0)
        pixels = {row.tobytes() for row in batch.inputs}
        for example in builder.as_data_source(split=split):
            image = example["image"].reshape(-1, 1) / np.float32(255)
            pixels.remove(image.tobytes())
        assert not pixels


@pytest.mark.full
def test_files_do_not_depend_on_the_number_of_workers(prepared, tmp_path):
    write_images(tmp_path, PATHFINDER[32], n=N, workers=2)
    assert contents(tmp_path) == contents(prepared)


class _Stopped(Exception):
    pass


@pytest.mark.full
def test_a_stopped_preparation_goes_on_and_gives_the_same_files(prepared, tmp_path):
    def stop(done: int, total: int) -> None:
        if done == 100:
            raise _Stopped

    with pytest.raises(_Stopped):
        write_images(tmp_path, PATHFINDER[32], n=N, workers=1, progress=stop)
    assert not (tmp_path / "pathfinder32" / "1.0.0").exists()
    with pytest.raises(FileNotFoundError, match=r"launch\.prepare"):
        tasks.Pathfinder(data_dir=str(tmp_path), **SIZES).batch("test", 0, 1, 0)
    # The partial file of a killed process.
    (staging,) = (tmp_path / "pathfinder32").iterdir()
    (staging / ".part-1-pathfinder32-train.array_record-00002-of-00003").touch()
    calls = []
    write_images(
        tmp_path,
        PATHFINDER[32],
        n=N,
        workers=1,
        progress=lambda *call: calls.append(call),
    )
    assert calls == [(done, N) for done in (100, 121, 136, 151)]
    assert contents(tmp_path) == contents(prepared)


def runs(pid: int) -> bool:
    """Returns whether a process is alive; zombies are not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_for(what, process: subprocess.Popen | None = None):
    deadline = time.monotonic() + 60
    while not (result := what()):
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None
        time.sleep(0.05)
    return result


@pytest.mark.full
def test_killed_preparation_leaves_neither_workers_nor_its_lock(tmp_path):
    program = f"""
from ssm_jax.tasks.pathfinder import prepare
from ssm_jax.tasks.pathfinder.settings import PATHFINDER
if __name__ == "__main__":
    setting = PATHFINDER[32]
    prepare.write_images({str(tmp_path)!r}, setting, n=100_000, workers=2)
"""
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    try:
        parts = wait_for(lambda: list(tmp_path.rglob(".part-*")), process)
        with refuses("data_dir", rule="process"):
            write_images(tmp_path, PATHFINDER[32], n=10, workers=1)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    workers = [int(part.name.split("-")[1]) for part in parts]
    wait_for(lambda: not any(map(runs, workers)))
    path = write_images(tmp_path, PATHFINDER[32], n=10, workers=1)
    assert path == tmp_path / "pathfinder32" / "1.0.0" and path.exists()


def test_set_that_is_there_is_left_as_it_is(prepared):
    before = contents(prepared)
    calls = []
    write_images(
        prepared,
        PATHFINDER[32],
        n=N,
        workers=1,
        progress=lambda *call: calls.append(call),
    )
    assert not calls
    with refuses("data_dir", rule="seed 0"):
        write_images(prepared, PATHFINDER[32], n=N, seed=1, workers=1)
    assert contents(prepared) == before


def test_set_that_is_too_small_is_an_error(prepared):
    task = tasks.Pathfinder(data_dir=str(prepared), n_train=122, n_test=1)
    with refuses("n_train", 122, rule="121"):
        task.batch("train", 0, 1, seed=0)


BAD_ARGUMENTS = {
    "n": ({"n": 9}, "at least 10", 9),
    "seed": ({"seed": -1}, "at least 0", -1),
    "workers": ({"workers": 0}, "at least 1", 0),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_argument_is_an_error_and_writes_nothing(name, tmp_path, unchecked):
    arguments, rule, value = BAD_ARGUMENTS[name]
    with refuses(name, value, rule=rule):
        write_images(tmp_path, PATHFINDER[32], **{"n": 10, **arguments})
    assert not list(tmp_path.iterdir())
