"""The table that begins the page of a paper: what is here of each table and figure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from experiments.coverage import Paper, Table, command
from experiments.records import BENCHMARKS
from ssm_jax.cli import tables
from ssm_jax.cli.summary import Summary

QUEUE = Path(__file__).parents[1] / "benchmarks" / "gpu_queue.md"
OPERATIONS = BENCHMARKS / "operations.json"
RATE = 1e13
"""Floating-point operations per second that a GPU is assumed to do."""
ITERATION = 2e-5
"""Seconds that an iteration of a loop is assumed to take beside its operations."""

_HEAD = ("in the paper", "question", "here", "seeds", "missing, and why", "command")
_SECTION = """\
## Overview

`published` counts the runs at the setting of the paper, as far as it states one, and
`reduced` those of other settings with the same question, which are not comparable with
the results of the paper. The column of what is missing counts runs of the published
setting. `GPU hours` are those of one seed of each: the operations of its training,
counted by `python -m experiments.operations`, at {rate:.0f} TFLOP/s, a seventh of the
float32 peak of an H100 SXM, and {iteration:.0f} microseconds per iteration of a loop.
`queued` are commands of `benchmarks/gpu_queue.md`.

{table}"""


def section(paper: Paper, found: Sequence[Summary], where: Mapping[str, str]) -> str:
    """Returns the overview of a paper.

    Args:
      paper: The paper.
      found: All results of the paper.
      where: Titles of the sections that show them, by the names of experiments.

    Returns:
      Markdown, with a line per table and figure.
    """
    ordered = sorted(paper.tables, key=_in_order)
    lines = [_line(table, found, where) for table in ordered]
    return _SECTION.format(
        table=tables.markdown([_HEAD, *lines]),
        rate=RATE / 1e12,
        iteration=ITERATION * 1e6,
    )


def gpu_hours(names: Sequence[str]) -> float:
    """Returns the estimated hours of training experiments once on a GPU.

    Args:
      names: Experiments at published settings.
    """
    rows = json.loads(OPERATIONS.read_text())["rows"]
    seconds = (
        row["steps"] * (row["operations"] / RATE + row["iterations"] * ITERATION)
        for row in map(rows.__getitem__, names)
    )
    return sum(seconds) / 3600


def queued() -> set[str]:
    """Returns the experiments of the queue for GPUs, as records name them."""
    found = re.findall(r"--config=experiments/(\S+?)\.py(\S*)", QUEUE.read_text())
    return {f"{experiment}{variant}" for experiment, variant in found}


def anchor(title: str) -> str:
    """Returns the anchor of a heading.

    Example:
      >>> anchor("Table 2: Shift at 16,384 steps (of the paper)")
      'table-2-shift-at-16384-steps-of-the-paper'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _in_order(table):
    """A sort key: tables before figures, before sections, by their numbers."""
    kind, number = re.findall(r"(Table|Figure|Section)s? (\d+)", table.name)[0]
    return ("Table", "Figure", "Section").index(kind), int(number)


def _line(table, found, where):
    published, reduced = table.published(found), table.smaller(found)
    results = sorted([*published, *reduced], key=lambda each: each.stale is not None)
    return (
        table.name,
        table.question,
        ", ".join(_here(table, published, reduced, where)) or "none",
        _seeds(results),
        "; ".join(_missing(table, published)),
        _command(table, results),
    )


def _here(
    table: Table,
    published: Sequence[Summary],
    reduced: Sequence[Summary],
    where: Mapping[str, str],
) -> Iterator[str]:
    """How many results there are, with links to their sections."""
    if published:
        link = anchor(where[published[0].name])
        yield f"[published](#{link}): {len(published)} of {len(table.cells)}" + (
            _stale(published)
        )
    if reduced:
        link = anchor(where[reduced[0].name])
        yield f"[reduced](#{link}): {len(reduced)}{_stale(reduced)}"
    if table.measured:
        yield f"[measured](#{anchor(table.measured)}), at a reduced size"
    elif table.picture:
        yield f"[drawn](#{anchor(table.title)})"
    elif table.programs and not results_of(table):
        yield "a program"


def results_of(table: Table) -> bool:
    """Whether a table is answered by runs."""
    return bool(table.cells or table.reduced)


def _stale(results):
    stale = sum(1 for each in results if each.stale)
    return f" ({stale} stale)" if stale else ""


def _seeds(results):
    """The numbers of seeds of the results."""
    counts = sorted({len(each.rows) for each in results})
    return " to ".join(str(n) for n in dict.fromkeys([*counts[:1], *counts[-1:]]))


def _command(table, results):
    """Commands of the first result and of the programs."""
    names = [each.name for each in results[:1]] or list(table.cells[:1])
    return " ".join(f"`{each}`" for each in [*map(command, names), *table.programs])


def _missing(table: Table, published: Sequence[Summary]) -> Iterator[str]:
    """The number of cells without a run, the reason, and what they would take."""
    names = {each.name for each in published}
    absent = [cell for cell in table.cells if cell not in names]
    if absent:
        yield f"{len(absent)} of {len(table.cells)}"
    if table.reason:
        yield table.reason
    if absent:
        waiting = len(queued().intersection(absent))
        hours = gpu_hours(absent)
        digits = ",.0f" if hours >= 10 else ".1g"
        yield f"about {hours:{digits}} GPU hours, {waiting or 'none'} queued"
