"""SeriesTask: windows of a time series in a file, to forecast or to classify."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from ssm_jax.fields import Fraction, NonNegativeInt, PositiveInt, check_fields
from ssm_jax.tasks import base, order, user_files
from ssm_jax.tasks.series import scaled


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesTask(order.FiniteTask):
    """Regression or classification: what follows a window of a time series.

    The rows of the file are the steps of the series, evenly sampled and in the order of
    time. Without ``classes``, the targets are the next ``horizon`` values of a column;
    with ``classes``, the target is the class ``horizon`` steps after the window.

    Columns are normalised to mean 0 and standard deviation 1 of their observed values
    in the rows of the train split. `in_units` is the inverse for targets, and
    `ssm_jax.evaluation.forecast_errors` states errors in the units of the file.

    Missing values are empty, or NA, NaN, null or none in any case. With
    ``missing="last"`` an input that is missing has the last observed value of its
    column, or the mean where there is none before it, and each column has a second
    feature, 1 where it is observed and 0 where it is not; a window with a missing
    target is left out of all splits.

    Attributes:
      file: Name of a ``.csv``, ``.npz`` or ``.parquet`` file; see
        `ssm_jax.tasks.series.columns` for its format.
      target: Column that is predicted.
      data_dir: Directory of the file. None means the current directory.
      inputs: Columns that the model reads. Empty means the target alone.
      time: Column of numbers or ISO 8601 dates, which must increase. None means that
        the order is not checked.
      window: Number of steps that the model reads.
      horizon: Number of values to predict, at least 1; for a classification the
        distance of the class from the last step of the window, 0 for that step itself.
      stride: Distance between the first steps of two windows.
      season: Period of the series in steps, at most ``window``, for the baseline
        "seasonal": the value one period before, repeated. None means no such baseline.
      differences: Whether targets are differences from the last value of the window,
        divided by the same standard deviation: a prediction of zeros is the baseline
        "last value". It helps where that baseline is good, or the series has a trend.
      classes: Values of the target, as they are written in the file. None means a
        forecast.
      missing: ``"error"`` refuses missing values; ``"last"`` is described above.
      train_fraction: Part of the rows, from the first, for training.
      validation_fraction: Part of the rows, from there on, for validation; the rest is
        for testing.

    Batch:
      inputs: float32, ``(b, window, k)``, with ``k`` the number of inputs, twice that
        with ``missing="last"``.
      targets: float32, ``(b, horizon)``, or int32, ``(b,)``.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.

    Splits: consecutive parts of the series. A window and its targets are in one of
    them, so that no two splits share a row of the file.

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
      ((2, 4, 1), [[84.0, 85.0], [85.0, 86.0]])
    """

    file: str
    target: str
    data_dir: str | None = None
    inputs: tuple[str, ...] = ()
    time: str | None = None
    window: PositiveInt = 96
    horizon: NonNegativeInt = 24
    stride: PositiveInt = 1
    season: PositiveInt | None = None
    differences: bool = False
    classes: tuple[str, ...] | None = None
    missing: Literal["error", "last"] = "error"
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
            d_input=len(self._inputs()) * (2 if self.missing == "last" else 1),
            targets="regression" if forecast else "classification",
            d_output=self.horizon if self.classes is None else len(self.classes),
            l_output=None,
        )

    def data_files(self) -> dict[str, Path]:
        """Returns the path of the file, by its name."""
        return user_files.data_files(self._path())

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        n = len(_starts(self, split))
        if n == 0:
            rows = len(self._series().target)
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
        starts, series = _starts(self, split)[indices, None], self._series()
        # Indexing by arrays copies: the caller may modify the batch.
        inputs = series.inputs[starts + np.arange(self.window)]
        if self.classes is not None:
            at = starts[:, 0] + self.window - 1 + self.horizon
            return base.Batch(inputs, series.target[at].astype(np.int32), loss_mask)
        values = series.target[starts + self.window + np.arange(self.horizon)]
        targets = (values - self._offset(starts)) / series.std
        return base.Batch(inputs, targets.astype(np.float32), loss_mask)

    def baselines(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> dict[str, np.ndarray]:
        """Returns the forecasts of a batch that need no training.

        Returns:
          In the units of the file, ``(b, horizon)``: ``"last value"``, that of the
          last step of the window, and with ``season`` also ``"seasonal"``, the last
          value at the same phase of the period.

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
        target, at = self._series().target, starts + self.window - 1 + ahead
        return {name: target[at - lag] for name, lag in lags.items()}

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
        return self._unscale(forecasts, starts)

    def next_inputs(self) -> np.ndarray:
        """Returns the last window of the file, whose targets are not in it.

        Returns:
          float32, ``(1, window, k)``, as the inputs of `batch`.
        """
        return self._series().inputs[None, -self.window :].copy()

    def next_in_units(self, forecasts: np.ndarray) -> np.ndarray:
        """Returns predictions from `next_inputs` in the units of the file.

        Args:
          forecasts: Predictions of a model, ``(1, horizon)``.

        Returns:
          float64, ``(1, horizon)``.
        """
        start = np.array([[len(self._series().target) - self.window]])
        return self._unscale(forecasts, start)

    def preprocessing(self) -> dict[str, Any]:
        """Describes the columns and their scale, in values of JSON, for an export.

        Returns:
          ``columns``, with the ``name``, ``mean`` and ``std`` of each input: features
          are ``(x - mean) / std``, with ``missing="last"`` each followed by whether it
          is observed, 1 or 0. Of a forecast ``target``, with the same fields and
          ``differences``: forecasts are multiplied by ``std``, and ``mean``, or with
          ``differences`` the last value of the window, is added. Of a classification
          ``classes``.
        """
        series = self._series()
        moments = zip(self._inputs(), series.means, series.stds, strict=True)
        about: dict[str, Any] = {
            "columns": [{"name": n, "mean": m, "std": s} for n, m, s in moments],
            "missing": self.missing,
        }
        if self.classes is not None:
            return about | {"classes": [*self.classes]}
        target = {"name": self.target, "mean": series.mean, "std": series.std}
        return about | {"target": target | {"differences": self.differences}}

    def values(self) -> np.ndarray:
        """Returns the target of a forecast, NaN where it is missing, ``(n,)``."""
        series = self._series()
        return np.where(series.observed, series.target, np.nan)

    def first_targets(self, split: base.Split) -> np.ndarray:
        """Returns the row of the first target of each window of a split, in order."""
        base.check_split(split)
        return _starts(self, split) + self.window

    def _unscale(self, forecasts, starts):
        """Targets or predictions in the units of the file, which float32 may exceed."""
        units = np.asarray(forecasts, np.float64) * self._series().std
        return units + self._offset(starts)

    def _offset(self, starts):
        """What targets are differences from, ``(b, 1)`` or a number."""
        series = self._series()
        if self.differences:
            return series.target[starts + self.window - 1]
        return series.mean

    def _starts_of_batch(self, split, index, batch_size, seed):
        """The first steps of the windows of a batch, ``(b, 1)``."""
        n = self.n_examples(split)
        indices, _ = order.shuffled_indices(n, split, index, batch_size, seed)
        return _starts(self, split)[indices, None]

    def _series(self):
        return scaled.series(
            self._path(),
            self._inputs(),
            self.target,
            classes=self.classes,
            time=self.time,
            missing=self.missing,
            train_fraction=self.train_fraction,
        )

    def _inputs(self):
        return self.inputs or (self.target,)

    def _path(self):
        return user_files.path_of(self.data_dir, self.file)


@functools.lru_cache(maxsize=12)
def _starts(task: SeriesTask, split: base.Split) -> np.ndarray:
    """The first steps of the windows of a split whose targets are observed."""
    observed = task._series().observed
    train, held_out = task.train_fraction, task.validation_fraction
    n = len(observed)
    edges = (0, *(scaled.part(n, end) for end in (train, train + held_out)), n)
    place = ("train", "validation", "test").index(split)
    last = edges[place + 1] - task.window - task.horizon
    starts = np.arange(edges[place], last + 1, task.stride)
    # A difference of running counts is the number of missing targets of a window.
    missing_counts = np.concatenate([[0], np.cumsum(~observed)])
    target_ends = starts + task.window + task.horizon
    target_starts = target_ends - (1 if task.classes is not None else task.horizon)
    return starts[missing_counts[target_ends] == missing_counts[target_starts]]
