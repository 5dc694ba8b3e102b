"""The console script: its list of programs, and what it does before they start."""

import os
import subprocess
import sys

import pytest

from ssm_jax.cli import main
from tests.cli import programs
from tests.tiers import tiered


def ssm_jax(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["ssm-jax", *words])
    with programs.fresh_flags(), pytest.raises(SystemExit) as caught:
        main.main()
    return caught.value.code


@pytest.mark.parametrize("flag", ["--help", "-h", "help"])
def test_ssm_jax_lists_its_programs(monkeypatch, capsys, flag):
    assert ssm_jax(monkeypatch, flag) == 0
    shown = capsys.readouterr().out
    assert all(f"\n    {name} " in shown for name in main.PROGRAMS)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["trian"], "got 'trian'; did you mean `train`?"),
        (
            [],
            f"got ''; known: {', '.join(main.PROGRAMS)}.",
        ),
        (["--workdir=a"], "got '--workdir=a'; known: train"),
    ],
)
def test_unknown_program_is_one_line(monkeypatch, capsys, words, hint):
    assert ssm_jax(monkeypatch, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: `PROGRAM` must be a program, ")
    assert hint in line


@pytest.mark.parametrize("name", main.PROGRAMS)
def test_ssm_jax_runs_each_program_with_its_flags(monkeypatch, capsys, name):
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", "")
    assert ssm_jax(monkeypatch, name, "--wrong_flag=1") == 2
    of_experiment = name in ("train", "compile", "sweep")
    shown = "`--config` must be given" if of_experiment else "wrong_flag"
    assert shown in capsys.readouterr().err


def test_environment_that_is_no_number_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "two")
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", "")
    assert ssm_jax(monkeypatch, "train", "--dry_run") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: `JAX_NUM_PROCESSES` must be a number, got 'two'")


@pytest.mark.parametrize("words", tiered(["report --help", "--help"], 0, full=1))
def test_reader_of_the_output_may_leave(words):
    script = "from ssm_jax.cli.main import main; main()"
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", script, *words.split()]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=180)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("program", main.PROGRAMS)
def test_program_without_a_standard_output_starts(program, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", "")
    assert ssm_jax(monkeypatch, program, "--no_such_flag") == 2
    sys.stdout.close()
    assert capsys.readouterr().err.startswith("error: ")
