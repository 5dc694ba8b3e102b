"""What libraries print is dropped, and errors are not, also of an aborted process."""

import subprocess
import sys

from ssm_jax.cli.native_log import LIBRARY_LOG

NOISE = (
    "WARNING: All log messages before absl::InitializeLog() is called are written",
    "I0000 00:00:1795929022.914598    6644 cudart_stub.cc:31] Could not find drivers",
    "W0000 00:00:1795929022.914598    6644 file.cc:3] No device",
)
ERRORS = "E0000 00:00:1795929022.914598    6644 file.cc:9] out of memory", "error: x"

PROGRAM = """
import contextlib, os, sys
from ssm_jax.cli.native_log import StderrFilter
print("before", file=sys.stderr)
words = "{} was lost\\n", r"heartbeats:\\n((?:\\d+\\n)+)"
with contextlib.closing(StderrFilter(sys.argv[1], *words)):
    for line in sys.argv[3:]:
        os.write(2, f"{line}\\n".encode())
    if sys.argv[2] == "abort":
        os.abort()
print("after", file=sys.stderr)
"""


def stderr_of(how, *lines):
    lines = *NOISE, *ERRORS, *NOISE, *lines
    dropped = rf"{LIBRARY_LOG}|heartbeats|^\d+$"
    command = [sys.executable, "-c", PROGRAM, dropped, how, *lines]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    return ended.stderr.splitlines()


def test_lines_of_libraries_are_dropped():
    assert stderr_of("end") == ["before", *ERRORS, "after"]


def test_errors_of_an_aborted_process_are_printed_before_its_last_words():
    assert stderr_of("abort") == ["before", *ERRORS, "one was lost"]


def test_processes_that_were_lost_are_named():
    printed = stderr_of("abort", "no heartbeats:", "3", "12")
    assert printed == ["before", *ERRORS, "process 3, 12 was lost"]
