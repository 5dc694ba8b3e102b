"""Checkpoints of a run: saved in the background, verified when they are restored.

Orbax writes the arrays and puts a finished step in its place by one rename. This
module adds the seal (:mod:`ssm_jax.training.digest`), falls back from a step that was
cut short, and refuses one that was changed.
"""

import errno
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils
from orbax.checkpoint import v1 as ocp

from ssm_jax.training import digest
from ssm_jax.types import PyTree

Json = dict[str, Any]

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


class CheckpointError(ValueError):
    """A checkpoint could not be saved or must not be used; says why and what helps."""


@dataclass(frozen=True, kw_only=True)
class Restored:
    """One step as it was saved.

    Attributes:
      step: The step; not the newest one if that was cut short.
      state: The pytree that was asked for.
      metrics: What ``save`` was given under this name.
      extra: What ``save`` was given under this name.
      config: The config of the run that saved the step.
    """

    step: int
    state: PyTree
    metrics: dict[str, float]
    extra: Json
    config: Json


class Checkpoints:
    """The steps that a run has saved in one folder: the latest ones and the best.

    Nothing is created, moved or deleted before the first ``save``, so evaluation uses
    the same class. A save that was killed leaves nothing that ``restore`` would take.

    Args:
      directory: The folder; each step is a folder in it, named by its number.
      best_metric: The metric whose best step is kept beside the latest ones. None
        keeps the latest ones only.
      best_mode: Whether the greatest or the least value is the best. Of equal ones
        the earliest step is; a value that is not finite is never.
      keep_latest: Steps kept, at least 2: one is left if the other was cut short.
      config: The config of the run, as JSON; stored with each step.

    Raises:
      ValueError: ``keep_latest`` is less than 2, ``best_mode`` unknown.

    Example:
      >>> import tempfile
      >>> folder = tempfile.mkdtemp()
      >>> with Checkpoints(folder, best_metric="accuracy") as checkpoints:
      ...     checkpoints.save(1, {"w": np.ones(2)}, metrics={"accuracy": 0.5})
      >>> restored = Checkpoints(folder).restore({"w": np.zeros(2)})
      >>> print(restored.step, restored.state["w"])
      1 [1. 1.]
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        best_metric: str | None = None,
        best_mode: Literal["max", "min"] = "max",
        keep_latest: int = 2,
        config: Json | None = None,
    ) -> None:
        if best_mode not in ("max", "min"):
            raise ValueError(f"`best_mode` must be 'max' or 'min', got {best_mode!r}.")
        if keep_latest < 2:
            raise ValueError(
                f"`keep_latest` must be at least 2, got {keep_latest}; a step that is "
                "cut short needs another one to go back to."
            )
        self._directory = Path(directory).absolute()
        self._best_metric, self._best_mode = best_metric, best_mode
        self._keep_latest = keep_latest
        self._config = config or {}
        self._scores: dict[int, float] = {}
        self._unreadable: set[int] = set()
        self._orbax: ocp.training.Checkpointer | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: tuple[int, Future[None]] | None = None

    @property
    def latest_step(self) -> int | None:
        """The newest step whose save has finished, or None."""
        return max(self._sealed_steps(), default=None)

    @property
    def best_step(self) -> int | None:
        """The step with the best value of ``best_metric`` on the disk, or None."""
        return _best(self._read_scores())

    def save(
        self,
        step: int,
        state: PyTree,
        *,
        metrics: Mapping[str, float] | None = None,
        extra: Json | None = None,
    ) -> None:
        """Copies a state to the host and saves it in the background.

        The state may be donated as soon as this returns.

        Args:
          step: The number of the step, greater than that of all saved before.
          state: A pytree of arrays and PRNG keys, on any number of devices.
          metrics: Numbers measured at this step.
          extra: JSON to be given back by ``restore``.

        Raises:
          CheckpointError: This save cannot start, or the one before it failed.
        """
        self.wait()
        orbax = self._orbax or self._open()
        latest = self.latest_step
        if latest is not None and step <= latest:
            raise CheckpointError(
                f"`step` must be greater than {latest}, the newest in "
                f"{self._directory}, got {step}; restore and go on from there, or "
                "move the newer steps away."
            )
        record = _json(
            metrics={name: float(value) for name, value in (metrics or {}).items()},
            extra=extra or {},
            config=self._config,
        )
        leaves = digest.named_leaves(state)
        arrays = {name: digest.host_copy(leaf) for name, leaf in leaves.items()}
        record["leaves"] = {
            name: digest.leaf_entry(leaf, arrays[name]) for name, leaf in leaves.items()
        }
        # Orbax stores no empty array; the seal alone says that there is one.
        written = {name: array for name, array in arrays.items() if array.size}
        try:
            response = orbax.save_async(step, written, force=True)
        except Exception as error:
            self._fail(step, error)
        seal = functools.partial(self._seal, step, response, arrays, record)
        self._pending = step, self._worker.submit(seal)

    def wait(self) -> None:
        """Waits until the save in the background has finished.

        Raises:
          CheckpointError: It failed.
        """
        if self._pending is None:
            return
        (step, future), self._pending = self._pending, None
        try:
            future.result()
        except Exception as error:
            self._fail(step, error)

    def close(self) -> None:
        """Waits for the save in the background and lets go of the folder.

        Raises:
          CheckpointError: The save failed.
        """
        try:
            self.wait()
        finally:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except CheckpointError as failure:
            if error is None:
                raise
            logging.error("%s", failure)  # what ended the block is what is raised

    def restore(self, target: PyTree, *, step: int | None = None) -> Restored:
        """Reads a step and holds every file and leaf to its digest.

        Args:
          target: A pytree of arrays or ``jax.ShapeDtypeStruct``s: what to restore.
            It may leave out top-level keys of what was saved, so that
            ``{"params": ...}`` restores the parameters. A leaf that has a sharding
            is put there, whatever devices wrote it; any other becomes numpy.
          step: The step. None takes the newest one, or, if that was cut short, the
            newest before it that was not, and logs a warning that says so.

        Raises:
          CheckpointError: There is no such step, a leaf differs in shape or dtype
            from the target, or a step was changed after it was saved.
        """
        self.wait()
        steps = [step] if step is not None else self._steps()
        skipped: dict[int, str] = {}
        for candidate in reversed(steps):
            try:
                restored = self._read(candidate, target)
            except digest.Truncated as error:
                skipped[candidate] = str(error)
                continue
            for unreadable, reason in skipped.items():
                logging.warning(
                    "Checkpoint of step %d in %s is not whole (%s); step %d is used.",
                    *(unreadable, self._directory, reason, candidate),
                )
            self._unreadable |= skipped.keys()
            return restored
        reasons = "; ".join(f"step {s}: {reason}" for s, reason in skipped.items())
        raise CheckpointError(
            f"`directory` must hold a whole checkpoint, got {self._directory} "
            f"({reasons or 'no steps'}); {self._way_out(without=set(skipped))}."
        )

    def _read(self, step: int, target: PyTree) -> Restored:
        folder = self._directory / str(step)
        wanted = digest.named_leaves(target)
        record: Json = {"leaves": {}}
        try:
            record = digest.read_seal(folder)
            self._check_layout(step, record["leaves"], wanted)
            digest.check_files(folder, record)
        except digest.Damaged as error:
            raise self._damaged(step, record["leaves"], str(error)) from None
        entries = {name: record["leaves"][name] for name in wanted}
        arrays = _load(folder, entries)
        for name, array in arrays.items():
            if digest.leaf_digest(array) != entries[name]["digest"]:
                raise self._damaged(step, {name: entries[name]}, "its digest differs")
        leaves = [
            _place(arrays[name], entries[name]["key_impl"], leaf)
            for name, leaf in wanted.items()
        ]
        return Restored(
            step=step,
            state=jax.tree.unflatten(jax.tree.structure(target), leaves),
            metrics=record["metrics"],
            extra=record["extra"],
            config=record["config"],
        )

    def _check_layout(self, step: int, entries: Json, wanted: Json) -> None:
        """Refuses a target that is not what was saved, below its top-level keys."""
        tops = {name.split("/")[0] for name in wanted}
        asked = {name: digest.layout(leaf) for name, leaf in wanted.items()}
        saved = {
            name: entry["layout"]
            for name, entry in entries.items()
            if name.split("/")[0] in tops
        }
        for name in sorted(asked.keys() | saved.keys()):
            if asked.get(name) != saved.get(name):
                raise CheckpointError(
                    f"leaf `{name}` must be {saved.get(name, 'absent')} as in step "
                    f"{step} of {self._directory}, got {asked.get(name, 'no leaf')}; "
                    "build the model from the config that is stored there."
                )

    def _damaged(self, step: int, entries: Json, cause: str) -> CheckpointError:
        """Says which leaves of a changed step cannot be read as they were saved."""
        folder = self._directory / str(step)
        hit = []
        for name, entry in entries.items():
            try:
                intact = _load(folder, {name: entry})[name]
                if digest.leaf_digest(intact) == entry["digest"]:
                    continue
            except Exception:  # whatever the decoder stumbles over, the leaf is hit
                pass
            hit.append(name)
        leaf = f"leaf `{hit[0]}`" if hit else "no leaf"
        more = f" and {len(hit) - 1} more" if len(hit) > 1 else ""
        return CheckpointError(
            f"checkpoint of step {step} in {self._directory} must be as it was saved, "
            f"got {leaf}{more} damaged ({cause}); delete the folder {folder}: "
            f"{self._way_out(without={step})}."
        )
