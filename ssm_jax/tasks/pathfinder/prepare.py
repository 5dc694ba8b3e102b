"""The images of Pathfinder as a set in TFDS's folder format, written by all cores."""

import contextlib
import dataclasses
import fcntl
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

from ssm_jax.tasks import base
from ssm_jax.tasks.pathfinder.drawing import PER_BLOCK, Size, draw_block
from ssm_jax.tasks.pathfinder.pathfinder import PATHFINDER, check_size

_PER_SHARD = 50 * PER_BLOCK


def write_pathfinder(
    data_dir: str | Path,
    *,
    size: Size,
    n: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Prepares a set of images, or goes on where its preparation was stopped.

    The files depend on ``size``, ``n`` and ``seed`` alone: not on the number of
    workers, nor on how often the preparation was stopped. The set appears in its place
    at once when it is whole, and before that what is there of it is in another folder
    beside. A set that is there already is left as it is.

    Args:
      data_dir: Folder of all sets, made if need be.
      size: Pixels along a side of an image.
      n: Images in all, 10 or more; a tenth of them is for validation and a tenth for
        test. None means the usual 200,000.
      seed: At least 0; another seed gives other images. `ssm_jax.tasks.Pathfinder`
        without a folder has those of seed 0.
      workers: Processes that draw; 1 draws in this one. None means one a core. They
        are spawned, so that a script must begin its work under
        ``if __name__ == "__main__":``.
      progress: Called with the number of images that are done and the number in all,
        at the start and after every 2,500 images.

    Returns:
      The folder of the set, which `ssm_jax.tasks.Pathfinder` reads.

    Raises:
      ValueError: An argument is out of its range, the folder holds another set under
        the same name, or another process is preparing the same set.
    """
    n = 200_000 if n is None else n
    check_size(size)
    _check_numbers(n, seed, workers)
    target = Path(PATHFINDER[size].path(str(data_dir)))
    description = f"{n} images of Pathfinder, seed {seed}"
    with _locked(target.parent):
        if target.exists():
            _check_same(target, description)
            return target
        staging = target.with_name(f".preparing-{target.name}-{n}-{seed}")
        staging.mkdir(exist_ok=True)
        shards = _plan(staging, size, n, seed)
        _write_missing(shards, n, workers or os.cpu_count() or 1, progress)
        _write_metadata(staging, shards, description)
        os.rename(staging, target)
    return target


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shard:
    """One file of a set: the examples from ``first`` to before ``end`` of a split."""

    path: Path
    size: Size
    seed: int
    split: base.Split
    first: int
    end: int

    def write(self) -> int:
        """Draws and writes the examples; the file appears at once when it is whole."""
        features = _features(self.size)
        serializer = example_serializer.ExampleSerializer(
            features.get_serialized_info()
        )
        part = self.path.with_name(f".part-{os.getpid()}-{self.path.name}")
        writer = array_record_module.ArrayRecordWriter(str(part), "group_size:1")
        for block in range(self.first // PER_BLOCK, -(-self.end // PER_BLOCK)):
            drawings = draw_block(self.size, self.seed, self.split, block)
            for i in range(min(PER_BLOCK, self.end - block * PER_BLOCK)):
                example = {"image": drawings.images[i], "label": drawings.labels[i]}
                record = serializer.get_tf_example(features.encode_example(example))
                # Else the features' order changes from process to process.
                writer.write(record.SerializeToString(deterministic=True))
        writer.close()
        # On the disk before it has its name: not even a power failure leaves half.
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, self.path)
        return self.end - self.first


def _plan(staging: Path, size: Size, n: int, seed: int) -> list[_Shard]:
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
            name = f"{PATHFINDER[size].name}-{split}.array_record"
            shards.append(
                _Shard(
                    path=staging / f"{name}-{number:05d}-of-{len(starts):05d}",
                    size=size,
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
    # Spawned, not forked: JAX's threads, if there are any, would not live through it.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _end_with_parent) as pool:
        futures = [pool.submit(shard.write) for shard in shards]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _end_with_parent() -> None:
    """Lets a worker end when the process that it works for was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _features(size: Size) -> Any:
    image = tfds.features.Tensor(shape=(size, size), dtype=np.uint8, encoding="bytes")
    label = tfds.features.ClassLabel(num_classes=2)
    return tfds.features.FeaturesDict({"image": image, "label": label})


def _write_metadata(staging: Path, shards: list[_Shard], description: str) -> None:
    """Writes what TFDS reads first, and leaves nothing else beside the shards."""
    for part in staging.glob(".part-*"):
        part.unlink()
    infos = []
    for split in ("train", "validation", "test"):
        of_split = [shard for shard in shards if shard.split == split]
        infos.append(
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[shard.end - shard.first for shard in of_split],
                num_bytes=sum(shard.path.stat().st_size for shard in of_split),
            )
        )
    tfds.folder_dataset.write_metadata(
        data_dir=staging,
        features=_features(shards[0].size),
        split_infos=infos,
        version="1.0.0",
        description=description,
        check_data=False,  # By TensorFlow, which is not there.
    )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps other processes out of a folder; the lock ends with this one."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                "`data_dir` must be prepared by one process at a time, got another "
                f"one at work in {folder}; wait for it."
            ) from None
        yield
    finally:
        os.close(handle)


def _check_numbers(n: int, seed: int, workers: int | None) -> None:
    for name, value, least, way in (
        ("n", n, 10, "a tenth of it must be an image"),
        ("seed", seed, 0, "any other integer will do"),
        ("workers", 1 if workers is None else workers, 1, "1 draws in this process"),
    ):
        if value < least:
            raise ValueError(f"`{name}` must be at least {least}, got {value}; {way}.")


def _check_same(target: Path, description: str) -> None:
    """Raises ValueError unless the set that is there is the one that is wanted."""
    found = tfds.builder_from_directory(str(target)).info.description
    if found != description:
        raise ValueError(
            f"`data_dir` must not hold another set, got {target} with {found}; remove "
            f"it, or give another folder for {description}."
        )
