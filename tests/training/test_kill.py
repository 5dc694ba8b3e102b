"""Trials of `tests.training.kill_trials`, which says what they show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Steps at most: the run with patience stops earlier.
STEPS = {"digits": 20, "patience": 100, "init_from": 20}


@pytest.mark.nightly
@pytest.mark.parametrize("experiment", STEPS)
def test_killed_run_gives_the_numbers_of_one_that_never_was(tmp_path, experiment):
    """That the trials can fail too is seen where a checkpoint loses the key."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.training.kill_trials",
            "--trials=1",
            f"--experiment={experiment}",
            f"--steps={STEPS[experiment]}",
        ],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("1 passed, 0 failed; ")
