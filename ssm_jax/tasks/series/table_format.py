"""TableFormat: how a table is written, where its values alone do not tell."""

import dataclasses
import zoneinfo
from typing import Literal

from ssm_jax.fields import check_fields

MISSING = ("", "-", "--", "?", ".", "..", "...", "na", "n/a", "#n/a", "nan", "null")
MISSING += ("nil", "none", "missing")
"""Words for a missing value in a column of numbers or dates, in any case."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableFormat:
    """How a table is written. None means that it is found from the whole file.

    Attributes:
      delimiter: Character between the values of a CSV; a blank stands for any number of
        blanks.
      encoding: Encoding of a CSV. None means UTF-8, UTF-16 if the file has its mark,
        and Windows-1252 for what is not UTF-8.
      decimal: The decimal sign of numbers that are words. None means that all numbers
        of the file decide; one such as ``1,234`` is refused where none does.
      day_first: Whether ``02/03/2024`` is the second of March. None means that all
        dates of the column decide; they are refused where both are possible.
      time_zone: Name of the time zone of dates without an offset, such as
        ``"Europe/Berlin"``: with it, the hour that is repeated when clocks are set back
        is no duplicate, and the one that is left out in spring no gap. None means that
        days have 24 hours.
      missing: Words for a missing number or date, in any case.

    Raises:
      ValueError: A field is not valid.

    Example:
      >>> TableFormat(decimal=",").decimal
      ','
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: Literal[".", ","] | None = None
    day_first: bool | None = None
    time_zone: str | None = None
    missing: tuple[str, ...] = MISSING

    def __post_init__(self) -> None:
        check_fields(self)
        if self.delimiter is not None and (
            len(self.delimiter) != 1 or self.delimiter in '\r\n"'
        ):
            raise ValueError(
                f"`delimiter` must be one character, got {self.delimiter!r}; ',' and "
                "';' are usual."
            )
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except LookupError:
                raise ValueError(
                    f"`encoding` must be one that Python knows, got {self.encoding!r}; "
                    "'utf-8' and 'cp1252' are usual."
                ) from None
        if self.time_zone is not None:
            try:
                zoneinfo.ZoneInfo(self.time_zone)
            except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
                raise ValueError(
                    "`time_zone` must be the name of a time zone, got "
                    f"{self.time_zone!r}; 'Europe/Berlin' is one, and `pip install "
                    "tzdata` installs them where the system has none."
                ) from None
