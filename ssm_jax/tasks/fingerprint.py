"""Fingerprints of the files of a task, by which a run notices that its data changed.

The splits of most tasks on files depend on the number of their examples, and statistics
such as a vocabulary or the scale of a column on all of the train split: rows or files
that are added later change what a trained model is evaluated on.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

# `files` and `bytes`, how many there are; `modified`, when the last of them was;
# `sha256`, the hash of their names, sizes and contents. Ready for JSON.
Fingerprint = dict[str, Any]

_WHOLE = 2**26  # Bytes in all of files that are read whole,
_WHOLE_FILES = 512  # and their number.
# Of larger ones: a cold disk needs a second for some hundred places.
_SAMPLED_FILES, _SAMPLES, _SAMPLE = 64, 128, 2**16


def data_files(task: Any) -> Mapping[str, str | os.PathLike[str]]:
    """Returns the files that determine the batches of a task, none by default.

    Args:
      task: A task. Its ``data_files()`` returns their paths by names that do not depend
        on where the data are.

    Raises:
      ValueError: The method raises it, or returns no dict.
    """
    method = getattr(task, "data_files", None)
    files = method() if callable(method) else {}
    if not isinstance(files, Mapping):
        raise ValueError(
            f"`data_files` of {type(task).__name__} must return paths by their names, "
            f"got {type(files).__name__}; a dict is one."
        )
    return files


def fingerprint_of(task: Any) -> Fingerprint | None:
    """Returns the fingerprint of the `data_files` of a task; None if it has none.

    Raises:
      OSError: A file cannot be read.
      ValueError: As for `data_files`.
    """
    files = data_files(task)
    return fingerprint(files) if files else None


def fingerprint(files: Mapping[str, str | os.PathLike[str]]) -> Fingerprint:
    """Computes the fingerprint of some files.

    It takes well under a second, whatever the size: up to 64 MiB in up to 512 files are
    read whole, of more some files, and of these the head, the tail and places between
    them, where archives and tables have their headers. An edit in place between these,
    which changes no size, is not noticed. Copies have equal fingerprints, and so have
    files that were only touched, except for ``modified``.

    Args:
      files: Paths by names, which are of the fingerprint, too.

    Raises:
      OSError: A file cannot be read.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile() as file:
      ...     before = fingerprint({"a.csv": file.name})
      ...     _ = file.write(b"1,2")
      ...     file.flush()
      ...     after = fingerprint({"a.csv": file.name})
      >>> before["sha256"] == after["sha256"], after["files"], after["bytes"]
      (False, 1, 3)
    """
    names = sorted(files)
    stats = [os.stat(files[name]) for name in names]
    sizes = dict(zip(names, (stat.st_size for stat in stats), strict=True))
    digest = hashlib.sha256()
    for name, size in sizes.items():
        digest.update(f"{name}\0{size}\n".encode(errors="surrogateescape"))
    hashed_names, n_samples = names, None
    if sum(sizes.values()) > _WHOLE or len(names) > _WHOLE_FILES:
        places = np.linspace(0, len(names) - 1, min(len(names), _SAMPLED_FILES))
        hashed_names = [names[int(place)] for place in places]
        n_samples = _SAMPLES // len(hashed_names)
    for name in hashed_names:
        with open(files[name], "rb") as file:
            for offset in _offsets(sizes[name], n_samples):
                file.seek(offset)
                digest.update(file.read(_SAMPLE))
    last = np.datetime64(int(max(stat.st_mtime for stat in stats)), "s")
    return {
        "files": len(names),
        "bytes": sum(sizes.values()),
        "modified": f"{last}Z",
        "sha256": digest.hexdigest(),
    }


def same(one: Fingerprint, other: Fingerprint) -> bool:
    """Whether two fingerprints are of the same data, copied or touched or not."""
    return one["sha256"] == other["sha256"]


def describe(data: Fingerprint) -> str:
    """Describes data for an error.

    Example:
      >>> describe({"files": 1, "bytes": 3000, "modified": "2026-01-31T18:00:00Z"})
      '1 file of 3,000 bytes, modified 2026-01-31T18:00:00Z'
    """
    files = "1 file" if data["files"] == 1 else f"{data['files']:,} files"
    return f"{files} of {data['bytes']:,} bytes, modified {data['modified']}"


def _offsets(size: int, n_samples: int | None) -> Iterable[int]:
    """Where samples of a file start: all of it, or some that are evenly spaced."""
    if n_samples is None or size <= n_samples * _SAMPLE:
        return range(0, size, _SAMPLE)
    return map(int, np.linspace(0, size - _SAMPLE, n_samples))
