"""Pages of ``experiments/results``, one per paper, and the table of the README."""

import textwrap
from collections.abc import Sequence

from experiments import (
    comparisons,
    dtypes,
    overview,
    reductions,
    result_tables,
    sections,
)
from experiments.answers import Records
from experiments.coverage import Table
from experiments.papers import HEADLINES, PAPERS
from ssm_jax.cli import tables
from ssm_jax.cli.summary import Row, Summary, number, shown, summaries

_HEAD = """\
# {title}

[The paper]({url}). `ours` is the mean over seeds, followed by the sample standard
deviation over seeds after ±; `theirs` is the result of the paper for the same model and
training (`docs/papers/{name}.md` has what differs in the data and in the code);
`baseline` is the majority class, the mean or the unigram model on the same split;
`error` is a standard error: for accuracies the larger one of that over examples and
that over seeds, for other metrics that over seeds. With one seed it does not contain
how much seeds differ, and with three it has two degrees of freedom. `gain / error` is
how much better than the baseline a result is, in standard errors. `hours` are those of
training one seed, beside other processes on the machine. A note names the best result
on the same data after as many steps if a result is within two standard errors of it.
Stale results were measured before a correction that is named in the notes. `commit` is
the code that trained the last seed; at another commit a seed may draw other initial
values, so that its result may differ from the one here as that of another seed does.
Written by `python -m experiments.ledger` from the records in this directory.

`command` trains an experiment: `RUN` is a new directory and `DATA` that of the data
sets of `docs/papers/data.md`, or of texts. `--config.training.seed=1` selects another
seed. A finished run is evaluated and recorded by

    python -m launch.evaluate --workdir=RUN
    python -m experiments.ledger --record=RUN
"""
_REDUCED = """\
Reduced settings, with smaller models, less data, fewer steps or values of ours for what
the paper does not state: the results are not comparable with those of the paper.
"""
_FURTHER = "Further settings"
_OTHER = """\
## {title}

Other sizes, for tutorials and tests.
"""


def page(name: str, rows: Sequence[Row]) -> str:
    """Returns the page of a paper.

    Args:
      name: One of `PAPERS`.
      rows: All records.

    Returns:
      Markdown: an overview, each table of the paper with our and the published results
      and the runs of reduced settings, then the runs of other settings.
    """
    paper = PAPERS[name]
    of_paper = [row for row in rows if row["experiment"].startswith(f"{name}/")]
    found, parts, where = summaries(of_paper), [], {}
    answers = Records(of_paper)
    for table in paper.tables:
        text, names = _of_table(table, found, set(where))
        if text and (answer := answers.filled(table.answer)):
            text = f"{answer}\n{text}"
        where |= dict.fromkeys(names - where.keys(), table.title)
        parts += [f"## {table.title}\n\n{text}"] if text else []
    further = [each for each in found if each.name not in where]
    if further:
        parts += [_OTHER.format(title=_FURTHER), result_tables.smaller(further, found)]
    if compared := dtypes.section(of_paper):
        parts.append(compared)
    if name in sections.MORE:
        parts.append(sections.MORE[name](of_paper))
    head = _HEAD.format(name=name, title=paper.title, url=paper.url)
    return "\n".join([head, overview.section(paper, found, where), *parts])


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


def _of_table(
    table: Table, found: Sequence[Summary], before: set[str]
) -> tuple[str, set[str]]:
    """A table of a paper with what no section before it shows, and its experiments."""
    reduced, parts, names = table.smaller(found), [], set()
    if not before.issuperset(table.cells):
        parts.append(result_tables.published(table.cells, found))
        names |= {*table.cells}
    if not before.issuperset(each.name for each in reduced):
        changed = reductions.sentence(table, [each.name for each in reduced])
        parts += [_REDUCED + changed, result_tables.smaller(reduced, found)]
        names |= {each.name for each in reduced}
    if table.picture:
        drawn = f"Drawn by `{table.programs[0]}`."
        parts.append(f"{drawn}\n\n![{table.subject}]({table.picture})\n")
    if names and table.note:
        parts.append(textwrap.fill(table.note, 88) + "\n")
    if names and (compared := comparisons.section(table, found)):
        parts.append(compared)
    return "\n".join(parts), names
