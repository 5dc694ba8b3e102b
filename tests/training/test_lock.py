"""A run is written to by one process, and a process that is gone locks nothing."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from ssm_jax.training.hosts import check_one_process
from ssm_jax.training.workdir import hold_lock
from tests.bad_inputs import refuses

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
