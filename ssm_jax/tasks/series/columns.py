"""Columns of a table in a file: CSV, npz or parquet."""

import csv
import functools
from pathlib import Path

import numpy as np

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
def read(path: str) -> dict[str, np.ndarray]:
    """Reads all columns of a table.

    Args:
      path: A CSV in UTF-8 with a header, whose delimiter is a comma, a semicolon or a
        tab; an ``.npz`` with an array ``(n,)`` per column; or a ``.parquet``, which
        needs pyarrow.

    Returns:
      Columns by name, ``(n,)``; those of a CSV are strings.

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
    found = {".csv": _csv, ".npz": _npz, ".parquet": _parquet}[suffix](path)
    sizes = {name: column.shape for name, column in found.items()}
    if len(set(sizes.values())) != 1 or not next(iter(sizes.values()))[0]:
        raise ValueError(
            f"`file` must have columns of one length with a value each, got {sizes} in "
            f"{path}; leave out what is no column."
        )
    return found


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
    return {name: table[:, place] for place, name in enumerate(names)}


def _npz(path):
    return {
        name: array
        for name, array in user_files.read_npz(path).items()
        if array.ndim == 1
    }


def _parquet(path):
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ValueError(
            f"`file` must be a CSV or an npz without pyarrow, got {path}; "
            "`pip install pyarrow` installs it."
        ) from error
    _check_names(parquet.read_schema(path).names, path)
    table = parquet.read_table(path)
    return {
        name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names
    }
