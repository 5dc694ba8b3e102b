"""The tables of the README and of the results, made of the records of runs."""

import itertools
import statistics
from collections.abc import Sequence

from launch.summary import (
    Footnotes,
    Row,
    in_order,
    name_of,
    number,
    shown,
    summaries,
)
from ssm_jax.evaluation.run import WAYS

PICTURE = "longssm/lengths.png"
COLUMNS = (
    "task", "metric", "here", "error", "baseline", "seeds", "paper", "steps", "seconds",
    "device", "commit", "date", "notes",
)  # fmt: skip

_BY_LENGTH = """\
# Language models by length

Perplexity on windows of each length, and what `launch.evaluate
--mode=length_extension` says of it: beyond the length of training the loss falls with
each longer window (strong), never rises (weak), or rises (none). Made by `python -m
launch.report --readme` from the records beside.

![Perplexity by length, a panel a model, a colour a length of training]({picture})
"""
_WAYS = {
    ("zero", "text"): "each window from a fresh state",
    ("previous", "text"): "states go on from window to window, so that the length is "
    "no more than where a batch ends",
    ("previous", "shuffled"): "states go on, and the windows come in no order",
}


def results(rows: Sequence[Row]) -> str:
    """A Markdown table of runs, seeds in one line, and below it the notes on them."""
    found, footnotes = summaries(rows), Footnotes()
    lines = [_result(each, footnotes.mark(each.notes(found))) for each in found]
    return "\n".join([_table([COLUMNS, *lines]), *footnotes.listed()])


def by_length(rows: Sequence[Row]) -> str:
    """Markdown tables of perplexity by length, one for each way of reading.

    Args:
      rows: Rows of runs; of their ``lengths`` each is a line of a run's
        ``length_extension.jsonl``.

    Returns:
      The tables with a title each: a line for each experiment, in which runs that
      differ in their seed alone are averaged; all verdicts that they met.
    """
    measured = [{**row, **line} for row in rows for line in row["lengths"]]
    tables = []
    for split, way in itertools.product(("train", "validation", "test"), WAYS):
        of_way = [
            row
            for row in measured
            if (row["split"], row["start"], row["order"]) == (split, *way)
        ]
        if not of_way:
            continue
        of_way.sort(key=lambda row: (in_order(row), row["length"]))
        lengths = sorted({row["length"] for row in of_way})
        lines = [
            _lengths(list(of), lengths) for _, of in itertools.groupby(of_way, name_of)
        ]
        head = ("task", "trained", *(f"{n:,}" for n in lengths), "extends")
        tables.append(f"Split {split}, {_WAYS[way]}:\n\n{_table([head, *lines])}")
    return "\n".join(tables)


def by_length_page(rows: Sequence[Row]) -> str:
    """The page of the results with the tables of all runs measured by length."""
    return _BY_LENGTH.format(picture=PICTURE) + "\n" + by_length(rows)


def _table(cells):
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(f"{c:{w}}" for c, w in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def _result(summary, notes):
    """The cells of an experiment; its last run dates it."""
    row = summary.last
    cpus = f" ({row['cpus']} cores)" if row["platform"] == "cpu" else ""
    return (
        summary.name,
        summary.metric,
        shown(summary),
        number(summary.error),
        number(summary.baseline),
        str(len(summary.rows)),
        number(row["paper"], ".4g"),
        str(row["steps"]),
        f"{statistics.mean(row['seconds'] for row in summary.rows):.0f}",
        f"{row['n_devices']} x {row['device']}{cpus}",
        row["commit"] or "",
        row["date"],
        notes,
    )


def _lengths(rows, lengths):
    """The line of an experiment by length, from the runs of all its seeds."""
    found = {
        length: statistics.mean(row["perplexity"] for row in of)
        for length, of in itertools.groupby(rows, lambda row: row["length"])
    }
    verdicts = dict.fromkeys(row["extends"] for row in rows if row["extends"])
    return (
        name_of(rows[0]),
        str(rows[0]["trained"]),
        *(f"{found[n]:.4g}" if n in found else "" for n in lengths),
        ", ".join(verdicts),
    )
