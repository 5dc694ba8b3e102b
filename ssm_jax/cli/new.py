"""Writes an experiment on a file of your own, to be trained, and edited before.

    ssm-jax new forecast --csv=FILE

The file, ``forecast.py`` unless ``--output`` names another, forecasts a column of the
CSV (or npz, or parquet) from all columns of numbers. The column of the time, the column
to forecast, the period and the lengths are guessed; they are printed and are constants
at the top of the file. Dates are those of ISO 8601, such as ``2026-01-31`` or
``2026-01-31 18:00``; a column that is neither dates nor numbers is printed as unread.
"""

import re
import shlex
import sys
from pathlib import Path
from typing import Any, get_args

from absl import flags

from ssm_jax.cli.run_flags import check_writable
from ssm_jax.files import write_text
from ssm_jax.tasks import SeriesTask, Split
from ssm_jax.tasks.series.guess import guess, unread

# What depends on the user's file is in literals alone: its names may be any text, which
# would be code elsewhere, even in the docstring.
TEMPLATE = '''"""Forecast of a column of a file, written by `ssm-jax new forecast`.

    ssm-jax train --config=FILE --workdir=RUN
    ssm-jax evaluate --workdir=RUN
    ssm-jax report --workdirs=RUN

FILE is this one, and RUN the directory of the run. The last command prints the errors
beside those of the baselines and draws the forecasts in the folder `figures` of RUN.
"""

from ml_collections import ConfigDict

from ssm_jax.config import spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, LastHead, SequenceModel, VectorEncoder
from ssm_jax.recurrences import S5
from ssm_jax.tasks import SeriesTask
from ssm_jax.training import Optimizer, TrainConfig

# Guessed from the file; the docstring of SeriesTask explains each field.
{constants}

def get_config():
    """Returns the config of the experiment."""
    task = spec(
        SeriesTask,
        data_dir={data_dir!r},
        file={file!r},
        time=TIME,
        target=TARGET,
        inputs=INPUTS,
        missing=MISSING,
        window=WINDOW,
        horizon=HORIZON,
        season=SEASON,
        differences=True,
    )
    layer = spec(
        RecurrentLayer,
        recurrence=spec(S5, d_state=32),
        mixing=spec(ChannelMixing, kind="glu", dropout=0.1),
    )
    model = spec(
        SequenceModel,
        encoder=spec(VectorEncoder, d_model=32),
        block=spec(Block, layer=layer, prenorm=True),
        n_layers=2,
        head=spec(LastHead, d_output=HORIZON),
    )
    training = spec(TrainConfig, steps=500, batch_size={batch}, evaluate_every=250)
    optimizer = spec(
        Optimizer,
        learning_rate=3e-3,
        schedule="cosine",
        warmup_steps=50,
        schedule_steps=training.get_ref("steps"),
        weight_decay=0.05,
    )
    return ConfigDict(
        {{
            "experiment": {experiment!r},
            "variant": "",
            "paper": None,
            "task": task,
            "model": model,
            "optimizer": optimizer,
            "training": training,
        }}
    )
'''

_MAX_BATCH = 64


def forecast(file: str, output: str, **options: Any) -> dict[str, Any]:
    """Writes an experiment that forecasts a column of a file.

    Args:
      file: The file with the series.
      output: The experiment to write, ``NAME.py``.
      **options: ``target`` and ``season``, as for `ssm_jax.tasks.series.guess.guess`.

    Returns:
      The fields of the task that were guessed.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: ``output`` exists or cannot be written, or there is no forecast of
        the file; see `ssm_jax.tasks.series.guess.guess`.
    """
    check_writable("output", output, ("py",))
    # In --config=FILE:VARIANT the first colon ends the name.
    if ":" in output or not output.isprintable():
        raise ValueError(
            "`--output` must be a name of printable characters without a colon, got "
            f"{output!r}; give another name."
        )
    if Path(output).exists():
        raise ValueError(
            f"`--output` must be a new file, got {output}, which exists; remove it or "
            "give another name."
        )
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise FileNotFoundError(
            f"`--csv` must be a CSV, npz or parquet file, got {file}, which "
            f"{'is none' if path.exists() else 'does not exist'}; give its path."
        )
    guesses = guess(str(path), **options)
    task = SeriesTask(data_dir=str(path.parent), file=path.name, **guesses)
    # Counted here, so that a file that cannot be trained on is refused before.
    n = min(task.n_examples(split) for split in get_args(Split))
    # A power of 2, so that it can be divided over devices.
    batch = min(_MAX_BATCH, 2 ** (n.bit_length() - 1))
    constants = "".join(
        f"{name.upper()} = {value!r}\n" for name, value in guesses.items()
    )
    text = TEMPLATE.format(
        constants=constants,
        data_dir=str(path.parent),
        file=path.name,
        experiment=_experiment(output),
        batch=batch,
    )
    write_text(Path(output), text)
    return guesses


def define_flags() -> None:
    """Defines the flags of this program."""
    # The kind is a word of its own, and `app.parse` takes flags alone.
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        sys.argv[1] = f"--kind={sys.argv[1]}"
    flags.DEFINE_enum("kind", None, ["forecast"], "What to write.", required=True)
    flags.DEFINE_string("csv", None, "CSV, npz or parquet file.", required=True)
    flags.DEFINE_string("output", "forecast.py", "Experiment to write.")
    flags.DEFINE_string("target", None, "Column to forecast (default: guessed).")
    flags.DEFINE_integer(
        "season", None, "Period in steps (default: guessed).", lower_bound=1
    )


def main(argv):
    """Writes the experiment on ``--csv``, prints what was guessed and what follows."""
    del argv
    values = flags.FLAGS
    options = {"target": values.target, "season": values.season}
    guesses = forecast(values.csv, values.output, **options)
    for name, value in guesses.items():
        print(f"{name:8} {_printable(value)}")
    unread_columns = unread(str(Path(values.csv).expanduser().resolve()), guesses)
    for name, reason in unread_columns.items():
        print(f"unread   {_printable(name)}: {reason}")
    workdir, config = _workdir(values.output), shlex.quote(values.output)
    print(
        f"\nWritten to {values.output}; change it where the guess is wrong. Then:\n\n"
        f"    ssm-jax train --config={config} --workdir={workdir}\n"
        f"    ssm-jax evaluate --workdir={workdir}\n"
        f"    ssm-jax report --workdirs={workdir}"
    )


def _printable(value):
    """A value as text, in which nothing is a control sequence of the terminal."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def _workdir(output):
    return f"runs/{_experiment(output)}"


def _experiment(output):
    return re.sub(r"\W+", "_", Path(output).stem)
