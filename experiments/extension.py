"""Length extension of runs that differ only in their initial states."""

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from experiments.comparisons import ERRORS
from ssm_jax.cli import tables
from ssm_jax.cli.summary import Row, in_order, name_of, number

_SPLIT = "test"
_HEAD = (
    "experiment", "seeds", "at trained length", "at {longest:,}", "change, nats",
    "error", "in errors", "loss", "extends",
)  # fmt: skip
TITLE = "Do carried states extend it?"
_SECTION = """\
As in the paper, runs trained and evaluated with carried states are compared with those
trained and evaluated from zero states, on the test split. The first table has the
change of the loss from windows of the trained length to the longest, each from a zero
state; `extends` is the classification of each seed. The second has the loss at the
longest windows, of zero states less that of carried states, and the number of seeds
that extend, strongly or weakly. Errors are over documents or over seeds, whichever is
larger, and of one seed over documents only; stale runs are excluded. The last columns
have the loss after training with carried states less that after training from zero
states, both on windows of the trained length from zero states.

{changes}
{against_zero}
"""


class Change(NamedTuple):
    """The mean of a difference of losses over seeds and documents.

    Attributes:
      mean: The mean, in nats.
      error: Its standard error, over documents or over seeds, whichever is larger; None
        for a single document and seed.
      n_seeds: Number of seeds.
    """

    mean: float
    error: float | None
    n_seeds: int

    @property
    def verdict(self) -> str:
        """``"falls"`` or ``"rises"`` at three standard errors, or ``"within"``."""
        # Seeds differ more than documents, so that one seed does not decide.
        if self.n_seeds < 2:
            return "one seed"
        if not self.error or abs(self.mean) < ERRORS * self.error:
            return "within"
        return "rises" if self.mean > 0 else "falls"


def change(by_seed: Sequence[Sequence[float]]) -> Change:
    """Returns the mean of differences.

    Args:
      by_seed: Differences of the losses of each document, of each seed.

    Example:
      >>> change([[1.0, 2.0], [2.0, 3.0]]).n_seeds
      2
    """
    of_seeds = [statistics.mean(each) for each in by_seed]
    of_documents = [statistics.mean(each) for each in zip(*by_seed, strict=True)]
    errors = [
        statistics.stdev(values) / math.sqrt(len(values))
        for values in (of_seeds, of_documents)
        if len(values) > 1
    ]
    return Change(statistics.mean(of_seeds), max(errors, default=None), len(by_seed))


def section(rows: Sequence[Row]) -> str:
    """Returns Markdown of the extension of all runs that were measured by length.

    Its tables have no title; `TITLE` is that of the page of the paper.

    Args:
      rows: Records of language models; empty if none was measured on the test split.
    """
    groups = [*_groups(rows)]
    if not groups:
        return ""
    longest = max(max(_losses(of[0], "zero")) for of in groups)
    head = tuple(name.format(longest=longest) for name in _HEAD)
    changes = tables.markdown([head, *(_extension(of) for of in groups)])
    lines = against_zero(rows)
    head = (
        "trained with carried states", "seeds", "nats", "error", "in errors", "is",
        "extends", "from zero states", "at the trained length, nats", "error",
        "in errors",
    )  # fmt: skip
    compared = tables.markdown([head, *lines]) if lines else ""
    return _SECTION.format(changes=changes, against_zero=compared)


def against_zero(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Returns a line for each experiment with carried states that has one without.

    Args:
      rows: Records of language models.

    Returns:
      The cells: the experiment, seeds, difference of the losses, error, the difference
      in errors, the verdict, the numbers of seeds that extend, and the difference at
      the trained length, its error, and it in errors.
    """
    found = {name_of(of[0]): of for of in _groups(rows)}
    return [
        line
        for name, of in found.items()
        if (zero := found.get(name.replace("=carry", "=zero"))) and zero is not of
        if (line := _against_zero(of, zero))
    ]


def _groups(rows) -> Iterator[list[Row]]:
    """The runs of each experiment, without stale ones and other lengths."""
    kept = [
        row
        for row in rows
        if not row.get("stale") and row["lengths"]
        if row["lengths"][0]["trained"] in _losses(row, "zero")
    ]
    ordered = sorted(kept, key=lambda row: (in_order(row), row["seed"]))
    for _, of in itertools.groupby(ordered, name_of):
        yield [*of]


def _losses(row: Row, window_state: str) -> dict[int, Any]:
    """The line of each length, with windows in the order of the text."""
    return {
        line["length"]: line
        for line in row["lengths"]
        if (line["split"], line["window_state"], line["order"])
        == (_SPLIT, window_state, "text")
    }


def of_length(of: Sequence[Row]) -> Change:
    """Returns the change of the loss from the trained to the longest windows.

    Args:
      of: The runs of an experiment; their windows start from zero states.
    """
    measured = [_losses(row, "zero") for row in of]
    trained, longest = of[0]["lengths"][0]["trained"], max(measured[0])
    return change([_less(at[longest], at[trained]) for at in measured])


def of_states(carried: Sequence[Row], zero: Sequence[Row]) -> Change:
    """Returns the loss from zero states less that of carried states.

    Args:
      carried: Runs trained, and evaluated here, with carried states.
      zero: Runs trained, and evaluated here at their longest windows, from zero states.
    """
    differences = []
    for row, other in _pairs(carried, zero):
        # With carried states the loss is the same at every length.
        with_carry, from_zero = _losses(row, "carry"), _losses(other, "zero")
        differences.append(
            _less(from_zero[max(from_zero)], with_carry[max(with_carry)])
        )
    return change(differences)


def at_trained_length(carried: Sequence[Row], zero: Sequence[Row]) -> Change:
    """Returns the loss of windows of the trained length, all from zero states.

    Args:
      carried: Runs trained with carried states.
      zero: Runs trained from zero states, whose loss is subtracted.
    """
    differences = []
    for row, other in _pairs(carried, zero):
        trained = row["lengths"][0]["trained"]
        differences.append(
            _less(_losses(row, "zero")[trained], _losses(other, "zero")[trained])
        )
    return change(differences)


def _pairs(carried: Sequence[Row], zero: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The runs of equal seeds."""
    of_seed = {row["seed"]: row for row in zero}
    return [(row, of_seed[row["seed"]]) for row in carried if row["seed"] in of_seed]


def _extension(of: Sequence[Row]):
    """A line of the first table."""
    measured = [_losses(row, "zero") for row in of]
    trained, longest = of[0]["lengths"][0]["trained"], max(measured[0])
    found = of_length(of)
    return (
        name_of(of[0]),
        str(found.n_seeds),
        *(tables.perplexity([at[n] for at in measured]) for n in (trained, longest)),
        *_cells(found),
        found.verdict,
        ", ".join(verdicts(of)),
    )


def _against_zero(carried: Sequence[Row], zero: Sequence[Row]):
    """A line of the second table; None without seeds in common."""
    if not _pairs(carried, zero):
        return None
    found, equal = of_states(carried, zero), at_trained_length(carried, zero)
    verdict = {"rises": "better", "falls": "worse"}.get(found.verdict, found.verdict)
    return (
        name_of(carried[0]),
        str(found.n_seeds),
        *_cells(found),
        verdict,
        *map(extending, (carried, zero)),
        *_cells(equal),
    )


def extending(of: Sequence[Row]) -> str:
    """How many seeds extend, weakly or strongly, with windows from zero states."""
    found = verdicts(of)
    return f"{sum(each in ('weak', 'strong') for each in found)} of {len(found)}"


def verdicts(of: Sequence[Row]) -> list[str]:
    """How each seed extends, with windows from zero states: strong, weak or none."""
    # A split of one document has no interval that could classify it.
    return [max(_losses(row, "zero").items())[1]["extends"] or "unknown" for row in of]


def _cells(found: Change):
    in_errors = found.mean / found.error if found.error else None
    return (
        number(found.mean, "+.4f"),
        number(found.error),
        number(in_errors, "+.1f"),
    )


def _less(line, other) -> list[float]:
    """The losses of the documents of a line less those of another."""
    pairs = zip(line["loss_by_document"], other["loss_by_document"], strict=True)
    return [a - b for a, b in pairs]
