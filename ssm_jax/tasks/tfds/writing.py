"""Writes sets in TFDS's folder format atomically."""

import contextlib
import io
import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import tensorflow_datasets as tfds
from absl import logging
from tqdm import tqdm

from ssm_jax.files import file_lock
from ssm_jax.tasks.tfds.files import Published
from ssm_jax.tasks.tfds.reading import PreparedSet

_LOG_EVERY_S = 10
_SHARD = 25_000
_T = TypeVar("_T")

Examples = Iterator[tuple[int | str, dict[str, Any]]]
"""Examples with their keys; TFDS shuffles by the hash of the key."""


@dataclass(frozen=True, kw_only=True)
class RawSet(Published):
    """A set in the format of its publisher.

    Attributes:
      prepared: The prepared set.
      features: TFDS features of an example.
      counts: Published number of examples per split.
      examples: Yields the examples of a split, given the paths of the files in
        ``wanted``.
      shuffled: Whether the examples are written in the order of TFDS. This holds them
        in memory, so it is unsuitable for sets of more than 1 GB.
    """

    prepared: PreparedSet
    features: Mapping[str, Any]
    counts: Mapping[str, int]
    examples: Callable[[str, Sequence[Path]], Examples]
    shuffled: bool = True


def write(
    raw: RawSet, manual_dir: Path, data_dir: str | None, *, subset: bool = False
) -> str:
    """Prepares a set from its published files.

    Args:
      raw: The set.
      manual_dir: Directory of the published files.
      data_dir: Directory of all sets; None means TFDS's default.
      subset: Whether counts other than the published ones are accepted.

    Returns:
      The directory of the set.

    Raises:
      FileNotFoundError: A file is missing.
      ValueError: A file is damaged or has other contents, the number of examples is not
        the published one, or another process is preparing the same set.
    """
    # Before staging: a missing file leaves no directory.
    files = raw.find(manual_dir)
    counts = {} if subset else raw.counts
    with stage(raw.prepared, data_dir) as staging:
        tfds.disable_progress_bar()  # `with_progress` shows a bar instead.
        builder = _Builder(raw, files, counts, data_dir=str(staging))
        if raw.shuffled:
            # TFDS prints the staging directory, which is not the final one.
            with contextlib.redirect_stdout(io.StringIO()):
                builder.download_and_prepare()
        else:
            _write_in_order(builder)
    return raw.prepared.path(data_dir)


def download(prepared: PreparedSet, data_dir: str | None) -> str:
    """Prepares a set with TFDS's builder, which needs TensorFlow and a network.

    Args:
      prepared: The set.
      data_dir: Directory of all sets; None means TFDS's default. Downloads are kept in
        its subdirectory ``downloads``.

    Returns:
      The directory of the set.

    Raises:
      OSError: A download failed.
      ValueError: TFDS has no such set, or another process is preparing it.
    """
    *name, version = prepared.folder.split("/")
    tfds.display_progress_bar(sys.stderr.isatty())
    with stage(prepared, data_dir) as staging:
        try:
            builder = tfds.builder(
                f"{'/'.join(name)}:{version}",
                data_dir=str(staging),
                file_format="array_record",
            )
            builder.download_and_prepare(download_dir=str(staging.parent / "downloads"))
        except (tfds.download.DownloadError, AssertionError) as error:
            raise OSError(
                f"TFDS could not prepare {prepared.name}: {error}; give its files by "
                "--manual_dir."
            ) from error
    return prepared.path(data_dir)


@contextlib.contextmanager
def stage(prepared: PreparedSet, data_dir: str | None) -> Iterator[Path]:
    """Yields an empty staging directory, and moves the set to its place at the end.

    Files left by a killed process are removed first. The directory is locked until the
    end of the block.

    Args:
      prepared: The set; it must be written to ``prepared.folder`` in the directory.
      data_dir: Directory of all sets; None means TFDS's default.

    Raises:
      ValueError: Another process is preparing the set.
    """
    target = Path(prepared.path(data_dir))
    depth = len(Path(prepared.folder).parts)
    root = target.parents[depth - 1]
    # In the same directory, so that the rename is within one file system.
    staging = root / f".preparing-{prepared.folder.replace('/', '-')}"
    staging.mkdir(parents=True, exist_ok=True)

    def refusal(_):
        return (
            f"{prepared.name} must be prepared by one process at a time, got another "
            f"one at work in {staging}; wait for it."
        )

    # The directory itself is locked: no lock file remains. It is no link, as one in the
    # data of others may be: all that is in it is removed.
    with file_lock(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, refusal):
        try:
            # The lock is held, so these files belong to a process that was killed.
            for leftover in staging.iterdir():
                shutil.rmtree(leftover)
            yield staging
            target.parent.mkdir(parents=True, exist_ok=True)
            # One rename: readers never see an incomplete set.
            os.rename(staging / prepared.folder, target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def with_progress(items: Iterable[_T], what: str, total: int | None) -> Iterator[_T]:
    """Yields the items with a progress bar, or log lines if there is no terminal.

    Args:
      items: The items.
      what: Description of the items in the output.
      total: Number of items, if known.
    """
    logged = time.monotonic()
    with tqdm(items, what, total, disable=None) as bar:
        for n, item in enumerate(bar, 1):
            if bar.disable and time.monotonic() - logged > _LOG_EVERY_S:
                logged = time.monotonic()
                logging.info("%s: %d so far", what, n)
            yield item


def check_count(
    name: str, split: str, n: int, counts: Mapping[str, int], unit: str
) -> None:
    """Validates the number of examples of a split after reading it.

    Args:
      name: Name of the set.
      split: Name of the split.
      n: Number of units that were read.
      counts: Expected number per split, if known.
      unit: Name of the unit.

    Raises:
      ValueError: The number is not the expected one, or 0.
    """
    expected = counts.get(split, n)
    if n != expected or not n:
        raise ValueError(
            f"{name} must have {expected or 'some'} {unit} in its split {split}, got "
            f"{n}; download its files again, or pass --subset to accept these files."
        )
    logging.info("%s %s: %d %s", name, split, n, unit)


class _Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """TFDS builder of a `RawSet`."""

    url_infos = None  # Nothing is downloaded, so TFDS must not look for checksums.

    def __init__(
        self, raw: RawSet, files: Sequence[Path], counts: Mapping[str, int], **folder
    ):
        name, *config, version = raw.prepared.folder.split("/")
        self.name = name  # pyright: ignore[reportAttributeAccessIssue]
        self.VERSION = tfds.core.Version(version)
        self.BUILDER_CONFIGS = [
            tfds.core.BuilderConfig(name=name, version=version) for name in config
        ]
        self.raw, self.files, self.counts = raw, files, counts
        super().__init__(file_format="array_record", **folder)

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(dict(self.raw.features)),
            homepage=self.raw.publisher,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Examples]:
        del dl_manager
        return {split: self._generate_examples(split) for split in self.raw.counts}

    def _generate_examples(self, split: str) -> Examples:
        """Yields the examples of a split; raises at the end if it is incomplete."""
        name, counts = self.raw.prepared.name, self.counts
        examples = self.raw.examples(split, self.files)
        n = 0
        for example in with_progress(examples, f"{name} {split}", counts.get(split)):
            n += 1
            yield example
        # Raised within the writing of TFDS, which then does not complete the set.
        check_count(name, split, n, counts, "examples")


def _write_in_order(builder: _Builder) -> None:
    info = builder.info
    os.makedirs(builder.data_dir)
    writer = tfds.core.SequentialWriter(info, _SHARD, file_format="array_record")
    writer.initialize_splits(list(builder.raw.counts))
    for split in builder.raw.counts:
        examples = builder._generate_examples(split)
        # In parts: the set is never in memory as a whole.
        while chunk := list(itertools.islice(examples, 1000)):
            writer.add_examples({split: [example for _, example in chunk]})
    writer.close_all()
