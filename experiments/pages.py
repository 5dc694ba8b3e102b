"""Pages of ``experiments/results``, one per paper, and the table of the README."""

import math
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence

from experiments import dtypes, single_tap
from experiments.dlr import atomic
from experiments.papers import HEADLINES, PAPERS, Table
from experiments.records import config_of
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

NOT_RUN = "not run"
PICTURE = "longssm/lengths.png"
ATOMIC_PICTURE = "dlr/atomic.png"
TREES_PICTURE = "dlr/error_by_height.png"
MASKS_PICTURE = "dlr/segmentation.png"
ATTENTION_MASKS_PICTURE = "dlr/segmentation_local_attention.png"
ATOMIC_MODELS = {
    "DLR": "",
    "DLR, 6 layers": ",n_layers=6",
    "DSS": ",model=dss",
    "attention, 2 layers": ",model=attention,n_layers=2",
}
UNITS = ("rnn", "lstm", "sru", "fru")

_HEAD = """\
# {title}

[The paper]({url}). `ours` is the mean over seeds, followed by the sample standard
deviation over seeds after ±; `theirs` is the result of the paper for the same setting;
`baseline` is the majority class, the mean or the unigram model on the same split;
`error` is a standard error, over examples or over seeds. Stale results were measured
before a correction that is named in the notes. Written by
`python -m experiments.ledger` from the records in this directory.
"""
_FURTHER = """\
## Reduced and further settings

Smaller models, less data or other settings than in the paper: the results are not
comparable with those of the paper.
"""
_ATOMIC = """\
## Atomic tasks

R2 of models of the reduced size (`dlr/atomic:task=...,size=small`), on all tasks. The
sequences have 128 steps, where those of the paper have 512 or 4,096.

{table}
Of 256 test sequences of each task that of the highest loss, and the prediction of one
layer of DLR of the reduced size. Drawn by `python -m experiments.dlr.figures.atomic`.

![Input, target and prediction of eleven tasks]({picture})

## Higher-order tasks

The runs of `size=small` above, by the height and the operator of each subtree, and the
masks that they predict for the first test images. Drawn by
`python -m experiments.dlr.figures.error_by_height` and `segmentation`.

![Errors on ListOps-SubTrees by height and operator]({trees})

![Images, target and masks predicted by DLR and DSS]({masks})

![Images, target and masks predicted by local attention]({attention_masks})
"""
_BY_LENGTH = """\
## Perplexity by length

Perplexity on windows of each length, measured by
`launch.evaluate --mode=length_extension` on an equal share of each document of a split.
Column `95 %` is the confidence interval of the perplexity at the maximum length over
documents (Student's t). Column `extends` classifies the evaluation from zero states:
beyond the training length the loss decreases with each longer window (strong), never
increases (weak), or increases (none); a change counts if its 95 % interval over
documents excludes 0. States are carried within spans of at least the maximum length and
reset between spans.

![Perplexity by length; columns are models, colours training lengths]({picture})
"""


def page(name: str, rows: Sequence[Row]) -> str:
    """Returns the page of a paper.

    Args:
      name: One of `PAPERS`.
      rows: All records.

    Returns:
      Markdown: each table of the paper with our and the published results, followed by
      the runs of other settings.
    """
    paper = PAPERS[name]
    of_paper = [row for row in rows if row["experiment"].startswith(f"{name}/")]
    parts = [_HEAD.format(title=paper.title, url=paper.url)]
    parts += [_of_table(table, of_paper) for table in paper.tables]
    cells = {cell for table in paper.tables for cell in table.cells}
    further = [row for row in of_paper if tables.name_of(row) not in cells]
    if further:
        parts += [_FURTHER, tables.results(further, paper=False)]
    if compared := dtypes.section(of_paper):
        parts.append(compared)
    if name in _MORE:
        parts.append(_MORE[name](of_paper))
    return "\n".join(parts)


def headlines(rows: Sequence[Row]) -> str:
    """Returns the table of the README, with one line per entry of `HEADLINES`."""
    found = {each.name: each for each in summaries(rows)}
    lines = [
        (
            f"`{each.name}`",
            each.metric,
            shown(each),
            number(each.baseline),
            str(len(each.rows)),
        )
        for each in (found[name] for name in HEADLINES)
    ]
    head = ("experiment", "metric", "result", "trivial baseline", "seeds")
    return tables.markdown([head, *lines])


def _of_table(table: Table, rows: Sequence[Row]) -> str:
    """A table of a paper, including the cells that were not run."""
    found, footnotes, lines = summaries(rows), Footnotes(), []
    for cell in table.cells:
        experiment, _, variant = cell.partition(":")
        theirs = config_of({"experiment": experiment, "variant": variant}).paper
        runs = [each for each in found if each.name == cell]
        for run in runs:
            lines.append(
                (
                    cell,
                    run.metric,
                    shown(run),
                    number(theirs, ".4g"),
                    number(run.error),
                    number(run.baseline),
                    str(len(run.rows)),
                    str(run.last["steps"]),
                    run.last["commit"] or "",
                    run.last["date"],
                    footnotes.mark(run.notes(found)),
                )
            )
        if not runs:
            lines.append((cell, "", NOT_RUN, number(theirs, ".4g"), *[""] * 7))
    head = (
        "experiment", "metric", "ours", "theirs", "error", "baseline", "seeds", "steps",
        "commit", "date", "notes",
    )  # fmt: skip
    text = "\n".join([tables.markdown([head, *lines]), *footnotes.listed()])
    return f"## {table.title}\n\n{text}"


def _units(rows: Sequence[Row]) -> str:
    """The unexplained variance of each unit on each mixture of curves."""
    of_variant = {
        tuple(each.rows[0]["variant"].split(",")): each
        for each in summaries(rows)
        if each.rows[0]["experiment"] == "fru/mixture"
    }
    footnotes, lines = Footnotes(), []
    for size in ((), ("size=small",)):
        for curves in ("sines", "poly5", "poly10", "poly15"):
            of_units = [
                of_variant.get((f"curves={curves}", f"model={unit}", *size))
                for unit in UNITS
            ]
            if any(of_units):
                name = " ".join([curves, *size])
                lines.append(_missed(name, of_units, bool(size), footnotes))
    head = ("1 - R2", *(unit.upper() for unit in UNITS), "LSTM / FRU", "notes")
    parts = [
        "## Mixtures of curves: the part of the variance that each unit misses\n",
        tables.markdown([head, *lines]),
        *footnotes.listed(),
    ]
    return "\n".join(parts)


def _missed(name, of_units, small, footnotes):
    """Returns a line of the table of `_units`."""
    present = [summary for summary in of_units if summary]
    notes = [f"`*` is stale: {each.stale}" for each in present if each.stale]
    _, lstm, _, fru = of_units
    # A stale run used other data or another model than a run that is not stale.
    comparable = lstm and fru and lstm.stale == fru.stale
    ratio = (1 - lstm.mean) / (1 - fru.mean) if comparable else None
    # The paper makes this claim for its own sizes only.
    if ratio is not None and ratio < 100 and not small:
        notes.append(
            f"the FRU is {ratio:.1f} times below the LSTM, where the paper says that "
            "it is orders of magnitude below all others"
        )
    return (
        name,
        *(
            f"{1 - each.mean:.1e}" + ("*" if each.stale else "") if each else ""
            for each in of_units
        ),
        number(ratio, ".1f"),
        footnotes.mark(list(dict.fromkeys(notes))),
    )


def _ablations(rows: Sequence[Row]) -> str:
    """The range of the variants of one size, compared to their standard error."""
    of_kind: dict[object, list[Summary]] = {}
    for each in summaries(rows):
        if each.rows[0]["experiment"] == "etsmlp/listops":
            of_kind.setdefault(each.kind, []).append(each)
    sentences = ["## Ablations on ListOps: how far they are apart\n"]
    for found in of_kind.values():
        means = [100 * each.mean for each in found]
        errors = [100 * each.error for each in found if each.error]
        if len(found) < 2 or not errors:
            continue
        spread, error = max(means) - min(means), statistics.fmean(errors)
        differ = spread > ERRORS * math.sqrt(2) * max(errors)
        said = "best and worst differ" if differ else "their order is within the error"
        sentence = (
            f"{len(found)} variants of {found[0].last['steps']:,} steps differ "
            f"by up to {spread:.1f} points of accuracy; the standard error of each is "
            f"{error:.1f} points: {said}{' (stale)' if found[0].stale else ''}."
        )
        sentences.append(textwrap.fill(sentence, 88) + "\n")
    return "\n".join(sentences)


def _atomic(rows: Sequence[Row]) -> str:
    """R2 of each model on each atomic task at the reduced size, and a picture."""
    found = {each.name: each for each in summaries(rows)}
    lines = [("task", *ATOMIC_MODELS)]
    for task in atomic.TASKS:
        names = (
            f"dlr/atomic:task={task}{model},size=small"
            for model in ATOMIC_MODELS.values()
        )
        lines.append(
            (task, *(shown(found[name]) if name in found else "" for name in names))
        )
    return _ATOMIC.format(
        table=tables.markdown(lines),
        picture=ATOMIC_PICTURE,
        trees=TREES_PICTURE,
        masks=MASKS_PICTURE,
        attention_masks=ATTENTION_MASKS_PICTURE,
    )


def _of_dlr(rows: Sequence[Row]) -> str:
    return f"{_atomic(rows)}\n{single_tap.recorded()}"


def _by_length(rows: Sequence[Row]) -> str:
    return _BY_LENGTH.format(picture=PICTURE) + "\n" + tables.by_length(rows)


_MORE: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "dlr": _of_dlr,
    "etsmlp": _ablations,
    "fru": _units,
    "longssm": _by_length,
}
"""Sections that follow the tables of a paper, by paper."""
