"""Writes an experiment on data of your own, to be trained, and edited before.

    ssm-jax new forecast --data=FILE --target=COLUMN
    ssm-jax new text --data=FOLDER
    ssm-jax new classify --data=FILE
    ssm-jax new classify --data=FOLDER
    ssm-jax new regress --data=FILE

The file is named after the kind, such as ``forecast.py``, unless ``--output`` names
another. What was found and guessed is printed, and what can be corrected is a constant
at the top of the file.

``forecast`` forecasts a column of a CSV (or npz, or parquet) from all columns of
numbers: ``--target``, unless there is only one, or only one with a name such as
``value`` or ``sales``. Encoding, delimiter, decimal sign and the form of dates are
found, and what is found is printed: columns that are not read, rows out of order,
missing ones. What the file leaves open is refused with the flag that states it:
``--day_first``, ``--decimal=,``, ``--time_zone=Europe/Berlin``, ``--duplicates=mean``.
A file of several series has one column with their names, ``--group``, or several that
name them together, ``--group=Store,Dept``; ``--step=1h`` averages the rows of each
hour, and ``--irregular`` gives the model the distances of rows at irregular times.
``--known=price,holiday`` names columns that are known before the target is: rows
after its last value, without one, are then the future. Of a folder, or of a pattern in
quotes such as ``--data='stores/*.csv'``, each file is a series, named by its file; all
must have the same columns.

``text`` is a language model of the ``.txt`` files of a folder, and of those of its
folders, read as bytes. With ``--vocabulary=N`` it reads subwords of a tokenizer of N
tokens, which is trained and written beside the experiment; the package ``tokenizers``
does it (extra ``[interop]``).

``classify`` and ``regress`` predict a label, or numbers, of each sequence. An npz has
the arrays ``inputs``, ``(n, length, features)`` or ``(n, length)``, and ``targets``,
``(n,)``; labels are words or integers; see `ssm_jax.tasks.ArrayTask`. A CSV (or
parquet) has a row for each step, a column that names its sequence, ``--example``, and
one of its label or number, ``--target``; all other columns of numbers are the features.
``classify`` reads a folder, too, of recordings (WAV, FLAC) or images with one subfolder
per class; what is damaged, silent or cut in it is named.
"""

import shlex
import sys

from absl import flags

from ssm_jax.cli.errors import errors_with_flags, with_flags
from ssm_jax.cli.templates import labelled, writing
from ssm_jax.cli.templates.forecast import FORMAT_FIELDS, forecast
from ssm_jax.cli.templates.text import text

KINDS = {
    "forecast": forecast,
    "text": text,
    "classify": labelled.classify,
    "regress": labelled.regress,
}
"""What writes an experiment of each kind."""

_OPTIONS = {
    "target": ("forecast", "classify", "regress"),
    **dict.fromkeys(("season", "time", "group", "known"), ("forecast",)),
    **dict.fromkeys(("order", "duplicates", "step", "irregular"), ("forecast",)),
    **dict.fromkeys(FORMAT_FIELDS, ("forecast",)),
    "vocabulary": ("text",),
    "example": ("classify", "regress"),
}
# Fields whose flags have other names, in errors.
_SPELLED = {"file": "data", "data_dir": "data", "day_first": "[no]day_first"}


def define_flags() -> None:
    """Defines the flags of this program."""
    # The kind is a word of its own, and `app.parse` takes flags alone.
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        sys.argv[1] = f"--kind={sys.argv[1]}"
    flags.DEFINE_enum("kind", None, [*KINDS], "What to write.", required=True)
    flags.DEFINE_string("data", None, "The file, the folder, or a pattern of files.")
    flags.DEFINE_alias("csv", "data")
    flags.DEFINE_string("output", None, "Experiment to write (default: KIND.py).")
    flags.DEFINE_string(
        "target", None, "Column to predict (forecast: found, if it is clear)."
    )
    flags.DEFINE_integer(
        "season", None, "Period in steps (default: guessed).", lower_bound=1
    )
    flags.DEFINE_integer(
        "vocabulary", None, "Tokens of a tokenizer to train (default: bytes).", 258
    )
    flags.DEFINE_string("time", None, "Column of the time (default: guessed).")
    flags.DEFINE_string("group", None, "Columns of the name of the series, of several.")
    flags.DEFINE_string("known", None, "Columns that are known in the future.")
    flags.DEFINE_enum("order", None, ["error", "sort"], "Rows not in order of time.")
    flags.DEFINE_enum(
        "duplicates", None, ["error", "first", "last", "mean"], "Rows of one time."
    )
    flags.DEFINE_string("step", None, "Distance of steps, such as 15min, 1h or 1D.")
    flags.DEFINE_bool("irregular", None, "Whether the model reads distances of rows.")
    flags.DEFINE_string("delimiter", None, "Character between values (default: found).")
    flags.DEFINE_string("encoding", None, "Encoding of the file (default: found).")
    flags.DEFINE_enum("decimal", None, [".", ","], "Decimal sign (default: found).")
    flags.DEFINE_bool("day_first", None, "Whether 02/03 is the second of March.")
    flags.DEFINE_string("time_zone", None, "Time zone of dates, as Europe/Berlin.")
    flags.DEFINE_string("example", None, "Column that names the sequence of a step.")


def main(argv):
    """Writes the experiment on ``--data``, prints what was found and what follows."""
    del argv
    values = flags.FLAGS
    if values.data is None:
        raise ValueError(
            "`--data` must name the file, or the folder, got None; "
            "--data=FILE is an example."
        )
    options = {}
    for name, kinds in _OPTIONS.items():
        if values.kind in kinds:
            options[name] = values[name].value
        elif values[name].value is not None:
            raise ValueError(
                f"`--{name}` must be left out for {values.kind}, got "
                f"{values[name].value}; it is of {', '.join(kinds)}."
            )
    output = values.output or f"{values.kind}.py"
    fields = {name: _SPELLED.get(name, name) for name in (*options, "file", "data_dir")}
    with errors_with_flags(fields):
        written = KINDS[values.kind](values.data, output, **options)
    width = max(8, *(len(name) for name, _ in written.found))
    for name, value in written.found:
        text = with_flags(value, fields) if name == "found" else value
        print(f"{name:{width}} {_printable(text)}")
    workdir = f"runs/{writing.experiment_name(output)}"
    print(f"\nWritten to {output}; change it where the guess is wrong. Then:\n")
    print(f"    ssm-jax train --config={shlex.quote(output)} --workdir={workdir}")
    for line in written.programs:
        program, *rest = line.split()
        flag = "workdirs" if program == "report" else "workdir"
        print(" ".join([f"    ssm-jax {program} --{flag}={workdir}", *rest]))


def _printable(value):
    """A value as text, in which nothing is a control sequence of the terminal."""
    text = str(value)
    return text if text.isprintable() else repr(text)
