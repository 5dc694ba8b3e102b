"""CPU seconds from the start of a process to the first training step of digits."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.measurement import Row

ROOT = Path(__file__).parents[1]

PACKAGES = "import jax, flax.linen, optax, orbax.checkpoint; jax.numpy.ones(1)"
"""What every training program on these packages does before its own work."""

IMPORTS = f"{PACKAGES}; import ssm_jax.cli.train, ssm_jax.tasks"


def startup_rows(step: int, *, repeats: int) -> Iterable[Row]:
    """Starts processes, and ends the trainings when they have logged a step.

    Every process finds the bytecode of all modules, as it is after the first use of an
    installation, also where ``PYTHONDONTWRITEBYTECODE`` is set.

    Args:
      step: The step up to which a training is measured.
      repeats: Number of processes of each kind; the median counts.

    Yields:
      CPU and wall seconds of a process that imports JAX, Flax, optax and Orbax and
      makes an array, of one that imports this library as well, and of
      `ssm_jax.cli.train` up to the step, without and with a cache of compiled programs.
    """
    with tempfile.TemporaryDirectory() as folder:
        cached = f"--compile_cache={folder}/cache"
        commands = {
            "packages": ["-c", PACKAGES],
            "imports": ["-c", IMPORTS],
            "training": _training(folder),
            "training, cached": [*_training(folder), cached],
        }
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        # Fills the cache and writes the bytecode.
        seconds_until(commands["training, cached"], step, environment)
        found = {what: [] for what in commands}
        for _ in range(repeats):
            for what, command in commands.items():
                found[what].append(seconds_until(command, step, environment))
    for what, seconds in found.items():
        cpu, wall = zip(*seconds, strict=True)
        yield {
            "what": what,
            "step": step,
            "cpu_s": statistics.median(cpu),
            "cpu_min_s": min(cpu),
            "wall_s": statistics.median(wall),
        }


def _training(folder):
    return [
        "-m",
        "launch.train",
        "--config=experiments/dlr/digits.py",
        "--config.training.log_every=1",
        f"--workdir={folder}/run",
    ]


def seconds_until(
    command: Sequence[str], step: int, environment: Mapping[str, str] | None = None
) -> tuple[float, float]:
    """Returns the CPU and wall seconds of a Python process.

    Args:
      command: Arguments of the interpreter.
      step: The process is ended when its log has this step, if it ever has.
      environment: The variables of its environment; ``None``: those of this process.

    Raises:
      RuntimeError: The process failed before.
    """
    used, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    log, reached = [], False
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            log.append(line)
            if f"step {step} of" in line and not reached:
                reached = True
                # Before its first checkpoint, so that the next process begins anew.
                process.kill()
    if process.returncode and not reached:
        raise RuntimeError(f"A process failed: {''.join(log[-5:])}")
    wall = time.perf_counter() - start
    total = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = total.ru_utime + total.ru_stime - used.ru_utime - used.ru_stime
    return cpu, wall
