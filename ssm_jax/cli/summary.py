"""What the records of runs amount to: means, standard errors, and what to note of them.

Notes follow from the numbers by rule: a result that its trivial baseline explains, one
that differs from the best of its kind by less than the error of measurement, and one
that is stale.
"""

import itertools
import math
import re
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

ERRORS = 2.0
"""Standard errors by which a result must differ from another one to count as better."""


@dataclass(frozen=True)
class Summary:
    """The runs of one experiment that differ in their seed alone.

    Attributes:
      rows: Their rows; runs that are stale only where all are.
    """

    rows: tuple[Row, ...]

    @property
    def last(self) -> Row:
        """The row of the last run."""
        return max(self.rows, key=lambda row: row["date"])

    @property
    def name(self) -> str:
        """The experiment and its variant, as ``--config`` has them."""
        return name_of(self.rows[0])

    @property
    def metric(self) -> str:
        """The split and the metric, as ``"test accuracy"``."""
        return self.rows[0]["metric"]

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return statistics.mean(row["value"] for row in self.rows)

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds (of n - 1). None: there is one seed."""
        values = [row["value"] for row in self.rows]
        return statistics.stdev(values) if len(values) > 1 else None

    @property
    def error(self) -> float | None:
        """The standard error of `mean`. None: neither seeds nor examples give one.

        Of an accuracy it is binomial, from the number of examples evaluated, or that
        of the mean over seeds where that is greater.
        """
        errors = [] if self.std is None else [self.std / math.sqrt(len(self.rows))]
        if self.metric.endswith("accuracy") and self._baseline:
            p = min(max(self.mean, 0.0), 1.0)
            errors.append(math.sqrt(p * (1 - p) / self._baseline["n_examples"]))
        return max(errors, default=None)

    @property
    def baseline(self) -> float | None:
        """The same metric of the trivial baseline. None: it was not measured."""
        if not self._baseline:
            return None
        return self._baseline[self.metric.split()[-1]]

    @property
    def stale(self) -> str | None:
        """Why the result no longer counts. None: it does."""
        return self.rows[0].get("stale")

    @property
    def _baseline(self):
        return self.rows[0].get("baseline")

    def notes(self, others: Sequence["Summary"]) -> list[str]:
        """What is to be said beside the number.

        Args:
          others: All results, of which those of the same data and size are compared.
        """
        notes = [f"stale: {self.stale}"] if self.stale else []
        error = ERRORS * (self.error or 0.0)
        if self._baseline and self.baseline is not None:
            name, falls = self._baseline["name"], self.metric.endswith("perplexity")
            gain = (self.baseline - self.mean) * (1 if falls else -1)
            if gain == 0:
                notes.append(f"= {name}")
            elif gain <= error:
                side = "below" if falls else "above"
                notes.append(f"not {side} the {name} by {ERRORS:g} standard errors")
        if self.error and self._baseline and self.metric.endswith("accuracy"):
            best = max((s for s in others if s.kind == self.kind), key=lambda s: s.mean)
            error = math.hypot(self.error, best.error or 0.0)
            if best.name != self.name and best.mean - self.mean <= ERRORS * error:
                notes.append(f"within {ERRORS:g} standard errors of {best.name}")
        return notes

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for results that may be compared: same data, same steps, as valid."""
        row = self.rows[0]
        return (
            row["experiment"], row["steps"], self.metric, self.stale,
            str(self._baseline),
        )  # fmt: skip


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """Gathers the rows of seeds, in the order of names."""

    def line_of(row):
        return name_of(row), row["metric"]

    ordered = sorted(rows, key=lambda row: (in_order(row), row["metric"]))
    found = []
    for _, of in itertools.groupby(ordered, line_of):
        of = list(of)
        found.append(
            Summary(tuple(row for row in of if not row.get("stale")) or (*of,))
        )
    return found


def name_of(row: Row) -> str:
    """The experiment of a run and its variant, as ``--config`` has them."""
    return row["experiment"] + (f":{row['variant']}" if row["variant"] else "")


def in_order(row: Row) -> list[tuple[int, str]]:
    """A key to sort by: the name with its numbers as numbers, 16 before 128."""
    words = re.split(r"(\d+)", name_of(row))
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]


def shown(summary: Summary) -> str:
    """The mean as tables have it, with the standard deviation over seeds after ±."""
    mean, std = summary.mean, summary.std
    # What is all but perfect shows by how much it is not.
    text = f"{mean:.4f}" if not 0.99995 <= mean < 1 else f"1 - {1 - mean:.1e}"
    if std is not None:
        text += f" ± {std:.4f}"
    if summary.metric.endswith("perplexity"):
        bits = statistics.mean(math.log2(row["value"]) for row in summary.rows)
        text += f" ({bits:.4f} bits)"
    return text + (" (stale)" if summary.stale else "")


def number(value: float | None, digits: str = ".4f") -> str:
    """A number as tables have it; empty for None."""
    # A mean that is off by rounding alone is zero, not minus zero.
    return "" if value is None else f"{value:{digits}}".replace("-0.0000", "0.0000")


class Footnotes:
    """Numbers the notes of a table, equal ones once."""

    def __init__(self) -> None:
        """Starts without notes."""
        self._numbers: dict[str, int] = {}

    def mark(self, notes: Sequence[str]) -> str:
        """The cell that refers to some notes."""
        numbers = [self._numbers.setdefault(n, len(self._numbers) + 1) for n in notes]
        return " ".join(f"[{number}]" for number in numbers)

    def listed(self) -> list[str]:
        """Its notes as one list, in the order of their numbers; empty without notes."""
        items = [
            textwrap.fill(f"- [{number}] {text}", 88, subsequent_indent="  ") + "\n"
            for text, number in self._numbers.items()
        ]
        return ["".join(items)] if items else []
