"""Checkpoints of a run: saved asynchronously by Orbax, verified when restored."""

import contextlib
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from orbax.checkpoint import v1 as ocp

from ssm_jax.training.checkpointing import integrity
from ssm_jax.training.checkpointing.integrity import (
    CheckpointError,
    Json,
    Unreadable,
    stored_name,
)
from ssm_jax.training.lock import check_one_process
from ssm_jax.types import PyTree


class Restored(NamedTuple):
    """One step as it was saved; `state` is the pytree that was asked for."""

    step: int
    state: PyTree
    metrics: dict[str, float]
    extra: Json
    config: Json


class Checkpoints(contextlib.AbstractContextManager["Checkpoints"]):
    """The latest and the best checkpoints of a run, in one directory.

    Nothing is created, moved or deleted before the first `save`, so evaluation uses
    the same class. A save that was killed leaves nothing that `restore` would take.

    Args:
      directory: Each step is a directory in it, named by its number.
      best_metric: The metric whose best step is kept besides the latest ones; None
        keeps the latest ones only. A value that is not finite is never the best.
      best_mode: Whether the largest or the smallest value is the best.
      tie_metric: The metric whose smallest value decides between equal ones, a loss; a
        missing value or one that is not finite loses. Then the later step is better.
      keep_latest: Number of steps to keep, at least 2: the fallback needs another one.
      config: The config of the run as JSON, stored with each step. `restore` refuses a
        step of another config; None compares nothing.

    Raises:
      ValueError: `keep_latest` is less than 2, or `best_mode` unknown.

    Example:
      >>> import tempfile
      >>> directory = tempfile.mkdtemp()
      >>> with Checkpoints(directory, best_metric="accuracy") as checkpoints:
      ...     checkpoints.save(1, {"w": np.ones(2)}, metrics={"accuracy": 0.5})
      >>> restored = Checkpoints(directory).restore({"w": np.zeros(2)})
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
        """Stores the arguments and looks at nothing on the disk yet."""
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
        """The finished step with the best value of `best_metric`, or None."""
        return max(self._ranks(), default=(None,))[-1]

    def save(
        self,
        step: int,
        state: PyTree,
        *,
        metrics: Mapping[str, float] | None = None,
        extra: Json | None = None,
    ) -> None:
        """Copies a state off its devices and writes it asynchronously.

        Arrays are written from the devices that hold them, shard by shard. The state
        may be donated as soon as this returns.

        Args:
          step: The number of the step, larger than that of all saved before.
          state: A pytree of arrays and PRNG keys, on any number of devices.
          metrics: Numbers measured at this step.
          extra: JSON that `restore` returns.

        Raises:
          CheckpointError: This save cannot start, or the one before it failed.
          ValueError: There are several processes.
        """
        check_one_process()
        self.wait()
        newest = max(self._usable(), default=-1)
        if step <= newest:
            raise CheckpointError(
                f"`step` must be greater than {newest}, the newest in "
                f"{self._directory}, got {step}; restore that one and go on from it."
            )
        leaves = _named_leaves(state)
        record = {
            "step": int(step),
            "metrics": {name: float(value) for name, value in (metrics or {}).items()},
            "extra": extra or {},
            "config": self._config or {},
            "leaves": {name: _layout(leaf) for name, leaf in leaves.items()},
        }
        try:
            record = json.loads(json.dumps(record))
        except TypeError as error:
            raise CheckpointError(
                f"`extra` and `config` must be JSON, got {error}; convert it."
            ) from None
        # Orbax refuses empty arrays; the record alone says that there is one.
        arrays = {stored_name(name): leaf for name, leaf in leaves.items() if leaf.size}
        self._saving = record
        try:
            self._orbax = self._orbax or self._open()
            response = self._orbax.save_async(step, arrays, force=True)
        except Exception as error:
            raise self._failed(error) from None
        self._pending = self._worker.submit(self._finish, response)

    def wait(self) -> None:
        """Waits until the asynchronous save has finished.

        Raises:
          CheckpointError: It failed.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            try:
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
        integrity.check_version(self._directory)
        kept = integrity.steps(self._directory)
        if step is not None:
            if step in kept:
                return self._read(step, target)
            raise CheckpointError(
                f"`step` must be one that was kept in {self._directory}, got {step}; "
                f"kept: {', '.join(map(str, kept)) or 'none'}."
            )
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
                self._release()  # the next save sets them aside as it opens Orbax
            return restored
        newest = next(iter(skipped.values()), "there is no step")
        raise CheckpointError(
            f"`directory` must hold a whole step, got {self._directory} with "
            f"{len(skipped)} unusable ({newest}); look for the folder elsewhere."
        )

    def close(self) -> None:
        """Waits for the asynchronous save and releases the directory.

        Raises:
          CheckpointError: The save failed.
        """
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

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: Any
    ) -> Sequence[bool]:
        """Orbax's preservation policy: the latest steps and the best one are kept."""
        del context
        found = [checkpoint.step for checkpoint in checkpoints]
        best = max(self._ranks(self._saving), default=(None,))[-1]
        kept = {*sorted(found)[-self._keep_latest :], best}
        return [step in kept for step in found]

    def _ranks(self, *records: Json) -> list[tuple[float, float, int]]:
        """Sort keys of the finished steps, and of further records."""
        found, ranks = list(records), []
        for step in integrity.recorded_steps(self._directory):
            try:
                found.append(integrity.read_record(self._directory / str(step)))
            except CheckpointError as error:
                logging.warning("not counted among the best: %s", error)
        for record in found:
            value = record["metrics"].get(self._best_metric, math.nan)
            tie = record["metrics"].get(self._tie_metric, math.inf)
            if math.isfinite(value):
                # Comparison with a NaN would depend on the order of the steps.
                tie = tie if math.isfinite(tie) else math.inf
                ranks.append((self._sign * value, -tie, record["step"]))
        return ranks

    def _open(self) -> ocp.training.Checkpointer:
        """Opens the directory for writing; sets incomplete steps in it aside."""
        for cut in set(integrity.steps(self._directory)) - self._usable():
            integrity.set_aside(self._directory / str(cut))
        self._unreadable.clear()
        # A failed save is raised by `wait`; Orbax logs its traceback six times more.
        logging.get_absl_logger().addFilter(_is_not_orbax)
        context = ocp.Context()
        # One directory per leaf, so that a changed file says which leaf it belongs to.
        context.array.saving.use_ocdbt = context.array.saving.use_zarr3 = False
        return ocp.training.Checkpointer(
            str(self._directory),
            context=context,
            preservation_policy=self,
            cleanup_tmp_directories=True,
        )

    def _finish(self, response: Any) -> None:
        """Writes the record once Orbax has committed the step and deleted old ones."""
        response.result()
        path = self._directory / str(self._saving["step"])
        integrity.write_record(path, self._saving)
        integrity.remove_set_aside(self._directory)

    def _read(self, step: int, target: PyTree) -> Restored:
        path, wanted = self._directory / str(step), _named_leaves(target)
        record = integrity.read_record(path)
        if self._config is not None:
            integrity.check_config(path, self._config, record["config"])
        _check_layouts(path, wanted, record["leaves"])
        integrity.check_files(path, record)
        like = {stored_name(name): _abstract(leaf) for name, leaf in wanted.items()}
        context = ocp.Context()
        context.pytree.loading.partial_load = True
        try:
            if stored := {name: leaf for name, leaf in like.items() if leaf.size}:
                with context:
                    like |= ocp.load(str(path), stored, checkpointable_name="state")
        except Exception as error:
            got, way_out = _root_cause(error), "its files are as they were saved"
            raise CheckpointError(
                integrity.message(path, "be readable", got, way_out)
            ) from error
        arrays = [
            array
            if getattr(leaf, "sharding", None) is None
            else jax.device_put(
                array if leaf.size else np.empty(leaf.shape, leaf.dtype), leaf.sharding
            )
            for array, leaf in zip(like.values(), wanted.values(), strict=True)
        ]
        state = jax.tree.unflatten(jax.tree.structure(target), arrays)
        kept = {name: record[name] for name in ("step", "metrics", "extra", "config")}
        return Restored(state=state, **kept)

    def _usable(self) -> set[int]:
        return set(integrity.recorded_steps(self._directory)) - self._unreadable

    def _release(self) -> None:
        orbax, self._orbax = self._orbax, None
        if orbax is not None:
            with contextlib.suppress(Exception):  # `wait` has raised it
                orbax.close()

    def _failed(self, error: Exception) -> CheckpointError:
        """Returns what to raise for a save that failed: what is lost, what is not."""
        self._release()
        directory, latest = self._directory, self.latest_step
        go_on = "anew" if latest is None else f"from step {latest}, which is whole"
        existing = next(p for p in (directory, *directory.parents) if p.exists())
        return CheckpointError(
            f"step {self._saving['step']} must be written to {directory}, got "
            f"{_root_cause(error)} ({shutil.disk_usage(existing).free:,} bytes free); "
            f"mend that and start again: it goes on {go_on}."
        )


def _named_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves by their paths, as arrays or abstract arrays."""
    leaves = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name in leaves:
            raise ValueError(
                f"`tree` must have one path for each leaf, got `{name}` twice; "
                "rename one of the keys."
            )
        abstract = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)
        leaves[name] = leaf if abstract else np.asarray(leaf)
    return leaves


def _layout(leaf: Any) -> str:
    return f"{leaf.dtype}{leaf.shape}"


def _check_layouts(path: Path, wanted: Json, saved: Json) -> None:
    """Refuses a target that is not what was saved, below its top-level keys."""
    asked = {name: _layout(leaf) for name, leaf in wanted.items()}
    tops = {name.split("/")[0] for name in asked}
    saved = {name: v for name, v in saved.items() if name.split("/")[0] in tops}
    for name in sorted(asked.keys() | saved.keys()):
        if asked.get(name) != saved.get(name):
            raise CheckpointError(
                f"leaf `{name}` must be {saved.get(name, 'absent')} as in step "
                f"{path.name} of {path.parent}, got {asked.get(name, 'none')}; "
                "build the model from the config of that run."
            )


def _abstract(leaf: Any) -> Any:
    """What Orbax reads for a leaf: numpy unless it has a sharding or is a key."""
    sharding = getattr(leaf, "sharding", None)
    if sharding is None and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.empty(leaf.shape, leaf.dtype)
    sharding = sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _root_cause(error: BaseException) -> str:
    """The innermost cause in one line; Orbax wraps it several times."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _is_not_orbax(record: Any) -> bool:
    return not str(record.msg).startswith("[process=")
