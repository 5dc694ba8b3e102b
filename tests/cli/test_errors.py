"""Errors that the user can correct are one line; bugs keep their traceback."""

import errno

import pytest

from ssm_jax.cli.errors import errors_with_flags, one_line_errors


class OwnError(ValueError):
    pass


@pytest.mark.parametrize(
    "error, line",
    [
        (ValueError("two\n  lines"), "error: two lines"),
        (OwnError("of a checkpoint"), "error: of a checkpoint"),
        (ValueError(), "error: ValueError"),
        (
            OSError(errno.ENOSPC, "No space left on device", "runs/a"),
            "error: No space left on device: runs/a",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied"),
            "error: Permission denied",
        ),
        (FileNotFoundError("no such run"), "error: no such run"),
    ],
)
def test_error_of_the_caller_is_one_line(capsys, error, line):
    with pytest.raises(SystemExit) as caught:
        with one_line_errors():
            raise error
    assert caught.value.code == 2
    assert capsys.readouterr().err == line + "\n"


def test_fields_are_named_by_their_flags():
    with pytest.raises(OwnError) as caught, errors_with_flags({"a": "b", "c": "c"}):
        raise OwnError("`a` must, got d; `c` of the format, `c='x'`, or `d` states it.")
    assert str(caught.value) == ("`--b` must, got d; `--c`, `--c=x`, or `d` states it.")
    with pytest.raises(OSError, match="full") as kept, errors_with_flags({"a": "b"}):
        raise FileNotFoundError(errno.ENOENT, "full", "`a`")
    assert kept.value.filename == "`a`"


def test_interrupt_says_how_to_go_on(capsys):
    with pytest.raises(SystemExit) as caught:
        with one_line_errors():
            raise KeyboardInterrupt
    assert caught.value.code == 130
    assert capsys.readouterr().err == "interrupted; the same command continues\n"


@pytest.mark.parametrize("bug", [TypeError, KeyError, AssertionError, AttributeError])
def test_bug_goes_through(bug):
    with pytest.raises(bug):
        with one_line_errors():
            raise bug


def test_traceback_lets_errors_through():
    with pytest.raises(ValueError):
        with one_line_errors(traceback=True):
            raise ValueError


def test_control_sequences_in_an_error_are_shown(capsys):
    with pytest.raises(SystemExit), one_line_errors():
        raise ValueError("got a\x1b[2J\nb\u202e\udcff é.")
    assert capsys.readouterr().err == "error: got a\\x1b[2J b\\u202e\\udcff é.\n"
