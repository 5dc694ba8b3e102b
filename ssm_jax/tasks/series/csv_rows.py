"""The rows of a CSV: its encoding, its delimiter, its header, and what is no row."""

import csv
import io
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ssm_jax.tasks.series import dates, numbers
from ssm_jax.tasks.series.table_format import TableFormat

SHOWN = 40
"""Characters of a value in an error."""

_DELIMITERS = ",;\t|"
_STATED = re.compile(r"sep=(.)\s*")  # What spreadsheets read in the first line.
_SAMPLE = 100  # Lines at the beginning, and at the end, that show the delimiter.
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
_MAX_ABOVE = 50  # Lines above the header.


class Rows(NamedTuple):
    """A CSV that was read.

    Attributes:
      names: Names of the ``k`` columns.
      columns: Their values as they are written, without blanks around them, ``k`` lists
        of ``n``.
      lines: Line of each row in the file, from 1, ``(n,)``.
      delimiter: Character between the values.
      notes: What a careful reader would want to know of how the file was read.
    """

    names: list[str]
    columns: list[list[str]]
    lines: np.ndarray
    delimiter: str
    notes: tuple[str, ...]


def read(path: str, format: TableFormat) -> Rows:
    """Reads a CSV.

    The header is the first line that has as many values as the rows below. Lines above
    it, a line of units below it, headers that are repeated, lines without a value, and
    a last column without a name and a value are skipped, which the notes say.

    Args:
      path: The file.
      format: How it is written.

    Raises:
      ValueError: Its bytes are no text, it has no header or no rows, a line has more or
        fewer values than the header, a quote is not closed, or two columns have one
        name. The error names the line, and where there is one the column and the value.
    """
    text, notes = _decode(path, format.encoding)
    first_line = text.partition("\n")[0].rstrip("\r")
    delimiter, skipped = format.delimiter, 0
    if match := _STATED.fullmatch(first_line):
        delimiter, skipped = delimiter or match[1], 1
    delimiter = delimiter or _find_delimiter(text)
    if delimiter != ",":
        notes.append(f"values are between {_NAMES.get(delimiter, repr(delimiter))}")
    rows = _split(text, delimiter, path)[skipped:]
    rows, header = _cut_above_header(rows, path, notes)
    names, rows = _below_header(rows, header, path, notes)
    if not rows:
        raise ValueError(
            "`file` must have rows with a value below its header, got none in "
            f"{path}; add them."
        )
    columns = [[row[place] for _, row in rows] for place in range(len(names))]
    lines = np.array([line for line, _ in rows])
    names = _name_columns(names, columns, path, notes)
    return Rows(names, columns[: len(names)], lines, delimiter, tuple(notes))


_NAMES = {"\t": "tabs", ";": "semicolons", "|": "bars", " ": "blanks"}


def _decode(path, encoding):
    """The text of a file, and notes."""
    data = Path(path).read_bytes()
    mark = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    if mark is None and encoding is None:
        mark = _unmarked_utf16(data)
    tried = [encoding] if encoding is not None else [mark or "utf-8", "cp1252"]
    errors = []
    for name in tried:
        try:
            text = data.decode(name)
        except UnicodeDecodeError as error:
            errors.append(error)
            continue
        if "\0" in text:
            line = text[: text.index("\0")].count("\n") + 1
            raise ValueError(
                f"`file` must be text, got a zero byte in line {line} of {path}; "
                "correct the line."
            )
        note = f"its encoding is {name}, since it is not UTF-8"
        return text, [note] if errors else []
    # The place in the last encoding, which is the more permissive one.
    error, name = errors[-1], tried[-1]
    before = data[: error.start]
    line = before.count(b"\n") + 1
    start = max(before.rfind(b"\n"), error.start - SHOWN) + 1
    got = data[start : start + SHOWN].splitlines()[0]
    raise ValueError(
        f"`file` must be text in {' or '.join(tried)}, got {got!r} in line {line} of "
        f"{path}; `encoding` of the format states another, or save it as UTF-8."
    ) from error


def _unmarked_utf16(data):
    """UTF-16 without its mark, in which every other byte is 0; or None."""
    head = data[:400]
    for offset, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if head and 2 * head[offset::2].count(0) > 0.8 * len(head):
            return name
    return None


def _find_delimiter(text):
    """The delimiter by which the lines have equally many values, which can be read."""
    lines = [line for line in text.splitlines() if line.strip()]
    sample = lines[: 2 * _SAMPLE]
    if len(lines) > 2 * _SAMPLE:
        sample = lines[:_SAMPLE] + lines[-_SAMPLE:]
    scores = {}
    for delimiter in _DELIMITERS + " ":
        rows = [_fields(line, delimiter) for line in sample]
        width, count = max(
            Counter(map(len, rows)).items(), key=lambda item: item[1], default=(0, 0)
        )
        if width < 2:
            continue
        whole = [row for row in rows if len(row) == width]
        # The header is read by its values, too, which are none.
        readable = sum(_is_value(cell) for row in whole for cell in row)
        share = readable / (width * len(whole))
        scores[delimiter] = count / len(rows) * (0.1 + share)
    # Blanks stand between words, too.
    if len(scores) > 1:
        scores.pop(" ", None)
    return max(scores, key=lambda delimiter: scores[delimiter], default=",")


def _fields(line, delimiter):
    """The values of a line; none if its quotes are not closed."""
    if delimiter == " ":
        return line.split()
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
    except (csv.Error, StopIteration):
        return []


_FORMAT = TableFormat()


def _is_value(cell):
    """Whether a cell is a number, a date or missing."""
    words = [cell.strip()]
    if numbers.missing(words, _FORMAT)[0]:
        return True
    if any(pattern.fullmatch(words[0]) for pattern in numbers.PATTERNS.values()):
        return True
    return cell[:1].isdigit() and dates.is_date(words[0])


def _split(text, delimiter, path):
    """The rows of a text as ``(line, values)``, also the empty ones."""
    if delimiter == " ":
        lines = enumerate(text.splitlines(), 1)
        return [(number, line.split()) for number, line in lines]
    # Strict, because a quote that is not closed would swallow the rest.
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        skipinitialspace=True,
        strict=True,
    )
    rows, line = [], 1
    try:
        for row in reader:
            rows.append((line, [cell.strip() for cell in row]))
            line = 1 + reader.line_num  # A value in quotes may have several lines.
    except csv.Error as error:
        raise _unread_line(path, text, line, delimiter, error) from error
    return rows


def _cut_above_header(rows, path, notes):
    """The rows from the header on, and the header."""
    widths = Counter(len(row) for _, row in rows if row)
    if not widths:
        raise ValueError(
            "`file` must have columns of one length with a value each, got an empty "
            f"file {path}; write a line of names and rows below it."
        )
    width = widths.most_common(1)[0][0]
    first = next(i for i, (_, row) in enumerate(rows) if row)
    header = first
    while header < len(rows) and _is_above(rows[header][1], width):
        header += 1
    # What looks like a remark may be the header, and the header is no row.
    if header >= min(len(rows), first + _MAX_ABOVE):
        header = first
    elif _is_row(rows[header][1]):
        remarks = [i for i in range(header) if len(rows[i][1]) == width]
        header = remarks[-1] if remarks else first
    if above := sum(bool(row) for _, row in rows[:header]):
        notes.append(f"skipped {_count(above, 'line')} above the header")
    line, names = rows[header]
    if names and names[0].startswith("#"):
        names = [names[0].lstrip("# "), *names[1:]]
    _check_header(names, line, path)
    return rows[header + 1 :], (line, names, width)


def _is_above(row, width):
    """Whether a line is a title or a remark above a header of a width."""
    filled = sum(cell != "" for cell in row)
    if row and row[0].startswith("#"):
        return True
    if len(row) < width:
        return filled <= max(1, width // 2)
    return filled <= (1 if width > 2 else 0)


def _is_row(row):
    return bool(row) and all(_is_value(cell) for cell in row)


def _check_header(names, line, path):
    """Checks that the header is not a row of values, which would be lost."""
    filled = [name for name in names if name]
    if not filled or not all(map(_is_value, filled)):
        return
    # Some tables number their columns.
    first = names[0] if names[0].isdecimal() else "0"
    counted = [str(int(first) + place) for place in range(len(names))]
    if names != counted or (len(names) == 1 and first != "0"):
        raise ValueError(
            f"`file` must have the names of its columns in line {line}, got "
            f"{', '.join(names)[:SHOWN]} in {path}; add a line of names."
        )


def _below_header(rows, header, path, notes):
    """Names, and the rows of the width of the header."""
    line, names, width = header
    single = len(names) == 1
    if single:
        while rows and rows[-1][1] in (
            [],
            [""],
        ):  # Empty lines at the end are no values.
            rows = rows[:-1]
        rows = [(line, row or [""]) for line, row in rows]
    # Lines that end in a delimiter, as some instruments write them.
    if width == len(names) + 1 and all(
        len(row) == width and row[-1] == "" for _, row in rows if any(row)
    ):
        notes.append("lines end in a delimiter, and the header does not")
        rows = [(line, row[:-1]) for line, row in rows]
    kept, empty, repeated = [], 0, 0
    for number, row in rows:
        if row == names:
            repeated += 1
        elif not single and not any(row):
            empty += 1
        elif len(row) != len(names):
            raise ValueError(
                f"`file` must have {len(names)} values in each line, as in its header "
                f"in line {line}, got {len(row)} in line {number} of {path}: "
                f"{', '.join(row)[:SHOWN]!r}; correct the line, or the header."
            )
        else:
            kept.append((number, row))
    if empty:
        notes.append(f"skipped {_count(empty, 'line')} without a value")
    if repeated:
        notes.append(f"skipped {_count(repeated, 'repeated header')}")
    if _is_units(kept):
        notes.append(f"skipped line {kept[0][0]}, which has units")
        kept = kept[1:]
    return names, kept


def _is_units(rows):
    """Whether the first row is one of units: words above numbers or dates."""
    if len(rows) < 3:
        return False
    first, below = rows[0][1], [row for _, row in rows[1:_SAMPLE]]
    words = [bool(cell) and not _is_value(cell) for cell in first]
    values = [all(_is_value(row[i]) for row in below) for i in range(len(first))]
    readable = [_is_value(cell) and cell != "" for cell in first]
    filled = any(w and v for w, v in zip(words, values, strict=True))
    return filled and not any(r and v for r, v in zip(readable, values, strict=True))


def _name_columns(names, columns, path, notes):
    """The names of the columns, those of columns without one too."""
    names = list(names)
    if len(names) > 1 and names[-1] == "" and not any(columns[-1]):
        names.pop()
        notes.append("left out the last column, which has neither a name nor a value")
    for place, name in enumerate(names):
        if not name:
            names[place] = f"column {place + 1}"
            notes.append(f"column {place + 1} has no name")
    check_names(names, path)
    return names


def check_names(names: list[str], path: str) -> None:
    """Checks that no two columns have one name.

    Raises:
      ValueError: Two have.
    """
    twice = sorted({repr(name) for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"`file` must have columns of different names, got {', '.join(twice)} "
            f"more than once in {path}; rename or remove one."
        )


def _count(n, noun):
    return f"{n:,} {noun}{'s' * (n != 1)}"


def _unread_line(path, text, line, delimiter, error):
    """The error of the line where csv refused a row."""
    lines = text.splitlines()
    number = min(line, len(lines))
    pieces = lines[number - 1].split(delimiter)
    index, value = _first_refused(pieces, delimiter)
    names = [name.strip('" ') for name in lines[0].split(delimiter)]
    column = f"column {names[index]!r}, " if 1 < number and index < len(names) else ""
    return ValueError(
        f"`file` must have closed quotes and at most {csv.field_size_limit():,} "
        f"characters in a field, got {value[:SHOWN]!r} ({error}) in {column}line "
        f"{number} of {path}; correct the line."
    )


def _first_refused(pieces, delimiter):
    """The index of the first field that csv refuses, and its text."""
    first = index = 0
    for end in range(1, len(pieces) + 1):
        try:
            next(
                csv.reader(
                    [delimiter.join(pieces[first:end])],
                    delimiter=delimiter,
                    skipinitialspace=True,
                    strict=True,
                ),
                None,
            )
        except csv.Error:
            continue  # Further pieces may be of the same field, in quotes.
        first, index = end, index + 1
    return index, delimiter.join(pieces[first:])
