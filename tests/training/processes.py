"""Starts the processes of one run by ``launch.train``, each with its own devices."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
_EXPERIMENT = """from tests.training import tiny


def get_config():
    config = tiny.{name}(**{fields})
    config.optimizer.update(**{optimizer})
    return config
"""


class Ended(NamedTuple):
    """How a process ended, and what it printed."""

    status: int
    text: str


def write_experiment(
    file: Path, name: str, fields: dict[str, Any], optimizer: dict[str, Any]
) -> None:
    """Writes an experiment: a config of `tests.training.tiny` and what it changes."""
    file.write_text(_EXPERIMENT.format(name=name, fields=fields, optimizer=optimizer))


def environment(devices: int) -> dict[str, str]:
    """Environment of a process with a number of devices."""
    flags = os.environ.get("XLA_FLAGS", "")
    flags += f" --xla_force_host_platform_device_count={devices}"
    added = {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **added}


class Processes:
    """The processes of a run, which are killed at the end of the block.

    Args:
      experiment: The value of ``--config``.
      workdir: Work dir of the run; what they print goes beside it.
      arguments: Further flags.
      count: Number of processes of the run.
      ids: Indices of those that are started; None means all.
      devices: Number of devices of each.
    """

    def __init__(
        self,
        experiment: Path | str,
        workdir: Path,
        *arguments: str,
        count: int = 2,
        ids: Sequence[int] | None = None,
        devices: int = 4,
    ):
        workdir.parent.mkdir(parents=True, exist_ok=True)
        ids = range(count) if ids is None else ids
        connection = [] if count == 1 else [f"--num_processes={count}", _address()]
        self._printed = {i: workdir.parent / f"printed.{i}" for i in ids}
        self._started = {}
        for i in ids:
            with self._printed[i].open("w") as printed:
                self._started[i] = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "launch.train"),
                        *(f"--config={experiment}", f"--workdir={workdir}"),
                        *([*connection, f"--process_id={i}"] if connection else []),
                        *arguments,
                    ],
                    cwd=ROOT,
                    env=environment(devices),
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                )

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._started.values():
            process.kill()
            process.wait()

    def signal(self, index: int, number: int) -> None:
        """Sends a signal to a process."""
        self._started[index].send_signal(number)

    def reached(self, holds: Callable[[], bool]) -> bool:
        """Waits until something holds; False if a process has ended before."""
        while not holds():
            if any(process.poll() is not None for process in self._started.values()):
                return False
            time.sleep(0.005)
        return True

    def until(self, holds: Callable[[], bool], timeout_s: float = 120) -> None:
        """Waits until something holds, while no process has ended."""
        end = time.monotonic() + timeout_s
        in_time = self.reached(lambda: holds() or time.monotonic() > end)
        assert in_time and holds(), self._text()

    def ended(self, timeout_s: float = 180) -> list[Ended]:
        """Waits for all processes and returns how they ended."""
        end = time.monotonic() + timeout_s
        for process in self._started.values():
            process.wait(max(1, end - time.monotonic()))
        return [
            Ended(process.returncode, self._printed[i].read_text())
            for i, process in self._started.items()
        ]

    def _text(self):
        return "\n".join(path.read_text() for path in self._printed.values())


def _address():
    """The flag with the address of the first process, at a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"--coordinator_address=127.0.0.1:{free.getsockname()[1]}"
