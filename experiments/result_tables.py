"""Tables of results on the pages of the papers, published and reduced settings."""

import statistics
import textwrap
from collections.abc import Sequence

from experiments.coverage import command
from experiments.records import config_named
from ssm_jax.cli import tables
from ssm_jax.cli.summary import Footnotes, Summary, number, shown

NOT_RUN = "not run"
COLUMNS = (
    "experiment", "metric", "ours", "theirs", "ours - theirs", "error", "baseline",
    "gain / error", "seeds", "steps", "hours", "device", "commit", "date", "notes",
    "command",
)  # fmt: skip


def published(cells: Sequence[str], found: Sequence[Summary]) -> str:
    """Returns the table of a published setting.

    Args:
      cells: Its experiments, also those that were not run.
      found: All results.

    Returns:
      Markdown: a line per experiment with our result beside that of the paper, followed
      by the notes and how many results are better than their baselines.
    """
    of_name = {each.name: each for each in found}
    footnotes, lines = Footnotes(), []
    for cell in cells:
        line = {"experiment": cell, "ours": NOT_RUN, "command": f"`{command(cell)}`"}
        if cell in of_name:
            line = _line(of_name[cell], found, footnotes)
        theirs = config_named(cell).paper
        line["theirs"] = number(theirs, ".4g")
        if cell in of_name and theirs is not None:
            line["ours - theirs"] = number(of_name[cell].mean - theirs, "+.4f")
        lines.append(line)
    results = [of_name[cell] for cell in cells if cell in of_name]
    return f"{_table(COLUMNS, lines, footnotes)}{_better(results)}"


def smaller(results: Sequence[Summary], found: Sequence[Summary]) -> str:
    """Returns the table of other settings, without results of the paper.

    Args:
      results: The results to show.
      found: All results, with which they are compared in the notes.

    Returns:
      Markdown: a line per experiment, the notes, and how many results are better than
      their baselines.
    """
    footnotes = Footnotes()
    lines = [_line(each, found, footnotes) for each in results]
    columns = [name for name in COLUMNS if "theirs" not in name]
    return f"{_table(columns, lines, footnotes)}{_better(results)}"


def _better(results):
    """How many results are better than their baselines by two and three errors."""
    gains = [
        (gain, summary.rows[0]["baseline"]["name"])
        for summary in results
        if (gain := gain_in_errors(summary)) is not None
    ]
    sentences = []
    for name in dict.fromkeys(name for _, name in gains):
        of_name = [gain for gain, other in gains if other == name]
        two, three = (sum(gain > n for gain in of_name) for n in (2, 3))
        sentences.append(
            f"Better than the {name} by two standard errors: {two} of {len(of_name)} "
            f"results; by three: {three}."
        )
    return "".join(f"\n{textwrap.fill(each, 88)}\n" for each in sentences)


def _line(summary, found, footnotes) -> dict[str, str]:
    """The cells of a result; date, commit and device are those of its last run."""
    row = summary.last
    seconds = statistics.mean(each["seconds"] for each in summary.rows)
    return {
        "experiment": summary.name,
        "metric": summary.metric,
        "ours": shown(summary),
        "error": number(summary.error),
        "baseline": number(summary.baseline),
        "gain / error": number(gain_in_errors(summary), "z.1f"),
        "seeds": str(len(summary.rows)),
        "steps": str(row["steps"]),
        "hours": f"{seconds / 3600:.2g}",
        "device": summary.device,
        "commit": row["commit"] or "",
        "date": row["date"],
        "notes": footnotes.mark(summary.notes(found)),
        "command": f"`{command(summary.name)}`",
    }


def gain_in_errors(summary: Summary) -> float | None:
    """How much better than its baseline a result is, in standard errors.

    Args:
      summary: The result.

    Returns:
      None if the baseline or the standard error is not known.
    """
    if summary.baseline is None or not summary.error:
        return None
    sign = -1 if summary.metric.endswith("perplexity") else 1
    return sign * (summary.mean - summary.baseline) / summary.error


def _table(columns, lines, footnotes):
    cells = [[line.get(name, "") for name in columns] for line in lines]
    return "\n".join([tables.markdown([columns, *cells]), *footnotes.listed()])
