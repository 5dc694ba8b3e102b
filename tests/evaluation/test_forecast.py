"""Forecasts of a trained model against its predictions, example by example."""

import json
from pathlib import Path

import chex
import numpy as np
import pytest
from flax import linen as nn

from experiments.own_data import beijing
from ssm_jax.cli import report
from ssm_jax.evaluation import (
    Restored,
    evaluate_run,
    forecasts,
    next_forecast,
    restore,
)
from ssm_jax.evaluation.forecast import (
    forecast_panels,
    panels_of_arrays,
    panels_to_arrays,
)
from ssm_jax.tasks import Digits, SeriesTask
from ssm_jax.training import TrainConfig, WorkDir, train
from tests.bad_inputs import refuses


@pytest.mark.nightly
def test_forecasts_are_the_predictions_in_the_units_of_the_file(
    sets_dir, tmp_path, monkeypatch
):
    config = beijing.get_config("model=gru,size=small")
    config.task.update(data_dir=sets_dir, window=24, horizon=4)
    config.model.update(n_layers=1)
    config.model.head.d_output = 4
    config.optimizer.warmup_steps = 0
    config.training.update(steps=1, batch_size=48, evaluate_every=1)
    train(config, str(tmp_path))
    measured = json.loads(json.dumps(evaluate_run(tmp_path)))["forecast"]
    restored = restore(tmp_path)
    task, n = restored.task, restored.task.n_examples("test")
    assert n % 48 != 0 and n > 48
    batch = task.batch("test", 0, n, seed=0)
    predicted, _ = restored.model.apply(restored.variables, batch.inputs)
    values = task.values()[task.first_targets("test")[:, None] + np.arange(4)]
    last = task.baselines("test", 0, n, 0)["last value"]
    std = np.nanstd(task.values()[:840])
    arrays = forecasts(restored, "test")
    np.testing.assert_allclose(arrays["target"], values, rtol=1e-4, atol=1e-3)
    expected = last + std * np.asarray(predicted)
    np.testing.assert_allclose(arrays["model"], expected, rtol=1e-4, atol=1e-3)
    errors = np.abs(arrays["model"] - values)
    np.testing.assert_allclose(measured["model"]["mae"], errors.mean(), rtol=1e-4)
    by_step = measured["model"]["mae_by_step"]
    np.testing.assert_allclose(by_step, errors.mean(0), rtol=1e-4)
    r2 = 1 - np.mean((last - values) ** 2) / np.var(values)
    np.testing.assert_allclose(measured["last value"]["r2"], r2, rtol=1e-4)
    work = WorkDir(tmp_path)
    names = {path.stem for path in report.draw(work, report.row_of(work))}
    assert names >= {"curves", "forecast"} and "predictions" not in names
    with np.load(work.path / "forecast.npz") as panel:
        first, model = panel["first"], panel["model"]
        assert (np.diff(first) >= 4).all() and first[0] == 24
        np.testing.assert_array_equal(model[0], arrays["model"][0])
        np.testing.assert_allclose(panel["series"][24:28], values[0])
    before = (work.path / "forecast.npz").read_bytes()
    monkeypatch.setattr(Path, "replace", lambda *of: 1 / 0)  # killed before its end
    with pytest.raises(ZeroDivisionError):
        evaluate_run(tmp_path)
    assert (work.path / "forecast.npz").read_bytes() == before


def test_another_task_has_no_forecast():
    training = TrainConfig(steps=1, batch_size=1)
    restored = Restored(nn.Dense(1), {}, Digits(), training, 1)
    with refuses("restored", "Digits", rule="SeriesTask"):
        forecasts(restored, "test")
    with refuses("restored", "Digits", rule="SeriesTask"):
        next_forecast(restored)


class Last(nn.Module):
    """Predicts the values of the last steps, as differences or as they are."""

    horizon: int
    differences: bool

    def __call__(self, x):
        last = x[:, -self.horizon :, 0]
        return last - self.differences * x[:, -1:, 0], None


@pytest.mark.parametrize("differences", [False, True])
def test_next_forecast_follows_the_last_row(tmp_path, differences):
    level = np.sin(np.arange(100.0)) + 5
    np.savez(tmp_path / "a.npz", level=level)
    task = SeriesTask(
        file="a.npz",
        data_dir=str(tmp_path),
        target="level",
        window=6,
        horizon=3,
        differences=differences,
    )
    training = TrainConfig(steps=1, batch_size=1)
    restored = Restored(Last(3, differences), {}, task, training, 1)
    np.testing.assert_allclose(next_forecast(restored), level[-3:], rtol=1e-5)


def test_next_forecasts_of_several_series_follow_the_last_row_of_each(tmp_path):
    series = {"a": 1, "b": 10}
    rows = [
        f"2024-01-{day:02d},{name},{day * factor}"
        for name, factor in series.items()
        for day in range(1, 31)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["day,shop,level", *rows]) + "\n")
    task = SeriesTask(
        file="a.csv", data_dir=str(tmp_path), target="level", time="day", group="shop",
        window=3, horizon=2, train_fraction=0.5, validation_fraction=0.2,
    )  # fmt: skip
    restored = Restored(Last(2, False), {}, task, TrainConfig(steps=1, batch_size=1), 1)
    found = next_forecast(restored)
    np.testing.assert_allclose(found, [[29, 30], [290, 300]], rtol=1e-5)
    arrays = forecasts(restored, "test")
    widths = {"model": np.array([1.0, 2.0])}
    panels = forecast_panels(task, "test", arrays, widths)
    # Each series has the values of its days.
    for name, factor in series.items():
        days = [factor * time.day for time in panels[name]["times"].tolist()]
        assert panels[name]["series"].tolist() == days
        first = panels[name]["first"][:, None]
        last_values = panels[name]["series"][first + [-2, -1]]
        np.testing.assert_allclose(panels[name]["model"], last_values, rtol=1e-5)
        ends = panels[name]["upper"] - panels[name]["lower"]
        half = task.scale("test", 0, 1, 0) * [1.0, 2.0]
        np.testing.assert_allclose(ends, 2 * half * [[factor]] * np.ones_like(first))
    np.savez(tmp_path / "panels.npz", **panels_to_arrays(panels))
    with np.load(tmp_path / "panels.npz") as file:
        chex.assert_trees_all_equal(panels_of_arrays(file), panels)
