"""Numbers that are written as words: decimal signs, thousands, units and gaps."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ssm_jax.tasks.series.table_format import TableFormat

Decimal = Literal[".", ","]
_SIGNS: tuple[Decimal, ...] = (".", ",")

# What float() reads as it stands, and nothing else that it reads, such as "1_000",
# "infinity" and the digits of other scripts.
_PLAIN = frozenset("0123456789+-.eE")
_BLANKS = " \u00a0\u2009\u202f"
_CURRENCY = "[$€£¥₹]"
# A unit has no digit, and is short: other words are no numbers.
_UNIT = r"[^\d\s.,+\-−][^\d\s]{0,7}"
_FLAGS = ({"yes": 1.0, "no": 0.0}, {"true": 1.0, "false": 0.0}, {"on": 1.0, "off": 0.0})


def _pattern(decimal: Decimal) -> re.Pattern[str]:
    """A number with this decimal sign, perhaps with a currency or a unit."""
    point, other = re.escape(decimal), "," if decimal == "." else r"\."
    groups = rf"\d{{1,3}}(?:(?P<mark>[{other}'’{_BLANKS}])\d{{3}})(?:(?P=mark)\d{{3}})*"
    digits = rf"(?:(?:{groups}|\d+)(?:{point}\d*)?|{point}\d+)(?:[eEdD][+-]?\d+)?"
    return re.compile(
        rf"(?P<minus>[+\-−]?)\s?(?P<currency>{_CURRENCY}?)\s?(?P<number>{digits})"
        rf"\s?(?P<unit>(?:{_UNIT})?)",
        re.ASCII,
    )


PATTERNS: dict[Decimal, re.Pattern[str]] = {".": _pattern("."), ",": _pattern(",")}
"""What a number is, by its decimal sign."""
# One group of three digits after the sign: a fraction or thousands.
_AMBIGUOUS = re.compile(r"[+\-−]?[1-9]\d{0,2}(?P<mark>[.,])\d{3}", re.ASCII)


class Misfit(NamedTuple):
    """The first value of a column that cannot be read.

    Attributes:
      row: Its row.
      reason: Why it cannot be read.
      way_out: What can be done about it.
    """

    row: int
    reason: str = "is not a number"
    way_out: str = "correct it, or leave the column out"


class Numbers(NamedTuple):
    """A column that was read as numbers.

    Attributes:
      values: float64, ``(n,)``, NaN where they are missing; None if a value is no
        number.
      misfit: That value; None without one.
      note: What a careful reader would want to know of how they were read.
    """

    values: np.ndarray | None
    misfit: Misfit | None = None
    note: str = ""


def missing(words: Iterable[str], format: TableFormat) -> np.ndarray:
    """Returns where words stand for a missing value, bool, ``(n,)``."""
    gaps = frozenset(word.lower() for word in format.missing)
    return np.array([word.strip().lower() in gaps for word in words], bool)


def evidence(words: Sequence[str], format: TableFormat) -> Decimal | None:
    """Returns the decimal sign that a column shows, None if it shows none.

    Example:
      >>> evidence(["1,234", "0,5"], TableFormat()), evidence(["1,234"], TableFormat())
      (',', None)
    """
    words = [word.strip() for word in words]
    gaps = missing(words, format)
    known = {word for word, gap in zip(words, gaps, strict=True) if not gap}
    fits: list[Decimal] = [
        sign for sign in _SIGNS if all(map(PATTERNS[sign].fullmatch, known))
    ]
    return fits[0] if len(fits) == 1 else None


def parse(
    words: Sequence[str], format: TableFormat, decimal: Decimal | None
) -> Numbers:
    """Reads a column of words as numbers.

    Numbers may have a decimal sign, signs between thousands, an exponent, and one
    currency or unit, the same in all rows. Words such as yes and no are 1 and 0. Codes
    such as ``007`` are no numbers.

    Args:
      words: The column.
      format: How the table is written.
      decimal: The decimal sign of the other columns; None if they show none.

    Example:
      >>> parse(["1,5", "NA", "2.000,25"], TableFormat(), None).values.tolist()
      [1.5, nan, 2000.25]
      >>> parse(["1.5", "high"], TableFormat(), None).misfit.row
      1
    """
    words = [word.strip() for word in words]
    gaps = missing(words, format)
    known = np.flatnonzero(~gaps)
    cells = [words[row] for row in known.tolist()]
    values = np.full(len(words), np.nan)
    if not cells:
        return Numbers(values)
    if (first := _first_code(cells)) is not None:
        reason = "is a code with a zero in front, not a number"
        return Numbers(None, Misfit(int(known[first]), reason))
    for flags in _FLAGS:
        if all(cell.lower() in flags for cell in cells):
            values[known] = [flags[cell.lower()] for cell in cells]
            yes, no = flags
            return Numbers(values, note=f"{yes} is read as 1, {no} as 0")
    sign, misfit, note = _decimal(cells, format.decimal, decimal)
    if misfit is not None:
        return Numbers(None, misfit._replace(row=int(known[misfit.row])))
    if sign == "." and _PLAIN.issuperset("".join(cells)):
        values[known] = np.array(cells, str).astype(np.float64)
        return Numbers(values, note=note)
    found: dict[str, str] = {}
    marks: set[str] = set()
    for row, cell in zip(known, cells, strict=True):
        match: Any = PATTERNS[sign].fullmatch(cell)
        for part in ("currency", "unit"):
            if match[part] != found.setdefault(part, match[part]):
                reason = f"has another {part} than the rows before, {found[part]!r}"
                return Numbers(None, Misfit(int(row), reason))
        minus = "-" if match["minus"] in ("-", "−") else ""
        values[row] = float(minus + match["number"].translate(_TO_PLAIN[sign]))
        marks |= {match["mark"] or ""}
    notes = [f"the {part} {text!r} is left out" for part, text in found.items() if text]
    notes += ["commas are decimal signs"] * (sign == ",")
    notes += [f"{mark!r} is between thousands" for mark in sorted(marks - {""})]
    return Numbers(values, note="; ".join(notes))


# Removes the signs between thousands, and leaves a decimal point.
_TO_PLAIN = {
    sign: str.maketrans({**dict.fromkeys(f"'’{_BLANKS}"), **swap, "d": "e", "D": "e"})
    for sign, swap in ((".", {",": None}), (",", {".": None, ",": "."}))
}


def _decimal(
    cells: Sequence[str], stated: Decimal | None, others: Decimal | None
) -> tuple[Decimal, Misfit | None, str]:
    """The decimal sign of a column, its misfit, and a note."""
    signs = _SIGNS if stated is None else (stated,)
    misfits: dict[Decimal, int | None] = {sign: _misfit(cells, sign) for sign in signs}
    fits: list[Decimal] = [sign for sign, place in misfits.items() if place is None]
    if not fits:
        # Of the sign by which more of the column can be read.
        sign = max(signs, key=lambda sign: misfits[sign] or 0)
        return sign, Misfit(misfits[sign] or 0), ""
    if len(fits) == 1:
        return fits[0], None, ""
    # Whole numbers are the same by both signs.
    marks = [match["mark"] for match in map(_AMBIGUOUS.fullmatch, cells) if match]
    if not marks:
        return ".", None, ""
    if others is not None:
        return others, None, ""
    if "," not in marks:
        note = "points are decimal signs, although they may stand between thousands"
        return ".", None, f"{note}: `decimal` of the format states that"
    row = next(i for i, cell in enumerate(cells) if _AMBIGUOUS.fullmatch(cell))
    reason = "may have a decimal comma or thousands"
    return ".", Misfit(row, reason, "`decimal` of the format states which"), ""


def _first_code(cells):
    """The place of the first of codes of equal length that begins with 0, or None."""
    length = len(cells[0])
    # Hours and months have two digits.
    if length < 3 or not all(c.isdecimal() and len(c) == length for c in cells):
        return None
    return next((i for i, cell in enumerate(cells) if cell[0] == "0"), None)


def _misfit(cells, sign):
    """The place of the first value that is no number with a decimal sign, or None."""
    if sign == "." and _PLAIN.issuperset("".join(cells)):
        try:
            np.array(cells, str).astype(np.float64)
        except ValueError:
            pass
        else:
            return None
    match = PATTERNS[sign].fullmatch
    return next((i for i, cell in enumerate(cells) if not match(cell)), None)
