"""Saves in the background, through Orbax, that end with a seal."""

import errno
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from logging import LogRecord
from pathlib import Path

import numpy as np
from absl import logging
from orbax.checkpoint import v1 as ocp

from ssm_jax.training.digest import Json, leaf_digest
from ssm_jax.training.seal import (
    CheckpointError,
    remove_set_aside,
    root_cause,
    sealed_steps,
    steps,
    stored_name,
    write_seal,
)

_DISK_FULL = [os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT)]


class BackgroundSaver:
    """Saves one step after another to a folder, each while the next one is computed.

    Args:
      directory: The folder. What Orbax left there when it was killed is removed.
      keep_latest: Steps kept after a save.
      keep: Returns one more step to be kept, or None.
    """

    def __init__(
        self, directory: Path, keep_latest: int, keep: Callable[[], int | None]
    ) -> None:
        """Opens the folder, which is created if need be."""
        self._directory, self._keep_latest, self._keep = directory, keep_latest, keep
        directory.mkdir(parents=True, exist_ok=True)
        for left in directory.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(left)
        # A failed save is raised by `wait`; Orbax logs its traceback six times more.
        logging.get_absl_logger().addFilter(_is_not_orbax)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: tuple[int, Future[None]] | None = None

    def save(self, step: int, arrays: dict[str, np.ndarray], record: Json) -> None:
        """Starts a save and returns.

        Args:
          step: Its number.
          arrays: The leaves on the host; nobody may write to them any more.
          record: What the seal shall say beside the digests.
        """
        self._pending = step, self._worker.submit(self._save, step, arrays, record)

    def wait(self) -> None:
        """Waits for the save under way.

        Raises:
          CheckpointError: It failed; this is said once.
        """
        if self._pending is None:
            return
        (step, future), self._pending = self._pending, None
        try:
            future.result()
        except Exception as error:
            raise save_error(self._directory, step, error) from None

    def close(self) -> None:
        """Lets go of the folder, after the save under way."""
        self._worker.shutdown()
        logging.get_absl_logger().removeFilter(_is_not_orbax)

    def _save(self, step: int, arrays: dict[str, np.ndarray], record: Json) -> None:
        folder, context = self._directory / str(step), ocp.Context()
        context.memory.deepcopy_host_arrays = False  # the caller gave them away
        # One folder a leaf: of each byte of data one can tell the leaf that it is of.
        context.array.saving.use_ocdbt = context.array.saving.use_zarr3 = False
        # Orbax refuses empty arrays; the seal alone says that there is one.
        stored = {stored_name(name): a for name, a in arrays.items() if a.size}
        with context:
            ocp.save(str(folder), stored)
        # Before the seal: what is killed here saves the step again and ends here again.
        kept = {*steps(self._directory)[-self._keep_latest :], self._keep()}
        for old in set(steps(self._directory)) - kept:
            shutil.rmtree(self._directory / str(old))
        for name, array in arrays.items():
            record["leaves"][name]["digest"] = leaf_digest(array)
        write_seal(folder, record)
        remove_set_aside(self._directory)  # there is a newer step that is whole


def save_error(directory: Path, step: int, error: Exception) -> CheckpointError:
    """Returns what to tell of a save that failed: what is lost, and what is not."""
    latest = max(sealed_steps(directory), default=None)
    go_on = "anew" if latest is None else f"from step {latest}, which is whole"
    cause = root_cause(error)
    logging.debug("save of step %d failed", step, exc_info=error)
    if not any(text in cause for text in _DISK_FULL):
        return CheckpointError(
            f"step {step} must be written to {directory}, got {cause[:300]}; mend that "
            f"and start again: it goes on {go_on}."
        )
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    return CheckpointError(
        f"step {step} must fit on the disk of {directory}, got a full one, "
        f"{shutil.disk_usage(existing).free:,} bytes free; free some and start again: "
        f"it goes on {go_on}."
    )


def _is_not_orbax(record: LogRecord) -> bool:
    return not str(record.msg).startswith("[process=")
