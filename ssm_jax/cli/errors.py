"""Errors that the user can correct end a program with one line and status 2."""

import contextlib
import sys
from collections.abc import Iterator

from absl import flags

USER_ERRORS = (ValueError, OSError, FloatingPointError, MemoryError, flags.Error)
"""What the user can correct; every other exception is a bug."""

INTERRUPTED = "interrupted; the same command continues"


@contextlib.contextmanager
def one_line_errors(*, traceback: bool = False) -> Iterator[None]:
    """Turns errors that the user can correct into one line on stderr and a status.

    Args:
      traceback: Lets all exceptions through as they are.

    Raises:
      SystemExit: With 2 for a ValueError, OSError, FloatingPointError, MemoryError
        (also that of a device) or error of a flag, with 130 for a KeyboardInterrupt.
    """
    try:
        yield
    except (*USER_ERRORS, RuntimeError, KeyboardInterrupt) as error:
        bug = isinstance(error, RuntimeError) and not _is_of_memory(error)
        if traceback or bug:
            raise
        if isinstance(error, KeyboardInterrupt):
            line, status = INTERRUPTED, 130
        else:
            line, status = f"error: {_one_line(error)}", 2
        print(line, file=sys.stderr)
        sys.exit(status)


def _one_line(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:  # without "[Errno 28]"
        text = error.strerror + (f": {error.filename}" if error.filename else "")
    if isinstance(error, MemoryError | RuntimeError):
        text = f"memory must suffice, got too little: {text}; take a smaller batch or "
        text += "model, shorter sequences, or a larger device"
    return " ".join(text.split()) or type(error).__name__


def _is_of_memory(error: RuntimeError) -> bool:
    """Whether a device says that it has too little memory; XLA's has no class."""
    return str(error).startswith("RESOURCE_EXHAUSTED")
