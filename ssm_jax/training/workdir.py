"""The work dir of a run: its config, its environment, and its metrics as JSON lines.

====================  ========================================================
config.json           the resolved config; all that evaluation needs of it
run.json              versions, device and commit of the last start that took a step
data.json             fingerprints of the data, if they are files; the last is in use
metrics.jsonl         one line per measurement
checkpoints/          the latest states and the best
lock                  the process that trains here, or the last one that did
evaluation.json       what `launch.evaluate` measured
evaluation-NAME.json  what it measured on the data of another directory, of that name
profile/              traces of the steps that `profile_steps` named
tensorboard/          the metrics for TensorBoard, if it is one of the writers
wandb.json, wandb/    the run of Weights & Biases, if it is one of the writers
inspection.npz        kernels, eigenvalues and examples, for the figures
statistics.npz        what a task computed from the data of the training, as moments
intervals.npz         by how much the forecasts of the validation split were wrong
figures/              what `launch.report` drew
====================  ========================================================
"""

import contextlib
import dataclasses
import json
import os
import platform
import socket
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import logging
from ml_collections import ConfigDict

from ssm_jax import __version__
from ssm_jax.config import Config, changed_fields, from_json, to_json, unknown_classes
from ssm_jax.files import (
    PART,
    file_lock,
    name_in_errors,
    parse_json,
    read_arrays,
    write_arrays,
    write_text,
)
from ssm_jax.tasks.base import Task, TaskSpec
from ssm_jax.tasks.fingerprint import Fingerprint, describe, same
from ssm_jax.training.checkpointing import Checkpoints
from ssm_jax.training.losses import main_metric

PARTS = ("task", "model", "optimizer", "training")
"""What the config of a run holds, each a `ssm_jax.config.spec`."""

STATISTICS, WIDTHS = "statistics.npz", "intervals.npz"

_LOCK, _RUN, _DATA = "lock", "run.json", "data.json"
_AGAIN = "remove it, and run again what writes it"
_PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "numpy", "tensorflow-datasets")


class WorkDir:
    """A work dir.

    Args:
      path: The directory; it need not exist before `claim`.

    Raises:
      ValueError: ``path`` is empty, which would name the working directory.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Stores the path; the disk is read later."""
        if not os.fspath(path):
            raise ValueError(
                "`workdir` must name a directory, got ''; runs/a is a name."
            )
        self.path = Path(path).absolute()
        self._config = self.path / "config.json"
        self._metrics = self.path / "metrics.jsonl"

    @contextlib.contextmanager
    def claim(self, config: ConfigDict) -> Iterator[None]:
        """Creates the work dir of an experiment, or checks that it is that already.

        While the block runs, a lock keeps other processes from training in it;
        evaluation takes no lock.

        Args:
          config: The resolved config of the experiment; ``task.data_dir`` may differ.

        Raises:
          ValueError: The work dir is that of another experiment, holds other files or
            is a file, its config.json is damaged, or another process trains in it; the
            error names its host and process id.
        """
        self._check(config)  # Before the lock, which would be a file more in there.
        self.path.mkdir(parents=True, exist_ok=True)
        with hold_lock(self.path / _LOCK):
            self._check(config)
            write_text(self._config, to_json(config))
            if not (self.path / _RUN).exists():
                self.write_environment()
            yield

    def write_environment(self) -> None:
        """Writes what a start that takes steps runs on to ``run.json``."""
        self.write(_RUN, environment())

    def data(self, step: int | None = None) -> list[Fingerprint]:
        """Returns the fingerprints of the data that the run was trained on.

        Each has the ``step`` after which it was used; there are several if the data
        changed, and none if the task reads no files, or before this was recorded.

        Args:
          step: Those used up to this step. None means all.

        Raises:
          ValueError: data.json is damaged.
        """
        stored = self.read(_DATA)
        fingerprints = [] if stored is None else stored.get("fingerprints")
        known = {"step", "files", "bytes", "modified", "sha256"}
        if not isinstance(fingerprints, list) or not all(
            isinstance(fingerprint, dict) and known <= fingerprint.keys()
            for fingerprint in fingerprints
        ):
            way_out = "remove it, and the data are not compared"
            raise _damaged(self.path / _DATA, "hold fingerprints", "others", way_out)
        return [
            fingerprint
            for fingerprint in fingerprints
            if step is None or fingerprint["step"] < step
        ]

    def write_data(self, fingerprint: Fingerprint | None, step: int) -> None:
        """Writes the fingerprint of the data that further steps are taken on.

        Args:
          fingerprint: That of the data; None if the task reads no files.
          step: The last step before.
        """
        before = self.data() if step else []
        entries = [entry for entry in before if entry["step"] < step]
        if fingerprint is not None and not (entries and same(entries[-1], fingerprint)):
            entries.append({"step": step, **fingerprint})
        if entries != before:
            self.write(_DATA, {"fingerprints": entries})

    def write_statistics(self, task: Task) -> None:
        """Writes what a task computes from the data of the training, if it does."""
        if hasattr(task, "compute_statistics"):
            of_any: Any = task
            write_arrays(self.path / STATISTICS, of_any.compute_statistics())

    def with_statistics(self, task: Any) -> Any:
        """Returns a task with the statistics of the training, if the run has some.

        Data that are read later, as a file that has grown, are then normalised as those
        of the training were.

        Args:
          task: The task, of the config of the run.
        """
        path = self.path / STATISTICS
        if not (hasattr(task, "compute_statistics") and path.exists()):
            return task
        return dataclasses.replace(task, statistics=str(path))

    def write_widths(self, step: int, widths: Mapping[str, np.ndarray]) -> None:
        """Writes how wide the intervals around forecasts of a step are."""
        write_arrays(self.path / WIDTHS, {"step": np.array(step), **widths})

    def widths(self, step: int) -> dict[str, np.ndarray] | None:
        """Returns what `write_widths` wrote of a step, None if that was of another."""
        if not (self.path / WIDTHS).exists():
            return None
        arrays = self.read_arrays(WIDTHS)
        return arrays if arrays.pop("step", -1) == step else None

    def check_data(
        self, fingerprint: Fingerprint | None, step: int, *, allow_changed: bool
    ) -> bool:
        """Checks that data are those that a step of the run was trained on.

        Args:
          fingerprint: That of the data; None if there are no files to compare.
          step: The step.
          allow_changed: Whether a change is logged as a warning.

        Returns:
          Whether they changed.

        Raises:
          ValueError: The data changed, or data.json is damaged.
        """
        known = self.data(step)
        if fingerprint is None or not known or same(known[-1], fingerprint):
            return False
        got = f"{describe(fingerprint)}, in place of {describe(known[-1])}"
        if allow_changed:
            logging.warning("the data of %s changed: %s", self.path, got)
            return True
        raise ValueError(
            f"`task` must read the data that the run in {self.path} was trained on, "
            f"got {got}, so that its splits and statistics may differ; train anew in "
            "another --workdir, or go on by allow_changed_data=True, on the command "
            "line --allow_changed_data."
        )

    def may_write(self) -> bool:
        """Returns whether files can be written there; if not, logs a warning."""
        writable = os.access(self.path, os.W_OK)
        if not writable:
            logging.warning("%s is read-only: nothing is written to it", self.path)
        return writable

    def open_checkpoints(self, spec: TaskSpec) -> Checkpoints:
        """Returns the checkpoints of the run; each must be of the config of the run.

        Args:
          spec: Spec of the task. The best checkpoint is that with the largest
            `main_metric` in validation, then with the lowest loss there.

        Raises:
          FileNotFoundError: No run was started in this directory.
        """
        return Checkpoints(
            self.path / "checkpoints",
            best_metric=f"validation/{main_metric(spec)}",
            tie_metric="validation/loss",
            config=json.loads(to_json(self.config())),
        )

    def config(self) -> Any:
        """Returns the config of the run.

        Raises:
          FileNotFoundError: No run was started in this directory.
          ValueError: Its config.json is not as it was written, or was written by a
            version of ssm_jax with other class names; the error names the version
            that reads it.
        """
        if not self._config.exists():
            raise FileNotFoundError(
                f"`workdir` must hold a run, got {self.path} without config.json; "
                "`ssm-jax train --workdir=...` makes one."
            )
        way_out = "restore it from a copy, or train anew in another --workdir"
        try:
            config = from_json(self._config.read_bytes().decode())
        except ValueError as error:
            got = error.__cause__ or error
            raise _damaged(self._config, "be a run's config", got, way_out) from error
        check_parts(config, str(self._config), way_out)
        self._check_version(config)
        return config

    def metrics(self) -> list[dict[str, Any]]:
        """Returns all lines of metrics, without a last one that a kill truncated.

        Raises:
          ValueError: A line before the last is no JSON, or any is no object of numbers
            with a ``step``; the error says which line.
        """
        if not self._metrics.exists():
            return []
        lines = self._metrics.read_bytes().split(b"\n")
        while lines and not lines[-1].strip():
            lines.pop()
        records = []
        for number, line in enumerate(lines, 1):
            try:
                values = parse_json(line.decode())
            except ValueError as error:
                if number == len(lines):
                    break
                raise _damaged_line(self._metrics, number, line) from error
            if not _is_measured(values):
                raise _damaged_line(self._metrics, number, line)
            records.append(values)
        return records

    def rewind(
        self, step: int, measured: dict[str, float | None] | None = None
    ) -> None:
        """Removes the metrics of later steps: they will be measured again.

        Args:
          step: The step that the run continues from; -1 removes all lines.
          measured: The metrics of that step, from its checkpoint; written again if the
            file has lost their line.

        Raises:
          ValueError: As for `metrics`.
        """
        lines = [line for line in self.metrics() if line["step"] <= step]
        if measured and not any(line["step"] == step for line in lines):
            last = lines[-1]["step"] if lines else 0
            logging.warning(
                "%s has lost the metrics after step %d; those of step %d are taken "
                "from its checkpoint",
                *(self._metrics, last, step),
            )
            lines.append({"step": step, **measured})
        if lines or self._metrics.exists():
            write_text(
                self._metrics, "".join(json.dumps(line) + "\n" for line in lines)
            )

    def log(self, step: int, **values: float | None) -> None:
        """Appends a line of metrics, named ``split/metric`` or with their unit.

        None is a metric that was not defined, and null in the file.
        """
        with name_in_errors(self._metrics), self._metrics.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def write(self, name: str, values: dict[str, Any]) -> Path:
        """Writes a JSON file, whole or not at all, and returns its path."""
        write_text(self.path / name, json.dumps(values, indent=2))
        return self.path / name

    def read(self, name: str) -> dict[str, Any] | None:
        """Reads a JSON file, or None if there is none.

        Raises:
          ValueError: It holds no JSON object.
        """
        path = self.path / name
        if not path.exists():
            return None
        try:
            values = parse_json(path.read_bytes().decode())
        except ValueError as error:
            raise _damaged(path, "be a JSON object", error, _AGAIN) from error
        if not isinstance(values, dict):
            raise _damaged(path, "be a JSON object", type(values).__name__, _AGAIN)
        return values

    def read_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Reads the arrays of an ``.npz`` file.

        Raises:
          FileNotFoundError: There is none.
          ValueError: It does not hold arrays, or not whole.
        """
        path = self.path / name
        try:
            return read_arrays(path)
        except ValueError as error:
            raise _damaged(path, "hold arrays", error, _AGAIN) from error

    def _check(self, config: ConfigDict) -> None:
        """Rejects the directory of another experiment, or of no run."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(
                f"`workdir` must be a directory, got the file {self.path}; give "
                "another --workdir."
            )
        if self._config.exists():
            if changes := changed_fields(self.config(), config):
                raise ValueError(
                    f"`workdir` must be new or of the same config, got {self.path}, "
                    f"where {changes}; give another --workdir."
                )
        elif self.path.exists() and any(map(_is_foreign, self.path.iterdir())):
            raise ValueError(
                f"`workdir` must be new, empty or of a run, got {self.path} with other "
                "files in it; give another --workdir."
            )

    def _check_version(self, config: Config) -> None:
        """Rejects a run of classes with other names; says which version reads it."""
        unknown = unknown_classes(config)
        if not unknown:
            return
        # The classes have their present names since 0.1, which is also the first
        # version that a run records.
        versions = (self.read(_RUN) or {}).get("versions", {})
        writer = versions.get("ssm_jax", "before 0.1")
        reader = f"ssm_jax {writer}" if "ssm_jax" in versions else "commit 4db8fba"
        raise ValueError(
            f"`workdir` must hold a run of classes of ssm_jax {__version__}, got "
            f"{unknown[0]!r} in {self.path}, written by ssm_jax {writer}; read it with "
            f"{reader}."
        )


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Holds the lock of a work dir while the block runs.

    The lock is released when the process ends, even if it is killed. The file is kept;
    it names the process that holds the lock or held it last.

    Args:
      path: The lock file, ``WORKDIR/lock``.

    Raises:
      ValueError: Another process holds the lock, or another thread of this one.
      OSError: The file cannot be written.
    """

    def refuse(handle):
        owner = os.read(handle, 1000).decode(errors="replace").strip()
        return (
            "`workdir` must be of one process at a time, got "
            f"{path.parent}, locked by {owner or 'another process'}; wait for it or "
            "give another --workdir."
        )

    # Without O_TRUNC: until the lock is taken, the content names its owner. A link, as
    # in the work dir of others, may lead to a file that is not to be written.
    with file_lock(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, refuse) as handle:
        with name_in_errors(path):
            # Truncated first, because the name of the previous owner may be longer.
            os.ftruncate(handle, 0)
            owner = f"process {os.getpid()} on {socket.gethostname()}\n"
            os.pwrite(handle, owner.encode(), 0)
        # The file is not deleted: a process that had opened it would hold a lock on
        # the deleted file, and another one on a new file of this name.
        yield


def environment() -> dict[str, Any]:
    """What a measurement was made on and with: device, versions, commit."""
    device = jax.devices()[0]
    return {
        "commit": _commit(),
        "device": device.device_kind,
        "n_devices": jax.device_count(),
        "processes": jax.process_count(),
        "platform": device.platform,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "versions": {"ssm_jax": __version__}
        | {package: version(package) for package in _PACKAGES},
    }


def _commit():
    """The commit of the code, with a plus sign if files differ; None outside git."""
    # A virtual environment may lie in a repository, which does not track this file.
    tracked = _git("ls-files", "--error-unmatch", Path(__file__).name)
    return tracked and _git("describe", "--always", "--abbrev=10", "--dirty=+")


def _git(*arguments: str) -> str | None:
    """What git prints in the directory of this file; None if that is nothing."""
    command = ["git", *arguments]
    here = Path(__file__).parent
    try:
        result = subprocess.run(command, cwd=here, capture_output=True, text=True)
    except OSError:
        return None
    return result.stdout.strip() or None


def check_parts(config: Config, where: str, way_out: str) -> None:
    """Checks that a config holds the `PARTS` of a run.

    Args:
      config: The config.
      where: What the error calls it.
      way_out: What helps.

    Raises:
      ValueError: It lacks one, or has something else than a spec in its place.
    """
    held = config if isinstance(config, ConfigDict) else {}
    lacking = [name for name in PARTS if not isinstance(held.get(name), ConfigDict)]
    if lacking:
        raise ValueError(
            f"`{where}` must hold {', '.join(PARTS)}, each a spec, got none for "
            f"{', '.join(lacking)}; {way_out}."
        )


def _is_foreign(path):
    """Whether a file is not one that a kill leaves before there is a config."""
    return path.name != _LOCK and path.suffix != PART


def _is_measured(values):
    """Whether a line of metrics is what `WorkDir.log` writes."""
    if not isinstance(values, dict) or type(values.get("step")) is not int:
        return False
    numbers = all(type(v) in (int, float, type(None)) for v in values.values())
    return numbers and values["step"] >= 0


def _damaged(path, rule, got, way_out):
    got = " ".join(str(got).split())
    return ValueError(f"`{path}` must {rule}, got {got.rstrip('.')}; {way_out}.")


def _damaged_line(path, number, line):
    shown = repr(line[:40].decode(errors="replace")) + "..." * (len(line) > 40)
    rule = f"hold an object of numbers with a step in line {number}"
    return _damaged(path, rule, shown, "correct or remove that line")
