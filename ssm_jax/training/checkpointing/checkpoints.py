"""Checkpoints of a run: saved asynchronously by Orbax, verified when restored."""

import contextlib
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from absl import logging
from orbax.checkpoint import v1 as ocp

from ssm_jax.training.checkpointing import integrity
from ssm_jax.training.checkpointing.integrity import CheckpointError, Json, Unreadable
from ssm_jax.training.checkpointing.leaves import layout, named_leaves
from ssm_jax.training.checkpointing.loading import PENDING, Restored, read, stored
from ssm_jax.training.hosts import is_first, on_first
from ssm_jax.types import PyTree

_KEPT = 2
"""Number of latest steps that are kept: one that is truncated needs a fallback."""


class Checkpoints(contextlib.AbstractContextManager["Checkpoints"]):
    """The latest and the best checkpoints of a run, in one directory.

    Nothing is created, moved or deleted before the first `save`, so evaluation uses
    the same class. A save that was killed leaves nothing that `restore` would take, and
    older steps are deleted only once that of a save is complete.

    Orbax alone reads a step, as nested dicts, without this package: those of a run have
    ``params``, ``ema`` if an average of them is evaluated, ``model_state``,
    ``opt_state`` and ``step``. It does not compare checksums, and reads arrays that
    were sharded over several processes only onto as many devices, unless it is given
    shardings.

    Args:
      directory: Each step is a directory in it, named by its number.
      best_metric: The step with its largest value is kept besides the two latest;
        None keeps these only. A value that is not finite is never the best, and that
        of the initial state, of step 0, counts for 0.02 more.
      tie_metric: The metric whose smallest value decides between equal ones, a loss; a
        missing value or one that is not finite loses. Then the later step is better.
      config: The config of the run as JSON, stored with each step. `restore` refuses a
        step of another config; None compares nothing.

    Example:
      >>> import tempfile
      >>> import numpy as np
      >>> directory = tempfile.mkdtemp()
      >>> with Checkpoints(directory, best_metric="accuracy") as checkpoints:
      ...     checkpoints.save(1, {"w": np.ones(2)}, metrics={"accuracy": 0.5})
      >>> restored = Checkpoints(directory).restore({"w": np.zeros(2)})
      >>> print(restored.step, restored.state["w"])
      1 [1. 1.]
      >>> import orbax.checkpoint
      >>> checkpointer = orbax.checkpoint.StandardCheckpointer()
      >>> checkpointer.restore(f"{directory}/1/state")
      {'w': array([1., 1.])}
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        best_metric: str | None = None,
        tie_metric: str | None = None,
        config: Json | None = None,
    ) -> None:
        """Stores the arguments; the disk is read later."""
        self._directory, self._config = Path(directory).absolute(), config
        self._best_metric, self._tie_metric = best_metric, tie_metric
        self._unreadable: set[int] = set()
        self._orbax: ocp.training.Checkpointer | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._saving: Json = {}

    @property
    def latest_step(self) -> int | None:
        """The newest step whose save has finished, or None."""
        return max(integrity.recorded_steps(self._directory), default=None)

    @property
    def best_step(self) -> int | None:
        """The finished step with the largest value of `best_metric`, or None."""
        records = integrity.records(self._directory)
        return integrity.best_step(records, self._best_metric, self._tie_metric)

    def save(
        self,
        step: int,
        state: PyTree,
        metrics: Mapping[str, float | None] | None = None,
        *,
        pending: PyTree = None,
    ) -> None:
        """Copies a state off its devices and writes it asynchronously.

        The state may be donated as soon as this returns.

        Args:
          step: The number of the step, larger than that of all saved before.
          state: A pytree of arrays and PRNG keys, on any number of devices. Of what is
            sharded over processes each writes its shards; the rest, of which each has
            all values, is written by the first. All of them call this and `wait`.
          metrics: Numbers measured at this step, which `restore` returns; None for
            those that are not defined.
          pending: Arrays whose shapes `restore` need not know; it returns them too.

        Raises:
          CheckpointError: This save cannot start, or the one before it failed.
          ValueError: Two leaves have the same path.
        """
        self.wait()
        newest = max(self._usable(), default=-1)
        if step <= newest:
            raise CheckpointError(
                f"`step` must be greater than {newest}, the newest in "
                f"{self._directory}, got {step}; restore that one first."
            )
        leaves = named_leaves(state) | {
            f"{PENDING}/{name}": leaf
            for name, leaf in named_leaves(pending or {}).items()
        }
        self._saving = {
            "step": int(step),
            "metrics": {
                name: None if value is None else float(value)
                for name, value in (metrics or {}).items()
            },
            "config": self._config or {},
            "leaves": {name: layout(leaf) for name, leaf in leaves.items()},
            "nested": True,
        }
        try:
            self._orbax = self._orbax or self._open()
            response = self._orbax.save_async(step, stored(leaves), force=True)
        except Exception as error:
            raise self._failed(error) from None
        self._pending = self._worker.submit(self._finish, response)

    def wait(self) -> None:
        """Waits for the asynchronous save; raises CheckpointError if it failed."""
        pending, self._pending = self._pending, None
        try:
            if pending is not None:
                pending.result()
        except Exception as error:
            raise self._failed(error) from None

    def restore(self, target: PyTree, *, step: int | None = None) -> Restored:
        """Reads a step after comparing each of its files with its checksum.

        Args:
          target: A pytree of arrays or `jax.ShapeDtypeStruct`: what to restore. It may
            leave out top-level keys of what was saved. A leaf with a sharding is read
            onto it, whatever devices wrote it; any other becomes numpy.
          step: The step. None takes the newest one or, if that is incomplete or lies in
            the directory of another step, the newest usable one before it, and logs a
            warning.

        Raises:
          CheckpointError: There is no such step, a leaf differs in dtype or shape
            from the target, or a step is of another config or was changed.
        """
        self.wait()
        steps = integrity.steps(self._directory)
        if step is None:
            step = self.usable_step()
        elif step not in steps:
            raise CheckpointError(
                f"`step` must be one that was kept in {self._directory}, got {step}; "
                f"kept: {', '.join(map(str, steps)) or 'none'}."
            )
        return read(self._directory / str(step), target, self._config)

    def keys(self, step: int) -> set[str]:
        """Returns the top-level keys of what was saved at a step, if it was kept.

        Raises:
          CheckpointError: The record of the step is damaged.
        """
        if step not in integrity.steps(self._directory):
            return set()
        record = integrity.read_record(self._directory / str(step))
        return {name.split("/")[0] for name in record["leaves"]}

    def usable_step(self) -> int:
        """Returns the newest complete step, which `restore` takes; reads no array.

        Raises:
          CheckpointError: There is none.
        """
        reason = "there is none."
        for candidate in reversed(integrity.steps(self._directory)):
            path = self._directory / str(candidate)
            try:
                integrity.check_sizes(path, integrity.read_record(path))
                return candidate
            except Unreadable as error:
                reason = str(error)
                logging.warning("%s The step before it is tried.", reason)
                self._unreadable.add(candidate)
                self._release()  # The next save sets it aside as it opens Orbax.
        raise CheckpointError(
            f"`directory` must hold a complete step, got {self._directory}: {reason}"
        )

    def close(self) -> None:
        """Waits for the save, whose errors it raises, and releases the directory."""
        try:
            self.wait()
        finally:
            self._release()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Closes; an error of the block is not replaced by one of the save."""
        try:
            self.close()
        except CheckpointError as failure:
            if error is None:
                raise
            logging.error("%s", failure)

    def _open(self) -> ocp.training.Checkpointer:
        """Opens the directory for writing; sets unusable steps in it aside."""
        on_first(self._set_aside)
        self._unreadable.clear()
        # A failed save is raised by `wait`; Orbax logs its traceback six times more.
        logging.get_absl_logger().addFilter(_is_not_orbax)
        # Orbax itself keeps all steps: it would delete before there is a record.
        return ocp.training.Checkpointer(
            str(self._directory), cleanup_tmp_directories=True
        )

    def _set_aside(self):
        for step in set(integrity.steps(self._directory)) - self._usable():
            integrity.set_aside(self._directory / str(step))

    def _finish(self, response: Any) -> None:
        """Writes the record once Orbax has committed the step; deletes old steps."""
        response.result()
        if not is_first():
            return
        path = self._directory / str(self._saving["step"])
        integrity.write_record(path, self._saving)
        finished = integrity.recorded_steps(self._directory)
        for step in {*finished[:-_KEPT]} - {self.best_step}:
            integrity.remove(self._directory / str(step))
        integrity.remove_set_aside(self._directory)

    def _usable(self) -> set[int]:
        return set(integrity.recorded_steps(self._directory)) - self._unreadable

    def _release(self) -> None:
        orbax, self._orbax = self._orbax, None
        if orbax is not None:
            with contextlib.suppress(Exception):  # `wait` has raised it.
                orbax.close()

    def _failed(self, error: Exception) -> CheckpointError:
        """Returns what to raise for a save that failed: what is lost, what is not."""
        self._release()
        directory, latest = self._directory, self.latest_step
        existing = next(p for p in (directory, *directory.parents) if p.exists())
        complete = (
            "no step is saved" if latest is None else f"step {latest} is complete"
        )
        return CheckpointError(
            f"step {self._saving['step']} must be written to {directory}, got "
            f"{integrity.root_cause(error)} "
            f"({shutil.disk_usage(existing).free:,} bytes free); {complete}, "
            "the same command continues."
        )


def _is_not_orbax(record: Any) -> bool:
    return not str(record.msg).startswith("[process=")
