"""Columns of a table in a file: CSV, npz or parquet."""

import csv
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from ssm_jax.files import max_unpacked
from ssm_jax.tasks import user_files

MISSING = ("", "na", "n/a", "nan", "null", "none")
"""Words for a missing value in a CSV, in any case."""

SUFFIXES = (".csv", ".npz", ".parquet")
"""File name extensions that are read."""

_DELIMITERS = ",;\t"


def delimiter_of(header: str) -> str:
    """Returns the delimiter of a CSV: of comma, semicolon and tab the most frequent.

    Example:
      >>> delimiter_of("time;level, in mm;flow")
      ';'
    """
    return max(_DELIMITERS, key=header.count)


# A table is read once per process, as by tasks on prepared sets.
@functools.cache
def read(path: str) -> Mapping[str, np.ndarray]:
    """Reads a table.

    Args:
      path: A CSV in UTF-8 with a header, whose delimiter is a comma, a semicolon or a
        tab; an ``.npz`` with an array ``(n,)`` per column; or a ``.parquet``, which
        needs pyarrow.

    Returns:
      Columns by name, ``(n,)``; those of a CSV are strings. Those of the other formats
      are read when they are asked for.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: The file has another extension, no rows, rows of several lengths, or
        two columns of one name, it is damaged, or pyarrow is not installed.
    """
    user_files.check_is_there(path)
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"`file` must end in one of {', '.join(SUFFIXES)}, got {path}; convert it."
        )
    return {".csv": _csv, ".npz": _npz, ".parquet": _parquet}[suffix](path)


def column(path: str, name: str, field: str) -> np.ndarray:
    """Returns a column of a table.

    Args:
      path: As for `read`.
      name: Name of the column.
      field: Field of the task that names it, for the error.

    Raises:
      FileNotFoundError: As for `read`.
      ValueError: As for `read`, or there is no such column.
    """
    table = read(path)
    if name not in table:
        raise ValueError(
            f"`{field}` must be among the columns {', '.join(table)} of {path}, got "
            f"{name!r}; choose one of them."
        )
    return table[name]


def numbers(values: np.ndarray) -> np.ndarray | None:
    """Returns a column as float64, NaN where it is missing; None if it has a word.

    Example:
      >>> numbers(np.array(["1", "NA", "2.5"])).tolist()
      [1.0, nan, 2.5]
    """
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    words = np.where(missing(values), "nan", values.astype(str))
    try:
        return words.astype(np.float64)
    except ValueError:
        return None


def times(values: np.ndarray) -> np.ndarray | None:
    """Returns a column of numbers or ISO 8601 dates as float64; None if it is neither.

    Example:
      >>> bool(np.diff(times(np.array(["2010-01-01 00:00", "2010-01-01 01:00"]))) > 0)
      True
    """
    found = numbers(values)
    if found is not None:
        return found
    try:
        return values.astype("datetime64[us]").astype(np.float64)
    except (TypeError, ValueError):
        return None


def missing(values: np.ndarray) -> np.ndarray:
    """Returns where a column has no value, bool, ``(n,)``."""
    if values.dtype.kind in "fM":
        return np.isnan(values)
    return np.isin(np.char.lower(np.char.strip(values.astype(str))), MISSING)


class _Columns(Mapping[str, np.ndarray]):
    """Columns that are read when they are asked for, once."""

    def __init__(self, names: Iterable[str], load: Callable[[str], np.ndarray]):
        self._names, self._load = dict.fromkeys(names), functools.cache(load)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._load(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _check_rows(shapes, path):
    """Checks that columns have one length, which is not 0."""
    if len(set(shapes.values())) != 1 or not next(iter(shapes.values()))[0]:
        raise ValueError(
            f"`file` must have columns of one length with a value each, got {shapes} "
            f"in {path}; leave out what is no column."
        )


def _check_names(names, path):
    twice = sorted({repr(name) for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"`file` must have columns of different names, got {', '.join(twice)} "
            f"more than once in {path}; rename or remove one."
        )


def _csv(path):
    # `utf-8-sig` drops the mark that spreadsheets write in front of the header.
    with open(path, newline="", encoding="utf-8-sig") as file:
        header = file.readline()
        names = next(csv.reader([header], delimiter=delimiter_of(header)), [])
        names = [name.strip() for name in names]
        _check_names(names, path)
        rows = []
        reader = csv.reader(file, delimiter=delimiter_of(header))
        for row in reader:
            if row and len(row) != len(names):
                raise ValueError(
                    f"`file` must have {len(names)} values in each line, as in its "
                    f"header, got {len(row)} in line {reader.line_num + 1} of {path}; "
                    "correct the line."
                )
            rows += [row] if row else []
    table = np.array(rows).reshape(len(rows), len(names))
    _check_rows({name: (len(rows),) for name in names}, path)
    return {name: table[:, place] for place, name in enumerate(names)}


def _npz(path):
    file = user_files.npz(path)
    shapes = {name: file.layout(name).shape for name in file}
    shapes = {name: shape for name, shape in shapes.items() if len(shape) == 1}
    _check_rows(shapes, path)
    return _Columns(shapes, file.__getitem__)


def _parquet(path):
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ValueError(
            f"`file` must be a CSV or an npz without pyarrow, got {path}; "
            "`pip install pyarrow` installs it."
        ) from error
    names = parquet.read_schema(path).names
    _check_names(names, path)
    n = parquet.read_metadata(path).num_rows
    _check_rows({name: (n,) for name in names}, path)
    if 8 * n > (bound := max_unpacked(path)):
        raise ValueError(
            f"`file` must have columns of at most {bound:,} bytes for its size, got "
            f"{8 * n:,} in {path}; write it without compression."
        )

    def load(name):
        table = parquet.read_table(path, columns=[name])
        return table[name].to_numpy(zero_copy_only=False)

    return _Columns(names, load)
