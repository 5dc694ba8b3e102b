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

_FILTER = """
import re, sys
dropped = re.compile(sys.argv[1].encode())
for line in sys.stdin.buffer:
    if not dropped.search(line):
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
"""
_END_S = 10


@contextlib.contextmanager
def drop_lines(pattern: str) -> Iterator[None]:
    """Drops lines from what this process prints to standard error in the block.

    Another process passes the other lines on, so that they are printed even where a
    library ends this one by SIGABRT.

    Args:
      pattern: Regular expression that is searched in each line.
    """
    reader = subprocess.Popen(
        [sys.executable, "-ISc", _FILTER, pattern],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is not for it.
    )
    assert reader.stdin is not None
    sys.stderr.flush()
    stderr = os.dup(2)
    os.dup2(reader.stdin.fileno(), 2)
    reader.stdin.close()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        # A process that was started in the block may hold the other end still.
        with contextlib.suppress(subprocess.TimeoutExpired):
            reader.wait(_END_S)
