"""Writes the images of a setting as a set in TFDS's folder format, in parallel."""

import dataclasses
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]
from tensorflow_datasets.core import example_serializer

from ssm_jax.files import file_lock
from ssm_jax.tasks import base
from ssm_jax.tasks.pathfinder.drawing import draw_block
from ssm_jax.tasks.pathfinder.examples import prepared_set, targets_of
from ssm_jax.tasks.pathfinder.settings import Setting
from ssm_jax.tasks.tfds.reading import PreparedSet

# A multiple of the blocks of all settings, so that no block is drawn for two shards.
_PER_SHARD = 2_500


def write_images(
    data_dir: str | Path,
    setting: Setting,
    *,
    n: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Prepares a set of images, or resumes an interrupted preparation.

    The files depend only on ``setting``, ``n`` and ``seed``, not on the number of
    workers or on interruptions. The set is written to a staging directory beside its
    final one and renamed when it is complete. An existing set is not changed.

    Args:
      data_dir: Directory of all sets, created if necessary.
      setting: Setting of the images, one of those of `ssm_jax.tasks.pathfinder`.
      n: Total number of images, at least 10; a tenth is for validation and a tenth for
        test. None means the usual number of the setting.
      seed: Seed of the images, at least 0. The tasks without ``data_dir`` have the
        images of seed 0.
      workers: Number of processes; 1 draws in this process, None means one per core.
        Workers are spawned, so a script must guard its entry point with
        ``if __name__ == "__main__":``.
      progress: Called with the number of finished images and the total number, at the
        start and after every 2,500 images.

    Returns:
      The directory of the set, which the task of the setting reads.

    Raises:
      ValueError: An argument is out of range, the directory holds another set of the
        same name, or another process is preparing the same set.
    """
    n = setting.n_images if n is None else n
    _check_numbers(n, seed, workers)
    target = Path(prepared_set(setting).path(str(data_dir)))
    title = "Pathfinder" + ("-Segmentation" if setting.target == "mask" else "")
    description = f"{n} images of {title}, seed {seed}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(target.parent, os.O_RDONLY, _refusal(target.parent)):
        # Under the lock: another process may have completed the set before.
        if target.exists():
            _check_same(prepared_set(setting), str(data_dir), description)
            return target
        # The name holds all arguments: only an equal call resumes these files.
        staging = target.with_name(f".preparing-{target.name}-{n}-{seed}")
        staging.mkdir(exist_ok=True)
        shards = _plan(staging, setting, n, seed)
        _write_missing(shards, n, workers or os.cpu_count() or 1, progress)
        _write_metadata(staging, shards, description)
        # One rename: readers never see an incomplete set.
        os.rename(staging, target)
    return target


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shard:
    """One file of a set: the examples ``first`` to ``end - 1`` of a split."""

    path: Path
    setting: Setting
    seed: int
    split: base.Split
    first: int
    end: int

    def write(self) -> int:
        """Draws and writes the examples; the file is renamed when it is complete."""
        features, per_block = _features(self.setting), self.setting.per_block
        serializer = example_serializer.ExampleSerializer(
            features.get_serialized_info()
        )
        # With the process id, as a killed worker may have left a partial file.
        part = self.path.with_name(f".part-{os.getpid()}-{self.path.name}")
        # Groups of one record: random access decompresses no other record.
        writer = array_record_module.ArrayRecordWriter(str(part), "group_size:1")
        for block in range(self.first // per_block, -(-self.end // per_block)):
            drawings = draw_block(self.setting, self.seed, self.split, block)
            targets = targets_of(drawings, self.setting)
            for i in range(min(per_block, self.end - block * per_block)):
                example = {
                    "image": drawings.images[i],
                    self.setting.target: targets[i],
                }
                record = serializer.get_tf_example(features.encode_example(example))
                # Otherwise the order of the features differs between processes.
                writer.write(record.SerializeToString(deterministic=True))
        writer.close()
        # Sync before renaming, so that even a power failure leaves no partial file.
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, self.path)
        return self.end - self.first


def _plan(staging: Path, setting: Setting, n: int, seed: int) -> list[_Shard]:
    held_out = n // 10
    counts: dict[base.Split, int] = {
        "train": n - 2 * held_out,
        "validation": held_out,
        "test": held_out,
    }
    shards = []
    for split, count in counts.items():
        starts = range(0, count, _PER_SHARD)
        for number, first in enumerate(starts):
            name = f"{setting.name}-{split}.array_record"
            shards.append(
                _Shard(
                    path=staging / f"{name}-{number:05d}-of-{len(starts):05d}",
                    setting=setting,
                    seed=seed,
                    split=split,
                    first=first,
                    end=min(first + _PER_SHARD, count),
                )
            )
    return shards


def _write_missing(
    shards: list[_Shard],
    n: int,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    # A shard has its final name only if it is complete.
    missing = [shard for shard in shards if not shard.path.exists()]
    done = n - sum(shard.end - shard.first for shard in missing)
    if progress is not None:
        progress(done, n)
    for written in _in_processes(missing, min(workers, len(missing))):
        done += written
        if progress is not None:
            progress(done, n)


def _in_processes(shards: list[_Shard], workers: int) -> Iterator[int]:
    if workers <= 1:
        yield from (shard.write() for shard in shards)
        return
    # Spawned, not forked: forking a process with JAX's threads can deadlock.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _end_with_parent) as pool:
        futures = [pool.submit(shard.write) for shard in shards]
        try:
            # By completion: progress does not wait for the slowest worker.
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _end_with_parent() -> None:
    """Makes a worker exit when its parent process is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        # Returns also if the parent was killed.
        parent.join()
        # `sys.exit` would end this thread only.
        os._exit(1)

    # A daemon does not keep a finished worker alive.
    threading.Thread(target=watch, daemon=True).start()


def _features(setting: Setting) -> Any:
    shape = (setting.size, setting.size)
    if setting.target == "label":
        image = tfds.features.Tensor(shape=shape, dtype=np.uint8, encoding="bytes")
        label = tfds.features.ClassLabel(num_classes=2)
        return tfds.features.FeaturesDict({"image": image, "label": label})
    # Compressed: images of 512 pixels and their masks take 52 GB otherwise.
    pixels = tfds.features.Tensor(shape=shape, dtype=np.uint8, encoding="zlib")
    return tfds.features.FeaturesDict({"image": pixels, "mask": pixels})


def _write_metadata(staging: Path, shards: list[_Shard], description: str) -> None:
    """Writes the metadata that TFDS reads, and removes partial files."""
    for part in staging.glob(".part-*"):
        part.unlink()
    infos = []
    for split in ("train", "validation", "test"):
        # In the order of the shards, which is that of the examples.
        split_shards = [shard for shard in shards if shard.split == split]
        infos.append(
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[shard.end - shard.first for shard in split_shards],
                num_bytes=sum(shard.path.stat().st_size for shard in split_shards),
            )
        )
    tfds.folder_dataset.write_metadata(
        data_dir=staging,
        features=_features(shards[0].setting),
        split_infos=infos,
        version="1.0.0",
        description=description,
        check_data=False,  # The check needs TensorFlow.
    )


def _refusal(folder: Path) -> Callable[[int], str]:
    return lambda _: (
        "`data_dir` must be prepared by one process at a time, got another one at "
        f"work in {folder}; wait for it."
    )


def _check_numbers(n: int, seed: int, workers: int | None) -> None:
    for name, value, minimum, remedy in (
        ("n", n, 10, "a tenth of it must be at least one image"),
        ("seed", seed, 0, "choose another integer"),
        ("workers", 1 if workers is None else workers, 1, "1 draws in this process"),
    ):
        if value < minimum:
            raise ValueError(
                f"`{name}` must be at least {minimum}, got {value}; {remedy}."
            )


def _check_same(prepared: PreparedSet, data_dir: str, description: str) -> None:
    """Raises ValueError unless the existing set is the requested one."""
    got = " ".join(prepared.read_metadata(data_dir).description.split())
    if got != description:
        raise ValueError(
            f"`data_dir` must not hold another set, got {prepared.path(data_dir)} with "
            f"{got[:200]!r}; remove it, or pass another directory for {description}."
        )
