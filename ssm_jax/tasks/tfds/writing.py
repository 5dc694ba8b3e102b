"""Writes a set in TFDS's folder format: whole, or not at all."""

import contextlib
import fcntl
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

from ssm_jax.tasks.tfds.files import Published
from ssm_jax.tasks.tfds.reading import PreparedSet

_LOG_EVERY_S = 10
_SHARD = 25_000
_T = TypeVar("_T")

Examples = Iterator[tuple[int | str, dict[str, Any]]]
"""Examples, each with the key that TFDS sorts them by the hash of."""


@dataclass(frozen=True, kw_only=True)
class RawSet(Published):
    """A set as its publisher distributes it.

    Attributes:
      prepared: Where it lies when it is prepared.
      features: What an example holds.
      counts: Published numbers of examples, by split.
      examples: Gives the examples of a split from the files that were found, one for
        each in ``wanted``.
      shuffled: Whether the examples are put in the order that TFDS has them in. They
        are held in memory for that; a set of more than a gigabyte is too large.
    """

    prepared: PreparedSet
    features: Mapping[str, Any]
    counts: Mapping[str, int]
    examples: Callable[[str, Sequence[Path]], Examples]
    shuffled: bool = True


def write(
    raw: RawSet, manual_dir: Path, data_dir: str | None, *, subset: bool = False
) -> str:
    """Prepares a set from its publisher's files.

    Args:
      raw: The set.
      manual_dir: Folder of the files.
      data_dir: Folder of all sets; None means TFDS's own.
      subset: Takes other numbers of examples than the published ones.

    Returns:
      The folder of the set.

    Raises:
      FileNotFoundError: A file is missing.
      ValueError: A file is damaged or holds something else, the numbers of examples
        are not the published ones, or another process prepares the same set.
    """
    files = raw.find(manual_dir)
    counts = {} if subset else raw.counts
    with staged(raw.prepared, data_dir) as staging:
        tfds.disable_progress_bar()  # what is read is shown below
        builder = _Builder(raw, files, counts, data_dir=str(staging))
        if raw.shuffled:
            # TFDS prints where it writes, which is not where the set will lie.
            with contextlib.redirect_stdout(io.StringIO()):
                builder.download_and_prepare()
        else:
            _write_in_order(builder)
    return raw.prepared.path(data_dir)


def download(prepared: PreparedSet, data_dir: str | None) -> str:
    """Prepares a set by TFDS's own builder, which needs TensorFlow and a network.

    Args:
      prepared: The set.
      data_dir: Folder of all sets; None means TFDS's own. Downloads stay there, in the
        folder ``downloads``.

    Returns:
      The folder of the set.

    Raises:
      OSError: What is needed could not be downloaded.
      ValueError: TFDS has no such set, or another process prepares it.
    """
    *name, version = prepared.folder.split("/")
    tfds.display_progress_bar(sys.stderr.isatty())
    with staged(prepared, data_dir) as staging:
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
def staged(prepared: PreparedSet, data_dir: str | None) -> Iterator[Path]:
    """Gives an empty folder to write in; what is there at the end is moved at once.

    What a killed process left there is removed. The folder is locked, and the lock
    goes with the process, however it ends.

    Args:
      prepared: The set, which is to be written to its folder in the one given.
      data_dir: Folder of all sets; None means TFDS's own.

    Raises:
      ValueError: Another process prepares the set.
    """
    target = Path(prepared.path(data_dir))
    depth = len(Path(prepared.folder).parts)
    root = target.parents[depth - 1]
    staging = root / f".preparing-{prepared.folder.replace('/', '-')}"
    staging.mkdir(parents=True, exist_ok=True)
    handle = os.open(staging, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{prepared.name} must be prepared by one process at a time, got "
                f"another one at work in {staging}; wait for it."
            ) from None
        try:
            for left in staging.iterdir():
                shutil.rmtree(left)
            yield staging
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(staging / prepared.folder, target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    finally:
        os.close(handle)


def with_progress(items: Iterable[_T], what: str, total: int | None) -> Iterator[_T]:
    """Gives what it is given and shows how far it is: a bar, or a line now and then.

    Args:
      items: What is to be gone through.
      what: What it is, for the reader.
      total: How many there are, if that is known.
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
    """Checks that a split is whole, at its end.

    Args:
      name: The set.
      split: The split.
      n: What it has.
      counts: What it should have, where that is known.
      unit: Of what.

    Raises:
      ValueError: It has something else, or nothing.
    """
    expected = counts.get(split, n)
    if n != expected or not n:
        raise ValueError(
            f"{name} must have {expected or 'some'} {unit} in its split {split}, got "
            f"{n}; get its files anew, or give --subset to take what is there."
        )
    logging.info("%s %s: %d %s", name, split, n, unit)


class _Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Builds a `RawSet` in the way of TFDS's own builders."""

    url_infos = None  # Nothing is downloaded, there are no checksums to look for.

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
        """Gives the examples of a split, and raises at their end if it is not whole."""
        name, counts = self.raw.prepared.name, self.counts
        examples = self.raw.examples(split, self.files)
        n = 0
        for example in with_progress(examples, f"{name} {split}", counts.get(split)):
            n += 1
            yield example
        check_count(name, split, n, counts, "examples")


def _write_in_order(builder: _Builder) -> None:
    info = builder.info
    os.makedirs(builder.data_dir)
    writer = tfds.core.SequentialWriter(info, _SHARD, file_format="array_record")
    writer.initialize_splits(list(builder.raw.counts))
    for split in builder.raw.counts:
        examples = builder._generate_examples(split)
        while some := list(itertools.islice(examples, 1000)):
            writer.add_examples({split: [example for _, example in some]})
    writer.close_all()
