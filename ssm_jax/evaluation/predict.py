"""Predictions on data that a run was not trained on, whole or row by row."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeGuard

import jax
import numpy as np
from absl import logging

from ssm_jax.evaluation.forecast import MODEL
from ssm_jax.evaluation.restore import Restored
from ssm_jax.tasks.new_data import NewDataTask
from ssm_jax.tasks.series import columns, naming
from ssm_jax.tasks.series.columns import Table
from ssm_jax.tasks.series.table_format import TableFormat
from ssm_jax.tasks.series.windows import SeriesTask
from ssm_jax.types import Array

Data = str | os.PathLike[str] | Mapping[str, Any]
"""A file or folder, or columns by name: a dict of arrays, or a data frame."""


def predict(restored: Restored, data: Data | None = None) -> dict[str, np.ndarray]:
    """Predicts what follows the last row of each series, or the target of each example.

    Columns are normalised as in the training, and a series that was not in it by its
    own rows.

    Args:
      restored: A model of a `SeriesTask`, an `ArrayTask`, a `LongTable`, an
        `AudioFolder` or an `ImageFolder`.
      data: A file, or columns or arrays by name, with those that the task reads, but
        the targets of an `ArrayTask` or a `LongTable`; the last ``window`` rows of each
        series are the window. Of a task with ``known`` columns these are the last
        before ``horizon`` rows without a target. Of a folder of recordings or images:
        another folder, whatever its subfolders are, or one file. None means the data
        of the run.

    Returns:
      A table as columns by name. Of a forecast, a row for each series and step: the
      name of the series, under those of the columns of ``group``; the time,
      if it has one and its steps are regular, dates with an offset in UTC (of an
      ``irregular`` task, future steps are of the usual size); ``step``,
      from 1; ``forecast``; and the ends ``lower`` and ``upper`` of the interval that
      holds 90 % of the values, if that was measured. Of a classification, a row for
      each series: ``prediction``, the most likely class, and ``p(CLASS)``, the
      probability of each.

      Of an `ArrayTask`, a row for each example, or with ``per_step`` for each of its
      valid steps: ``id`` and ``step``, indices into the arrays. Of a `LongTable`, a row
      for each example: its name, under that of the column. Of recordings or images, a
      row for each: ``file``, its path in the folder. Then the columns of a
      classification; or ``prediction``, of several values ``prediction 0`` and so on,
      in the units of the file.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: The model is of another task, a column is not there or is not one of
        numbers, an array does not fit the task, a series has fewer rows than a window,
        or a file is damaged.
    """
    if isinstance(restored.task, NewDataTask):
        return _predict_examples(restored, restored.task, data)
    return predict_next(restored, series_task(restored, data))


def predict_next(restored: Restored, task: SeriesTask) -> dict[str, np.ndarray]:
    """Returns the table of `predict` of what follows the last rows of a task.

    Args:
      restored: The model.
      task: Its task, or the result of `series_task`.
    """
    predicted = np.asarray(restored.apply(task.next_inputs(), dt=task.next_dt()))
    table: dict[str, np.ndarray] = task.series_columns()
    if task.classes is not None:
        return table | _of_classes(predicted, task.classes)
    forecasts = task.next_in_units(predicted)
    steps = np.arange(1, task.horizon + 1)
    table = {name: x.repeat(task.horizon) for name, x in table.items()}
    if (times := task.next_times()) is not None:
        time = task.time if isinstance(task.time, str) else "time"
        table[time] = times.ravel()
    table["step"] = np.tile(steps, len(forecasts))
    table["forecast"] = forecasts.ravel()
    if restored.widths is not None:
        half = restored.widths[MODEL] * task.next_scale()
        table["lower"] = (forecasts - half).ravel()
        table["upper"] = (forecasts + half).ravel()
    return table


def _predict_examples(restored, task, data):
    """The table of a `NewDataTask`."""
    new = task.new_examples(None if data is None else _examples_of(task, data))
    parts, valid = [], []
    size = min(restored.training.batch_size, len(new.names))
    for inputs, mask in new.batches(size):
        # The last batch is filled up, so that one program is compiled.
        n, rows = len(inputs), np.minimum(np.arange(size), len(inputs) - 1)
        flags = {} if mask is None else {"mask": mask[rows]}
        parts.append(np.asarray(restored.apply(inputs[rows], **flags))[:n])
        valid.append(np.ones(parts[-1].shape[:2], bool) if mask is None else mask)
    predicted, table = np.concatenate(parts), {new.column: new.names}
    if task.spec.l_output is not None:
        is_valid = np.concatenate(valid)
        example, step = np.nonzero(is_valid)
        predicted, table = (
            predicted[is_valid],
            {new.column: new.names[example], "step": step},
        )
    if new.classes is not None:
        return table | _of_classes(predicted, new.classes)
    values = task.scales.unscaled(predicted).T
    if len(values) == 1:
        return table | {"prediction": values[0]}
    return table | {f"prediction {i}": column for i, column in enumerate(values)}


def _of_classes(logits, classes):
    """The most likely class of each row, and the probabilities of all."""
    table = {"prediction": np.array(classes)[logits.argmax(-1)]}
    probabilities = np.asarray(jax.nn.softmax(logits, axis=-1))
    of_classes = zip(classes, probabilities.T, strict=True)
    return table | {f"p({name})": values for name, values in of_classes}


def task_on(restored: Restored, data: Data) -> SeriesTask | NewDataTask:
    """Returns the task of a run on other data with targets, to be evaluated.

    Args:
      restored: As for `predict`.
      data: As for `predict`, with the targets, which of recordings and images are the
        subfolders of their classes. All of it is of the test split.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: As for `predict`, targets are missing, or a class is none of the run.
    """
    if isinstance(restored.task, NewDataTask):
        return restored.task.on(_examples_of(restored.task, data))
    return series_task(restored, data)


def series_task(restored: Restored, data: Data | None) -> SeriesTask:
    """Returns the task of a run on other data, with the statistics of the training.

    Args:
      restored: A model of a `SeriesTask`.
      data: As for `predict`.

    Raises:
      ValueError: The model is of another task.
    """
    task = restored.task
    if not isinstance(task, SeriesTask):
        raise ValueError(
            "`restored` must be a model of a SeriesTask, an ArrayTask, a LongTable, an "
            "AudioFolder or an ImageFolder for other data, got one of "
            f"{type(task).__name__}; `evaluate_run` and "
            "`predictions` are of its splits, and `generate` continues a text."
        )
    if data is None:
        return task
    if is_path(data):
        table = columns.read(_path_of(data), task.format)
    else:
        table = _table_of(data, task)
    _check_columns(task, table)
    found = task.on(table)
    if task.missing == "error":
        # Rows of the future have no target, nor what is not known of it.
        is_read = found.step_of_rows()[0] >= 0 if task.known else True
        for name in sorted({task.target, *task.inputs} & {*table}):
            values = table.numbers(name).values
            if values is not None and (n := int((np.isnan(values) & is_read).sum())):
                logging.warning(
                    "%r of %s has %d missing values, each taken as the one before",
                    *(name, table.path, n),
                )
    return found


def is_path(data: Data) -> TypeGuard[str | os.PathLike[str]]:
    """Returns whether data are in a file."""
    return isinstance(data, str | os.PathLike)


def _examples_of(task, data):
    """Other data as a `NewDataTask` takes them."""
    return _path_of(data, task.in_folder) if is_path(data) else _table_of(data)


def _path_of(data, in_folder=False):
    """The path of a file, of a pattern of several, or of a folder, that is there."""
    path = os.path.expanduser(os.fspath(data))
    if in_folder:
        is_there = os.path.exists(path)
    else:
        is_there = any(file.is_file() for file in columns.files(path).values())
    if not is_there:
        raise FileNotFoundError(
            f"`data` must be {'a folder or ' * in_folder}a file, got {path}, which "
            f"{'is none' if os.path.exists(path) else 'does not exist'}; give its path."
        )
    return path


def _check_columns(task, table):
    """Checks that there are all columns that a task reads."""
    time = (task.time,) if isinstance(task.time, str) else task.time or ()
    names = (*time, *naming.columns(task.group), task.target, *task.inputs)
    # What is there, but is no column of numbers, is refused by its kind.
    known = {*table, *table.others}
    if absent := [name for name in dict.fromkeys(names) if name not in known]:
        raise ValueError(
            f"`data` must have the columns that the run reads, got {table.path} "
            f"without {', '.join(map(repr, absent))}; add them, or rename its own, "
            f"which are {', '.join(table)}."
        )


def _table_of(frame, task=None):
    """Columns in memory as a table, for a `SeriesTask` or another task."""
    time = () if task is None or task.time is None else task.time
    time = (time,) if isinstance(time, str) else time
    format = TableFormat() if task is None else task.format
    # The time of a data frame is often its index.
    if not set(time) <= {*_names(frame)} and hasattr(frame, "reset_index"):
        frame = frame.reset_index()
    arrays = {name: _column(frame[name]) for name in _names(frame)}
    if len({len(array) for array in arrays.values()}) != 1:
        raise ValueError(
            "`data` must have columns of one length, got "
            f"{ {name: len(array) for name, array in arrays.items()} }; leave out what "
            "is none."
        )
    load = {name: partial(arrays.__getitem__, name) for name in arrays}
    return Table("the data", format, load)


def _names(frame):
    # Iterating over a frame of polars gives its columns, not their names.
    return [str(name) for name in getattr(frame, "columns", frame)]


def _column(values):
    array = np.atleast_1d(np.asarray(values))
    if array.dtype.kind != "O":
        return array
    return np.array(["" if _is_none(value) else str(value) for value in array])


def _is_none(value):
    return value is None or value != value  # NaN, and the missing date of pandas.


class WindowStream:
    """Forecasts of a model of windows, after each row that arrives.

    What it keeps is the last window of rows of each series. After each row its forecast
    is that of `predict` on all rows so far.

    Attributes:
      keeps: ``"window"``, what is kept between rows.
    """

    keeps = "window"

    def __init__(self, restored: Restored):
        """Starts without a row."""
        self._restored, self._task = restored, series_task(restored, None)
        if self._task.known:
            raise ValueError(
                "`restored` must be a model without `known` columns for a stream, got "
                f"{self._task.known}; `predict` takes the rows of the future with them."
            )
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def push(self, row: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
        """Takes a row and returns the forecast from there.

        Args:
          row: A value for each column by name; None for one that is missing.

        Returns:
          As `predict`; None as long as the series has fewer steps than a window.

        Raises:
          ValueError: As for `predict`; the row is then not taken.
        """
        group = self._task.group
        values = [str(row[column]) for column in naming.columns(group)]
        name = naming.join(values, group)
        rows = [*self._rows.get(name, []), dict(row)]
        frame = {column: [each[column] for each in rows] for column in row}
        # Without the warnings of `series_task`, which would be one for each row.
        task = self._task.on(_table_of(frame, self._task))
        step_of_row, n_steps = task.step_of_rows()
        found = None
        if n_steps >= task.window:
            found = predict_next(self._restored, task)
        self._rows[name] = _last_rows(rows, step_of_row, n_steps - task.window)
        return found


class StateStream:
    """Predictions of a model at each step, from its recurrent state.

    What it keeps is the state, whose size does not grow with the steps. The predictions
    are those of one call on the whole sequence.

    Attributes:
      keeps: ``"state"``, what is kept between rows.
    """

    keeps = "state"

    def __init__(self, restored: Restored):
        """Starts from the zero state."""
        self._restored, self._state = restored, None

        def step(inputs, state, sizes):
            predicted, state = restored.model.apply(
                restored.variables, inputs, state, **sizes
            )
            return predicted[0, -1] if predicted.ndim == 3 else predicted[0], state

        self._step = jax.jit(step)

    def push(self, row: Sequence[float] | Array | int, dt: float = 1.0) -> np.ndarray:
        """Takes the inputs of a step and returns the prediction there.

        Args:
          row: Features ``(d_input,)``, or a token.
          dt: Of an irregular task, the time since the step before in units of the usual
            one; 1 for the first step.

        Returns:
          Values, or logits of the classes, ``(d_output,)``.

        Raises:
          ValueError: ``dt`` is not 1 for a task of equal steps.
        """
        spec = self._restored.task.spec
        if spec.inputs == "token":
            inputs = np.array([[row]], np.int32)
        else:
            inputs = np.asarray(row, np.float32).reshape(1, 1, spec.d_input)
        if dt != 1 and not spec.irregular:
            raise ValueError(
                f"`dt` must be 1 for a task of equal steps, got {dt}; leave it out."
            )
        sizes = {"dt": np.full((1, 1), dt, np.float32)} if spec.irregular else {}
        predicted, self._state = self._step(inputs, self._state, sizes)
        return np.asarray(predicted)


def stream(restored: Restored) -> WindowStream | StateStream:
    """Returns what predicts from one row at a time.

    A model that was trained on windows of a series is evaluated on the last window
    after each row. A model that predicts at each step of a sequence carries its state,
    at a constant cost per row.

    Args:
      restored: The model.

    Raises:
      ValueError: The model predicts once for a whole sequence of another task.
    """
    task, spec = restored.task, restored.task.spec
    carries = restored.training.initial_state == "carry"
    if isinstance(task, SeriesTask) and not carries:
        return WindowStream(restored)
    if (spec.l_output is None and not carries) or spec.pair:
        raise ValueError(
            "`restored` must predict at each step for a stream, or be of a SeriesTask, "
            f"got a model of {type(task).__name__} with one prediction for a sequence; "
            "`predictions` has those of whole sequences."
        )
    return StateStream(restored)


def _last_rows(rows, step_of_row, first):
    """The rows from a step on, after one of the last values before it."""
    n_before = int(np.sum(step_of_row < first))
    before, kept = rows[:n_before], rows[n_before:]
    if not before:
        return kept
    # What a missing value repeats may be older than the window.
    last = dict(before[-1])
    for column in last:
        known = [row[column] for row in before if not _is_missing(row[column])]
        last[column] = known[-1] if known else last[column]
    return [last, *kept]


def _is_missing(value):
    return _is_none(value) or (isinstance(value, str) and not value.strip())
