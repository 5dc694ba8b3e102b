"""Where compiled programs are kept, which are deleted, what the next process finds."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from ssm_jax.cli import compile_cache
from ssm_jax.cli.compile_cache import (
    VARIABLE,
    close_default_cache,
    default_directory,
    delete_oldest,
    open_compile_cache,
)
from tests.cli.test_train import DIGITS

ROOT = Path(__file__).parents[2]

# What is compiled, and what is found in the cache, as JAX counts them.
PROGRAM = """
import collections, importlib, json, sys
import jax
events = collections.Counter()
jax.monitoring.register_event_listener(lambda name, **_: events.update([name]))
from ssm_jax.cli import app
program = importlib.import_module(sys.argv[1])
del sys.argv[1]
try:
    app.run(program.main, program.define_flags)
finally:
    print(json.dumps({name.split("/")[-1]: n for name, n in events.items()}))
"""


@pytest.fixture
def updates(monkeypatch, tmp_path):
    """What is set in JAX, for a user whose cache directory is in ``tmp_path``."""
    found = {}
    config = types.SimpleNamespace(update=found.__setitem__)
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(config=config))
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    return found


def test_directory_is_that_of_the_platform(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "ssm_jax/compiled"
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert default_directory() == Path("/home/me/.cache/ssm_jax/compiled")
    monkeypatch.setattr(sys, "platform", "darwin")
    expected = Path("/home/me/Library/Caches/ssm_jax/compiled")
    assert default_directory() == expected


def test_default_is_a_directory_of_the_user_alone(updates, tmp_path):
    open_compile_cache(None)
    directory = tmp_path / "ssm_jax/compiled"
    assert updates["jax_compilation_cache_dir"] == str(directory)
    assert directory.stat().st_mode & 0o777 == 0o700


def test_flag_comes_before_the_environment_and_both_before_the_default(
    updates, monkeypatch, tmp_path
):
    monkeypatch.setenv(VARIABLE, "elsewhere")
    open_compile_cache(None)
    assert updates == {}  # JAX reads the variable.
    open_compile_cache(str(tmp_path / "mine"))
    assert updates["jax_compilation_cache_dir"] == str(tmp_path / "mine")
    open_compile_cache("gs://bucket/mine")
    assert updates["jax_compilation_cache_dir"] == "gs://bucket/mine"
    updates.clear()
    open_compile_cache("none")
    assert updates == {"jax_enable_compilation_cache": False}


def test_several_processes_keep_programs_only_where_they_are_told(updates, monkeypatch):
    for choice, expected in (("mine", {}), (None, {"jax_compilation_cache_dir": None})):
        values = types.SimpleNamespace(compile_cache=choice)
        monkeypatch.setattr(compile_cache.flags, "FLAGS", values)
        close_default_cache()
        assert updates == expected


@pytest.mark.parametrize("why", ["file", "writable_by_others", "full", "homeless"])
def test_nothing_is_kept_where_nothing_should_be_written(
    why, updates, monkeypatch, tmp_path, caplog
):
    directory = tmp_path / "ssm_jax/compiled"
    if why == "file":
        (tmp_path / "ssm_jax").touch()
    elif why == "writable_by_others":
        directory.mkdir(parents=True)
        directory.chmod(0o777)
    elif why == "full":
        monkeypatch.setattr(compile_cache, "_FREE_BYTES", 2**70)
    else:

        def homeless():
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", homeless)
    open_compile_cache(None)
    assert updates == {}
    (record,) = caplog.records
    assert record.getMessage().startswith("compiled programs are not kept: ")


def test_files_that_were_not_used_for_long_are_deleted(tmp_path):
    (tmp_path / "folder").mkdir()
    sizes = {"old": 4, "folder/used": 4, "new": 4, "newest": 2, "empty": 0}
    for age, (name, size) in enumerate(sizes.items()):
        (tmp_path / name).write_bytes(b"x" * size)
        os.utime(tmp_path / name, (age, age))
    os.utime(tmp_path / "folder/used", (10, 1))  # read after it was written

    def left():
        return {name for name in sizes if (tmp_path / name).exists()}

    delete_oldest(tmp_path, 10, 5)
    assert left() == {"folder/used", "new", "newest"}
    delete_oldest(tmp_path, 10, 2)
    assert left() == {"folder/used", "newest"}
    delete_oldest(tmp_path, 5, 2)
    assert left() == {"folder/used"}


def counts(caches, program, *arguments):
    """Runs a program with an own cache directory; returns JAX's counts."""
    ours = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    environ = {name: value for name, value in os.environ.items() if name not in ours}
    environ |= {"JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(caches)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"ssm_jax.cli.{program}", *arguments],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.nightly
def test_second_run_and_its_evaluation_compile_nothing(tmp_path):
    found = []
    for seed in (0, 1):
        run = f"--workdir={tmp_path / str(seed)}"
        config = (*DIGITS, f"--config.training.seed={seed}")
        found.append(counts(tmp_path, "train", run, *config)[0])
        found.append(counts(tmp_path, "evaluate", run)[0])
    first, evaluated, *second = found
    assert first["cache_misses"] > 0 and "cache_hits" not in first
    # The evaluation step and the initial parameters are those of training.
    assert evaluated["cache_hits"] >= 2
    for each in second:
        assert "cache_misses" not in each
        assert each["cache_hits"] == each["compile_requests_use_cache"]


@pytest.mark.nightly
def test_run_ends_well_without_a_place_for_the_cache(tmp_path):
    (tmp_path / "file").touch()
    run = f"--workdir={tmp_path / 'run'}"
    found, log = counts(tmp_path / "file", "train", run, *DIGITS)
    assert "cache_hits" not in found and "cache_misses" not in found
    assert log.count("compiled programs are not kept") == 1
