"""A process of its own, for what must not depend on this one."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Runs a program in a process of its own and gives what it prints."""

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
