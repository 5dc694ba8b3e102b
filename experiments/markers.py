"""Result figures in prose: blocks between markers, generated from the records.

In Markdown a block is::

    <!-- results:NAME -->
    ...
    <!-- /results -->

and in the docstring of an experiment::

    .. results: NAME

    ...

    .. end of results

``python -m experiments.ledger`` writes what stands between them. ``NAME`` is one of
`BLOCKS`, or an experiment, ``etsmlp/listops``, of which all recorded runs are listed.
Figures of a paper stand in prose as ``(paper: 14.8 %)``; no other result figure stands
outside a block, which `tests/experiments/test_prose.py` checks.
"""

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from ssm_jax.cli import tables
from ssm_jax.cli.summary import (
    ERRORS,
    Footnotes,
    Row,
    Summary,
    number,
    shown,
    summaries,
)

BLOCK = re.compile(
    r"^(?P<begin><!-- results:(?P<markdown>\S+) -->|\.\. results: (?P<rst>\S+))\n"
    r"(?P<content>.*?)"
    r"^(?P<end><!-- /results -->|\.\. end of results)$",
    re.MULTILINE | re.DOTALL,
)
UNITS = ("rnn", "lstm", "sru", "fru")


def files(root: Path) -> list[Path]:
    """The files whose blocks are generated: the README and the experiments."""
    return [root / "README.md", *sorted((root / "experiments").glob("*/*.py"))]


def with_results(text: str, rows: Sequence[Row]) -> str:
    r"""A text with each of its blocks generated anew.

    Args:
      text: Of a Markdown or a Python file.
      rows: The records.

    Raises:
      ValueError: A block has a name that nothing generates, or markers without their
        counterparts.

    Example:
      >>> print(with_results("<!-- results:table -->\nold\n<!-- /results -->", []))
      Traceback (most recent call last):
      ValueError: `rows` must have a run for the block `table`, got none; ...
    """
    ends = len(re.findall(r"^(?:<!-- /results -->|\.\. end of results)$", text, re.M))
    begins = len(re.findall(r"^(?:<!-- results:|\.\. results: )", text, re.M))
    if not begins == ends == len(BLOCK.findall(text)):
        raise ValueError(
            f"every block of results must begin and end with a marker, got {begins} "
            f"beginnings and {ends} ends; `<!-- results:NAME -->` ends with "
            "`<!-- /results -->`, and `.. results: NAME` with `.. end of results`."
        )
    return BLOCK.sub(
        lambda match: (
            f"{match['begin']}\n\n"
            f"{content(match['markdown'] or match['rst'], rows)}\n{match['end']}"
        ),
        text,
    )


def content(name: str, rows: Sequence[Row]) -> str:
    """What a block holds.

    Args:
      name: Of the block.
      rows: The records.

    Raises:
      ValueError: Nothing generates a block of that name.
    """
    generate = BLOCKS.get(name)
    experiment = name.split(":")[0]
    of_block = [row for row in rows if row["experiment"] == experiment]
    if name == "table":
        of_block = list(rows)
    if not of_block:
        raise ValueError(
            f"`rows` must have a run for the block `{name}`, got none; blocks are "
            f"{', '.join(BLOCKS)} and the experiments that were recorded."
        )
    return (generate or experiment_table)(of_block)


def experiment_table(rows: Sequence[Row]) -> str:
    """The recorded runs of an experiment, a table for each metric."""
    found, footnotes, tables_ = summaries(rows), Footnotes(), []
    for metric in sorted({summary.metric for summary in found}):
        head = ("variant", metric, "error", "baseline", "seeds", "notes")
        lines = [
            (
                summary.rows[0]["variant"] or "(none)",
                shown(summary),
                number(summary.error),
                number(summary.baseline),
                str(len(summary.rows)),
                footnotes.mark(summary.notes(found)),
            )
            for summary in found
            if summary.metric == metric
        ]
        tables_.append(_rst([head, *lines]))
    return "\n".join([*tables_, *footnotes.listed()])


def units_table(rows: Sequence[Row]) -> str:
    """The part of the variance that each unit misses on each mixture of curves."""
    by_variant = {each.rows[0]["variant"]: each for each in summaries(rows)}
    curves = list(dict.fromkeys(name.split("+")[0] for name in by_variant))
    footnotes, lines = Footnotes(), []
    for size in ("", "+small"):
        for curve in curves:
            of_units = [by_variant.get(f"{curve}+{unit}{size}") for unit in UNITS]
            if any(of_units):
                lines.append(_missed(curve + size, of_units, footnotes))
    head = ("1 - R2", *(unit.upper() for unit in UNITS), "LSTM / FRU", "notes")
    return "\n".join([_rst([head, *lines]), *footnotes.listed()])


def ablation_spread(rows: Sequence[Row]) -> str:
    """How far the variants of one size are apart, against the error of each."""
    by_kind: dict[object, list[Summary]] = {}
    for summary in summaries(rows):
        by_kind.setdefault(summary.kind, []).append(summary)
    sentences = []
    for of_kind in by_kind.values():
        means = [100 * summary.mean for summary in of_kind]
        errors = [100 * summary.error for summary in of_kind if summary.error]
        if len(of_kind) < 2 or not errors:
            continue
        spread, error = max(means) - min(means), max(errors)
        differ = spread > ERRORS * math.sqrt(2) * error
        said = "best and worst differ" if differ else "their order is within the error"
        sentence = (
            f"{len(of_kind)} variants of {of_kind[0].last['steps']:,} steps spread "
            f"{spread:.1f} points of accuracy, where the standard error of each is "
            f"{error:.1f} points: {said}{' (stale)' if of_kind[0].stale else ''}."
        )
        sentences.append(textwrap.fill(sentence, 88) + "\n")
    return "\n".join(sentences)


BLOCKS: dict[str, Callable[[Sequence[Row]], str]] = {
    "table": tables.results,
    "etsmlp/listops:spread": ablation_spread,
    "fru/mixture:units": units_table,
}
"""What generates each block, of the rows of its experiment; ``table`` has all rows."""


def _missed(name, of_units, footnotes):
    """A line of `units_table`."""
    present = [summary for summary in of_units if summary]
    notes = [f"`*` is stale: {each.stale}" for each in present if each.stale]
    _, lstm, _, fru = of_units
    # A run that is stale and one that is not are of other data or of other models.
    comparable = lstm and fru and lstm.stale == fru.stale
    ratio = (1 - lstm.mean) / (1 - fru.mean) if comparable else None
    # Smaller sizes are not what the paper speaks of.
    if ratio is not None and ratio < 100 and "+" not in name:
        notes.append(
            f"the FRU is {ratio:.1f} times below the LSTM, where the paper says that "
            "it is orders of magnitude below all others"
        )
    return (
        name,
        *(_part_missed(each) if each else "" for each in of_units),
        number(ratio, ".1f"),
        footnotes.mark(list(dict.fromkeys(notes))),
    )


def _part_missed(summary):
    return f"{1 - summary.mean:.1e}" + ("*" if summary.stale else "")


def _rst(cells):
    """A simple table of reStructuredText, without columns that are empty."""
    columns = [column for column in zip(*cells, strict=True) if any(column[1:])]
    cells = list(zip(*columns, strict=True))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = "  ".join("=" * width for width in widths)
    head, *lines = (
        "  ".join(f"{c:{w}}" for c, w in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )
    return "\n".join([rule, head, rule, *lines, rule]) + "\n"
