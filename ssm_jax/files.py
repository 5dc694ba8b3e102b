"""Files that are written whole or not at all, locks, and arrays and JSON of files."""

import contextlib
import errno
import fcntl
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from absl import logging

PART = ".part"
"""Suffix of what is not yet whole."""

MAX_BYTES, MAX_RATIO = 2**30, 200
"""Bounds of what a compressed file may take in memory: the first, or the second times
the bytes of the file. One that is made to fill the memory unpacks to a thousand times
its bytes, and so do one-hot vectors and padding: more of these than the first bound are
to be written without compression."""

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_MAX_HEADER = 2**14  # bytes; numpy reads those of its own below 10,000
# What a file system without locks answers: NFS without a lock daemon, some Lustre.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_MAX_DEPTH = 100  # of JSON; a config has about ten levels


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that replaces ``path`` at the end of the block.

    A kill or an error in the block, or a power failure, leaves the previous file.

    Raises:
      OSError: The file cannot be written; the error names it.
    """
    part = path.with_name(path.name + PART)
    with name_in_errors(path):
        with open(part, "wb", opener=_no_link) as file:
            yield file
            # Without fsync, a rename may reach the disk before the content does.
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)


def _no_link(path: str, flags: int) -> int:
    """Opens a file for writing, unless a link is in its place.

    In the work dir of others it may lead anywhere.
    """
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def write_text(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with atomic_file(path) as file:
        file.write(text.encode())


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an ``.npz`` file, whole or not at all, of any name."""
    # An open file, because numpy would add its extension to the name.
    with atomic_file(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def max_unpacked(path: str | os.PathLike[str]) -> int:
    """Returns the bytes that a compressed file may take in memory."""
    return max(MAX_BYTES, MAX_RATIO * os.stat(path).st_size)


class Layout(NamedTuple):
    """Shape and dtype of an array that has not been read."""

    shape: tuple[int, ...]
    dtype: np.dtype


class ArrayFile:
    """The arrays of an ``.npz`` file, each of which is read when it is asked for.

    The file may come from anyone. Nothing is unpickled, and what arrays take in memory
    is known from their headers before it is allocated, and bounded by `max_unpacked`
    for all that are read together.

    Args:
      path: The file.
      explain: Returns the message of a `ValueError`, given the cause.

    Raises:
      FileNotFoundError: There is none.
      ValueError: It is no zip archive or, when an array is asked for, that array is
        damaged, pickled, or too large.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     write_arrays(Path(folder, "a.npz"), {"x": np.ones((2, 3))})
      ...     arrays = ArrayFile(Path(folder, "a.npz"))
      ...     print(list(arrays), arrays.layout("x").shape, arrays["x"].sum())
      ['x'] (2, 3) 6.0
    """

    def __init__(
        self, path: str | os.PathLike[str], explain: Callable[[str], str] = str
    ):
        """Reads the names of the arrays."""
        self._path, self._explain = path, explain
        self._read: dict[str, int] = {}
        with self._open() as archive:
            self._bound = max_unpacked(path)
            infos = archive.infolist()
            self._members = {info.filename.removesuffix(".npy"): info for info in infos}
            if len(self._members) < len(infos):
                raise ValueError("two arrays of one name")

    def __iter__(self) -> Iterator[str]:
        """Yields the names of the arrays."""
        return iter(self._members)

    def keys(self) -> Iterable[str]:
        """Returns the names of the arrays, for `dict`."""
        return self._members.keys()

    def __contains__(self, name: object) -> bool:
        """Whether there is an array of this name; reads none."""
        return name in self._members

    def layout(self, name: str) -> Layout:
        """Returns the shape and dtype of an array, from its header."""
        info = self._members[name]
        with self._open(name) as archive:
            return self._layout(archive, info)[0]

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads an array."""
        info = self._members[name]
        with self._open(name) as archive:
            _, self._read[name] = self._layout(archive, info)
            if (total := sum(self._read.values())) > self._bound:
                raise ValueError(
                    f"{total:,} bytes with the arrays before it, of at most "
                    f"{self._bound:,} for a file of its size"
                )
            with archive.open(info) as member:
                return np.lib.format.read_array(member, allow_pickle=False)

    def _layout(self, archive, info):
        """The layout of an array and its bytes, which are those of the archive."""
        with archive.open(info) as member:
            # The header states its own length, up to 4 GB.
            head = io.BytesIO(member.read(_MAX_HEADER))
        version = np.lib.format.read_magic(head)
        if version not in _HEADERS:
            raise ValueError(f"a header of version {version}")
        try:
            shape, _, dtype = _HEADERS[version](head)
        except MemoryError:  # of Python's parser
            raise ValueError("a header that is nested too deeply") from None
        if dtype.hasobject:
            raise ValueError("pickled objects")
        size, n_bytes = math.prod(shape) * dtype.itemsize, info.file_size - head.tell()
        if min(shape, default=0) < 0 or size != n_bytes:
            raise ValueError(f"{n_bytes:,} bytes for {dtype} {shape}")
        return Layout(shape, dtype), size

    @contextlib.contextmanager
    def _open(self, name: str | None = None) -> Iterator[zipfile.ZipFile]:
        """Opens the archive, and converts the exceptions of one that is damaged."""
        try:
            with zipfile.ZipFile(self._path) as archive:
                yield archive
        # zipfile, its decompressors and numpy raise errors of many types.
        except Exception as error:
            known = isinstance(error, OSError) and error.errno is not None
            if known or isinstance(error, MemoryError):
                raise
            cause = " ".join(str(error).split())[:200] or type(error).__name__
            cause = cause if name is None else f"{name} with {cause}"
            raise ValueError(self._explain(cause)) from error


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads all arrays of an ``.npz`` file.

    Raises:
      FileNotFoundError: There is none.
      ValueError: As for `ArrayFile`; the error does not name the file.
    """
    return dict(ArrayFile(path))


def parse_json(text: str) -> Any:
    """Parses JSON that may be of any origin.

    Raises:
      ValueError: ``text`` is no JSON, or nested so deeply that a recursive function
        would not return; the error does not name the file.

    Example:
      >>> parse_json('{"steps": [1, 2]}')
      {'steps': [1, 2]}
    """
    rule = f"lists and objects must be nested at most {_MAX_DEPTH} deep"
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(rule) from error
    # By levels: what recursion would count, it could not return from.
    level, depth = [value], 1
    while level := [
        item
        for parent in level
        if isinstance(parent, dict | list)
        for item in (parent.values() if isinstance(parent, dict) else parent)
    ]:
        depth += 1
        if depth > _MAX_DEPTH:
            raise ValueError(rule)
    return value


@contextlib.contextmanager
def name_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Says which file could not be written; the error of a full disk does not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def file_lock(path: Path, flags: int, refusal: Callable[[int], str]) -> Iterator[int]:
    """Locks a file or a directory against other processes while the block runs.

    The lock ends with the process, even if it is killed. On a file system without locks
    a warning is logged and the block runs.

    Args:
      path: The file or directory.
      flags: Flags of `os.open`.
      refusal: Returns the message of a `ValueError`, given the open file.

    Yields:
      The open file.

    Raises:
      ValueError: Another process holds the lock, or another thread of this one.
      OSError: The file cannot be opened; the error names it.
    """
    with name_in_errors(path):
        handle = os.open(path, flags, 0o666)
    try:
        try:
            # Released by the kernel with the process, so a kill leaves no stale lock.
            # Not blocking: a second process fails at once instead of waiting.
            with name_in_errors(path):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(refusal(handle)) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            folder = path if path.is_dir() else path.parent
            logging.warning(
                "%s cannot be locked (%s): nothing keeps a second process from writing "
                "in %s and damaging its files; start only one.",
                *(path, error.strerror, folder),
            )
        yield handle
    finally:
        os.close(handle)  # Releases the lock.
