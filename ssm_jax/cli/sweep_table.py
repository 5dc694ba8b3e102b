"""Tables of a sweep: the mean over seeds for each of the other values, and all runs."""

import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ssm_jax.cli.grid import SEED, Cell
from ssm_jax.cli.summary import Row, Summary, shown
from ssm_jax.cli.tables import markdown, number

Result = tuple[Mapping[str, str], Row | None]
"""The values of a run, and its row with ``validation``, or None if it failed."""


def of_sweep(results: Sequence[Result]) -> str:
    """Returns a Markdown table of a sweep, the best in validation first.

    Args:
      results: The values of each run and its row, as `ssm_jax.cli.report.row_of`
        returns it, with the same metric in validation as ``validation``; None in place
        of a row for a run that failed.

    Returns:
      The table. Runs that differ only in ``training.seed`` share a line: the mean and,
      after ±, the sample standard deviation over seeds.
    """
    groups: dict[tuple[str, ...], list[Row | None]] = {}
    fields = [name for name in results[0][0] if name != SEED]
    for values, row in results:
        groups.setdefault(tuple(values[name] for name in fields), []).append(row)
    finished = [row for _, row in results if row is not None]
    metric = finished[0]["metric"] if finished else "metric"
    name = metric.split()[-1]
    lines = []
    for words, rows in groups.items():
        kept = [row for row in rows if row is not None]
        cells = (
            *words,
            *_cells(kept, name),
            str(len(kept)),
            str(len(rows) - len(kept)),
        )
        lines.append((_rank(kept, name), cells))
    results_of = f"validation {name}", metric, "baseline"
    head = (*fields, *results_of, "seconds", "seeds", "failed")
    # By validation, because a choice by the test split would be part of the training.
    ordered = [cells for _, cells in sorted(lines, key=lambda line: line[0])]
    return markdown([head, *ordered])


def write_csv(path: Path, cells: Sequence[Cell], results: Sequence[Result]) -> None:
    """Writes a line for each run of a sweep.

    Args:
      path: The file.
      cells: The runs.
      results: Their values and rows, as for `of_sweep`. Those of a run that failed are
        left empty.
    """
    kept = "validation", "metric", "value", "best_step", "seconds"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*cells[0].values, *kept, "baseline", "workdir"])
        for cell, (values, row) in zip(cells, results, strict=True):
            measured = [(row or {}).get(name) for name in kept]
            measured.append(Summary((row,)).baseline if row else None)
            writer.writerow([*values.values(), *measured, cell.workdir])


def _cells(rows: Sequence[Row], name: str) -> tuple[str, str, str, str]:
    """The metric in validation, in the evaluated split, its baseline, mean seconds."""
    if not rows:
        return "", "", "", ""
    validated = [
        {**row, "value": row["validation"], "metric": f"validation {name}"}
        for row in rows
    ]
    seconds = statistics.mean(row["seconds"] for row in rows)
    summary = Summary((*rows,))
    return (
        shown(Summary((*validated,))),
        shown(summary),
        number(summary.baseline),
        f"{seconds:.0f}",
    )


def _rank(rows: Sequence[Row], name: str) -> Any:
    """A sort key: the best mean first, runs without a result last."""
    if not rows:
        return 1, 0.0
    mean = statistics.mean(row["validation"] for row in rows)
    return 0, mean if name == "perplexity" else -mean
