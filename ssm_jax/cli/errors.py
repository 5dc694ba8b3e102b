"""Reports errors that the user can correct on one line, with exit status 2."""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import NoReturn

from absl import flags

USER_ERRORS = (ValueError, OSError, FloatingPointError, MemoryError, flags.Error)
"""Errors that the user can correct; every other exception is a bug."""

INTERRUPTED = "interrupted; the same command continues"


# A field in the text of an error, perhaps with a value and what it belongs to.
_FIELD = re.compile(r"`(\w+)(?:='?([^'`]*)'?)?`(?: of the (?:format|task))?")


def with_flags(text: str, fields: Mapping[str, str]) -> str:
    """Returns the text of an error with the flags of fields in place of their names.

    Args:
      text: Names of fields are between backticks, as ``order`` or ``order='sort'``.
      fields: The flags by the names of fields; others stay as they are.

    Example:
      >>> with_flags("`order='sort'` sorts the rows.", {"order": "order"})
      '`--order=sort` sorts the rows.'
    """

    def flag(match):
        if (name := fields.get(match[1])) is None:
            return match[0]
        return f"`--{name}`" if match[2] is None else f"`--{name}={match[2]}`"

    return _FIELD.sub(flag, text)


@contextlib.contextmanager
def errors_with_flags(fields: Mapping[str, str]) -> Iterator[None]:
    """Names the flags, which the user typed, in errors that name fields of a task.

    Args:
      fields: As for `with_flags`.
    """
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        # Those of the operating system have a number and a path.
        if len(error.args) == 1:
            error.args = (with_flags(str(error), fields),)
        raise


def errors_of_data(data: str | None) -> contextlib.AbstractContextManager[None]:
    """Names ``--data`` in errors of new data.

    Args:
      data: The flag. None: the file is a field of the task of the run.
    """
    fields = ("data", "data_dir", "file")
    return errors_with_flags(dict.fromkeys(fields, "data") if data else {})


@contextlib.contextmanager
def one_line_errors(*, traceback: bool = False) -> Iterator[None]:
    """Prints errors that the user can correct on one line of stderr and exits.

    Args:
      traceback: Whether to let all exceptions through unchanged.

    Nothing is printed if the reader of the output has gone, as that of ``| head``.

    Raises:
      SystemExit: With 2 for a ValueError, OSError, FloatingPointError, MemoryError
        (also of a device) or flag error, with 130 for a KeyboardInterrupt, with 141
        for a BrokenPipeError, as SIGPIPE ends a process.
    """
    try:
        yield
    except (*USER_ERRORS, RuntimeError, KeyboardInterrupt) as error:
        # JAX raises a RuntimeError for lack of device memory and for internal errors.
        bug = isinstance(error, RuntimeError) and not _is_out_of_memory(error)
        if traceback or bug:
            raise
        if isinstance(error, BrokenPipeError):
            _exit_unread()
        if isinstance(error, KeyboardInterrupt):
            line, status = INTERRUPTED, 130
        else:
            line, status = f"error: {_one_line(error)}", 2
        # On stderr, so that the output of the program can be piped.
        print(line, file=sys.stderr)
        sys.exit(status)
    finally:
        try:
            sys.stdout.flush()  # At exit, Python would print its error.
        except BrokenPipeError:
            _exit_unread()


def _exit_unread() -> NoReturn:
    # Python flushes once more at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(128 + signal.SIGPIPE)


def _one_line(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:  # without "[Errno 28]"
        text = error.strerror + (f": {error.filename}" if error.filename else "")
    if isinstance(error, MemoryError | RuntimeError):
        text = f"memory must suffice, got too little: {text}; take a smaller batch or "
        text += "model, shorter sequences, or a larger device"
    # Some errors, such as MemoryError, have no message.
    line = " ".join(text.split()) or type(error).__name__
    # Of names in files, which may hold control sequences of the terminal.
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Whether a device is out of memory; XLA has no class for this error."""
    return str(error).startswith("RESOURCE_EXHAUSTED")
