"""A work folder belongs to one experiment and loses nothing that was measured."""

import contextlib
import errno
import fcntl
import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import ssm_jax
from ssm_jax.evaluation import GenerationState
from ssm_jax.files import write_arrays
from ssm_jax.training import workdir
from ssm_jax.training.hosts import check_one_process
from ssm_jax.training.workdir import WorkDir, environment, hold_lock
from tests.bad_inputs import refuses
from tests.training import tiny


@pytest.fixture
def folder(tmp_path):
    """The folder of a run."""
    folder = WorkDir(tmp_path / "run")
    claim(folder, tiny.digits())
    return folder


def claim(folder, config):
    with folder.claim(config):
        pass


def contents(path):
    return {file: file.is_file() and file.read_bytes() for file in path.rglob("*")}


def test_config_comes_back_as_it_was(folder):
    assert folder.config().to_dict() == tiny.digits().to_dict()


def test_environment_at_the_start_is_kept(folder):
    found = folder.read("run.json")
    assert (found["n_devices"], found["platform"]) == (
        jax.device_count(),
        "cpu",
    )
    assert {"jax", "flax", "optax", "numpy"} <= found["versions"].keys()
    assert found["versions"]["ssm_jax"] == ssm_jax.__version__
    assert found["commit"] is None or len(found["commit"].rstrip("+")) >= 10


def test_commit_is_that_of_a_repository_that_tracks_the_package(tmp_path, monkeypatch):
    def git(*arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        return done.stdout.decode().strip()

    file = tmp_path / "venv" / "workdir.py"
    file.parent.mkdir()
    file.touch()
    monkeypatch.setattr(workdir, "__file__", str(file))
    git("init")
    git("commit", "--allow-empty", "--message=of another project")
    assert environment()["commit"] is None
    git("add", "--all")
    git("commit", "--message=of the package")
    assert environment()["commit"] == git("rev-parse", "--short=10", "HEAD")


def test_same_experiment_may_claim_again(folder):
    folder.log(1, loss=0.5)
    claim(folder, tiny.digits())
    assert folder.metrics() == [{"step": 1, "loss": 0.5}]


def test_data_may_move(folder):
    config = tiny.digits()
    config.task.data_dir = "/elsewhere"
    claim(folder, config)
    assert folder.config().task.data_dir == "/elsewhere"


def test_another_experiment_is_told_the_fields_and_changes_nothing(folder):
    folder.log(1, loss=0.5)
    before = contents(folder.path)
    other = tiny.digits(batch_size=8, seed=3)
    other.optimizer.learning_rate = 0.5
    with refuses("workdir", rule="new") as error:
        claim(folder, other)
    for field in (
        "optimizer.learning_rate: 0.01 -> 0.5",
        "training.seed: 0 -> 3",
        "training.batch_size: 16 -> 8",
    ):
        assert field in str(error.value)
    assert contents(folder.path) == before


def test_run_of_an_older_version_is_refused_and_its_reader_named(folder):
    config = json.loads((folder.path / "config.json").read_text())
    config["training"]["cls"] = "ssm_jax.training.loop:Training"
    (folder.path / "config.json").write_text(json.dumps(config))
    (folder.path / "run.json").unlink()
    with pytest.raises(ValueError, match="read it with commit 4db8fba") as error:
        with folder.claim(tiny.shift()):
            pass
    assert "`workdir`" in str(error.value) and "\n" not in str(error.value)


def data(content):
    """A fingerprint."""
    return {"files": 1, "bytes": 9, "modified": "2026-01-31T18:00:00Z"} | content


A, B = data({"sha256": "a"}), data({"sha256": "b", "files": 2, "bytes": 12})
TOUCHED = data({"sha256": "a", "modified": "2027-01-31T18:00:00Z"})
# What steps were taken on, from which step on, and what is kept.
STARTS = {
    "one": ([(A, 0)], [0]),
    "again": ([(A, 0), (A, 5)], [0]),
    "touched": ([(A, 0), (TOUCHED, 5)], [0]),
    "changed": ([(A, 0), (B, 5)], [0, 5]),
    "changed, and back": ([(A, 0), (B, 5), (A, 8)], [0, 5, 8]),
    "lost before a checkpoint": ([(A, 0), (B, 5), (A, 5)], [0]),
    "begun anew": ([(A, 0), (B, 0)], [0]),
    "no files": ([(None, 0)], []),
    "of an earlier version": ([(A, 7)], [7]),
}


@pytest.mark.parametrize(("starts", "kept"), STARTS.values(), ids=STARTS)
def test_fingerprints_of_the_data_are_kept_by_step(folder, starts, kept):
    for found, step in starts:
        folder.write_data(found, step)
    assert [each["step"] for each in folder.data()] == kept
    assert (folder.path / "data.json").exists() == bool(kept)


def test_changed_data_are_refused_for_the_steps_they_were_not_used_in(folder, caplog):
    folder.check_data(B, 5, allow_changed=False)  # of an earlier version
    folder.write_data(A, 0)
    folder.write_data(B, 5)
    for found, step in ((A, 5), (TOUCHED, 1), (B, 6), (A, 0), (None, 3)):
        folder.check_data(found, step, allow_changed=False)
    assert not caplog.text
    for found, step, shown in ((B, 5, "2 files of 12 bytes"), (A, 6, "1 file of 9")):
        with refuses("task", shown, rule="--allow_changed_data") as error:
            folder.check_data(found, step, allow_changed=False)
        assert str(folder.path) in str(error.value)
        folder.check_data(found, step, allow_changed=True)
        assert f"changed: {shown}" in caplog.text


@pytest.mark.parametrize("text", ["[]", "{}", '{"fingerprints": [{"step": 0}]}', "{"])
def test_damaged_fingerprints_are_named(folder, text):
    (folder.path / "data.json").write_text(text)
    with refuses(f"{folder.path}/data.json"):
        folder.check_data(A, 5, allow_changed=True)


DEEP = "[" * 200_000
LINE = '{"step": 1}\n'
JSON = {
    "config.json": (DEEP, "be a run's config", WorkDir.config),
    "metrics.jsonl": (LINE + DEEP + "\n" + LINE, "in line 2", WorkDir.metrics),
    "other.json": (DEEP, "be a JSON object", lambda work: work.read("other.json")),
}


@pytest.mark.parametrize("name", JSON)
def test_deeply_nested_json_is_refused(folder, name):
    text, rule, read = JSON[name]
    (folder.path / name).write_text(text)
    with refuses(str(folder.path / name), rule=rule):
        read(folder)


def test_many_differences_are_counted(folder):
    with pytest.raises(ValueError, match=r"\d+ more.*--workdir"):
        claim(folder, tiny.shift())


def test_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("text")
    with refuses("workdir", rule="empty"):
        claim(WorkDir(tmp_path), tiny.digits())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_folder_that_was_killed_while_it_was_claimed_is_new(folder):
    """Between writing the draft of config.json and giving it its name.

    The lock is older than the draft, and no file of another's either.
    """
    assert (folder.path / "lock").exists()
    (folder.path / "run.json").unlink()
    config = folder.path / "config.json"
    config.rename(config.with_name("config.json.part"))
    claim(folder, tiny.shift())
    assert folder.config().to_dict() == tiny.shift().to_dict()


def test_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="run.*nowhere"):
        WorkDir(tmp_path / "nowhere").config()


def test_nothing_is_created_by_looking(tmp_path):
    folder = WorkDir(tmp_path / "nowhere")
    assert folder.metrics() == []
    assert folder.read("evaluation.json") is None
    assert not folder.path.exists()


def test_metrics_come_back_bit_for_bit(folder):
    lines = [{"step": 1, "loss": 0.1 + 0.2}, {"step": 2, "loss": 1e-45, "r2": -3.0}]
    for line in lines:
        folder.log(**line)
    assert folder.metrics() == lines


def test_rewind_forgets_later_steps_and_a_line_cut_short(folder):
    for step in (1, 2, 3):
        folder.log(step, loss=1 / step)
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')
    folder.rewind(2)
    folder.log(3, loss=0.25)
    text = (folder.path / "metrics.jsonl").read_text()
    steps = [json.loads(line)["step"] for line in text.splitlines()]
    assert steps == [1, 2, 3]
    assert folder.metrics()[-1] == {"step": 3, "loss": 0.25}


@contextlib.contextmanager
def full_disk():
    """No file may grow beyond five bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def generation_state(path, value):
    GenerationState(np.arange(3), lambda: np.full(3, value), 1).save(path)


WRITERS = {
    "json": lambda path, value: WorkDir(path.parent).write(path.name, {"loss": value}),
    "arrays": lambda path, value: write_arrays(path, {"loss": np.full(3, value)}),
    "state of a generation": generation_state,
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_file_is_written_whole_or_not_at_all(tmp_path, write):
    path = tmp_path / "some.file"
    write(path, 0.25)
    wanted = path.read_bytes()
    write(path, 0.5)
    before = contents(tmp_path)
    assert list(before) == [path]
    with full_disk(), pytest.raises(OSError, match="too large: .*some.file'$"):
        write(path, 0.25)
    (tmp_path / "some.file.part").unlink()
    assert contents(tmp_path) == before
    write(path, 0.25)
    assert contents(tmp_path) == {path: wanted}


def test_arrays_that_are_not_whole_are_refused(folder):
    name, values = "inspection.npz", np.random.default_rng(0).random(1000)
    path = folder.path / name
    np.savez_compressed(path, values=values)
    np.testing.assert_array_equal(folder.read_arrays(name)["values"], values)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    for damaged in (b"", b"values", whole[: len(whole) // 2], bytes(flipped)):
        path.write_bytes(damaged)
        with refuses(str(path), rule="hold arrays"):
            folder.read_arrays(name)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=name):
        folder.read_arrays(name)


HOLDER = """
import pathlib, sys
from ssm_jax.training.workdir import hold_lock
with hold_lock(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.full
def test_lock_of_another_process_names_it_and_ends_with_it(holder, tmp_path):
    holding = f"process {holder.pid} on {socket.gethostname()}"
    with refuses("workdir", tmp_path, rule=holding), hold_lock(tmp_path / "lock"):
        pass
    holder.kill()  # SIGKILL: nothing of the process runs any more
    holder.wait()
    with hold_lock(tmp_path / "lock"):
        text = (tmp_path / "lock").read_text()
    assert text == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_lock_is_taken_once_within_a_process_too(tmp_path):
    for _ in range(2):
        with hold_lock(tmp_path / "lock"):
            with refuses("workdir", f"process {os.getpid()} on "):
                with hold_lock(tmp_path / "lock"):
                    pass


def test_lock_ends_with_an_error(tmp_path):
    for _ in range(2):
        with (
            pytest.raises(OSError, match="^of the block$"),
            hold_lock(tmp_path / "lock"),
        ):
            raise OSError("of the block")


def refuse(number):
    def flock(handle, operation):
        raise OSError(number, os.strerror(number))

    return flock


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_file_system_without_locks_is_told_and_runs(
    tmp_path, monkeypatch, caplog, number
):
    monkeypatch.setattr(fcntl, "flock", refuse(number))
    with hold_lock(tmp_path / "lock"):
        pass
    (message,) = caplog.messages
    assert f"{tmp_path / 'lock'} cannot be locked ({os.strerror(number)})" in message


def test_other_errors_name_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", refuse(errno.EIO))
    with pytest.raises(OSError, match=rf"Input/output error: '{tmp_path}/lock'"):
        with hold_lock(tmp_path / "lock"):
            pass
    with pytest.raises(FileNotFoundError, match="nowhere/lock"):
        with hold_lock(tmp_path / "nowhere" / "lock"):
            pass


def test_several_processes_are_refused(monkeypatch):
    check_one_process()
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    with refuses("jax.process_count()", 4, rule="1"):
        check_one_process()


def test_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "lock").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="lock"), hold_lock(tmp_path / "lock"):
        pass
    assert (tmp_path / "mine").read_text() == "kept"
