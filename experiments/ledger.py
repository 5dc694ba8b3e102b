"""Records runs, and writes the results in the README and the result pages.

    python -m experiments.ledger
    python -m experiments.ledger --record=runs/shift,runs/digits
    python -m experiments.ledger --baselines=etsmlp/language,fru --data_dir=data

Every result in the README, in the conclusions of ``docs/papers`` and in
``experiments/results`` is written by this program. In Markdown, a number follows
``<!-- FIELD -->`` and ends with ``<!-- / -->``, where `experiments.page.Numbers` has
the fields; the table of the README stands between ``<!-- results:headlines -->`` and
``<!-- /results -->``. The pages of ``experiments/results`` are written whole, from
``experiments/PAPER/tables.py`` and the conclusions.
``--record`` first writes the rows of evaluated runs to ``experiments/results``, with
those by length, the validation metric by step of the training, and the gradients by the
initial state after it. ``--baselines`` adds the
trivial baseline to records of these experiments that have none; their data are read
from ``--data_dir`` or generated.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import flags

from experiments.dlr.figures import powers
from experiments.etsmlp.figures import throughput
from experiments.fru.figures import gradients, iterations, learning
from experiments.longssm.figures import carried, layers, lengths
from experiments.page import Numbers, page
from experiments.papers import HEADLINES, PAGES
from experiments.records import (
    EXPERIMENTS,
    RESULTS,
    add_baselines,
    check_published,
    last_gradients,
    record,
    records,
    validation_curve,
)
from ssm_jax import plots
from ssm_jax.cli import app, tables
from ssm_jax.cli.report import row_of
from ssm_jax.cli.summary import Row, format_result, number, summaries
from ssm_jax.training import WorkDir

PICTURES = {
    "longssm/lengths.png": lengths.draw,
    "etsmlp/throughput.png": throughput.draw,
    "dlr/powers.png": powers.draw,
    "fru/iterations.png": iterations.draw,
    "longssm/carried.png": carried.draw,
    "longssm/layers.png": layers.draw,
    "fru/learning.png": learning.draw,
    "fru/gradients.png": gradients.draw,
}
"""Pictures that are drawn from records alone, and what draws them."""
README = EXPERIMENTS.parent / "README.md"
_DOCS = EXPERIMENTS.parent / "docs"
PROSE = {name: _DOCS / "papers" / f"{name}.md" for name in PAGES}
PROSE["own_data"] = _DOCS / "own_data.md"
PROSE["speed"] = _DOCS / "performance.md"
"""What has the conclusions of each page."""

_NUMBER = re.compile(r"<!-- ([a-z]+ [^<>]+?) -->.*?<!-- / -->", re.DOTALL)
_TABLE = re.compile(
    r"^<!-- results:(\S+) -->\n.*?^<!-- /results -->$", re.MULTILINE | re.DOTALL
)


def texts(rows: Sequence[Row]) -> dict[Path, str]:
    """Returns the contents of all text files that are written from records.

    Args:
      rows: The records.
    """
    numbers = Numbers(rows)
    prose = {
        name: fill_numbers(path.read_text(), numbers) for name, path in PROSE.items()
    }
    readme = fill_tables(README.read_text(), {"headlines": headlines(rows)})
    pages = {
        RESULTS / f"{name}.md": page(paper, rows, prose[name])
        for name, paper in PAGES.items()
    }
    return {README: readme, **pages} | {PROSE[name]: prose[name] for name in PROSE}


def headlines(rows: Sequence[Row]) -> str:
    """Returns the table of the README, with one line per entry of `HEADLINES`."""
    results = {result.name: result for result in summaries(rows)}
    lines = [
        (
            f"`{result.name}`",
            result.metric,
            format_result(result),
            number(result.baseline),
            str(len(result.rows)),
        )
        for result in (results[name] for name in HEADLINES)
    ]
    head = ("experiment", "metric", "result", "trivial baseline", "seeds")
    return tables.markdown([head, *lines])


def fill_numbers(text: str, numbers: Numbers) -> str:
    """Returns prose with its numbers replaced by those of the records.

    Args:
      text: Markdown.
      numbers: The numbers by field.

    Raises:
      ValueError: As for `Numbers`.
    """
    return _NUMBER.sub(
        lambda match: f"<!-- {match[1]} -->{numbers[match[1]]}<!-- / -->", text
    )


def fill_tables(text: str, contents: Mapping[str, str]) -> str:
    r"""Returns a text with its tables of results replaced.

    Args:
      text: Markdown.
      contents: The tables, by name.

    Raises:
      ValueError: A table has a name that is not in ``contents``, or a marker has no
        counterpart.

    Example:
      >>> old = "<!-- results:a -->\nold\n<!-- /results -->\nafter"
      >>> print(fill_tables(old, {"a": "new"}))
      <!-- results:a -->
      <BLANKLINE>
      new
      <!-- /results -->
      after
    """
    names = _TABLE.findall(text)
    n_markers = len(re.findall(r"^<!-- /?results", text, re.MULTILINE))
    if unknown := [name for name in names if name not in contents]:
        raise ValueError(
            f"every table of results must be one of {', '.join(contents)}, got "
            f"{unknown[0]}; correct the marker."
        )
    if n_markers != 2 * len(names):
        raise ValueError(
            f"every table of results must begin and end with a marker, got {n_markers} "
            "markers; `<!-- results:NAME -->` ends with `<!-- /results -->`."
        )

    def fill(match: re.Match[str]) -> str:
        table = contents[match[1]].rstrip()
        return f"<!-- results:{match[1]} -->\n\n{table}\n<!-- /results -->"

    return _TABLE.sub(fill, text)


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_list("record", [], "Work dirs of the runs to record.")
    flags.DEFINE_list(
        "baselines", [], "Experiments, or papers, to add the baseline to."
    )
    flags.DEFINE_string(
        "data_dir", None, "Directory of data sets, or of texts, for --baselines."
    )


def main(argv):
    """Records the runs of ``--record`` and writes the README and the pages."""
    del argv
    folders = [WorkDir(path) for path in flags.FLAGS.record]
    rows = [row_of(folder) for folder in folders]
    for folder, row in zip(folders, rows, strict=True):
        check_published(folder, row)
        if curve := validation_curve(folder, row["metric"]):
            row["curve"] = curve
        if norms := last_gradients(folder):
            row["gradients"] = norms
    # Recorded after all checks, so that an error leaves the records unchanged.
    for row in rows:
        record(row)
    if flags.FLAGS.baselines:
        add_baselines(flags.FLAGS.baselines, flags.FLAGS.data_dir, RESULTS)
    for path, text in texts(records()).items():
        path.write_text(text)
    for picture, draw in PICTURES.items():
        plots.save(draw(), RESULTS / picture)


if __name__ == "__main__":
    app.run(main, define_flags)
