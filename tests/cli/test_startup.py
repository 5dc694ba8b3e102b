"""What a program does before its imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.full
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-", "2>&-"])
def test_streams_that_are_closed_are_no_files_of_the_program(closed, tmp_path):
    """What a library prints to them goes to the null device, and not into a file."""
    script = (
        "from ssm_jax.cli.startup import open_streams; open_streams(); import os;"
        "file = open('file', 'w'); os.write(1, b'lost'); os.write(2, b'lost');"
        "print('lost'); file.write(str(file.fileno()))"
    )
    command = f"exec '{sys.executable}' -c \"{script}\" {closed}"
    root = {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=os.environ | root, timeout=60
    )
    assert done.returncode == 0
    assert int((tmp_path / "file").read_text()) > 2
