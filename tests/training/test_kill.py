"""Trials of `tests.training.trials`, which says what they show."""

import subprocess
import sys
from pathlib import Path

import pytest

# Steps at most: the run with patience stops earlier.
STEPS = {"digits": 20, "patience": 100, "init_from": 20, "sharded": 20}


@pytest.mark.nightly
@pytest.mark.parametrize("experiment", STEPS)
def test_interrupted_run_gives_the_numbers_of_one_that_never_was(experiment):
    """That the trials can fail too is seen where a checkpoint loses the key."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.training.trials",
            "--trials=1",
            f"--experiments={experiment}",
            f"--steps={STEPS[experiment]}",
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("1 passed, 0 failed; ")
