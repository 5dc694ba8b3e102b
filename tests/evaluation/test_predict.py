"""Predictions on new data: appended rows, other files, frames, one row at a time."""

import dataclasses

import jax
import numpy as np
import pytest
from flax import linen as nn

from ssm_jax.evaluation import (
    Restored,
    forecast_errors,
    forecasts,
    next_forecast,
    predict,
    stream,
)
from ssm_jax.evaluation.forecast import errors_by_series, interval_widths
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, StepHead, VectorEncoder
from ssm_jax.recurrences import LRU
from ssm_jax.tasks import Digits, SeriesTask, Shift, TableFormat
from ssm_jax.training import TrainConfig
from tests.bad_inputs import refuses

WINDOW, HORIZON, HOURS = 24, 6, 500
TRAINING = TrainConfig(steps=1, batch_size=32)
TIMES = np.datetime64("2024-03-01T00:00") + np.arange(HOURS) * np.timedelta64(1, "h")
LEVEL = (
    20
    + 5 * np.sin(2 * np.pi * np.arange(HOURS) / 24)
    + np.random.default_rng(0).normal(size=HOURS)
)


class Dull(nn.Module):
    """Predicts from the mean of the inputs, which any window shows."""

    n: int = HORIZON

    def __call__(self, x):
        mean = x.mean((1, 2))[:, None]
        return 0.3 * mean * (np.arange(self.n) + 1.0), None


def write(path, rows=slice(None), level=LEVEL, name=None):
    lines = ["time,level" + (",shop" if name else "")]
    for time, value in zip(TIMES[rows], level[rows], strict=True):
        shown = "" if np.isnan(value) else f"{value:.4f}"
        lines.append(f"{time},{shown}" + (f",{name}" if name else ""))
    path.write_text("\n".join(lines) + "\n")
    return path


def restored_on(folder, model=None, file="a.csv", **fields):
    options = {
        "target": "level",
        "time": "time",
        "window": WINDOW,
        "horizon": HORIZON,
        "linear": True,
        "normalize": "window",
    }
    task = SeriesTask(file=file, data_dir=str(folder), **(options | fields))
    restored = Restored(model or Dull(), {}, task, TRAINING, 1)
    if task.classes is not None:
        return restored
    widths = interval_widths(forecasts(restored, "validation"))
    return dataclasses.replace(restored, widths=widths)


def test_table_has_the_times_the_forecast_and_its_interval(tmp_path):
    write(tmp_path / "a.csv")
    restored = restored_on(tmp_path)
    table = predict(restored)
    assert list(table) == ["time", "step", "forecast", "lower", "upper"]
    expected = TIMES[-1] + np.arange(1, HORIZON + 1) * np.timedelta64(1, "h")
    np.testing.assert_array_equal(table["time"], expected)
    np.testing.assert_array_equal(table["forecast"], next_forecast(restored))
    reach = restored.widths["model"] * restored.task.next_scale()[0]
    np.testing.assert_allclose(table["upper"] - table["forecast"], reach)
    np.testing.assert_allclose(table["forecast"] - table["lower"], reach)


def test_interval_reaches_to_the_error_of_its_rank(tmp_path):
    rng = np.random.default_rng(0)
    target, scale = rng.normal(size=(19, 2)), rng.uniform(1, 2, size=(19, 1))
    arrays = {"target": target, "model": np.zeros((19, 2)), "scale": scale}
    # The 18th of 19 errors, as 20 times .9 is 18.
    expected = np.sort(np.abs(target) / scale, 0)[17]
    np.testing.assert_array_equal(interval_widths(arrays)["model"], expected)
    errors = forecast_errors(arrays, {"model": expected})["model"]
    assert errors["coverage"] == 18 / 19
    assert errors["coverage_by_step"] == [18 / 19] * 2
    few = {name: array[:5] for name, array in arrays.items()}
    assert np.isinf(interval_widths(few)["model"]).all()


def test_rows_appended_day_by_day_are_those_of_the_end(tmp_path):
    restored = restored_on(write(tmp_path / "a.csv", slice(400)).parent)
    daily = []
    for end in (424, 448, 472, 500):
        write(tmp_path / "a.csv", slice(end))
        daily.append(predict(restored, tmp_path / "a.csv"))
        whole = predict(restored, write(tmp_path / "b.csv", slice(end)))
        for name, values in daily[-1].items():
            np.testing.assert_array_equal(values, whole[name])
        # The last window alone has the same forecast: nothing is normalised anew.
        part = write(tmp_path / "c.csv", slice(end - WINDOW, end))
        alone = predict(restored, part)["forecast"]
        np.testing.assert_allclose(alone, whole["forecast"], rtol=1e-5)
    assert len({table["time"][0] for table in daily}) == 4


def test_frame_is_read_like_a_file(tmp_path):
    write(tmp_path / "a.csv")
    restored = restored_on(tmp_path)
    level = np.round(LEVEL, 4)
    frames = [
        {"time": TIMES, "level": level},
        {"time": [str(t) for t in TIMES], "level": level.tolist()},
        {"level": level.astype(object), "time": TIMES, "other": ["x"] * HOURS},
    ]
    for frame in frames:
        table = predict(restored, frame)
        np.testing.assert_allclose(
            table["forecast"], predict(restored)["forecast"], rtol=1e-6
        )
        np.testing.assert_array_equal(table["time"], predict(restored)["time"])
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"level": level}, index=pandas.Index(TIMES, name="time"))
    np.testing.assert_allclose(
        predict(restored, frame)["forecast"], predict(restored)["forecast"], rtol=1e-6
    )


def test_data_that_do_not_fit_are_refused(tmp_path):
    write(tmp_path / "a.csv")
    restored = restored_on(tmp_path)
    with refuses("inputs", "level", rule="columns time, flow"):
        predict(restored, {"time": TIMES, "flow": LEVEL})
    with refuses("window", "24 for 10"):
        predict(restored, {"time": TIMES[:10], "level": LEVEL[:10]})
    with refuses("data", "{'time': 500, 'level': 3}"):
        predict(restored, {"time": TIMES, "level": [1, 2, 3]})
    digits = Restored(nn.Dense(1), {}, Digits(), TRAINING, 1)
    with refuses("restored", "Digits"):
        predict(digits, {"x": [1]})
    with refuses("restored", "Digits"):
        stream(digits)


def shops(path, names, rows=slice(None), **levels):
    lines = ["time,level,shop"]
    for name in names:
        level = levels.get(name, LEVEL)
        pairs = zip(TIMES[rows], level[rows], strict=True)
        lines += [f"{time},{value:.4f},{name}" for time, value in pairs]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_series_that_is_new_is_predicted_by_its_own_statistics(tmp_path):
    levels = {"a": LEVEL, "b": 1000 + 30 * LEVEL}
    shops(tmp_path / "a.csv", "ab", **levels)
    restored = restored_on(tmp_path, group="shop")
    new = shops(tmp_path / "b.csv", ["b", "new"], **levels | {"new": 7e5 + 40 * LEVEL})
    table = predict(restored, new)
    assert list(table)[:2] == ["shop", "time"]
    known, found = (table["forecast"][table["shop"] == name] for name in ("b", "new"))
    np.testing.assert_allclose(known, predict(restored)["forecast"][HORIZON:])
    # Windows of the same shape have forecasts of the same shape.
    np.testing.assert_allclose((found - 7e5) / 40, (known - 1000) / 30, atol=0.1)
    arrays = forecasts(restored, "test")
    errors = errors_by_series(restored.task, "test", arrays)["model"]
    half = len(arrays["target"]) // 2
    expected = np.abs(arrays["model"] - arrays["target"])[:half].mean()
    np.testing.assert_allclose(errors["a"], expected)
    assert list(errors) == ["a", "b"]


@pytest.mark.parametrize(
    "fields",
    [
        {"missing": "last"},
        {"missing": "interpolate", "mark_missing": False},
        {"missing": "last", "step": "1h"},
        {"missing": "last", "step": "2h", "calendar": ("hour",)},
    ],
    ids=["last", "interpolate", "step", "average"],
)
def test_stream_of_rows_is_the_prediction_of_all_so_far(tmp_path, fields):
    level = LEVEL.copy()
    level[[210, 211, 212, 230, 243]] = np.nan
    write(tmp_path / "a.csv", level=level)
    restored = restored_on(tmp_path, **fields)
    pushed = stream(restored)
    assert pushed.keeps == "window"
    for row in range(190, 250):
        if row in (222, 223) and "step" in fields:
            continue  # A gap, which the step fills.
        value = None if np.isnan(level[row]) else round(float(level[row]), 4)
        found = pushed.push({"time": TIMES[row], "level": value})
        chosen = [r for r in range(190, row + 1) if r not in (222, 223)]
        rows = chosen if "step" in fields else range(190, row + 1)
        frame = {"time": TIMES[[*rows]], "level": np.round(level[[*rows]], 4)}
        hours = (TIMES[row] - TIMES[190]).astype(int) // 60 + 1
        if hours // (2 if fields.get("step") == "2h" else 1) < WINDOW:
            assert found is None or len(found["step"]) == HORIZON
            continue
        whole = predict(restored, frame)
        for name, values in whole.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(found[name], values, rtol=1e-5)
            else:
                np.testing.assert_array_equal(found[name], values)


def test_classes_have_probabilities(tmp_path):
    rows = [f"{i},{v:.3f},{'up' if v > 20 else 'down'}" for i, v in enumerate(LEVEL)]
    (tmp_path / "a.csv").write_text("n,level,side\n" + "\n".join(rows) + "\n")
    restored = restored_on(
        tmp_path,
        Dull(2),
        target="side",
        inputs=("level",),
        time="n",
        classes=("up", "down"),
        horizon=0,
        linear=False,
        normalize="train",
    )
    table = predict(restored)
    assert list(table) == ["prediction", "p(up)", "p(down)"]
    total = table["p(up)"] + table["p(down)"]
    np.testing.assert_allclose(total, 1, rtol=1e-6)
    assert table["prediction"][0] == ("up" if table["p(up)"] > 0.5 else "down")


def test_state_is_carried_where_each_step_is_predicted():
    task = Shift(length=32, n_shifts=2)
    mixing = ChannelMixing(kind="linear")
    layer = RecurrentLayer(recurrence=LRU(d_state=4), mixing=mixing)
    model = SequenceModel(
        encoder=VectorEncoder(d_model=8),
        block=Block(layer=layer),
        n_layers=2,
        head=StepHead(d_output=task.spec.d_output),
    )

    x = task.batch("test", 0, 1, seed=0).inputs
    restored = Restored(model, model.init(jax.random.key(0), x), task, TRAINING, 1)
    pushed = stream(restored)
    assert pushed.keeps == "state"
    steps = np.stack([pushed.push(row) for row in x[0]])
    whole, _ = model.apply(restored.variables, x)
    np.testing.assert_allclose(steps, whole[0], atol=1e-5)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["2024-01-31", "2024-02-29", "2024-03-31"], ["2024-04-30", "2024-05-31"]),
        (["2024-01-30", "2024-02-29", "2024-03-30"], ["2024-04-30", "2024-05-30"]),
        (["2023-10-31", "2023-12-31", "2024-02-29"], ["2024-04-30", "2024-06-30"]),
        # A Thursday and a Friday: the weekend is left out.
        (["2024-03-06", "2024-03-07", "2024-03-08"], ["2024-03-11", "2024-03-12"]),
        (["2024-03-07", "2024-03-08", "2024-03-09"], ["2024-03-10", "2024-03-11"]),
    ],
    ids=["month ends", "day 30", "two months", "business days", "days"],
)
def test_times_that_follow_are_of_the_calendar(tmp_path, times, expected):
    frame = {"time": times, "level": [1.0, 2.0, 3.0]}
    task = SeriesTask(
        file="a.csv", data_dir=str(tmp_path), target="level", time="time", window=1,
        horizon=2,
    )  # fmt: skip
    write(tmp_path / "a.csv")
    restored = Restored(Dull(2), {}, task, TRAINING, 1)
    found = predict(restored, frame)["time"].astype("datetime64[D]")
    assert [str(day) for day in found[:2]] == expected


def test_format_of_the_training_is_that_of_new_files(tmp_path):
    rows = [f"{t};{v:.2f}".replace(".", ",") for t, v in zip(TIMES, LEVEL, strict=True)]
    (tmp_path / "a.csv").write_text("time;level\n" + "\n".join(rows) + "\n")
    restored = restored_on(tmp_path, format=TableFormat(decimal=","))
    found = predict(restored, tmp_path / "a.csv")["forecast"]
    np.testing.assert_array_equal(found, predict(restored)["forecast"])
