"""CPU and wall seconds of programs from their start, with and without a cache."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.measurement import Row

ROOT = Path(__file__).parents[1]
COLD, WARM, OTHER = 8.5, 3.0, 4.0  # CPU seconds of the first step, and of others.
PACKAGES = "import jax, flax.linen, optax, orbax.checkpoint; jax.numpy.ones(1)"
"""What every program on these packages does before its own work."""


def startup_rows(steps: int, *, repeats: int) -> Iterable[Row]:
    """Starts programs in turns, in processes of their own.

    Args:
      steps: Number of training steps of the small runs that are evaluated, reported,
        forecast and continued as text.
      repeats: Number of processes of each kind.

    Yields:
      ``cpu_s`` and ``wall_s``, medians, and the smallest ``cpu_min_s`` of a process
      that imports JAX, Flax, optax and Orbax and makes an array; of ``train`` up to the
      first step of digits, without a cache of compiled programs and with a filled
      one; and of `evaluate`, `report`, `predict` and `generate` of small runs, with a
      filled one. ``target`` is the most CPU seconds that are asked for, or None.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = _small_runs(folder, steps)
        cache = f"--compile_cache={folder}/cache"
        first = [
            "train",
            f"--config={ROOT}/experiments/dlr/digits.py",
            "--config.training.log_every=1",
            f"--workdir={folder}/digits",
        ]
        commands = {
            "imports of the packages": (["-c", PACKAGES], None),
            "first step of digits, no cache": (
                _program(*first, "--compile_cache=none"),
                COLD,
            ),
            "first step of digits": (_program(*first, cache), WARM),
            **{
                what: (_program(*words, cache), OTHER)
                for what, words in programs.items()
            },
        }
        seconds = {what: [] for what in commands}
        for repeat in range(repeats + 1):
            for what, (command, _) in commands.items():
                used = time_process(command, until="step 1 of")
                if repeat:  # The first process of each kind fills the cache.
                    seconds[what].append(used)
    for what, (_, target) in commands.items():
        cpu, wall = zip(*seconds[what], strict=True)
        yield {
            "what": what,
            "cpu_s": statistics.median(cpu),
            "cpu_min_s": min(cpu),
            "wall_s": statistics.median(wall),
            "target": target,
        }


def _small_runs(folder: Path, steps: int) -> dict[str, list[str]]:
    """Trains a forecaster and a language model; returns programs that read them."""
    t = np.arange(600)
    values = np.sin(t / 4) + 0.1 * np.random.default_rng(0).normal(size=t.size)
    lines = [f"{step},{value:.4f}" for step, value in enumerate(values)]
    (folder / "series.csv").write_text("\n".join(["step,value", *lines]) + "\n")
    (folder / "texts").mkdir()
    for number in range(12):
        text = f"The {number} quick brown foxes jump over the lazy dogs. " * 80
        (folder / "texts" / f"{number}.txt").write_text(text)
    data = {
        "forecast": [f"--data={folder}/series.csv", "--target=value"],
        "text": [f"--data={folder}/texts"],
    }
    for kind, words in data.items():
        config = f"{folder}/{kind}.py"
        time_process(_program("new", kind, *words, f"--output={config}"))
        train = ["train", f"--config={config}", f"--config.training.steps={steps}"]
        time_process(_program(*train, f"--workdir={folder}/{kind}"))
    forecast, text = (f"{folder}/{kind}" for kind in ("forecast", "text"))
    return {
        "evaluate a forecaster": ["evaluate", f"--workdir={forecast}"],
        "report a forecaster": ["report", f"--workdirs={forecast}"],
        "predict its file": [
            "predict",
            f"--workdir={forecast}",
            f"--data={folder}/series.csv",
        ],
        "generate text": ["generate", f"--workdir={text}", "--prompt=The"],
    }


def _program(name: str, *words: str) -> list[str]:
    return ["-m", f"launch.{name}", *words]


def time_process(
    command: Sequence[str], *, until: str | None = None
) -> tuple[float, float]:
    """Returns the CPU and wall seconds of a Python process.

    Args:
      command: Arguments of the interpreter.
      until: The process is ended when a line of its log contains this.

    Raises:
      RuntimeError: The process failed.
    """
    # With compiled bytecode, as users start programs.
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    used, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    log, reached = [], False
    with subprocess.Popen(
        [sys.executable, *command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            log.append(line)
            if until is not None and until in line:
                reached = True
                # Before its first checkpoint, so that the next process begins anew.
                process.kill()
    if process.returncode and not reached:
        raise RuntimeError(f"a process failed: {''.join(log[-5:])}")
    wall = time.perf_counter() - start
    total = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = total.ru_utime + total.ru_stime - used.ru_utime - used.ru_stime
    return cpu, wall
