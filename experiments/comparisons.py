"""Results beside a reference of the same data and steps, at three standard errors."""

import math
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from experiments.coverage import Table
from ssm_jax.cli import tables
from ssm_jax.cli.summary import Summary, number, shown

ERRORS = 3.0
"""Number of standard errors by which a result must differ from another."""

_VERDICTS = {
    "below": "below",
    "above": "above",
    "within": "within",
    "unknown": "without a standard error",
}
"""The verdicts, and how a sentence counts them."""

_HEAD = (
    "experiment", "ours", "reference", "difference", "error", "in errors", "seeds",
    "is",
)  # fmt: skip


class Comparison(NamedTuple):
    """A result and the reference that it is compared with.

    Attributes:
      result: The result.
      reference: A result on the same data after the same number of steps.
    """

    result: Summary
    reference: Summary

    @property
    def difference(self) -> float:
        """The mean of the result less that of the reference."""
        return self.result.mean - self.reference.mean

    @property
    def error(self) -> float | None:
        """The standard error of `difference`; None if one of both is not known."""
        # Errors of independent results add in quadrature.
        one, other = self.result.error, self.reference.error
        return None if one is None or other is None else math.hypot(one, other)

    @property
    def in_errors(self) -> float | None:
        """`difference` in standard errors; None if `error` is None or 0."""
        return self.difference / self.error if self.error else None

    @property
    def verdict(self) -> str:
        """``"above"`` or ``"below"`` at `ERRORS` standard errors, or ``"within"``."""
        if self.error is None:
            return "unknown"
        if abs(self.difference) <= ERRORS * self.error:
            return "within"
        return "above" if self.difference > 0 else "below"


def comparisons(table: Table, found: Sequence[Summary]) -> list[Comparison]:
    """Returns the results of a table beside their references.

    If a result has several references of its kind, it is compared with those that
    differ from it in the fewest choices of the variant.

    Args:
      table: The table.
      found: All results of its paper.
    """
    results = [*table.published(found), *table.smaller(found)]
    references = [*filter(table.is_reference, results)]
    nearest = [
        (result, _nearest(result, references))
        for result in results
        if not table.is_reference(result)
    ]
    return [
        Comparison(result, reference)
        for reference in references
        for result, compared in nearest
        if reference in compared
    ]


def _nearest(result, references):
    """The references of the same kind that share most choices of the variant."""
    alike = [each for each in references if each.kind == result.kind]
    shared = [len({*each.choices} & {*result.choices}) for each in alike]
    return [each for each, n in zip(alike, shared, strict=True) if n == max(shared)]


def section(table: Table, found: Sequence[Summary]) -> str:
    """Returns Markdown of the comparisons of a table; empty if there are none."""
    compared = comparisons(table, found)
    if not compared:
        return ""
    lines = [line(each, each.result.name, each.reference.name) for each in compared]
    counts = counted(compared, "results beside their reference")
    return f"{counts}\n\n{tables.markdown([_HEAD, *lines])}"


def counted(compared: Sequence[Comparison], what: str) -> str:
    """Returns a sentence with the number of comparisons of each verdict.

    Args:
      compared: The comparisons.
      what: What is compared with what, in the plural.
    """
    counts = ", ".join(
        f"{len(of)} {text}{_with_one_seed(of)}"
        for verdict, text in _VERDICTS.items()
        if (of := [each for each in compared if each.verdict == verdict])
    )
    return textwrap.fill(
        f"At {ERRORS:g} standard errors of the difference, of {len(compared)} {what}: "
        f"{counts}.",
        88,
    )


def _with_one_seed(of: Sequence[Comparison]) -> str:
    """How many of them have one seed, whose error does not contain how seeds differ."""
    single = sum(min(len(each.rows) for each in both) == 1 for both in of)
    return f" ({single} with one seed)" if single else ""


def line(compared: Comparison, result: str, reference: str) -> tuple[str, ...]:
    """Returns the cells of a comparison.

    Args:
      compared: The comparison.
      result: What the result is called.
      reference: What the reference is called.
    """
    return (
        result,
        shown(compared.result),
        f"{reference}: {shown(compared.reference)}",
        number(compared.difference),
        number(compared.error),
        number(compared.in_errors, "z.2f"),
        ", ".join(str(len(each.rows)) for each in compared),
        compared.verdict,
    )
