"""Columns of a table in a file, or in several: CSV, npz or parquet."""

import contextlib
import functools
import glob
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from typing_extensions import override

from ssm_jax.files import max_unpacked
from ssm_jax.tasks import user_files
from ssm_jax.tasks.series import csv_rows, dates, naming, numbers
from ssm_jax.tasks.series.csv_rows import SHOWN, check_names
from ssm_jax.tasks.series.dates import Times
from ssm_jax.tasks.series.naming import Group
from ssm_jax.tasks.series.numbers import Decimal, Misfit, Numbers
from ssm_jax.tasks.series.table_format import TableFormat

SUFFIXES = (".csv", ".npz", ".parquet")
"""File name extensions that are read; ``.tsv`` and ``.txt`` are read as ``.csv``."""

FILE = "file"
"""Column of the name of the file of each row, in a table of several files."""

_CSV_SUFFIXES = (".csv", ".tsv", ".txt")
_LABEL_GAPS = ("", "na", "n/a", "nan", "null", "none")
_DEFAULT = TableFormat()
_MAGIC = frozenset("*?[")
_NAMES = 5  # in errors and notes
_OF_FILE = Misfit(0, "is the name of a file")


class Table(Mapping[str, np.ndarray]):
    """The columns of a table by name, ``(n,)``, each read when it is asked for, once.

    Those of a CSV are words, those of other formats have the dtype of the file.

    Attributes:
      path: The file, or the pattern of several.
      format: How it is written.
      others: The kinds, by name, of what it has besides, such as lists and matrices.
      notes: What a careful reader would want to know of how it was read.
      file_column: Column of the names of the files; None for a table of one.
    """

    file_column: str | None = None

    def __init__(
        self,
        path: str,
        format: TableFormat,
        load: Mapping[str, Callable[[], np.ndarray]],
        *,
        others: Mapping[str, str] | None = None,
        lines: np.ndarray | None = None,
        notes: tuple[str, ...] = (),
        delimiter: str | None = None,
    ):
        """Keeps how each column is loaded.

        Args:
          path: The file.
          format: How it is written.
          load: Functions that load the columns, by name.
          others: What is no such column.
          lines: Line of each row of a CSV, ``(n,)``.
          notes: How it was read.
          delimiter: Delimiter of a CSV.
        """
        self.path, self.format, self.notes = path, format, notes
        self.others = dict(others or {})
        self._load = {name: functools.cache(column) for name, column in load.items()}
        self._lines, self._delimiter = lines, delimiter
        self._numbers = functools.cache(self._read_numbers)
        self._times = functools.cache(self._read_times)

    # Of the columns, which a mapping compares, there may be gigabytes.
    def __hash__(self) -> int:
        """Returns the identity."""
        return id(self)

    def __eq__(self, other: object) -> bool:
        """Whether two are the same object."""
        return self is other

    def __getitem__(self, name: str) -> np.ndarray:
        """Returns a column."""
        return self._load[name]()

    def __contains__(self, name: object) -> bool:
        """Whether there is a column; reads none."""
        return name in self._load

    def __iter__(self) -> Iterator[str]:
        """Yields the names of the columns."""
        return iter(self._load)

    def __len__(self) -> int:
        """Returns the number of columns."""
        return len(self._load)

    @property
    def parts(self) -> "tuple[Table, ...]":
        """The tables of the files, whose rows are one after another."""
        return (self,)

    def place(self, row: int | np.integer) -> str:
        """Returns where a row is, for errors: the line of a CSV, or the row, from 0."""
        return f"row {row}" if self._lines is None else f"line {self._lines[row]}"

    def column(self, name: str, field: str) -> np.ndarray:
        """Returns a column.

        Args:
          name: Name of the column.
          field: Field of the task that names it, for the error.

        Raises:
          ValueError: There is no such column, or it is one of `others`.
        """
        if name in self.others:
            raise ValueError(
                f"`{field}` must be a column of numbers, words or dates, got {name!r} "
                f"of {self.others[name]} in {self.path}; convert it, or leave it out."
            )
        if name not in self:
            raise ValueError(
                f"`{field}` must be among the columns {', '.join(self)} of "
                f"{self.path}, got {name!r}; choose one of them, or add it."
            )
        return self[name]

    def numbers(self, name: str) -> Numbers:
        """Returns a column as float64, NaN where it is missing; see `Numbers`."""
        return self._numbers(name)

    def times(self, names: str | tuple[str, ...], group: Group = None) -> Times:
        """Returns a column of dates or numbers, or several that are a date together.

        Args:
          names: The column, or several: numbers whose names are of
            `ssm_jax.tasks.series.dates.CALENDAR` in any case, or a date and a time.
          group: The column, or columns, of the name of the series.
        """
        return self._times(names, group)

    def shown(self, name: str, row: int | np.integer | Misfit) -> str:
        """Returns a value with its column and its place, for errors.

        Args:
          name: Name of the column.
          row: Its row, or a misfit, whose reason and way out follow.
        """
        if isinstance(row, Misfit):
            return f"{self.shown(name, row.row)}, which {row.reason}; {row.way_out}"
        value = str(self[name][row])
        dots = "..." if len(value) > SHOWN else ""
        return (
            f"{value[:SHOWN]!r}{dots} of {name!r} in {self.place(row)} of {self.path}"
        )

    def _read_numbers(self, name):
        values = self[name]
        if values.dtype.kind in "biuf":
            return Numbers(values.astype(np.float64))
        if values.dtype.kind in "mM":
            return Numbers(None, Misfit(0))
        return numbers.parse(values.astype(str).tolist(), self.format, self._decimal)

    @functools.cached_property
    def _decimal(self) -> Decimal | None:
        """The decimal sign that the columns of a CSV show together, or None."""
        if self._lines is None or self.format.decimal is not None:
            return self.format.decimal
        found: set[Decimal] = {
            sign
            for name in self
            # Whole numbers and dates show none.
            if any("," in word for word in self[name])
            and (sign := numbers.evidence(self[name].tolist(), self.format))
        }
        if len(found) == 1:
            return found.pop()
        # Between commas, one that is part of a value stands between thousands.
        return "." if not found and self._delimiter == "," else None

    def _read_times(self, names, group):
        series = None
        if of_group := naming.columns(group):
            words = zip(*(self[name].astype(str) for name in of_group), strict=True)
            series = [naming.join(row, group) for row in words]
        if isinstance(names, str):
            return self._one_time(names, series)
        units = [name.lower() for name in names]
        if set(units) <= set(dates.CALENDAR) and "year" in units:
            columns = {}
            for unit, name in zip(units, names, strict=True):
                read = self.numbers(name)
                if read.values is None:
                    return Times(None, read.misfit)
                columns[unit] = read.values
            return dates.from_calendar(columns, self.format, series)
        words = zip(*(self[name].astype(str) for name in names), strict=True)
        joined = [" ".join(row).strip() for row in words]
        return dates.parse(joined, self.format, series)

    def _one_time(self, name, series):
        values = self[name]
        if values.dtype.kind in "mM":
            kind = "timedelta64[us]" if values.dtype.kind == "m" else "datetime64[us]"
            moments = values.astype(kind)
            # As a number, a missing date would be the earliest of all.
            floats = np.where(np.isnat(moments), np.nan, moments.astype(np.float64))
            return Times(floats)
        if (read := self.numbers(name)).values is not None:
            return dates.from_numbers(read.values)
        words = values.astype(str).tolist()
        times = dates.parse(words, self.format, series)
        if times.values is not None:
            return times
        # What is no date may be a number among numbers.
        if 2 * dates.n_dates(words) < len(words):
            return times._replace(misfit=read.misfit, is_date=False)
        return times


class _JoinedTable(Table):
    """The rows of several files with the same columns, and `FILE`, the name of each."""

    file_column = FILE

    def __init__(self, path: str, format: TableFormat, tables: Mapping[str, Table]):
        """Joins tables, by the names of their files."""
        by_columns = Counter(frozenset({*t, *t.others}) for t in tables.values())
        usual = by_columns.most_common(1)[0][0]
        like = next(name for name, t in tables.items() if usual == {*t, *t.others})
        for name, table in tables.items():
            if {*table, *table.others} != usual:
                _refuse_columns(path, name, {*table, *table.others}, like, usual)
        if FILE in usual:
            raise ValueError(
                f"`file` must have no column {FILE!r} in a table of several files, got "
                f"one in {like} of {path}, where it is the name of each; rename it."
            )
        self._files, self._parts = tuple(tables), tuple(tables.values())
        first = tables[like]
        sizes = [len(table[next(iter(first))]) for table in self._parts]
        self._starts = np.cumsum([0, *sizes[:-1]])
        stems = [Path(name).with_suffix("").as_posix() for name in tables]
        names = stems if len({*stems}) == len(stems) else self._files
        load = {name: functools.partial(self._concatenate, name) for name in first}
        load[FILE] = functools.partial(np.repeat, np.array(names, str), sizes)
        notes = self._merge_notes([table.notes for table in self._parts])
        super().__init__(path, format, load, others=first.others, notes=notes)

    @property
    @override
    def parts(self) -> tuple[Table, ...]:
        return self._parts

    @override
    def place(self, row: int | np.integer) -> str:
        part = int(np.searchsorted(self._starts, row, "right")) - 1
        place = self._parts[part].place(row - self._starts[part])
        return f"{place} of {self._files[part]}"

    # Each file by itself: it may have decimal signs and dates of its own.
    @override
    def _read_numbers(self, name):
        if name == FILE:
            return Numbers(None, _OF_FILE)
        return self._join([table.numbers(name) for table in self._parts])

    @override
    def _read_times(self, names, group):
        if FILE in ((names,) if isinstance(names, str) else names):
            return Times(None, _OF_FILE, is_date=False)
        # Within a file its name is the same in all rows.
        group = tuple(name for name in naming.columns(group) if name != FILE)
        reads = [table.times(names, group) for table in self._parts]
        for start, read in zip(self._starts.tolist(), reads, strict=True):
            if read.values is not None and read.is_date != reads[0].is_date:
                reason = (
                    f"is {'no' * (not read.is_date)} date, unlike those of other files"
                )
                return Times(None, Misfit(start, reason), is_date=False)
        return self._join(reads)

    def _concatenate(self, name):
        return np.concatenate([table[name] for table in self._parts])

    def _join(self, reads):
        """What was read of a column in each file, as one."""
        for start, read in zip(self._starts.tolist(), reads, strict=True):
            if read.values is None:
                misfit = read.misfit._replace(row=read.misfit.row + start)
                return read._replace(misfit=misfit)
        notes = self._merge_notes([[read.note] if read.note else [] for read in reads])
        values = np.concatenate([read.values for read in reads])
        read = reads[0]._replace(values=values, note="; ".join(notes))
        if not isinstance(read, Times):
            return read
        return read._replace(is_utc=all(each.is_utc for each in reads))

    def _merge_notes(self, notes_of_parts):
        """Each note once, with the files that it is on unless it is on all."""
        files = {}
        for name, notes in zip(self._files, notes_of_parts, strict=True):
            for note in notes:
                files.setdefault(note, []).append(name)
        return tuple(
            note if len(names) == len(self._files) else f"{note} ({_some(names)})"
            for note, names in files.items()
        )


def _refuse_columns(path, name, found, like, usual):
    """Refuses a file whose columns are not those of the others."""
    differences = [
        f"{word} {_some(map(repr, sorted(names)))}"
        for word, names in (("with", found - usual), ("without", usual - found))
        if names
    ]
    raise ValueError(
        f"`file` must be tables of the same columns, got {name} "
        f"{' and '.join(differences)}, unlike {like}, of {path}; correct it, or leave "
        "it out."
    )


def _some(names):
    names = [*names]
    further = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {further} more" if further > 0 else "")


def locate(path: str) -> tuple[Path, str]:
    """Returns the folder of a file or a pattern, and its name or pattern there.

    Folders that there are have the name that is written, also one such as ``[1]``.

    Example:
      >>> folder, pattern = locate("no such/*/a.csv")
      >>> str(folder), pattern
      ('.', 'no such/*/a.csv')
    """
    folder, pattern = Path(path).parent, Path(path).name
    while not folder.is_dir() and folder != folder.parent:
        folder, pattern = folder.parent, f"{folder.name}/{pattern}"
    return folder, pattern


def files(path: str) -> dict[str, Path]:
    """Returns the files of a table by their names.

    Args:
      path: A file; or a pattern such as ``stores/*.csv``, of which `glob` says what
        ``*``, ``?`` and ``[]`` stand for.

    Returns:
      The files that fit the pattern, by their paths from its folder, sorted; or the
      path itself, if it is no pattern or none fits.
    """
    folder, pattern = locate(path)
    if os.path.isfile(path) or not _MAGIC.intersection(pattern):
        return user_files.data_files(path)
    names = sorted(glob.glob(pattern, root_dir=folder))
    found = {Path(name).as_posix(): folder / name for name in names}
    found = {name: file for name, file in found.items() if file.is_file()}
    return found or user_files.data_files(path)


def read(path: str, format: TableFormat = _DEFAULT) -> Table:
    """Reads a table.

    A file is read again if it has changed since, and once otherwise. The rows of
    several files are one after another, and `FILE` is a further column.

    Args:
      path: A file, or a pattern of several; see `files`. A file is a CSV, whose header,
        delimiter and encoding `csv_rows.read` finds; an ``.npz`` with an array ``(n,)``
        per column; or a ``.parquet``, which needs pyarrow.
      format: How the table is written.

    Returns:
      The table.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: The file has another extension, no header, no rows, rows of several
        lengths, or two columns of one name, it is damaged or no text, pyarrow is not
        installed, or several files have different columns or are of several kinds.
    """
    found = {name: str(file) for name, file in files(path).items()}
    for file in found.values():
        user_files.check_is_there(file)
        if Path(file).suffix.lower() not in (*_CSV_SUFFIXES, *SUFFIXES):
            raise ValueError(
                f"`file` must end in one of {', '.join(SUFFIXES)}, got {file}; convert "
                "it."
            )
    states = tuple(map(user_files.state_of, found.values()))
    return _read(path, tuple(found.items()), format, states)


@functools.lru_cache(maxsize=8)
def _read(
    path: str,
    found: tuple[tuple[str, str], ...],
    format: TableFormat,
    states: tuple[tuple[int, ...], ...],
) -> Table:
    del states  # What the files were when they were read.
    readers = {".npz": _npz, ".parquet": _parquet}
    by_file = {
        name: readers.get(Path(file).suffix.lower(), _csv) for name, file in found
    }
    if len({*by_file.values()}) > 1:
        suffixes = ", ".join(sorted({Path(name).suffix for name in by_file}))
        raise ValueError(
            f"`file` must be files of one kind, got {suffixes} of {path}; end the "
            "pattern in one of them."
        )
    tables = {name: by_file[name](file, format) for name, file in found}
    if [Path(file) for _, file in found] == [Path(path)]:
        return next(iter(tables.values()))
    return _JoinedTable(path, format, tables)


def missing(values: np.ndarray) -> np.ndarray:
    """Returns where a column has no value, bool, ``(n,)``.

    Of words these are the empty ones, and NA, NaN, null and none in any case: others
    that stand for a missing number, such as ``-``, may be labels.
    """
    if values.dtype.kind in "fmM":
        return np.isnan(values)
    return np.isin(np.char.lower(np.char.strip(values.astype(str))), _LABEL_GAPS)


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


def _csv(path, format):
    rows = csv_rows.read(path, format)
    for name, cells in zip(rows.names, rows.columns, strict=True):
        size = 4 * len(cells) * max(map(len, cells))
        _check_size(name, size, "make its words shorter", path)
    # One array for each, because its longest word determines the size of all.
    load = {
        name: functools.partial(np.array, cells, str)
        for name, cells in zip(rows.names, rows.columns, strict=True)
    }
    return Table(
        path,
        format,
        load,
        lines=rows.lines,
        notes=rows.notes,
        delimiter=rows.delimiter,
    )


def _npz(path, format):
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
    load = {name: functools.partial(file.__getitem__, name) for name in columns}
    return Table(path, format, load, others=others)


def _parquet(path, format):
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
        check_names(schema.names, path)
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

    columns = {name: functools.partial(load, name) for name in names}
    return Table(path, format, columns, others=other)


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
