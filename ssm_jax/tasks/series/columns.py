"""Columns of a table in a file: CSV, npz or parquet."""

import contextlib
import csv
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ssm_jax.files import max_unpacked
from ssm_jax.tasks import user_files

MISSING = ("", "na", "n/a", "nan", "null", "none")
"""Words for a missing value in a CSV, in any case."""

SUFFIXES = (".csv", ".npz", ".parquet")
"""File name extensions that are read."""

_DELIMITERS = ",;\t"
SHOWN = 40
"""Characters of a value in an error."""
_SURROGATES = re.compile("[\udc80-\udcff]")


class _Table(NamedTuple):
    columns: Mapping[str, np.ndarray]  # ``(n,)``, by name
    others: dict[str, str]  # kinds, by name, of what is no such column
    lines: np.ndarray | None = None  # of each row of a CSV, ``(n,)``


def delimiter_of(header: str) -> str:
    """Returns the delimiter of a CSV: of comma, semicolon and tab the most frequent.

    Example:
      >>> delimiter_of("time;level, in mm;flow")
      ';'
    """
    return max(_DELIMITERS, key=header.count)


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
      ValueError: The file has another extension, no header, no rows, rows of several
        lengths, or two columns of one name, it is damaged or not UTF-8, or pyarrow is
        not installed.
    """
    return _table(path).columns


def others(path: str) -> dict[str, str]:
    """Returns what a table has besides, by name: such as lists, bytes, and matrices.

    Args:
      path: As for `read`.

    Returns:
      The kind of each column that is not read.
    """
    return _table(path).others


def place(path: str, row: int | np.integer) -> str:
    """Returns where a row is, for errors: the line of a CSV, or the row, from 0.

    Args:
      path: As for `read`.
      row: Index of the row.
    """
    lines = _table(path).lines
    return f"row {row}" if lines is None else f"line {lines[row]}"


# A table is read once per process, as by tasks on prepared sets.
@functools.cache
def _table(path: str) -> _Table:
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
      ValueError: As for `read`, there is no such column, or it is one of `others`.
    """
    table = read(path)
    if name in others(path):
        raise ValueError(
            f"`{field}` must be a column of numbers, words or dates, got {name!r} of "
            f"{others(path)[name]} in {path}; convert it, or leave it out."
        )
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

    A time that is missing is NaN.

    Example:
      >>> bool(np.diff(times(np.array(["2010-01-01 00:00", "2010-01-01 01:00"]))) > 0)
      True
    """
    floats = numbers(values)
    if floats is not None:
        return floats
    kind = "timedelta64[us]" if values.dtype.kind == "m" else "datetime64[us]"
    if values.dtype.kind not in "mM":
        values = np.where(missing(values), "NaT", values.astype(str))
    try:
        dates = values.astype(kind)
    except ValueError:
        return None
    # As a number, a missing date would be the earliest of all.
    return np.where(np.isnat(dates), np.nan, dates.astype(np.float64))


def missing(values: np.ndarray) -> np.ndarray:
    """Returns where a column has no value, bool, ``(n,)``."""
    if values.dtype.kind in "fmM":
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


def _check_size(name, size, way_out, path):
    """Checks that a column takes no more memory than a file of its size may ask for."""
    if size > (bound := max_unpacked(path)):
        raise ValueError(
            f"`file` must have columns of at most {bound:,} bytes for its size, got "
            f"{size:,} of {name!r} in {path}; {way_out}."
        )


def _check_names(names, path):
    twice = sorted({repr(name) for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"`file` must have columns of different names, got {', '.join(twice)} "
            f"more than once in {path}; rename or remove one."
        )


def _csv(path):
    line, rows, lines = 1, [], []
    # `utf-8-sig` drops the mark that spreadsheets write in front of the header.
    with open(path, newline="", encoding="utf-8-sig") as file:
        try:
            header = file.readline()
            delimiter = delimiter_of(header)
            names = [name.strip() for name in _fields(header, delimiter)]
            _check_names(names, path)
            _check_header(names, path)
            # Strict, because a quote that is not closed would swallow the rest.
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            line = 2
            for row in reader:
                if not row and len(names) == 1:
                    row = [""]  # Of a single column, a missing value.
                if row and len(row) != len(names):
                    raise ValueError(
                        f"`file` must have {len(names)} values in each line, as in its "
                        f"header, got {len(row)} in line {line} of {path}; correct the "
                        "line."
                    )
                if row:
                    rows.append(row)
                    lines.append(line)
                line = 2 + reader.line_num  # A field in quotes may have several.
        except (csv.Error, UnicodeDecodeError) as error:
            raise _unread_line(path, line, error) from error
    while rows and rows[-1] == [""]:  # Empty lines at the end are no values.
        rows.pop()
    _check_rows({name: (len(rows),) for name in names}, path)
    for place, name in enumerate(names):
        size = 4 * len(rows) * max(len(row[place]) for row in rows)
        _check_size(name, size, "make its words shorter", path)
    # One array for each, because its longest word determines the size of all.
    columns = {
        name: np.array([row[place] for row in rows], str)
        for place, name in enumerate(names)
    }
    return _Table(columns, {}, np.array(lines))


def _fields(text, delimiter):
    """The fields of a line."""
    return next(csv.reader([text], delimiter=delimiter, strict=True), [])


def _check_header(names, path):
    """Checks that the first line is not one of values, which would be lost."""
    if not names or not all(map(_is_value, names)):
        return
    # Some tables number their columns.
    first = names[0] if names[0].isdecimal() else "0"
    counted = [str(int(first) + place) for place in range(len(names))]
    if names != counted or (len(names) == 1 and first != "0"):
        raise ValueError(
            f"`file` must have the names of its columns in line 1, got "
            f"{', '.join(names)[:SHOWN]} in {path}; add a line of names."
        )


def _is_value(name):
    value = np.array([name])
    return times(value) is not None and not missing(value)[0]


def _unread_line(path, line, error):
    """The error of the line where csv refused a row, or of bytes that are not UTF-8."""
    decoded = not isinstance(error, UnicodeDecodeError)
    # Bytes that are not UTF-8 become surrogates.
    with open(path, newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
        header = text = file.readline()
        number = 1
        while (number < line) if decoded else not _SURROGATES.search(text):
            text, number = file.readline(), number + 1
    delimiter = delimiter_of(header)
    pieces = text.rstrip("\r\n").split(delimiter)
    if decoded:
        rule = f"have closed quotes and at most {csv.field_size_limit():,} characters"
        rule, way_out = f"{rule} in a field", "correct the line"
        index, value = _first_refused(pieces, delimiter)
        got = f"{value[:SHOWN]!r} ({error})"
    else:
        rule, way_out = "be in UTF-8", "save it as UTF-8"
        index = next(i for i, piece in enumerate(pieces) if _SURROGATES.search(piece))
        got = repr(pieces[index].encode(errors="surrogateescape")[:SHOWN])
    names = [name.strip('" ') for name in header.rstrip("\r\n").split(delimiter)]
    column = f"column {names[index]!r}, " if 1 < number and index < len(names) else ""
    return ValueError(
        f"`file` must {rule}, got {got} in {column}line {number} of {path}; {way_out}."
    )


def _first_refused(pieces, delimiter):
    """The index of the first field that csv refuses, and its text."""
    first = index = 0
    for end in range(1, len(pieces) + 1):
        try:
            _fields(delimiter.join(pieces[first:end]), delimiter)
        except csv.Error:
            continue  # Further pieces may be of the same field, in quotes.
        first, index = end, index + 1
    return index, delimiter.join(pieces[first:])


def _npz(path):
    file = user_files.npz(path)
    columns, others = {}, {}
    for name in file:
        shape, dtype = file.layout(name)
        if len(shape) != 1:
            others[name] = f"shape {shape}"
        # Of fields, of bytes without a meaning, and of dates without a unit.
        elif dtype.kind == "V" or dtype in ("M8", "m8"):
            others[name] = f"dtype {dtype}"
        else:
            columns[name] = shape
    _check_rows(columns, path)
    return _Table(_Columns(columns, file.__getitem__), others)


def _parquet(path):
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ValueError(
            f"`file` must be a CSV or an npz without pyarrow, got {path}; "
            "`pip install pyarrow` installs it."
        ) from error
    with _damage(path, pyarrow.ArrowException):
        schema = parquet.read_schema(path)
        _check_names(schema.names, path)
        kinds = {field.name: field.type for field in schema}
        # What holds several values, or bytes, is no number, word or date.
        other = {
            name: f"type {kind}"
            for name, kind in kinds.items()
            if kind.num_fields or "binary" in str(kind)
        }
        names = [name for name in kinds if name not in other]
        n = parquet.read_metadata(path).num_rows
    _check_rows({name: (n,) for name in names}, path)
    for name in names:
        _check_size(name, 8 * n, "write it without compression", path)

    def load(name):
        is_text = "string" in str(kinds[name])
        # Of words, each one is read once: a small file may repeat a long one.
        once = [name] if is_text else None
        with _damage(path, pyarrow.ArrowException):
            table = parquet.read_table(path, columns=[name], read_dictionary=once)
        values = table[name]
        if is_text:
            words = (chunk.dictionary.to_pylist() for chunk in values.chunks)
            lengths = (len(word) for word in itertools.chain(*words) if word)
            longest = max(lengths, default=0)
            _check_size(name, 4 * n * longest, "make its words shorter", path)
        return values.to_numpy(zero_copy_only=False)

    return _Table(_Columns(names, load), other)


@contextlib.contextmanager
def _damage(path, arrow_exception):
    """Converts the exceptions of pyarrow for files that are no parquet."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except (arrow_exception, OSError) as error:
        got = " ".join(str(error).split())
        raise ValueError(
            f"`file` must be a whole parquet file, got {path}: {got}; write it again."
        ) from error
