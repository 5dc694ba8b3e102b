"""Checkpoints of a run: saved in the background, verified when they are restored.

Orbax writes the arrays and puts a finished step in its place by one rename. This
module seals it (:mod:`ssm_jax.training.seal`), falls back from a step that was cut
short, and refuses one that was changed.
"""

import contextlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal

from absl import logging

from ssm_jax.training import seal
from ssm_jax.training.background import BackgroundSaver, save_error
from ssm_jax.training.digest import Json, entry, host_copy, named_leaves
from ssm_jax.training.lock import check_one_process
from ssm_jax.training.seal import CheckpointError, Restored, Unreadable
from ssm_jax.types import PyTree

__all__ = ["CheckpointError", "Checkpoints", "Restored"]


class Checkpoints(contextlib.AbstractContextManager["Checkpoints"]):
    """The steps that a run has saved in one folder: the latest ones and the best.

    Nothing is created, moved or deleted before the first ``save``, so evaluation uses
    the same class. A save that was killed leaves nothing that ``restore`` would take.

    Args:
      directory: The folder; each step is a folder in it, named by its number.
      best_metric: The metric whose best step is kept beside the latest ones. None
        keeps the latest ones only.
      best_mode: Whether the greatest or the least value is the best; a value that is
        not finite never is.
      tie_metric: The metric whose least value decides between equal ones, a loss; one
        that is missing or not finite loses. What is equal in it too, or in
        ``best_metric`` where this is None, the later step decides.
      keep_latest: Steps kept, at least 2: if one is cut short another is left.
      config: The config of the run, as JSON: stored with each step, and ``restore``
        refuses a step of another one. None compares nothing.

    Raises:
      ValueError: ``keep_latest`` is less than 2, or ``best_mode`` unknown.

    Example:
      >>> import tempfile
      >>> import numpy as np
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
        tie_metric: str | None = None,
        keep_latest: int = 2,
        config: Json | None = None,
    ) -> None:
        """Remembers the folder and looks at nothing in it yet."""
        if keep_latest < 2:
            raise ValueError(
                f"`keep_latest` must be at least 2, got {keep_latest}; a step that is "
                "cut short needs another one to go back to."
            )
        if best_mode not in ("max", "min"):
            raise ValueError(f"`best_mode` must be 'max' or 'min', got {best_mode!r}.")
        self._directory = Path(directory).absolute()
        self._best_metric, self._tie_metric = best_metric, tie_metric
        self._sign = 1 if best_mode == "max" else -1
        self._keep_latest, self._config = keep_latest, config
        self._unreadable: set[int] = set()
        self._saver: BackgroundSaver | None = None

    @property
    def latest_step(self) -> int | None:
        """The newest step whose save has finished, or None."""
        return max(seal.sealed_steps(self._directory), default=None)

    @property
    def best_step(self) -> int | None:
        """The finished step with the best value of ``best_metric``, or None."""
        ranks = {}
        for step in seal.sealed_steps(self._directory):
            try:
                metrics = seal.read_seal(self._directory / str(step))["metrics"]
            except CheckpointError as error:
                logging.warning("not counted among the best: %s", error)
                continue
            value = metrics.get(self._best_metric, math.nan)
            tie = metrics.get(self._tie_metric, math.inf)
            if math.isfinite(value):
                # A tuple with a NaN has no order.
                tie = tie if math.isfinite(tie) else math.inf
                ranks[step] = (self._sign * value, -tie, step)
        return max(ranks, key=ranks.__getitem__, default=None)

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
          ValueError: There are several processes.
        """
        check_one_process()
        self.wait()
        newest = max(self._whole(), default=-1)
        if step <= newest:
            raise CheckpointError(
                f"`step` must be greater than {newest}, the newest in "
                f"{self._directory}, got {step}; restore that one and go on from it."
            )
        record = self._record(step, metrics or {}, extra or {})
        leaves = named_leaves(state)
        arrays = {name: host_copy(leaf) for name, leaf in leaves.items()}
        record["leaves"] = {name: entry(leaves[name], arrays[name]) for name in leaves}
        self._saver = self._saver or self._open(step)
        self._saver.save(step, arrays, record)

    def wait(self) -> None:
        """Waits until the save in the background has finished.

        Raises:
          CheckpointError: It failed.
        """
        if self._saver is None:
            return
        try:
            self._saver.wait()
        except CheckpointError:
            self._release()
            raise

    def restore(self, target: PyTree, *, step: int | None = None) -> Restored:
        """Reads a step and holds each file and leaf to its digest.

        Args:
          target: A pytree of arrays or ``jax.ShapeDtypeStruct``: what to restore.
            It may leave out top-level keys of what was saved, so that
            ``{"params": ...}`` restores the parameters. A leaf with a sharding is
            put there, whatever devices wrote it; any other becomes numpy.
          step: The step. None takes the newest one or, if that was cut short or lies
            in the folder of another step, the newest before it that can be used, and
            logs a warning that says so.

        Raises:
          CheckpointError: There is no such step, a leaf differs in dtype or shape
            from the target, or a step is of another config or was changed after it was
            saved.
        """
        self.wait()
        kept = seal.steps(self._directory)
        if step is not None and step not in kept:
            raise CheckpointError(
                f"`step` must be one that was kept in {self._directory}, got {step}; "
                f"kept: {', '.join(map(str, kept)) or 'none'}."
            )
        if step is not None:
            return self._read(step, target)
        skipped: dict[int, Unreadable] = {}
        for candidate in reversed(kept):
            try:
                restored = self._read(candidate, target)
            except Unreadable as error:
                skipped[candidate] = error
                continue
            for error in skipped.values():
                logging.warning("%s Step %d is used.", error, candidate)
            if skipped:
                self._unreadable |= skipped.keys()
                self._release()  # the next save sets them aside as it opens the folder
            return restored
        newest = next(iter(skipped.values()), "there is no step")
        raise CheckpointError(
            f"`directory` must hold a whole step, got {self._directory} with "
            f"{len(skipped)} unusable ({newest}); look for the folder elsewhere."
        )

    def close(self) -> None:
        """Waits for the save in the background and lets go of the folder.

        Raises:
          CheckpointError: The save failed.
        """
        try:
            self.wait()
        finally:
            self._release()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes; where the block ended in an error, that is the one raised."""
        try:
            self.close()
        except CheckpointError as failure:
            if error is None:
                raise
            logging.error("%s", failure)

    def _open(self, step: int) -> BackgroundSaver:
        """Takes the folder for writing; what is not whole in it is set aside."""
        try:
            for cut in set(seal.steps(self._directory)) - self._whole():
                seal.set_aside(self._directory / str(cut))
            self._unreadable.clear()
            return BackgroundSaver(
                self._directory, self._keep_latest, lambda: self.best_step
            )
        except Exception as error:
            raise save_error(self._directory, step, error) from None

    def _read(self, step: int, target: PyTree) -> Restored:
        return seal.read_step(self._directory / str(step), target, self._config)

    def _whole(self) -> set[int]:
        return set(seal.sealed_steps(self._directory)) - self._unreadable

    def _record(self, step: int, metrics: Mapping[str, float], extra: Json) -> Json:
        numbers = {name: float(value) for name, value in metrics.items()}
        record = {"step": int(step), "metrics": numbers, "extra": extra}
        record["config"] = self._config or {}
        try:
            return json.loads(json.dumps(record))
        except TypeError as error:
            raise CheckpointError(
                f"`extra` and `config` must be JSON, got {error}; convert it."
            ) from None

    def _release(self) -> None:
        saver, self._saver = self._saver, None
        if saver is not None:
            saver.close()
