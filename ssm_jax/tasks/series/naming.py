"""The names of series, which one column has, or several together."""

import csv
import io
from collections.abc import Sequence

Group = str | tuple[str, ...] | None
"""The column of the name of the series, or several; None means one series."""

_SEPARATOR = "/"


def columns(group: Group) -> tuple[str, ...]:
    """Returns the columns of the name, none of a file of one series.

    Example:
      >>> columns("shop"), columns(("shop", "goods")), columns(None)
      (('shop',), ('shop', 'goods'), ())
    """
    return (group,) if isinstance(group, str) else group or ()


def join(values: Sequence[str], group: Group) -> str:
    """Returns the name of a series.

    Args:
      values: The value of each of `columns`.
      group: The columns.

    Returns:
      The value of one column as it is; those of several with a slash between them, in
      which a value that has one is quoted, so that no two series share a name.

    Example:
      >>> join(["North", "7"], ("shop", "goods")), join(["a/b", "7"], ("shop", "goods"))
      ('North/7', '"a/b"/7')
    """
    if not isinstance(group, tuple):
        return "".join(values)
    # By the rules of a CSV, which can be read again.
    text, end = io.StringIO(), "\r\n"
    csv.writer(text, delimiter=_SEPARATOR, lineterminator=end).writerow(values)
    return text.getvalue().removesuffix(end)


def split(name: str, group: Group) -> tuple[str, ...]:
    """Returns the values of the columns of a name that `join` returned.

    Example:
      >>> split('"a/b"/7', ("shop", "goods"))
      ('a/b', '7')
    """
    if not isinstance(group, tuple):
        return (name,) if group else ()
    return tuple(next(csv.reader(io.StringIO(name, newline=""), delimiter=_SEPARATOR)))
