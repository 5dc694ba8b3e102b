"""The experiment on a series: a column of a table is forecast from its past.

The column of the time, the column to forecast, the period and the lengths are guessed.
"""

from collections import Counter
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ssm_jax.cli.templates import writing
from ssm_jax.tasks import SeriesTask, Split, TableFormat
from ssm_jax.tasks.series import columns
from ssm_jax.tasks.series.guess import guess, suspects, unread

TEMPLATE = '''"""Forecast of a column of a file, written by `ssm-jax new forecast`.

    ssm-jax train --config=FILE --workdir=RUN
    ssm-jax evaluate --workdir=RUN
    ssm-jax report --workdirs=RUN
    ssm-jax predict --workdir=RUN --data=NEW

FILE is this one, and RUN the directory of the run. `report` prints the errors beside
those of the baselines and draws the forecasts in the folder `figures` of RUN. `predict`
prints what follows the last rows of NEW, or without it of the data of the run.
"""

from ml_collections import ConfigDict

from ssm_jax.config import spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, LastHead, SequenceModel, VectorEncoder
from ssm_jax.recurrences import S5
from ssm_jax.tasks import SeriesTask, TableFormat
from ssm_jax.training import Optimizer, TrainConfig

# Guessed from the file; the docstring of SeriesTask explains each field.
{constants}

def get_config():
    """Returns the config of the experiment."""
    task = spec(
        SeriesTask,
        data_dir={data_dir!r},
        file={file!r},
        format=spec(TableFormat, **FORMAT),
        time=TIME,
        group=GROUP,
        order=ORDER,
        duplicates=DUPLICATES,
        step=STEP,
        irregular=IRREGULAR,
        calendar=CALENDAR,
        target=TARGET,
        inputs=INPUTS,
        known=KNOWN,
        missing=MISSING,
        window=WINDOW,
        horizon=HORIZON,
        season=SEASON,
        # The model learns what a linear forecast, fitted in closed form, leaves.
        linear=True,
        normalize="window",
        loss="absolute",
    )
    layer = spec(
        RecurrentLayer,
        recurrence=spec(S5, d_state=32),
        mixing=spec(ChannelMixing, kind="glu", dropout=0.1),
    )
    model = spec(
        SequenceModel,
        encoder=spec(VectorEncoder, d_model=16),
        block=spec(Block, layer=layer, prenorm=True),
        n_layers=2,
        # Zeros at first, which are the linear forecast.
        head=spec(LastHead, d_output=HORIZON, kernel_init="zeros"),
    )
    # The best of the evaluations is kept, that of the linear forecast among them.
    training = spec(
        TrainConfig,
        steps=500,
        batch_size={batch},
        evaluate_every=50,
        evaluate_at_start=True,
        patience=6,
    )
    optimizer = spec(
        Optimizer,
        learning_rate=1e-2,
        schedule="cosine",
        warmup_steps=training.get_ref("steps") // 10,
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

FORMAT_FIELDS = ("delimiter", "encoding", "decimal", "day_first", "time_zone")
"""Fields of a `TableFormat` that are options."""

_MAX_BATCH = 64
_SHOWN = 10  # Columns that are not read.
# Of a file in the order of time, of one series.
_DEFAULTS = {
    "group": None,
    "order": "error",
    "duplicates": "error",
    "step": None,
    "irregular": False,
    "calendar": (),
    "known": (),
}


def forecast(data: str, output: str, **options: Any) -> writing.Written:
    """Writes an experiment that forecasts a column of a file, or of several.

    Args:
      data: The file with the series; or a folder or a pattern, such as
        ``stores/*.csv``, of files that have a series each.
      output: The experiment to write, ``NAME.py``.
      **options: Fields of `ssm_jax.tasks.series.guess.Choices`, and those of a
        `TableFormat` in `FORMAT_FIELDS`. None means that they are found.

    Returns:
      What was found in the file, and the fields of the task that were guessed.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: ``output`` exists or cannot be written, a folder has tables of several
        kinds or none, or there is no forecast of the file; see
        `ssm_jax.tasks.series.guess.guess`.
    """
    writing.check_output(output)
    folder, file = _locate(data)
    path = folder / file
    given = {name: value for name, value in options.items() if value is not None}
    stated = {name: given.pop(name) for name in FORMAT_FIELDS if name in given}
    format = TableFormat(**stated)
    guesses = _DEFAULTS | guess(str(path), format=format, **given)
    task = SeriesTask(data_dir=str(folder), file=file, format=format, **guesses)
    # Counted here, so that a file that cannot be trained on is refused before.
    n = min(task.n_examples(split) for split in get_args(Split))
    # A power of 2, so that it can be divided over devices.
    values = {
        "data_dir": str(folder),
        "file": file,
        "batch": min(_MAX_BATCH, writing.power_of_2(n)),
    }
    writing.write(output, TEMPLATE, values, format=stated, **guesses)
    found = [*_describe(task, path, format, guesses)]
    return writing.Written(found, ("evaluate", "report", "predict"))


def _locate(data):
    """The folder of the data, and the name or the pattern of the files in it."""
    path = Path(data).expanduser().resolve()
    if not path.is_dir():
        if not any(file.exists() for file in columns.files(str(path)).values()):
            writing.path_of(data, "a CSV, npz or parquet file, or a folder of them")
        return columns.locate(str(path))
    names = [file.name for file in path.iterdir() if not file.name.startswith(".")]
    counts = Counter(Path(name).suffix for name in names)
    tables = [s for s in counts if s.lower() in (".tsv", *columns.SUFFIXES)]
    if len(tables) != 1:
        found = ", ".join(f"{counts[s]:,} {s}" for s in sorted(tables)) or "none"
        raise ValueError(
            "`--data` must be a folder of CSV, npz or parquet files of one kind, got "
            f"{found} in {path}; --data='FOLDER/*.csv' names some of them."
        )
    return path, f"*{tables[0]}"


def _describe(task, path, format, guesses):
    """Names and values of what was found in a file."""
    files = task.data_files()
    if len(files) > 1:
        yield "files", f"{len(files):,}: {writing.shortened(files)}"
    yield "rows", f"{len(task.values()):,}{_span(task.times())}"
    names = task.series_names()
    if len(names) > 1:
        yield "series", f"{len(names):,}: {writing.shortened(names)}"
    for note in task.notes():
        yield "found", note
    for name, value in guesses.items():
        if name in _DEFAULTS and value == _DEFAULTS[name]:
            continue
        if name == "inputs":
            value = writing.shortened(value)
        elif name == "missing" and (n := int(np.isnan(task.values()).sum())):
            value = f"{value}, where {n:,} targets are missing"
        yield name, value
    sizes = {split: _n_disjoint(task, split) for split in get_args(Split)}
    yield from writing.few_examples(sizes, "windows that share no target")
    for name, doubt in suspects(str(path), guesses, format).items():
        yield "check", f"{name}: {doubt}"
    why = [*unread(str(path), guesses, format).items()]
    for name, reason in why[:_SHOWN]:
        yield "unread", f"{name}: {reason}"
    if len(why) > _SHOWN:
        yield "unread", f"{len(why) - _SHOWN:,} more columns"


def _n_disjoint(task, split):
    """The number of windows of a split whose targets do not overlap."""
    first, of_series = task.first_targets(split), task.series_of_windows(split)
    # Those of a series are together, in the order of time.
    starts = np.flatnonzero(np.diff(of_series, prepend=-1))
    since = first - np.repeat(first[starts], np.diff(starts, append=len(first)))
    return len(np.unique(np.stack([of_series, since // task.horizon]), axis=1).T)


def _span(times):
    """The first and the last date."""
    if times is None or times.dtype.kind != "M":
        return ""
    ends = (times.min(), times.max())
    first, last = (str(end.astype("datetime64[s]")) for end in ends)
    return f", {first} to {last}".replace("T00:00:00", "").replace("T", " ")
