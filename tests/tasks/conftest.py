"""Fixture that runs a program in a separate process."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Returns a function that runs a program in a process and returns its output."""

    def run(program: str, **environment: str) -> str:
        command = [sys.executable, "-c", program]
        root = pathlib.Path(__file__).parents[2]
        printed = subprocess.run(
            command,
            cwd=root,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        return printed.stdout.strip()

    return run
