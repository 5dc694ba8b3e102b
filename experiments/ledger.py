"""Records runs, and writes the results in the README and the result pages.

    python -m experiments.ledger
    python -m experiments.ledger --record=runs/shift,runs/digits
    python -m experiments.ledger --baselines=etsmlp/language,fru --data_dir=data

Every result in the README, in the conclusions of ``docs/papers`` and in
``experiments/results`` is written by this program. In Markdown, a number follows
``<!-- FIELD -->`` and ends with ``<!-- / -->``, where `experiments.page.Numbers` has the
fields; a table stands between ``<!-- results:NAME -->`` and ``<!-- /results -->``.
``--record`` first writes the rows of evaluated runs, with their validation metric by
step and including those by length, to ``experiments/results``. ``--baselines`` adds the
trivial baseline to records of these experiments that have none; their data are read
from ``--data_dir`` or generated.
"""

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from experiments import (
    beyond,
    markers,
    pages,
    sections,
    throughput,
    trivial_baselines,
)
from experiments.dlr.figures import powers
from experiments.etsmlp.figures import throughput as training_by_length
from experiments.fru import parallel
from experiments.fru.figures import iterations, learning
from experiments.longssm.figures import carried, lengths
from experiments.own_data import pages as own_data
from experiments.papers import PAPERS
from experiments.records import (
    RESULTS,
    check_published,
    curve_of,
    record,
    records,
)
from ssm_jax import plots
from ssm_jax.cli import app
from ssm_jax.cli.report import row_of
from ssm_jax.cli.summary import Row
from ssm_jax.training import WorkDir

PICTURES = {
    sections.PICTURE: lengths.draw,
    throughput.PICTURE: training_by_length.draw,
    beyond.POWERS_PICTURE: powers.draw,
    parallel.PICTURE: iterations.draw,
    beyond.CARRIED_PICTURE: carried.draw,
    sections.LEARNING_PICTURE: learning.draw,
}
"""Pictures that are drawn from records alone, and what draws them."""
README = Path(__file__).parents[1] / "README.md"


def texts(rows: Sequence[Row]) -> dict[Path, str]:
    """Returns the contents of all text files that are written from records.

    Args:
      rows: The records.
    """
    blocks = {"headlines": pages.headlines(rows)}
    found = {README: markers.with_results(README.read_text(), blocks)}
    found[RESULTS / "own_data.md"] = own_data.page(rows)
    found[RESULTS / "beyond.md"] = beyond.page(rows)
    return found | {RESULTS / f"{name}.md": pages.page(name, rows) for name in PAPERS}


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
        if curve := curve_of(folder, row["metric"]):
            row["curve"] = curve
    # Recorded after all checks, so that an error leaves the records unchanged.
    for row in rows:
        record(row)
    if flags.FLAGS.baselines:
        trivial_baselines.add(flags.FLAGS.baselines, flags.FLAGS.data_dir, RESULTS)
    for path, text in texts(records()).items():
        path.write_text(text)
    for picture, draw in PICTURES.items():
        plots.save(draw(), RESULTS / picture)


if __name__ == "__main__":
    app.run(main, define_flags)
