"""Lines that libraries in C++ print to standard error and that help nobody."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

LIBRARY_LOG = (
    r"^WARNING: All log messages before absl::InitializeLog"
    r"|^[IW]\d{4} [\d:.]+ +\d+ \S+:\d+\]"
)
"""Information and warnings of XLA; errors are other lines."""

# Passes lines on, and ends with a text of its own unless a mark came before.
_FILTER = """
import re, sys
pattern, last_words, quoted = re.compile(sys.argv[1].encode()), *sys.argv[2:]
dropped = b""
for line in sys.stdin.buffer:
    if line.endswith(b"\\0\\n"):
        line, last_words = line[:-2], ""
    if pattern.search(line):
        dropped += line
    elif line:
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
match = re.search(quoted, dropped.decode(errors="replace"))
names = "process " + ", ".join(match[1].split()) if match and quoted else "one"
sys.stderr.write(last_words.replace("{}", names))
"""
_MARK = b"\0\n"
_END_S = 10


class StderrFilter:
    """Drops lines from what this process prints to standard error until `close`.

    Another process passes the other lines on, so that they are printed even where a
    library ends this one by SIGABRT.
    """

    def __init__(self, pattern: str, last_words: str = "", processes: str = ""):
        """Starts the other process.

        Args:
          pattern: Regular expression that is searched in each line.
          last_words: What is printed at the end if this process ends before `close`, as
            where no Python code runs. ``{}`` stands for the processes that the lines
            that were dropped name, or for "one".
          processes: Regular expression whose first group are the numbers of these.
        """
        self._reader = subprocess.Popen(
            [sys.executable, "-ISc", _FILTER, pattern, last_words, processes],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is not for it.
        )
        assert self._reader.stdin is not None
        sys.stderr.flush()
        self._stderr = os.dup(2)
        os.dup2(self._reader.stdin.fileno(), 2)

    def close(self) -> None:
        """Lets this process print to standard error itself, after what it has."""
        sys.stderr.flush()
        os.dup2(self._stderr, 2)
        os.close(self._stderr)
        assert self._reader.stdin is not None
        with contextlib.suppress(OSError):  # It was ended by somebody.
            self._reader.stdin.write(_MARK)
            self._reader.stdin.close()
        # A process that was started meanwhile may hold the other end still.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._reader.wait(_END_S)


@contextlib.contextmanager
def drop_lines(pattern: str) -> Iterator[None]:
    """Drops lines from what this process prints to standard error in the block.

    Args:
      pattern: As for `StderrFilter`.
    """
    reader = StderrFilter(pattern)
    try:
        yield
    finally:
        reader.close()
