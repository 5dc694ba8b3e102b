"""A process of its own, for what must not depend on this one; all tiny sets."""

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.tasks import raw_sets


@pytest.fixture(scope="session")
def sets_dir(mnist_dir, tmp_path_factory) -> str:
    """A folder with tiny sets: the mnist of `mnist_dir`, the others from raw files."""
    from ssm_jax.tasks.prepare import aan, cifar10, glue, imdb, writing

    raw, data_dir = (tmp_path_factory.mktemp(name) for name in ("raw", "sets"))
    shutil.copytree(mnist_dir, data_dir, dirs_exist_ok=True)
    for write_raw in (raw_sets.cifar10, raw_sets.imdb, raw_sets.cola, raw_sets.mrpc):
        write_raw(raw)
    raw_sets.aan(raw)
    for which in (cifar10.CIFAR10, imdb.IMDB, glue.COLA, glue.MRPC, aan.AAN):
        writing.write(which, raw, str(data_dir), subset=True)
    return str(data_dir)


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
