"""Reads sets in TFDS's folder format, record by record, without TensorFlow."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ssm_jax.tasks.tfds import metadata

# Records per call: each call starts a thread pool, which dominates small reads.
_AT_ONCE = 4096


class Record:
    """One example of a set: the values of its features by name."""

    def __init__(self, raw: bytes, explain: Callable[[BaseException], str]):
        """Parses a serialized ``tf.train.Example``; see `Records` for ``explain``.

        Raises:
          ValueError: It is none.
        """
        # Imported on first use: tasks without prepared sets do not need TFDS.
        from google.protobuf.message import DecodeError
        from tensorflow_datasets.proto import tf_example_pb2

        example: Any = tf_example_pb2.Example  # pyright: ignore[reportAttributeAccessIssue]
        self._explain = explain
        try:
            self._values = example.FromString(raw).features.feature
        except DecodeError as error:
            raise ValueError(explain(error)) from error

    def text(self, name: str) -> bytes:
        """Returns a feature that is a text or an encoded image, as bytes."""
        return self._first(name, self._values[name].bytes_list.value)

    def integer(self, name: str) -> int:
        """Returns a feature that is a label or another integer."""
        return self._first(name, self._values[name].int64_list.value)

    def _first(self, name: str, values: Sequence[Any]) -> Any:
        if not values:
            error = LookupError(f"a record without a value of {name!r}")
            raise ValueError(self._explain(error))
        return values[0]


class Records:
    """The records of one split, in a fixed order.

    Iteration reads all records, with a progress bar on a terminal; `iterate` and `read`
    read records at given positions only, the latter at once.
    """

    def __init__(self, source: Any, name: str, explain: Callable[[BaseException], str]):
        """Wraps a source of raw records; ``explain`` returns error messages."""
        self._source, self._name, self._explain = source, name, explain

    def __len__(self) -> int:
        """Returns the number of records."""
        return len(self._source)

    def __iter__(self) -> Iterator[Record]:
        """Reads all records."""
        return self.iterate(range(len(self)))

    def iterate(self, rows: Sequence[int] | np.ndarray) -> Iterator[Record]:
        """Reads the records at the positions ``rows`` one after another."""
        from tqdm import tqdm

        with tqdm(total=len(rows), desc=self._name, disable=None) as bar:
            for start in range(0, len(rows), _AT_ONCE):
                some = [int(row) for row in rows[start : start + _AT_ONCE]]
                yield from self.read(some)
                bar.update(len(some))

    def read(self, rows: Sequence[int]) -> list[Record]:
        """Reads the records at the positions ``rows``.

        Raises:
          ValueError: The file is damaged.
        """
        try:
            raw = self._source.__getitems__(rows)
        except RuntimeError as error:  # array_record raises RuntimeError.
            raise ValueError(self._explain(error)) from error
        if not all(raw):  # A file truncated at a block boundary.
            raise ValueError(self._explain(EOFError("empty records, a truncated file")))
        return [Record(record, self._explain) for record in raw]


@dataclasses.dataclass(frozen=True)
class PreparedSet:
    """A set prepared by `launch.prepare` or by TFDS.

    Attributes:
      name: Name of the set for ``python -m launch.prepare --dataset``.
      folder: Path of the set, relative to the directory of all sets.
      features: Names of the features that its records must have.

    Example:
      >>> digits = PreparedSet("mnist", "mnist/3.0.1", ("image", "label"))
      >>> digits.path("runs/data")
      'runs/data/mnist/3.0.1'
    """

    name: str
    folder: str
    features: tuple[str, ...]

    def path(self, data_dir: str | None) -> str:
        """Returns the directory of the set.

        Args:
          data_dir: Directory of all sets. None means TFDS's default: the environment
            variable ``TFDS_DATA_DIR``, else ``~/tensorflow_datasets``.
        """
        if data_dir is None:
            from tensorflow_datasets.core import constants

            data_dir = constants.DATA_DIR
        return os.path.join(os.path.expanduser(data_dir), self.folder)

    def data_files(self, data_dir: str | None) -> dict[str, Path]:
        """Returns the files with the records of all splits by name.

        Args:
          data_dir: Directory of all sets, as for `path`.
        """
        paths = Path(self.path(data_dir)).glob("*.array_record*")
        return {path.name: path for path in paths}

    def is_there(self, data_dir: str | None) -> bool:
        """Returns whether the set exists; reads both ends of each of its splits.

        Raises:
          ValueError: As for `open`.
        """
        try:
            description = self.read_metadata(data_dir)
        except FileNotFoundError:
            return False
        for split in description.splits:
            records = self.open(data_dir, split)
            # A file that is cut short fails at its last record.
            records.read([0, len(records) - 1])
        return True

    def open(self, data_dir: str | None, split: str) -> Records:
        """Opens a split.

        Args:
          data_dir: Directory of all sets, as for `path`.
          split: Name of the split in the set.

        Returns:
          The records, which are read on access.

        Raises:
          FileNotFoundError: The set does not exist.
          ValueError: The set is damaged, not in array_record format, lacks the split or
            a feature, or has a feature of an unknown class.
        """
        # Imported on first use: tasks without prepared sets do not need it.
        from array_record.python import array_record_data_source

        description = self.read_metadata(data_dir)
        explain = functools.partial(self._explain_damage, data_dir)
        # Checked when the split is opened, not at the first record without it.
        for name in self.features:
            kind = description.features.get(name)
            if kind is None:
                raise self._wrong_set(data_dir, f"a set without the feature {name!r}")
            if kind not in metadata.READABLE:
                what = f"a set whose feature {name!r} is a {kind}, which is not read"
                raise self._wrong_set(data_dir, what)
        if split not in description.splits:
            raise self._wrong_set(data_dir, f"a set without the split {split!r}")
        try:
            # The raw records: decoding by TFDS takes ten times as long.
            source = array_record_data_source.ArrayRecordDataSource(
                description.shards(split)
            )
        except (ValueError, RuntimeError) as error:
            raise ValueError(explain(error)) from error
        return Records(source, f"{self.name} {split}", explain)

    def read_metadata(self, data_dir: str | None) -> metadata.Metadata:
        """Returns what the metadata of the set say.

        Raises:
          FileNotFoundError: The set does not exist.
          ValueError: As for `open`.
        """
        path = self.path(data_dir)
        if not os.path.exists(os.path.join(path, "dataset_info.json")):
            raise FileNotFoundError(
                self._message(data_dir, "nothing there", self._command(data_dir))
            )
        try:
            return metadata.read(path)
        except metadata.OtherSet as error:
            raise self._wrong_set(data_dir, str(error)) from error
        except ValueError as error:
            raise ValueError(self._explain_damage(data_dir, error)) from error

    def _wrong_set(self, data_dir: str | None, what: str) -> ValueError:
        way = f"pass another folder, and {self._command('FOLDER')}"
        return ValueError(self._message(data_dir, what, way))

    def _explain_damage(self, data_dir: str | None, error: BaseException) -> str:
        cause = " ".join(str(error).split())
        way = f"remove {self.path(data_dir)}, then {self._command(data_dir)}"
        return self._message(data_dir, f"a damaged set ({cause})", way)

    def _message(self, data_dir: str | None, problem: str, way: str) -> str:
        return (
            f"`data_dir` must hold {self.folder} prepared as array_record, got "
            f"{self.path(data_dir)} with {problem}; {way}."
        )

    def _command(self, data_dir: str | None) -> str:
        folder = self.path(data_dir).removesuffix(self.folder).rstrip("/")
        arguments = f"--dataset={self.name} --data_dir={folder}"
        return f"`python -m launch.prepare {arguments}` prepares it"


def check_held_out(n: int, n_validation: int, usual: str) -> None:
    """Raises ValueError unless some, but not all, of ``n`` examples are held out."""
    if not 0 < n_validation < n:
        raise ValueError(
            f"`n_validation` must be from 1 to {n - 1}, so that train examples "
            f"remain, got {n_validation}; {usual} is usual."
        )
