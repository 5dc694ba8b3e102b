"""SeriesTask: windows of a time series in a file, to forecast or to classify."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from absl import logging
from typing_extensions import override

from ssm_jax.fields import Fraction, NonNegativeInt, PositiveInt, check_fields
from ssm_jax.files import read_arrays
from ssm_jax.tasks import base, order, user_files
from ssm_jax.tasks.series import columns, dates, linear, naming, scaled, timeline
from ssm_jax.tasks.series.columns import Table
from ssm_jax.tasks.series.linear import LinearForecast
from ssm_jax.tasks.series.table_format import TableFormat
from ssm_jax.tasks.series.timeline import Duplicates, Order, parse_step

_FEWEST = 20  # Windows of a part of a fold.
_HARMONICS = 3  # Of the time of day, of the week and of the year, in linear maps.


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesTask(order.FiniteTask):
    """Regression or classification: what follows a window of a time series.

    The rows of the file are the steps of one series, or with ``group`` of several,
    whose windows never cross from one to another. Without ``classes``, the targets are
    the next ``horizon`` values of a column; with ``classes``, the target is the class
    ``horizon`` steps after the window.

    Columns are normalised to mean 0 and standard deviation 1 of their observed values
    in the rows of the train split, each series by its own. `in_units` is the inverse
    for targets, and `ssm_jax.evaluation.forecast_errors` states errors in the units of
    the file.

    Missing numbers are words such as NA, ``-`` and the empty one; see `TableFormat`.
    With ``missing="last"`` an input that is missing has the last observed value of its
    column, or the mean where there is none before it. With ``"interpolate"`` it is on
    the line between the values around it, if both are in the window, and otherwise the
    last one: a window shows nothing of what follows it. In both cases a window with a
    missing target is left out of all splits, and with ``mark_missing`` each column has
    a second feature, 1 where it is observed and 0 where it is not.

    The file is read once by each task object, so that all its batches are of one state
    of the file; a new object reads a file that has changed since.

    Attributes:
      file: Name of a ``.csv``, ``.npz`` or ``.parquet`` file; see
        `ssm_jax.tasks.series.columns` for its format. A pattern such as ``"*.csv"``
        means several files of the same columns, whose names are the column ``"file"``.
      target: Column that is predicted.
      data_dir: Directory of the file. None means the current directory.
      format: How the file is written, where it does not show that.
      inputs: Columns that the model reads. Empty means the target alone.
      known: Columns of ``inputs`` whose values are known ``horizon`` steps ahead, such
        as prices, promotions and holidays. In each step of a window the model reads the
        value that such a column has ``horizon`` steps later, so that the last of them
        are those of the steps that are predicted; linear forecasts read these. Rows
        after the last target, without one, are the future that follows the last window.
      time: Column of dates or numbers; or columns that are a date together, such as
        year, month, day and hour, or a date and a time. None means that the order is
        not checked.
      group: Column of the name of the series, of several; ``"file"`` of a pattern
        makes each file a series. A tuple of columns, such as store and department,
        names a series by their values together. None means one.
      order: ``"error"`` refuses rows that are not in the order of ``time``, and
        ``"sort"`` sorts them.
      duplicates: ``"error"`` refuses rows of one time in one series; of these
        ``"first"``, ``"last"`` or ``"mean"`` is a step.
      step: Distance of two steps in time, such as ``"15min"``, ``"1h"``, ``"1D"`` or
        ``"1M"``, or a number for a column of numbers: rows within one step are
        averaged, and steps without a row are missing. None means that each row is a
        step.
      irregular: Whether batches have a ``dt``: the time of each row since the one
        before, in units of the median of these distances in the train split, and 1 for
        the first row of a window. Layers such as `ssm_jax.recurrences.S5` take it, so
        that the rows of an irregular series are read at their own times. Linear
        forecasts and baselines count rows.
      calendar: Inputs that are known from the time: the phase of the day, ``"hour"``,
        of the week, ``"weekday"``, and of the ``"year"``, each as sine and cosine.
      window: Number of steps that the model reads.
      horizon: Number of values to predict, at least 1; for a classification the
        distance of the class from the last step of the window, 0 for that step itself.
      stride: Distance between the first steps of two windows.
      season: Period of the series in steps, at most ``window``, for the baseline
        "seasonal": the value one period before, repeated. None means no such baseline.
      differences: Whether targets are differences from the last value of the window,
        divided by the same standard deviation: a prediction of zeros is the baseline
        "last value". It helps where that baseline is good, or the series has a trend.
      linear: Whether targets are differences from a linear forecast, divided by their
        root mean square in the train split: a prediction of zeros is that forecast, and
        the model learns what no linear map of the window has. See
        `ssm_jax.tasks.series.linear`; it is fitted to the train split, for the test
        split and the future to the train and validation splits.
      normalize: What inputs are normalised by after that: ``"train"``, nothing more;
        ``"window"``, the mean and the standard deviation of each window, so that the
        level of a series may change after training, or that of a new one be another.
        Targets are divided by the same standard deviation. Columns of ``known`` are as
        with ``"train"``.
      loss: The loss of a forecast, the squared error or the absolute one, which is
        less moved by outliers, and whose runs are ranked by ``skill_low``: 1 minus the
        ratio of their absolute error to that of zeros, less two standard errors.
      statistics: File of `compute_statistics` of the data of a training, which are used
        instead of those of this file. None means those of this file.
      classes: Values of the target, as they are written in the file. None means a
        forecast.
      missing: ``"error"`` refuses missing values; the others are described above.
      mark_missing: Whether each column has a feature that says where it is observed.
      train_fraction: Part of the rows of each series, from the first, for training.
      validation_fraction: Part of the rows, from there on, for validation; the rest is
        for testing.

    Batch:
      inputs: float32, ``(b, window, k)``, with ``k`` the number of inputs, twice that
        if missing ones are marked, and 2 for each of ``calendar``.
      targets: float32, ``(b, horizon)``, or int32, ``(b,)``.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.
      dt: float32, ``(b, window)``, if the task is ``irregular``.

    Splits: consecutive parts of each series. No two share a target; a window begins
    before the split of its targets, so that their number does not depend on its length.
    A series that is too short for a window in a split has none there, which the log
    says once.

    Raises:
      FileNotFoundError: At the first batch or count, if there is no such file.
      ValueError: A field is out of range; at the first batch or count, if a column does
        not exist, is not numeric or not finite, if values are missing or the time does
        not increase, or if a split has no window.

    Example:
      >>> import os, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     np.savez(os.path.join(folder, "a.npz"), level=np.arange(100.0))
      ...     task = SeriesTask(
      ...         file="a.npz", data_dir=folder, target="level", window=4, horizon=2
      ...     )
      ...     batch = task.batch("test", 0, 2, seed=0)
      ...     values = task.in_units(batch.targets, "test", 0, 2, seed=0)
      >>> batch.inputs.shape, values.round().tolist()
      ((2, 4, 1), [[80.0, 81.0], [81.0, 82.0]])
    """

    file: str
    target: str
    data_dir: str | None = None
    format: TableFormat = TableFormat()
    inputs: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    time: str | tuple[str, ...] | None = None
    group: str | tuple[str, ...] | None = None
    order: Order = "error"
    duplicates: Duplicates = "error"
    step: str | None = None
    irregular: bool = False
    calendar: tuple[Literal["hour", "weekday", "year"], ...] = ()
    window: PositiveInt = 96
    horizon: NonNegativeInt = 24
    stride: PositiveInt = 1
    season: PositiveInt | None = None
    differences: bool = False
    linear: bool = False
    normalize: Literal["train", "window"] = "train"
    loss: Literal["squared", "absolute"] = "squared"
    statistics: str | None = None
    classes: tuple[str, ...] | None = None
    missing: Literal["error", "last", "interpolate"] = "error"
    mark_missing: bool = True
    train_fraction: Fraction = 0.7
    validation_fraction: Fraction = 0.1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.classes is None and self.horizon < 1:
            raise ValueError(
                f"`horizon` must be at least 1 for a forecast, got {self.horizon}; it "
                "counts the values to predict."
            )
        few = self.classes is not None and len(self.classes) < 2
        if few or (self.classes is not None and not self.inputs):
            raise ValueError(
                "`classes` must be two or more, with columns as `inputs`, got "
                f"{self.classes} with {self.inputs}; None means a forecast."
            )
        if self.classes is not None and (self.linear or self.loss != "squared"):
            raise ValueError(
                "`linear` and `loss` must be left out with `classes`, got "
                f"{self.linear} and {self.loss!r}; they are of a forecast."
            )
        if not set(self.known) <= set(self.inputs) - {self.target}:
            raise ValueError(
                "`known` must be columns of `inputs` other than the target, got "
                f"{self.known} with {self.inputs} and {self.target!r}; leave out the "
                "others."
            )
        if self.known and (self.classes is not None or self.window < self.horizon):
            raise ValueError(
                "`known` must be empty with `classes`, and with a `window` shorter "
                f"than `horizon`, got {self.known} with {self.classes} and "
                f"{self.window} for {self.horizon}; a window of {self.horizon} steps "
                "shows all that are predicted."
            )
        if self.linear and self.differences:
            raise ValueError(
                "`differences` must be False with `linear`, got True; targets are "
                "differences from the linear forecast."
            )
        if self.step is not None:
            parse_step(self.step)
        if self.irregular and (self.time is None or self.step is not None):
            raise ValueError(
                "`irregular` must be False without `time`, and with `step`, which "
                f"makes steps equal, got True with {self.time!r} and {self.step!r}; "
                "name the column of the time, and leave out the step."
            )
        if self.calendar and self.time is None:
            raise ValueError(
                "`calendar` must be empty without `time`, got "
                f"{self.calendar}; name the column of dates."
            )
        if self.season is not None and self.season > self.window:
            raise ValueError(
                f"`season` must be at most `window`, {self.window}, got {self.season}; "
                "a window holds a whole period."
            )
        if not 0 < self.train_fraction < 1 - self.validation_fraction < 1:
            raise ValueError(
                "`train_fraction` and `validation_fraction` must be positive and "
                f"together below 1, got {self.train_fraction} and "
                f"{self.validation_fraction}; 0.7 and 0.1 are usual."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """Columns as features of a step; one prediction per window."""
        forecast = self.classes is None
        return base.TaskSpec(
            length=self.window,
            inputs="vector",
            d_input=len(self._inputs()) * (2 if self._marks() else 1)
            + 2 * len(self.calendar),
            targets="regression" if forecast else "classification",
            d_output=self.horizon if self.classes is None else len(self.classes),
            l_output=None,
            irregular=self.irregular,
            loss=self.loss,
        )

    def data_files(self) -> dict[str, Path]:
        """Returns the path of the file, or of those of a pattern, by their names."""
        return columns.files(self._path())

    @functools.cached_property
    def table(self) -> Table:
        """The columns of the file, or of the files of a pattern."""
        return columns.read(self._path(), self.format)

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        n = len(self._starts(split))
        if n == 0:
            rows = len(self._series.target)
            if self._is_other:
                raise ValueError(
                    f"`data` must have {self.window} steps of a series and after them "
                    f"{self.horizon} with targets, got none of the kind in {rows} of "
                    f"{self.table.path}; add rows."
                )
            raise ValueError(
                f"`window` must leave a window with its targets in the {split} split, "
                f"got {self.window} steps and a horizon of {self.horizon} for the "
                f"{rows} rows of {self._path()}; choose a smaller window, or other "
                "fractions."
            )
        return n

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        starts, series = self._starts(split)[indices, None], self._series
        inputs, dt = self._windows(starts), self._dt(starts)
        if self.classes is not None:
            at = starts[:, 0] + self.window - 1 + self.horizon
            labels = series.target[at].astype(np.int32)
            return base.Batch(inputs, labels, loss_mask, dt=dt)
        values = series.target[starts + self.window + np.arange(self.horizon)]
        targets = (values - self._offset(starts, split)) / self._scale(starts)
        return base.Batch(inputs, targets.astype(np.float32), loss_mask, dt=dt)

    def baselines(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> dict[str, np.ndarray]:
        """Returns the forecasts of a batch that need no training.

        Returns:
          In the units of the file, ``(b, horizon)``: ``"last value"``, that of the
          last step of the window; with ``season`` also ``"seasonal"``, the last value
          at the same phase of the period; ``"ridge"``, the best ridge regression on
          lags by its error on the validation split; and with ``linear`` also
          ``"linear"``, to which the predictions of the model are added.

        Raises:
          ValueError: As for `batch`, or the task is a classification.
        """
        if self.classes is not None:
            raise ValueError(
                f"`classes` must be None for baselines of a forecast, got "
                f"{self.classes}; `trivial_baseline` has that of a classification."
            )
        starts = self._starts_of_batch(split, index, batch_size, seed)
        ahead = np.arange(1, self.horizon + 1)
        lags = {"last value": ahead}
        if self.season is not None:
            lags["seasonal"] = self.season * -(-ahead // self.season)
        target, at = self._series.target, starts + self.window - 1 + ahead
        found = {name: target[at - lag] for name, lag in lags.items()}
        for name, forecasts in self._fits.items():
            found[name] = self._forecast(starts, forecasts[_is_held_out(split)])
        return found

    def in_units(
        self,
        forecasts: np.ndarray,
        split: base.Split,
        index: int,
        batch_size: int,
        seed: int,
    ) -> np.ndarray:
        """Returns targets or predictions of a batch in the units of the file.

        Args:
          forecasts: Targets, or predictions of a model, ``(b, horizon)``.
          split: The split of `batch`.
          index: The index of `batch`.
          batch_size: The size of `batch`.
          seed: The seed of `batch`.

        Returns:
          float64, ``(b, horizon)``.
        """
        starts = self._starts_of_batch(split, index, batch_size, seed)
        return self._unscale(forecasts, starts, split)

    def scale(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> np.ndarray:
        """Returns what the targets of a batch were divided by, ``(b, 1)``."""
        return self._scale(self._starts_of_batch(split, index, batch_size, seed))

    def next_scale(self) -> np.ndarray:
        """Returns what the targets of `next_inputs` are divided by, ``(g, 1)``."""
        return self._scale(self._last_starts())

    def next_inputs(self) -> np.ndarray:
        """Returns the last window of each series, whose targets are not in the file.

        Returns:
          float32, ``(g, window, k)``, as the inputs of `batch`, in the order of
          `series_names`.

        Raises:
          ValueError: As for `batch`, or a series has fewer steps than a window, or
            fewer than ``horizon`` steps after it in which ``known`` have values.
        """
        return self._windows(self._last_starts())

    def next_dt(self) -> np.ndarray | None:
        """Returns ``dt`` of `next_inputs`, ``(g, window)``; None of equal steps."""
        return self._dt(self._last_starts())

    def next_in_units(self, forecasts: np.ndarray) -> np.ndarray:
        """Returns predictions from `next_inputs` in the units of the file.

        Args:
          forecasts: Predictions of a model, ``(g, horizon)``.

        Returns:
          float64, ``(g, horizon)``.
        """
        return self._unscale(forecasts, self._last_starts(), "test")

    def on(self, table: Table) -> "SeriesTask":
        """Returns this task on another table, with the statistics of its own.

        Rows are sorted. If the model was trained on data without missing values, one
        that is missing there is the last observed one.

        Args:
          table: The table, with the columns that the fields name. All of its windows
            are of the test split.
        """
        task = dataclasses.replace(self, order="sort")
        if self.missing == "error":
            # Not marked, as the model has no feature for it.
            task = dataclasses.replace(task, missing="last", mark_missing=False)
        stored = self.compute_statistics() if self._stored is None else self._stored
        # In place of the cached properties.
        vars(task).update(table=table, _stored=stored, _is_other=True)
        return task

    def step_of_rows(self) -> tuple[np.ndarray, int]:
        """Returns the step of each row of the file, and the number of steps.

        It is -1 for a row that is left out, as one of two of the same time may be.
        """
        steps = self._series.timeline
        return steps.source, int(steps.bounds[-1])

    def next_times(self) -> np.ndarray | None:
        """Returns the times of the steps that follow the last one of each series.

        Returns:
          ``(g, horizon)``, of the type of `times`; None without ``time``, and where the
          steps of a series have no usual distance. Of an ``irregular`` task they are
          then as far apart as the median of the rows of the training.
        """
        steps, ahead = self._series.timeline, self._series.ahead
        if steps.times is None:
            return None
        if ahead is not None and ahead.times is not None:
            return _as_dates(ahead.times) if steps.is_date else ahead.times
        found = [
            timeline.following(steps, index, self.horizon, self.step)
            for index in range(len(steps.names))
        ]
        if self.irregular:
            lasts = steps.times[steps.bounds[1:] - 1]
            later = self._usual_step * np.arange(1, self.horizon + 1)
            pairs = zip(found, lasts, strict=True)
            found = [last + later if at is None else at for at, last in pairs]
        known = [times for times in found if times is not None]
        if len(known) < len(found):
            return None
        return _as_dates(np.stack(known)) if steps.is_date else np.stack(known)

    def series_names(self) -> tuple[str, ...]:
        """Returns the names of the series, ``("",)`` without ``group``.

        Those of several columns have their values with a slash between them.
        """
        return self._series.timeline.names

    def series_columns(self) -> dict[str, np.ndarray]:
        """Returns the columns of ``group``, of each series a value, ``(g,)``."""
        values = [naming.split(name, self.group) for name in self.series_names()]
        of_group = naming.columns(self.group)
        return dict(zip(of_group, np.array(values, str).T, strict=True))

    def series_of_windows(self, split: base.Split) -> np.ndarray:
        """Returns the index of the series of each window of a split, in order."""
        base.check_split(split)
        return self._series.of_steps(self._starts(split))

    def notes(self) -> tuple[str, ...]:
        """Returns what a careful reader would want to know of how the file was read."""
        return self._series.notes

    def preprocessing(self) -> dict[str, Any]:
        """Describes the columns and their scale, in values of JSON, for an export.

        Returns:
          ``columns``, with the ``name``, ``mean`` and ``std`` of each input: features
          are ``(x - mean) / std``, each followed by whether it is observed, 1 or 0, if
          missing ones are marked; then those of ``calendar``. Of a forecast ``target``,
          with the same fields and ``differences``: forecasts are multiplied by ``std``,
          and ``mean``, or with ``differences`` the last value of the window, is added.
          With ``linear`` they are multiplied by ``scale``, and the mean of the maps of
          ``linear`` is added, before that. With ``normalize``, features and forecasts
          are relative to the mean and deviation of the window; see there. Features of
          ``known`` are those ``horizon`` steps later. Of a classification ``classes``.
          Of ``irregular`` rows ``usual_step``, the distance that is 1 in ``dt``, in
          seconds or in units of a column of numbers.
        """
        series = self._series
        if len(series.timeline.names) > 1:
            raise ValueError(
                "`group` must be None for an export, got "
                f"{self.group!r}; each series has its own mean and deviation."
            )
        moments = zip(
            self._inputs(),
            series.means[0].tolist(),
            series.stds[0].tolist(),
            strict=True,
        )
        about: dict[str, Any] = {
            "columns": [{"name": n, "mean": m, "std": s} for n, m, s in moments],
            "missing": self.missing,
        }
        if self.missing != "error" and not self.mark_missing:
            about["mark_missing"] = False
        if self.calendar:
            about["calendar"] = [*self.calendar]
        if self.irregular:
            unit = dates.SECOND if series.timeline.is_date else 1
            about["usual_step"] = self._usual_step / unit
        if self.known:
            about |= {"known": [*self.known], "horizon": self.horizon}
        if self.classes is not None:
            return about | {"classes": [*self.classes]}
        mean, std = float(series.mean[0]), float(series.std[0])
        target = {"name": self.target, "mean": mean, "std": std}
        if self.normalize == "window":
            about["normalize"] = self.normalize
        if self.linear:
            _, forecast = self._fits["linear"]
            name = self.series_names()[0]
            scales = self._linear_scales
            target["scale"] = scales.get(name, scales[None])
            target["linear"] = forecast.to_json()
        return about | {"target": target | {"differences": self.differences}}

    def compute_statistics(self) -> dict[str, np.ndarray]:
        """Returns what was computed from the data of the training, for `statistics`.

        Returns:
          Arrays by name: means and standard deviations of the columns, of an
          ``irregular`` task the distance that is 1 in ``dt``, and of a forecast the
          linear maps and the scale of their errors.

        Raises:
          ValueError: As for `batch`.
        """
        series = self._series
        arrays = {
            "target": np.array([self.target]),
            "inputs": np.array(self._inputs()),
            "names": np.array(series.timeline.names),
            "mean": series.mean,
            "std": series.std,
            "means": series.means,
            "stds": series.stds,
        }
        if self.irregular:
            arrays["usual_step"] = np.array([self._usual_step])
        if self.classes is not None:
            return arrays
        for name, pair in self._fits.items():
            for place, forecast in zip(("train", "all"), pair, strict=True):
                for key, value in forecast.arrays().items():
                    arrays[f"{name}/{place}/{key}"] = value
        if self.linear:
            arrays["scales"] = np.array([*self._linear_scales.values()])
        return arrays

    def values(self) -> np.ndarray:
        """Returns the target of a forecast, NaN where it is missing, ``(n,)``."""
        series = self._series
        return np.where(series.observed, series.target, np.nan)

    def times(self) -> np.ndarray | None:
        """Returns the times of the steps, ``(n,)``; None without ``time``.

        They are datetime64 in microseconds, or float64 for a column of numbers.
        """
        steps = self._series.timeline
        if steps.times is None or not steps.is_date:
            return steps.times
        return _as_dates(steps.times)

    def times_are_utc(self) -> bool:
        """Returns whether times are of UTC.

        They are where dates have an offset, such as ``Z`` or ``+01:00``, and where the
        format names a time zone.
        """
        return self._series.timeline.is_utc

    def first_targets(self, split: base.Split) -> np.ndarray:
        """Returns the row of the first target of each window of a split, in order."""
        base.check_split(split)
        return self._starts(split) + self.window

    def _windows(self, starts):
        """Inputs of the windows that start at some steps, ``(b, window, k)``."""
        inputs = self._train_windows(starts)
        if self.normalize == "window":
            at = self._places({*self._inputs()} - {*self.known})
            values = inputs[..., at]
            centred = values - values.mean(1, keepdims=True)
            inputs[..., at] = centred / linear.deviation(values)
        return inputs

    def _train_windows(self, starts):
        """Inputs by the moments of the train split, ``(b, window, k)``."""
        series, steps = self._series, starts + np.arange(self.window)
        # Indexing by arrays copies: the caller may modify the batch.
        inputs = series.inputs[steps]
        if series.between is None or series.next_observed is None:
            return inputs
        # On a line, if the value at its end is in the window.
        is_known = series.next_observed[steps] < (starts + self.window)[..., None]
        return np.where(is_known, series.between[steps], inputs)

    def _dt(self, starts):
        """``dt`` of the windows that start at some steps, ``(b, window)``, or None."""
        if not self.irregular:
            return None
        dt = self._intervals[starts + np.arange(self.window)] / self._usual_step
        # A window shows nothing of what is before it.
        dt[:, 0] = 1
        return dt.astype(np.float32)

    @functools.cached_property
    def _intervals(self) -> np.ndarray:
        """The time of each step since the one before, ``(n,)``."""
        return self._series.timeline.intervals()

    @functools.cached_property
    def _usual_step(self) -> float:
        """The median of the distances of steps in the train split."""
        if self._stored is not None:
            return float(self._stored["usual_step"][0])
        steps, train = self._series.timeline, []
        for start, end in steps.spans():
            size = scaled.part(end - start, self.train_fraction)
            train.append(self._intervals[start : start + size][1:])
        distances = np.concatenate(train)
        # Of windows of a single row, whose `dt` is 1.
        return float(np.median(distances)) if distances.size else 1.0

    def _last_starts(self):
        """The first steps of the last windows of the series, ``(g, 1)``."""
        steps = self._series.timeline
        sizes = np.diff(steps.bounds)
        if (sizes < self.window).any():
            name = steps.names[int(np.argmin(sizes))]
            way_out = f"leave {name!r} out, or add" if name else "add"
            rule = f"`window` must be at most the steps of each series, {sizes.min()}"
            got = self.window
            if self._is_other:
                rule = f"`data` must have the {self.window} steps of a window"
                got = sizes.min()
            raise ValueError(
                f"{rule}, got {got} in {self.table.path}; {way_out} the rows before."
            )
        ahead = self._series.ahead
        if ahead is not None and (ahead.counts < self.horizon).any():
            shortest = int(np.argmin(ahead.counts))
            name = f" of {steps.names[shortest]!r}" if steps.names[shortest] else ""
            of_known = ", ".join(map(repr, self.known))
            raise ValueError(
                f"`{'data' if self._is_other else 'known'}` must have values of "
                f"{of_known} in the {self.horizon} steps after the last one of "
                f"{self.target!r}, got {ahead.counts[shortest]} such steps{name} in "
                f"{self.table.path}; add {self.horizon - ahead.counts[shortest]} rows "
                f"with {of_known} and no {self.target!r}."
            )
        return steps.bounds[1:, None] - self.window

    def _unscale(self, forecasts, starts, split):
        """Targets or predictions in the units of the file, which float32 may exceed."""
        units = np.asarray(forecasts, np.float64) * self._scale(starts)
        return units + self._offset(starts, split)

    def _scale(self, starts):
        """What the targets of windows are divided by, ``(b, 1)``."""
        series = self._series.of_steps(starts)
        scale = self._series.std[series]
        if self.linear:
            known = self._linear_scales
            scales = [known.get(name, known[None]) for name in self.series_names()]
            scale = scale * np.array(scales)[series]
        if self.normalize == "window":
            scale = scale * linear.deviation(self._normalized_target(starts))
        return scale

    def _offset(self, starts, split):
        """What targets are differences from, ``(b, 1)`` or ``(b, horizon)``."""
        series = self._series
        if self.linear:
            return self._forecast(starts, self._fits["linear"][_is_held_out(split)])
        if self.differences:
            return series.target[starts + self.window - 1]
        if self.normalize == "window":
            steps = starts + np.arange(self.window)
            return series.target[steps].mean(1, keepdims=True)
        return series.mean[series.of_steps(starts)]

    def _forecast(self, starts, forecast):
        """A linear forecast in the units of the file, ``(b, horizon)``."""
        series = self._series.of_steps(starts)
        values = forecast(self._linear_windows(starts))
        return values * self._series.std[series] + self._series.mean[series]

    def _normalized_target(self, starts):
        """The target in windows by the moments of the train split, ``(b, window)``."""
        series, steps = self._series.of_steps(starts), starts + np.arange(self.window)
        values = self._series.target[steps] - self._series.mean[series]
        return values / self._series.std[series]

    def _normalized_targets(self, starts):
        """What follows windows, by the moments of the train split, ``(b, horizon)``."""
        series = self._series.of_steps(starts)
        steps = starts + self.window + np.arange(self.horizon)
        values = self._series.target[steps] - self._series.mean[series]
        return values / self._series.std[series]

    def _linear_windows(self, starts):
        """What linear forecasts read of the windows that start at some steps."""
        last = starts[:, 0] + self.window - 1
        others = self._places({*self._inputs()} - {*self.known, self.target})
        inputs = self._train_windows(starts)
        times, phases = self._series.timeline.times, np.empty((len(starts), 0))
        if times is not None and self.calendar:
            phases = scaled.phases(times[last], self.calendar, _HARMONICS)
        return linear.Windows(
            self._normalized_target(starts),
            linear.recent(inputs[..., others]).astype(np.float64),
            phases,
            linear.ahead(inputs[..., self._places(self.known)], self.horizon).astype(
                np.float64
            ),
        )

    def _places(self, names):
        """The places of some columns among the features of the inputs."""
        per_column = 2 if self._marks() else 1
        return [
            per_column * place
            for place, name in enumerate(self._inputs())
            if name in names
        ]

    @functools.cached_property
    def _fits(self) -> dict[str, tuple[LinearForecast, LinearForecast]]:
        """Linear forecasts by their names among the baselines.

        The first of a pair is of the train split, the second, for what follows, of the
        train and the validation split.
        """
        names = ("ridge", "linear") if self.linear else ("ridge",)
        if self._stored is not None:
            return {name: _pair_of(self._stored, name) for name in names}
        for split in ("train", "validation"):
            self.n_examples(split)  # Refuses one without a window.
        train = linear.sample(self._starts("train"), linear.FITTED)[:, None]
        held_out = linear.sample(self._starts("validation"), linear.SCORED)[:, None]
        folds = [
            linear.Fold(self._linear_examples(fitted), self._linear_examples(later))
            for fitted, later in [*self._folds(train), (train, held_out)]
        ]
        whole = self._linear_examples(np.concatenate([train, held_out]))
        lags = {self.window, -(-self.window // 3), self.season or -(-self.window // 7)}
        ordered = linear.candidates(folds, lags, ridge_alone=not self.linear)
        chosen = {"ridge": linear.ridge(ordered)}
        if self.linear:
            chosen["linear"] = linear.mean_of_best(ordered, folds)
        return {name: (found, found.refit(whole)) for name, found in chosen.items()}

    def _folds(self, starts):
        """Earlier and later windows of the train split, of two places of its end."""
        series = self._series
        names = series.of_steps(starts)
        lengths = np.diff(series.timeline.bounds).tolist()
        sizes = np.array([scaled.part(n, self.train_fraction) for n in lengths])
        # The first and the last target of a window, as a part of the split.
        first = (starts + self.window - series.timeline.bounds[names]) / sizes[names]
        last = first + self.horizon / sizes[names]
        for edge, end in ((0.6, 0.8), (0.8, 1.0)):
            earlier, later = (
                starts[last <= edge],
                starts[(first >= edge) & (first < end)],
            )
            if min(len(earlier), len(later)) >= _FEWEST:
                yield earlier[:, None], later[:, None]

    def _linear_examples(self, starts):
        """What linear forecasts are fitted to."""
        return linear.Examples(
            self._linear_windows(starts), self._normalized_targets(starts)
        )

    @functools.cached_property
    def _linear_scales(self) -> dict[str | None, float]:
        """The root mean square error of the linear forecast in the train split.

        It is that of each series by its name, in units of its standard deviation, and
        under None that of all.
        """
        names = self.series_names()
        if self._stored is not None:
            scales = self._stored["scales"].tolist()
            return dict(
                zip([None, *self._stored["names"].tolist()], scales, strict=True)
            )
        starts = linear.sample(self._starts("train"), linear.FITTED)[:, None]
        forecast, _ = self._fits["linear"]
        errors = forecast(self._linear_windows(starts))
        errors -= self._normalized_targets(starts)
        if self.normalize == "window":
            errors /= linear.deviation(self._normalized_target(starts))
        squares, of_series = (errors**2).mean(1), self._series.of_steps(starts[:, 0])
        # A series that is forecast without an error has targets of zero.
        mean = squares.mean() or 1.0
        found: dict[str | None, float] = {None: float(mean**0.5)}
        for index, name in enumerate(names):
            own = squares[of_series == index]
            found[name] = float((own.mean() if own.any() else mean) ** 0.5)
        return found

    @functools.cached_property
    def _stored(self) -> dict[str, np.ndarray] | None:
        """The arrays of the file ``statistics``."""
        if self.statistics is None:
            return None
        ours = {"target": [self.target], "inputs": [*self._inputs()]}
        arrays, found = {}, None
        try:
            arrays = read_arrays(user_files.path_of(None, self.statistics))
            found = {name: arrays[name].tolist() for name in ours}
            if self.irregular and "usual_step" not in arrays:
                raise KeyError("usual_step")
        except (KeyError, ValueError) as error:
            found = error
        if found != ours:
            raise ValueError(
                f"`statistics` must be a file of the columns {ours}, got "
                f"{self.statistics} with {found}; `compute_statistics` of the task of "
                "the training returns its arrays."
            )
        return arrays

    def _moments(self):
        """The moments of the file ``statistics``, or None."""
        if (stored := self._stored) is None:
            return None
        names = tuple(stored["names"].tolist())
        arrays = (stored[name] for name in ("mean", "std", "means", "stds"))
        return scaled.Moments(names, *arrays)

    def _starts_of_batch(self, split, index, batch_size, seed):
        """The first steps of the windows of a batch, ``(b, 1)``."""
        n = self.n_examples(split)
        indices, _ = order.shuffled_indices(n, split, index, batch_size, seed)
        return self._starts(split)[indices, None]

    # Once by each object: a file that grows meanwhile would move the splits of a run.
    @functools.cached_property
    def _is_other(self) -> bool:
        """Whether the data are others than those of the training; see `on`."""
        return False

    @functools.cached_property
    def _series(self):
        return scaled.series(
            self.table,
            self._inputs(),
            self.target,
            known=self.known,
            horizon=self.horizon,
            classes=self.classes,
            time=self.time,
            group=self.group,
            order=self.order,
            duplicates=self.duplicates,
            step=self.step,
            calendar=self.calendar,
            missing=self.missing,
            mark_missing=self.mark_missing,
            train_fraction=self.train_fraction,
            irregular=self.irregular,
            moments=self._moments(),
        )

    def _starts(self, split):
        """The first steps of the windows of a split whose targets are observed."""
        return self._starts_of_splits[split]

    @functools.cached_property
    def _starts_of_splits(self) -> dict[base.Split, np.ndarray]:
        series = self._series
        # A difference of running counts is the number of missing targets of a window.
        missing_counts = np.concatenate([[0], np.cumsum(~series.observed)])
        names = series.timeline.names
        found: dict[base.Split, list[np.ndarray]] = {
            s: [] for s in get_args(base.Split)
        }
        short = set()
        spans = zip(names, series.timeline.spans(), strict=True)
        for name, (start, end) in spans:
            held_out = self.train_fraction + self.validation_fraction
            parts = (
                scaled.part(end - start, f) for f in (self.train_fraction, held_out)
            )
            edges = (start, *(start + size for size in parts), end)
            if self._is_other:
                edges = (start, start, start, end)
            for place, parts_of_split in enumerate(found.values()):
                last = edges[place + 1] - self.window - self.horizon
                # The first target is the first step of the split.
                lead = self.window + (self.horizon - 1) * (self.classes is not None)
                earliest = max(start, edges[place] - lead)
                starts = np.arange(earliest, last + 1, self.stride)
                short |= set() if len(starts) else {name}
                ends = starts + self.window + self.horizon
                first = ends - (1 if self.classes is not None else self.horizon)
                kept = missing_counts[ends] == missing_counts[first]
                parts_of_split.append(starts[kept])
        if short and len(names) > 1:
            some = ", ".join(sorted(short)[:10])
            logging.warning(
                "%d of %d series of %s are too short for a window in each split: %s%s",
                *(len(short), len(names), self._path(), some),
                "..." if len(short) > 10 else "",
            )
        return {split: np.concatenate(parts) for split, parts in found.items()}

    def _marks(self):
        return self.missing != "error" and self.mark_missing

    def _inputs(self):
        return self.inputs or (self.target,)

    def _path(self):
        return user_files.path_of(self.data_dir, self.file)


def _as_dates(times):
    """Microseconds since 1970 as dates."""
    return np.round(times).astype(np.int64).astype("datetime64[us]")


def _is_held_out(split):
    """Whether a split follows the validation split, which choices were made by."""
    return split == "test"


def _pair_of(arrays, name):
    """The two linear forecasts of a name that `compute_statistics` stores."""
    pair = []
    for place in ("train", "all"):
        start = f"{name}/{place}/"
        own = {
            k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)
        }
        pair.append(LinearForecast.of(own))
    return tuple(pair)
