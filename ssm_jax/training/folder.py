"""The work folder of a run: its config, where it ran, and its metrics as JSON lines.

====================  ========================================================
config.json           the resolved config; all that evaluation needs of it
run.json              versions, device and commit of the last start
metrics.jsonl         a line for each time something was measured
checkpoints/          the latest states and the best
lock                  which process trains here, or was the last to
evaluation.json       what `launch.evaluate` measured
inspection.npz        kernels, eigenvalues and examples, for the figures
figures/              what `launch.report` drew
====================  ========================================================
"""

import contextlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from ssm_jax.config import from_json, to_json
from ssm_jax.training.checkpoint import Checkpoints
from ssm_jax.training.lock import locked
from ssm_jax.training.losses import Targets, main_metric
from ssm_jax.training.restart import config_changes

_LOCK = "lock"
_PART = ".part"
_PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "numpy", "tensorflow-datasets")


class RunFolder:
    """A work folder.

    Args:
      path: The folder; it need not exist before `claimed`.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Remembers the folder and looks at nothing in it yet."""
        self.path = Path(path).absolute()
        self._config = self.path / "config.json"
        self._metrics = self.path / "metrics.jsonl"

    @contextlib.contextmanager
    def claimed(self, config: ConfigDict) -> Iterator[None]:
        """Makes the folder that of an experiment, or finds that it is already.

        It is locked against other processes that would train in it while the block
        runs; to evaluate the run takes no lock.

        Args:
          config: The resolved config of the experiment; ``task.data_dir`` may differ.

        Raises:
          ValueError: The folder is that of another experiment, holds other files, or
            another process trains in it; the error names its host and process id.
        """
        self._check(config)  # Before the lock, which would be a file more in there.
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path / _LOCK):
            self._check(config)
            _write(self._config, to_json(config))
            _write(self.path / "run.json", json.dumps(circumstances(), indent=2))
            yield

    def open_checkpoints(self, targets: Targets) -> Checkpoints:
        """Gives the checkpoints of the run, each to be of the config of the folder.

        Args:
          targets: What the model predicts, which says what the best is: that of the
            greatest `main_metric` in validation, then of the lowest loss there.

        Raises:
          FileNotFoundError: No run was ever started in this folder.
        """
        return Checkpoints(
            self.path / "checkpoints",
            best_metric=f"validation/{main_metric(targets)}",
            tie_metric="validation/loss",
            config=json.loads(to_json(self.config())),
        )

    def config(self) -> Any:
        """The config of the run.

        Raises:
          FileNotFoundError: No run was ever started in this folder.
        """
        if not self._config.exists():
            raise FileNotFoundError(
                f"`workdir` must hold a run, got {self.path} without config.json; "
                "`python -m launch.train --workdir=...` makes one."
            )
        return from_json(self._config.read_text())

    def metrics(self) -> list[dict[str, Any]]:
        """All lines of metrics; what a kill cut short is left out."""
        if not self._metrics.exists():
            return []
        lines = []
        for line in self._metrics.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return lines

    def rewind(self, step: int) -> None:
        """Forgets the metrics of later steps: they will be measured once more."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        if self._metrics.exists():
            _write(self._metrics, "".join(json.dumps(line) + "\n" for line in kept))

    def log(self, step: int, **values: float) -> None:
        """Appends a line of metrics, named ``split/metric`` or with its unit."""
        with _named_errors(self._metrics), self._metrics.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def write(self, name: str, values: dict[str, Any]) -> Path:
        """Writes a JSON file, whole or not at all, and returns its path."""
        _write(self.path / name, json.dumps(values, indent=2))
        return self.path / name

    def read(self, name: str) -> dict[str, Any] | None:
        """Reads a JSON file, or None if there is none."""
        path = self.path / name
        return json.loads(path.read_text()) if path.exists() else None

    def _check(self, config: ConfigDict) -> None:
        """Refuses the folder of another experiment, or of no run."""
        if self._config.exists():
            if changes := config_changes(self.config(), config):
                raise ValueError(
                    f"`workdir` must be new or of the same config, got {self.path}, "
                    f"where {changes}; give another --workdir."
                )
        elif self.path.exists() and any(map(_is_foreign, self.path.iterdir())):
            raise ValueError(
                f"`workdir` must be new, empty or of a run, got {self.path} with other "
                "files in it; give another --workdir."
            )


def circumstances() -> dict[str, Any]:
    """What a measurement was made on and with: device, versions, commit."""
    device = jax.devices()[0]
    return {
        "commit": _commit(),
        "device": device.device_kind,
        "n_devices": jax.device_count(),
        "platform": device.platform,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "versions": {package: version(package) for package in _PACKAGES},
    }


def _commit():
    """The commit of the code, with a plus sign if files differ; None outside git."""
    command = ["git", "describe", "--always", "--abbrev=10", "--dirty=+"]
    here = Path(__file__).parent
    try:
        found = subprocess.run(command, cwd=here, capture_output=True, text=True)
    except OSError:
        return None
    return found.stdout.strip() or None


def _write(path, text):
    part = path.with_name(path.name + _PART)
    with _named_errors(path):
        part.write_text(text)
        part.replace(path)


def _is_foreign(path):
    """Whether a file is not one that a kill leaves before there is a config."""
    return path.name != _LOCK and path.suffix != _PART


@contextlib.contextmanager
def _named_errors(path):
    """Says which file could not be written; the error of a full disk does not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
