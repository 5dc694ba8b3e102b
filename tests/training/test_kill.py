"""One of the trials of `tests.training.kill_trials`, which says what they show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.nightly
def test_killed_run_gives_the_numbers_of_one_that_never_was(tmp_path):
    """That the trials can fail too is seen where a checkpoint loses the key."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.training.kill_trials",
            "--trials=1",
            "--steps=20",
        ],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("1 passed, 0 failed; ")
