"""Writes a set in TFDS's folder format: whole, or not at all."""

import contextlib
import fcntl
import io
import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from absl import logging
from tqdm import tqdm

from ssm_jax.tasks.tfds.reading import PreparedSet

_LOG_EVERY_S = 10
_SHARD = 25_000

Examples = Iterator[tuple[int | str, dict[str, Any]]]
"""Examples, each with the key that TFDS sorts them by the hash of."""


@dataclass(frozen=True, kw_only=True)
class RawSet:
    """A set as its publisher distributes it.

    Attributes:
      prepared: Where it lies when it is prepared.
      publisher: Where its files are published.
      wanted: Its files; of each, the names that it may have, in the order in which they
        are looked for.
      features: What an example holds.
      counts: Published numbers of examples, by split.
      examples: Gives the examples of a split from the files that were found, one for
        each in ``wanted``.
      shuffled: Whether the examples are put in the order that TFDS has them in. They
        are held in memory for that; a set of more than a gigabyte is too large.
      in_tfds: Whether TFDS has a builder of its own for the set.
    """

    prepared: PreparedSet
    publisher: str
    wanted: tuple[tuple[str, ...], ...]
    features: Mapping[str, Any]
    counts: Mapping[str, int]
    examples: Callable[[str, Sequence[Path]], Examples]
    shuffled: bool = True
    in_tfds: bool = True

    def describe_wanted(self) -> str:
        """Says which files are wanted and where they are published."""
        names = ", ".join(" or ".join(names) for names in self.wanted)
        return f"{names} (from {self.publisher})"

    def find(self, manual_dir: Path) -> list[Path]:
        """Finds the files in a folder.

        Raises:
          FileNotFoundError: One of them is not there under any of its names.
        """
        found, missing = [], []
        for names in self.wanted:
            there = [
                manual_dir / name for name in names if (manual_dir / name).exists()
            ]
            found += there[:1]
            missing += [] if there else [names[0]]
        if missing:
            raise FileNotFoundError(
                f"`--manual_dir` must hold {self.describe_wanted()}, got {manual_dir} "
                f"without {', '.join(missing)}; put them there as they are distributed."
            )
        return found


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
    with _staging(raw.prepared, data_dir) as staging:
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
    with _staging(prepared, data_dir) as staging:
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
def _staging(prepared: PreparedSet, data_dir: str | None) -> Iterator[Path]:
    """Gives an empty folder to write in; what is there at the end is moved at once.

    What a killed process left there is removed. The folder is locked, and the lock
    goes with the process, however it ends.
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
        n, logged = 0, time.monotonic()
        with tqdm(
            examples, f"{name} {split}", counts.get(split), disable=None
        ) as followed:
            for example in followed:
                n += 1
                if followed.disable and time.monotonic() - logged > _LOG_EVERY_S:
                    logged = time.monotonic()
                    logging.info("%s %s: %d examples so far", name, split, n)
                yield example
        expected = counts.get(split, n)
        if n != expected or not n:
            raise ValueError(
                f"{name} must have {expected or 'some'} examples in its split {split}, "
                f"got {n}; get its files anew, or give --subset to take what is there."
            )
        logging.info("%s %s: %d examples", name, split, n)


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
