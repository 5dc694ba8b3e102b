"""Predicts what follows the last rows of new data, or new examples, by a run.

    ssm-jax predict --workdir=RUN --data=NEW.csv --output=FORECAST.csv

NEW.csv has the columns of the file that the run was trained on, by name, and at least
one window of rows of each series: the file with rows appended, or another one. Columns
are normalised as in the training; a series that was not in it is normalised by its own
rows. Without ``--data`` the file of the run is read.

The output is a CSV, or an ``.npz`` or ``.parquet`` by its extension, and has a row for
each series and step: its time, the forecast, and the ends ``lower`` and ``upper`` of
the interval that holds 90 % of the values as long as errors are like those of the
validation split. Where the times of the data have offsets, or the run a time zone,
those of the output are of UTC, with the mark ``+00:00``, for which an npz has no place.
Of a classification it has the class of each series, and the probabilities of all.

A run of ``ssm-jax new classify`` or ``regress`` on an npz or a table predicts each
example of a file of the same form, whose targets are not read: the output has a row for
each, with its place in the npz or its name, or for each of its steps if they have
targets. A run on a folder of recordings or images predicts each file of a folder that
is new, whatever its subfolders are, or one file.

The output is written whole or not at all. Without ``--output`` it is
printed.
"""

import csv
import io
from pathlib import Path

from absl import flags, logging

from ssm_jax.cli.errors import errors_of_data
from ssm_jax.cli.run_flags import (
    check_writable,
    checkpoint,
    define_checkpoint,
    define_run,
    run_options,
)
from ssm_jax.evaluation import predict, restore
from ssm_jax.evaluation.predict import predict_next, series_task
from ssm_jax.files import atomic_file, write_arrays, write_text
from ssm_jax.tasks import SeriesTask

_SUFFIXES = ("csv", "npz", "parquet")


def define_flags() -> None:
    """Defines the flags of this program."""
    define_run("Directory of the data set (default: that of the run).")
    flags.DEFINE_string(
        "data", None, "File or folder of new examples (default: that of the run)."
    )
    flags.DEFINE_string("output", None, "File to write (default: print it).")
    define_checkpoint()


def main(argv):
    """Predicts from the rows or examples of ``--data`` by the run of ``--workdir``."""
    del argv
    values = flags.FLAGS
    check_writable("output", values.output, _SUFFIXES)
    options = run_options()
    # The splits of the training are not read.
    options["allow_changed_data"] |= values.data is not None
    restored = restore(values.workdir, checkpoint(), **options)
    is_utc = False
    with errors_of_data(values.data):
        if isinstance(restored.task, SeriesTask):
            task = series_task(restored, values.data)
            table, is_utc = predict_next(restored, task), task.times_are_utc()
        else:
            table = predict(restored, values.data)
    if restored.widths is None and "forecast" in table:
        logging.warning(
            "no intervals: `ssm-jax evaluate --workdir=%s` measures them on the data "
            "of the training",
            values.workdir,
        )
    if not values.output:
        print(_csv(table, is_utc), end="")
        return
    _write(Path(values.output), table, is_utc)
    print(f"{len(next(iter(table.values()))):,} rows written to {values.output}")


def _write(path, table, is_utc):
    """Writes a table, whole or not at all."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        write_arrays(path, table)
    elif suffix == ".csv":
        write_text(path, _csv(table, is_utc))
    else:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise ValueError(
                f"`--output` must be a .csv or .npz without pyarrow, got {path}; "
                "`pip install pyarrow` installs it."
            ) from error
        with atomic_file(path) as file:
            zone = "UTC" if is_utc else None
            columns = {
                name: pyarrow.array(column, pyarrow.timestamp("us", zone))
                if column.dtype.kind == "M"
                else column
                for name, column in table.items()
            }
            parquet.write_table(pyarrow.table(columns), file)


def _csv(table, is_utc=False):
    """A table as the text of a CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    columns = (_words(column, is_utc) for column in table.values())
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def _words(column, is_utc):
    """A column as words, of dates without the digits that are all zero."""
    if column.dtype.kind == "M":
        # A day has no offset: one of UTC is written as its first moment.
        units = ("s", "us") if is_utc else ("D", "s", "us")
        unit = next(u for u in units if (column.astype(f"M8[{u}]") == column).all())
        mark = "+00:00" if is_utc else ""
        return [str(x).replace("T", " ") + mark for x in column.astype(f"M8[{unit}]")]
    if column.dtype.kind == "f":
        return [f"{x:.9g}" for x in column]
    return [str(x) for x in column]
