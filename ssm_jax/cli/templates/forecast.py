"""The experiment on a series: a column of a table is forecast from its past.

The column of the time, the column to forecast, the period and the lengths are guessed.
"""

from typing import Any, get_args

from ssm_jax.cli.templates import writing
from ssm_jax.tasks import SeriesTask, Split
from ssm_jax.tasks.series.guess import guess, unread

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


def forecast(data: str, output: str, **options: Any) -> writing.Written:
    """Writes an experiment that forecasts a column of a file.

    Args:
      data: The file with the series.
      output: The experiment to write, ``NAME.py``.
      **options: ``target`` and ``season``, as for `ssm_jax.tasks.series.guess.guess`.

    Returns:
      The fields of the task that were guessed, and the columns that are not read.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: ``output`` exists or cannot be written, or there is no forecast of
        the file; see `ssm_jax.tasks.series.guess.guess`.
    """
    writing.check_output(output)
    path = writing.path_of(data, "a CSV, npz or parquet file")
    guesses = guess(str(path), **options)
    task = SeriesTask(data_dir=str(path.parent), file=path.name, **guesses)
    # Counted here, so that a file that cannot be trained on is refused before.
    n = min(task.n_examples(split) for split in get_args(Split))
    # A power of 2, so that it can be divided over devices.
    values = {
        "data_dir": str(path.parent),
        "file": path.name,
        "batch": min(_MAX_BATCH, writing.power_of_2(n)),
    }
    writing.write(output, TEMPLATE, values, **guesses)
    why = unread(str(path), guesses).items()
    found = [*guesses.items()]
    return writing.Written(
        found + [("unread", f"{name}: {reason}") for name, reason in why]
    )
