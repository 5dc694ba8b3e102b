"""Forecasts by the experiment that `ssm-jax new` writes, beside ridge regression."""

import importlib
import itertools
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measurement import Row
from ssm_jax.cli import config_file
from ssm_jax.cli.templates.forecast import forecast
from ssm_jax.evaluation import evaluate_run, forecasts, restore
from ssm_jax.training import train

Columns = Mapping[str, np.ndarray]
"""A table with the column ``value``, and ``shop`` if it has several series."""

_DAY, _WEEK = 24, 168
_ORIGINS, _LONGEST_SEASON = 30, 24  # What statsmodels forecasts in seconds.


def forecast_rows(
    length: int, *, seeds: int = 3, steps: int | None = None
) -> Iterator[Row]:
    """Trains the default forecaster on series, and evaluates its test split.

    Args:
      length: Steps of a generated series.
      seeds: Number of seeds of the generated series and of the trainings.
      steps: Training steps. None means the default.

    Yields:
      A row for each series and seed: the step that was kept, 0 for the linear forecast
      alone; the mean absolute errors of the model and of each baseline, ``mae``; that
      of the model relative to ridge regression, ``to_ridge``, to the last value,
      ``to_last``, and to the linear forecast that it is added to, ``to_linear``; and
      the share of values in the intervals of 90 % of the model and of the last value.
      Of the series of statsmodels also its errors relative to those of an ARIMA model
      and of exponential smoothing, ``to_arima`` and ``to_ets``; see `_statsmodels`.
    """
    real = _real()
    for name, make in (GENERATED | real).items():
        for seed in range(seeds):
            logging.info("%s, seed %d", name, seed)
            rng = np.random.default_rng([seed, len(name)])
            columns = make(length, rng)
            beside = _statsmodels if name in real else lambda *_: {}
            yield {"series": name, "seed": seed} | _measured(
                columns, seed, steps, beside
            )


def _measured(columns, seed, steps, beside):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        _write(path / "series.csv", columns)
        forecast(str(path / "series.csv"), str(path / "forecast.py"), target="value")
        config = config_file.load(str(path / "forecast.py"))
        config.training.seed = seed
        if steps is not None:
            config.training.update(steps=steps, evaluate_every=steps)
            config.optimizer.warmup_steps = 0
        train(config, str(path / "run"))
        result = evaluate_run(path / "run")
        relative = beside(restore(path / "run"))
    errors = {name: found["mae"] for name, found in result["forecast"].items()}
    coverage = {name: found["coverage"] for name, found in result["forecast"].items()}
    return {
        "step": result["step"],
        "window": config.task.window,
        "horizon": config.task.horizon,
        "mae": errors,
        "to_ridge": errors["model"] / errors["ridge"],
        "to_last": errors["model"] / errors["last value"],
        "to_linear": errors["model"] / errors["linear"],
        "coverage": coverage["model"],
        "coverage_last": coverage["last value"],
        **relative,
    }


def _statsmodels(restored):
    """Errors of a model relative to those of two classical ones, on a few test windows.

    ARIMA(2, 1, 2), and exponential smoothing with a damped trend and, of at most 24
    steps, the season of the task. Their parameters are fitted to the train and the
    validation split, and their states are those of all rows before a window.
    """
    smoothing: Any = importlib.import_module(
        "statsmodels.tsa.statespace.exponential_smoothing"
    )
    arima: Any = importlib.import_module("statsmodels.tsa.arima.model")
    task, found = restored.task, forecasts(restored, "test")
    values, first = task.values(), task.first_targets("test")
    n_fitted, season = first[0], task.season
    models = {
        "arima": arima.ARIMA(values[:n_fitted], order=(2, 1, 2)),
        "ets": smoothing.ExponentialSmoothing(
            values[:n_fitted],
            trend=True,
            damped_trend=True,
            seasonal=season if season and season <= _LONGEST_SEASON else None,
        ),
    }
    chosen = np.linspace(0, len(first) - 1, min(_ORIGINS, len(first))).astype(int)
    targets = found["target"][chosen]
    relative = {}
    for name, model in models.items():
        fitted = model.fit(**({"disp": False} if name == "ets" else {}))
        predicted = [
            fitted.apply(values[: first[i]]).forecast(task.horizon) for i in chosen
        ]
        error = np.abs(np.array(predicted) - targets).mean()
        own = np.abs(found["model"][chosen] - targets).mean()
        relative[f"to_{name}"] = float(own / error)
    return relative


def _write(path, columns):
    """Writes a CSV; columns without a time are hours."""
    n = len(columns["value"])
    columns = dict(columns)
    if "time" not in columns:
        columns["time"] = np.datetime64("2022-01-01T00") + np.arange(n)
    names = ["time", *(name for name in columns if name != "time")]
    rows = zip(*(columns[name].tolist() for name in names), strict=True)
    lines = [",".join("" if x != x else str(x) for x in row) for row in rows]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")


def _autoregression(noise, factor):
    """A series that is a part of its last value, and noise."""
    return np.array([*itertools.accumulate(noise, lambda x, e: factor * x + e)])


def _phase(n, period):
    return 2 * np.pi * np.arange(n) / period


def _seasonal(n, rng):
    waves = 4 * np.sin(_phase(n, _DAY)) + 2 * np.sin(_phase(n, _WEEK) + 1)
    return {"value": 10 + waves + _autoregression(1.2 * rng.normal(size=n), 0.6)}


def _breaks(n, rng):
    level = 0.004 * np.arange(n)
    for at in rng.integers(0, n, 12):
        level[at:] += 5 * rng.normal()
    return {"value": level + 2 * np.sin(_phase(n, _DAY)) + rng.normal(size=n)}


def _walk(n, rng):
    return {"value": 100 + np.cumsum(0.6 * rng.normal(size=n))}


def _stationary(n, rng):
    return {"value": _autoregression(rng.normal(size=n), 0.9)}


def _growing(n, rng):
    level = np.exp(0.0005 * np.arange(n) + np.cumsum(rng.normal(size=n)) / 300)
    waves = 1 + 0.5 * np.sin(_phase(n, _DAY)) + 0.2 * np.sin(_phase(n, _WEEK))
    return {"value": 20 * level * waves * np.exp(0.1 * rng.normal(size=n))}


def _intermittent(n, rng):
    often = 0.2 * (1 + 0.8 * np.sin(_phase(n, _DAY)))
    return {"value": np.where(rng.random(n) < often, rng.exponential(3, n), 0.0)}


def _many(n, rng):
    """Short series of unlike scale, with a period of a day."""
    n_series, size = 40, max(120, n // 40)
    scales = 10 ** rng.uniform(0, 3, n_series)
    values = [
        s
        * (
            3
            + np.sin(_phase(size, _DAY) + rng.uniform(0, 6))
            + 0.3 * rng.normal(size=size)
        )
        for s in scales
    ]
    hours = np.datetime64("2022-01-01T00") + np.arange(size)
    return {
        "value": np.concatenate(values),
        "shop": np.repeat([f"shop {i}" for i in range(n_series)], size),
        "time": np.tile(hours, n_series),
    }


def _noise_columns(n, rng):
    """A seasonal series beside 200 columns that say nothing of it."""
    noise = {f"noise {i}": rng.normal(size=n) for i in range(200)}
    return _seasonal(n, rng) | noise


def _threshold(n, rng):
    """It rises until it is above a threshold, and then falls."""
    noise, values = 0.045 * rng.normal(size=n), [0.5, 0.5]
    for t in range(2, n):
        rises = values[-1] < 4 and values[-1] >= values[-2] - 0.6
        step = 0.3 + values[-1] if rises else 0.2 * values[-1]
        values.append(step + noise[t])
    return {"value": np.array(values)}


def _event(n, rng):
    """An event, in a column of its own, turns a wave around 60 steps later."""
    mode, sides, last = np.empty(n), itertools.cycle((1.0, -1.0)), 0
    while last < n:
        end = last + 30 + int(rng.exponential(60))
        mode[last:end], last = next(sides), end
    later = np.concatenate([np.ones(60), mode[:-60]])
    value = later * 3 * np.sin(_phase(n, _DAY)) + 0.5 * rng.normal(size=n)
    return {"value": value, "mode": mode}


GENERATED: dict[str, Callable[[int, np.random.Generator], Columns]] = {
    "seasonal": _seasonal,
    "trend with breaks": _breaks,
    "random walk": _walk,
    "stationary": _stationary,
    "growing": _growing,
    "intermittent": _intermittent,
    "many short series": _many,
    "200 columns of noise": _noise_columns,
    "threshold": _threshold,
    "event": _event,
}
"""Series by name; no linear map forecasts the last two."""


def _real() -> dict[str, Callable[..., Columns]]:
    """The series that ``statsmodels`` ships, if it is installed."""
    try:
        sets: Any = importlib.import_module("statsmodels.datasets")
    except ImportError:
        logging.info("without statsmodels, whose data sets are left out")
        return {}

    def months(n, rng):
        del n, rng
        rows = sets.elnino.load_pandas().data.set_index("YEAR")
        values = rows.to_numpy(float).ravel()
        first = np.datetime64(f"{int(rows.index[0])}-01")
        return {"value": values, "time": first + np.arange(len(values))}

    def column(name, value, step, first):
        def make(n, rng):
            del n, rng
            data = getattr(sets, name).load_pandas().data
            values = data[value].to_numpy(float)
            times = np.datetime64(first) + np.arange(len(values)) * step
            return {"value": values, "time": times.astype("datetime64[D]")}

        return make

    year, week = np.timedelta64(1, "Y"), np.timedelta64(7, "D")
    return {
        "sunspots": column("sunspots", "SUNACTIVITY", year, "1700"),
        "carbon dioxide": column("co2", "co2", week, "1958-03-29"),
        "El Niño": months,
        "Nile": column("nile", "volume", year, "1871"),
    }
