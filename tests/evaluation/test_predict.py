"""Predictions on new data: appended rows, other files, frames, one row at a time."""

import dataclasses
import functools
import os
import shutil

import jax
import jax.numpy as jnp
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
from ssm_jax.evaluation.predict import task_on
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, StepHead, VectorEncoder
from ssm_jax.recurrences import LRU
from ssm_jax.tasks import (
    ArrayTask,
    AudioFolder,
    Digits,
    ImageFolder,
    LongTable,
    SeriesTask,
    Shift,
    TableFormat,
)
from ssm_jax.tasks.series.columns import Table
from ssm_jax.training import TrainConfig
from ssm_jax.training.workdir import WorkDir
from tests.bad_inputs import refuses
from tests.tasks import raw_sets
from tests.tiers import tiered

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
    with refuses("data", "'level'", rule="time, flow"):
        predict(restored, {"time": TIMES, "flow": LEVEL})
    with refuses("data", "got 10", rule="24 steps"):
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
    tiered(
        {
            "last": {"missing": "last"},
            "interpolate": {"missing": "interpolate", "mark_missing": False},
            "step": {"missing": "last", "step": "1h"},
            "average": {"missing": "last", "step": "2h", "calendar": ("hour",)},
        },
        ["average"],
        full=["average", "interpolate"],
    ),
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


@pytest.mark.full
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


def open_days(n, last):
    """The days of four weeks until a date, of which a week has the first ``n``."""
    days = np.datetime64(last) - np.arange(27, -1, -1)
    weekdays = (days.astype(int) + 3) % 7  # 1970 began on a Thursday.
    return [str(day) for day in days[weekdays < n]]


def test_hours_that_follow_are_those_of_a_shop(tmp_path):
    hours = [f"{day} {hour:02}:00" for day in open_days(5, "2024-03-08")
             for hour in range(9, 18)]  # fmt: skip
    write(tmp_path / "a.csv")
    task = SeriesTask(
        file="a.csv", data_dir=str(tmp_path), target="level", time="time", window=1,
        horizon=11,
    )  # fmt: skip
    restored = Restored(Dull(11), {}, task, TRAINING, 1)
    frame = {"time": hours, "level": np.arange(len(hours), dtype=float)}
    found = [str(time) for time in predict(restored, frame)["time"].astype("M8[h]")]
    expected = [f"2024-03-11T{hour:02}" for hour in range(9, 18)]
    assert found == [*expected, "2024-03-12T09", "2024-03-12T10"]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["2024-01-31", "2024-02-29", "2024-03-31"], ["2024-04-30", "2024-05-31"]),
        (["2024-01-30", "2024-02-29", "2024-03-30"], ["2024-04-30", "2024-05-30"]),
        (["2023-10-31", "2023-12-31", "2024-02-29"], ["2024-04-30", "2024-06-30"]),
        # Until a Friday: the weekend is left out.
        (open_days(5, "2024-03-08"), ["2024-03-11", "2024-03-12"]),
        (open_days(6, "2024-03-08"), ["2024-03-09", "2024-03-11"]),
        (["2024-03-07", "2024-03-08", "2024-03-09"], ["2024-03-10", "2024-03-11"]),
    ],
    ids=[
        "month ends",
        "day 30",
        "two months",
        "Monday to Friday",
        "Monday to Saturday",
        "days",
    ],
)
def test_times_that_follow_are_of_the_calendar(tmp_path, times, expected):
    frame = {"time": times, "level": np.arange(len(times), dtype=float)}
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


N, LENGTH = 40, 5
RNG = np.random.default_rng(1)
LENGTHS = RNG.integers(1, LENGTH + 1, N)
VALID = np.arange(LENGTH) < LENGTHS[:, None]


class Means(nn.Module):
    """Predicts multiples of the mean of the inputs, of each step or of all valid."""

    n: int
    per_step: bool = False

    def __call__(self, x, mask=None):
        x = x.mean(-1) if x.ndim == 3 else x.astype(float)
        if not self.per_step:
            x = jnp.mean(x, 1, where=True if mask is None else mask)
        return x[..., None] * (jnp.arange(self.n) + 1.0), None


def run_on(task, folder, **fields):
    """A model of a task whose file is not there any more, but its statistics."""
    (folder / "run").mkdir()
    work = WorkDir(folder / "run")
    work.write_statistics(task)
    task = work.with_statistics(task)
    (folder / task.file).unlink()
    return Restored(Means(task.spec.d_output, **fields), {}, task, TRAINING, 1)


def arrays_run(folder, x, y, **fields):
    split = np.array(["train", "validation", "test", "train"] * (N // 4))
    np.savez(folder / "a.npz", inputs=x, targets=y, split=split)
    options = {"file": "a.npz", "data_dir": str(folder), "length": LENGTH}
    per_step = fields.get("per_step", False)
    return run_on(ArrayTask(**options, **fields), folder, per_step=per_step)


def class_columns(logits, names):
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return {f"p({name})": p[..., i] for i, name in enumerate(names)}


def assert_table(table, expected):
    assert list(table) == list(expected)
    for name, values in expected.items():
        if np.asarray(values).dtype.kind == "f":
            np.testing.assert_allclose(table[name], values, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(table[name], values)


def test_values_of_new_arrays_are_by_the_scale_of_the_training(tmp_path):
    x, y = RNG.normal(size=(N, LENGTH, 3)) * 7 + 50, RNG.normal(size=(N, 2)) * 9 - 4
    restored = arrays_run(
        tmp_path, x, y, inputs="vector", d_input=3, targets="regression", d_output=2,
        standardize=True,
    )  # fmt: skip
    new = x * 3 + 100
    np.savez(tmp_path / "new.npz", inputs=new, lengths=LENGTHS)
    is_train = np.arange(N) % 4 % 3 == 0
    steps, targets = x[is_train].reshape(-1, 3), y[is_train]
    scaled = ((new - steps.mean(0)) / steps.std(0)).mean(-1)
    mean = np.mean(scaled, 1, where=VALID)
    expected = mean[:, None] * [1, 2] * targets.std(0) + targets.mean(0)
    columns = {f"prediction {i}": expected[:, i] for i in range(2)}
    table = predict(restored, tmp_path / "new.npz")
    assert_table(table, {"id": np.arange(N), **columns})
    one = predict(restored, {"inputs": new[:1].tolist(), "lengths": LENGTHS[:1]})
    assert_table(one, {name: values[:1] for name, values in table.items()})


@pytest.mark.parametrize("classes", [None, ("b", "a")])
def test_classes_of_each_step_of_new_arrays(tmp_path, classes):
    tokens = RNG.integers(0, 4, (N, LENGTH))
    labels = tokens % 2 if classes is None else np.array(classes)[tokens % 2]
    restored = arrays_run(
        tmp_path, tokens, labels, inputs="token", d_input=4, d_output=2,
        targets="classification", classes=classes, per_step=True,
    )  # fmt: skip
    logits = (tokens[..., None] * [1.0, 2.0])[VALID]
    example, step = np.nonzero(VALID)
    names = classes or (0, 1)
    expected = {"id": example, "step": step}
    expected["prediction"] = np.array(names)[logits.argmax(-1)]
    table = predict(restored, {"inputs": tokens, "lengths": LENGTHS})
    assert_table(table, expected | class_columns(logits, names))


def table_run(folder, **fields):
    rows = [f"{i},{3 * i + t},{i},{'uv'[i % 2]}" for t in (0, 1) for i in range(N)]
    (folder / "a.csv").write_text("\n".join(["who,x,size,kind", *rows]))
    options = {"file": "a.csv", "data_dir": str(folder), "length": LENGTH}
    options |= {"example": "who", "features": ("x",)}
    return run_on(LongTable(**options, **fields), folder)


NEW_ROWS = {
    "x": ["40", "7", "", "8", "50"],
    "who": ["Zoe", "Al", "Zoe", "Al", "Zoe"],
}


@pytest.mark.parametrize("target", ["size", "kind"])
def test_examples_of_a_new_table_have_their_names(tmp_path, target):
    classes = ("v", "u") if target == "kind" else None
    restored = table_run(tmp_path, target=target, classes=classes, missing="mean")
    rows = ["x,who", *map(",".join, zip(*NEW_ROWS.values(), strict=True))]
    (tmp_path / "new.csv").write_text("\n".join(rows))
    scales = restored.task.scales
    x = (np.array([[40, np.nan, 50], [7, 8, np.nan]]) - scales.inputs.mean[0]) / (
        scales.inputs.std[0]
    )
    means = np.array([np.nansum(x[0]) / 3, np.nansum(x[1]) / 2])
    expected = {"who": ["Zoe", "Al"]}
    if classes is None:
        values = means * scales.targets.std[0] + scales.targets.mean[0]
        expected["prediction"] = values
    else:
        logits = means[:, None] * [1, 2]
        expected["prediction"] = np.array(classes)[logits.argmax(-1)]
        expected |= class_columns(logits, classes)
    assert_table(predict(restored, tmp_path / "new.csv"), expected)
    assert_table(predict(restored, NEW_ROWS), expected)


def whole_split(task):
    return task.batch("test", 0, task.n_examples("test"), seed=0)


def test_new_targets_of_arrays_are_by_the_scale_of_the_training(tmp_path):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(N, LENGTH, 3)) * 7 + 50, rng.normal(size=(N, 2)) * 9 - 4
    restored = arrays_run(
        tmp_path, x, y, inputs="vector", d_input=3, targets="regression", d_output=2,
        standardize=True,
    )  # fmt: skip
    new = {"inputs": x * 3 + 100, "targets": y - 7, "lengths": LENGTHS}
    # Its splits are those of another training.
    np.savez(tmp_path / "new.npz", **new, split=np.full(N, "train"))
    task = task_on(restored, tmp_path / "new.npz")
    batch = whole_split(task)
    is_train = np.arange(N) % 4 % 3 == 0
    mean, std = y[is_train].mean(0), y[is_train].std(0)
    np.testing.assert_allclose(batch.targets, (y - 7 - mean) / std, rtol=1e-4)
    np.testing.assert_array_equal(batch.mask, VALID)
    units = task.in_units(batch.targets, "test", 0, N, 0)
    np.testing.assert_allclose(units, y - 7, rtol=1e-4)
    again = whole_split(task_on(restored, {**new, "inputs": new["inputs"].tolist()}))
    np.testing.assert_array_equal(again.inputs, batch.inputs)
    # The same inputs as those that `predict` reads.
    (read, _), *more = restored.task.new_examples(str(tmp_path / "new.npz")).batches(N)
    np.testing.assert_array_equal(batch.inputs, read)
    assert not more
    with refuses("file", "train", rule="examples"):
        task.n_examples("train")


@pytest.mark.parametrize("target", ["size", "kind"])
def test_new_targets_of_a_table_are_by_the_scale_of_the_training(tmp_path, target):
    classes = ("v", "u") if target == "kind" else None
    restored = table_run(tmp_path, target=target, classes=classes, missing="mean")
    labels = {"size": ["9", "1", "9", "1", "9"], "kind": ["u", "v", "u", "v", "u"]}
    task = task_on(restored, NEW_ROWS | labels)
    batch = whole_split(task)
    expected = [1, 0]
    if classes is None:
        scale = restored.task.scales.targets
        expected = (np.array([[9], [1]]) - scale.mean) / scale.std
    np.testing.assert_allclose(batch.targets, expected, rtol=1e-5)
    read, _ = next(restored.task.new_examples(task_table(NEW_ROWS)).batches(9))
    np.testing.assert_array_equal(batch.inputs, read)


def task_table(columns):
    load = {name: functools.partial(np.array, columns[name]) for name in columns}
    return Table("the data", TableFormat(), load)


RATE, N_STEPS = 8_000, 40


def waves(folder, *names, rate=RATE, n=30):
    """Writes recordings whose levels depend on their names."""
    for name in names:
        number = sum(name.encode()) % 99 + 1
        # Two channels, which differ from each other and from step to step.
        steps = np.tile([[1, 2], [3, 4]], (n * rate // RATE // 2, 1))
        raw_sets.wav(folder / name, 100 * number + steps, rate=rate)
    return folder


def recordings_run(folder, **fields):
    """A model of recordings that are not there any more."""
    fields = {"sample_rate": RATE, "length": N_STEPS, "classes": ("hi", "lo")} | fields
    task = AudioFolder(data_dir=str(folder / "gone"), **fields)
    return Restored(Means(2), {}, task, TRAINING, 1)


def read_samples(path):
    return np.frombuffer(path.read_bytes()[44:], "<i2").reshape(-1, 2) / 2**15


def test_new_recordings_are_predicted_by_their_names(tmp_path):
    restored = recordings_run(tmp_path)
    names = ["a.wav", "b, c.WAV", "hi/d.wav", "other/deep/e.wav"]
    folder = waves(tmp_path / "new", *names)
    waves(folder, "long.wav", n=200)
    (folder / "README.txt").touch()
    names = sorted([*names, "long.wav"])
    # The first steps alone, and the mean of those that are there.
    levels = [read_samples(folder / name)[:N_STEPS].mean() for name in names]
    logits = np.array(levels)[:, None] * [1, 2]
    expected = {"file": names, "prediction": np.full(len(names), "lo")}
    expected |= class_columns(logits, ("hi", "lo"))
    assert_table(predict(restored, folder), expected)
    # Names that are not in UTF-8 are written as others are.
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.wav")
    shutil.copy(folder / "a.wav", odd)
    assert predict(restored, odd)["file"].tolist() == ["caf\\udce9.wav"]
    # One file, by a batch of its own.
    alone = predict(restored, str(folder / "hi" / "d.wav"))
    row = names.index("hi/d.wav")
    own = {name: values[row : row + 1] for name, values in expected.items()}
    assert_table(alone, own | {"file": ["d.wav"]})


def test_new_recordings_are_those_that_the_training_would_read(tmp_path):
    folder = waves(tmp_path / "new", "hi/a.wav", "lo/b.wav", rate=3 * RATE)
    waves(folder, "lo/c.wav", n=10)
    restored = recordings_run(tmp_path)
    own = dataclasses.replace(restored.task, data_dir=str(folder))
    rows = np.arange(3)
    expected, mask, _ = own._read(rows)
    (read, read_mask), *more = restored.task.new_examples(str(folder)).batches(3)
    np.testing.assert_array_equal(read, expected)
    np.testing.assert_array_equal(read_mask, mask)
    assert not more and mask.sum(1).tolist() == [30, 30, 10]
    batch = whole_split(task_on(restored, folder))
    np.testing.assert_array_equal(batch.inputs, expected)
    np.testing.assert_array_equal(batch.mask, mask)
    # Of the classes of the run, whatever classes the folder has.
    assert batch.targets.tolist() == [0, 1, 1]
    assert task_on(restored, folder).n_examples("test") == 3
    lo = task_on(restored, waves(tmp_path / "only", "lo/a.wav"))
    assert whole_split(lo).targets.tolist() == [1]


def test_silent_recordings_are_named_in_one_line(tmp_path, caplog):
    folder = waves(tmp_path / "new", "a.wav")
    for name in ("b.wav", "c.wav", "d/e.wav"):
        raw_sets.wav(folder / name, np.zeros(30))
    table = predict(recordings_run(tmp_path), folder)
    assert table["p(hi)"][1:] == pytest.approx([0.5] * 3)
    lines = [line for line in caplog.messages if "silent" in line]
    assert len(lines) == 1 and "3 of 4" in lines[0]
    assert lines[0].endswith("b.wav, c.wav, d/e.wav")


def test_new_images_are_predicted_by_their_names(tmp_path):
    from PIL import Image

    for i, name in enumerate(("a.png", "b.jpg")):
        Image.new("L", (9, 7), 20 + 100 * i).save(tmp_path / name)
    task = ImageFolder(
        data_dir=str(tmp_path / "gone"), size=(3, 4), classes=("x", "y", "z")
    )
    restored = Restored(Means(3), {}, task, TRAINING, 1)
    logits = np.array([20, 120])[:, None] / 255 * [1, 2, 3]
    expected = {"file": ["a.png", "b.jpg"], "prediction": ["z", "z"]}
    expected |= class_columns(logits, ("x", "y", "z"))
    table = predict(restored, tmp_path)
    assert list(table) == list(expected)
    for name in ("p(x)", "p(y)", "p(z)"):
        np.testing.assert_allclose(table[name], expected[name], atol=3e-3)


def test_new_files_that_do_not_fit_are_refused(tmp_path):
    restored = recordings_run(tmp_path)
    folder = waves(tmp_path / "new", "hi/a.wav", "mid/b.wav", "mid/c.wav")
    with refuses("data_dir", "'mid'", rule="hi, lo"):
        task_on(restored, folder)
    with refuses("data_dir", "a.wav", rule="per class"):
        task_on(restored, folder / "hi/a.wav")
    with refuses("data_dir", "none in", rule="folder of its class"):
        task_on(restored, folder / "hi")
    (tmp_path / "none" / "hi").mkdir(parents=True)
    with refuses("data_dir", "none in", rule="hi, lo"):
        task_on(restored, tmp_path / "none")
    with refuses("data_dir", "no file", rule=".wav"):
        predict(restored, tmp_path / "none")
    with refuses("data", "nowhere", rule="exist", error=FileNotFoundError):
        predict(restored, tmp_path / "nowhere")
    with refuses("data", "in memory", rule="path"):
        predict(restored, {"inputs": [1, 2]})
    with refuses("data_dir", "2 channels", rule="a.wav"):
        predict(recordings_run(tmp_path, channels=1), folder)
    (folder / "bad.wav").write_text("no sound")
    (folder / "empty.wav").touch()
    (folder / "text.txt").write_text("x")
    with refuses("data_dir", "empty.wav (empty)", rule="bad.wav (not in WAV format"):
        predict(restored, folder)
    with refuses("data_dir", "1 .txt", rule=".flac"):
        predict(restored, folder / "text.txt")


def test_new_examples_without_targets_are_refused_where_they_are_evaluated(tmp_path):
    for name in ("arrays", "table"):
        (tmp_path / name).mkdir()
    x = np.random.default_rng(2).normal(size=(N, LENGTH))
    of_arrays = arrays_run(
        tmp_path / "arrays", x, x[:, 0] > 0, inputs="vector", d_input=1,
        targets="classification", d_output=2, classes=("False", "True"),
    )  # fmt: skip
    np.savez(tmp_path / "new.npz", inputs=x)
    with refuses("file", "got inputs in", rule="targets"):
        task_on(of_arrays, tmp_path / "new.npz")
    with refuses("classes", "'maybe'", rule="leave"):
        task_on(of_arrays, {"inputs": x, "targets": ["maybe"] * N})
    with refuses("file", "none in the data"):
        task_on(of_arrays, {"inputs": x[:0], "targets": x[:0, 0] > 0})
    of_table = table_run(
        tmp_path / "table", target="kind", classes=("v", "u"), missing="mean"
    )
    with refuses("target", "'kind'", rule="who"):
        task_on(of_table, NEW_ROWS)
    with refuses("target", "none for 'kind' in row 2", rule="each row"):
        task_on(of_table, NEW_ROWS | {"kind": ["u", "v", "", "v", "u"]})
    with refuses("data", "none.csv", error=FileNotFoundError):
        task_on(of_table, tmp_path / "none.csv")
    with refuses("restored", "Digits"):
        task_on(Restored(nn.Dense(1), {}, Digits(), TRAINING, 1), {"x": [1]})


def test_new_examples_that_do_not_fit_are_refused(tmp_path):
    tokens = RNG.integers(0, 4, (N, LENGTH))
    fields = {"targets": "classification", "d_output": 4}
    for name in ("tokens", "vectors", "table"):
        (tmp_path / name).mkdir()
    of_tokens = arrays_run(
        tmp_path / "tokens", tokens, tokens[:, 0], inputs="token", d_input=4, **fields
    )
    with refuses("inputs", "(40, 4)"):
        predict(of_tokens, {"inputs": tokens[:, :4]})
    with refuses("inputs", 5):
        predict(of_tokens, {"inputs": tokens + 2})
    with refuses("file", "none in the data"):
        predict(of_tokens, {"inputs": tokens[:0]})
    np.savez(tmp_path / "b.npz", x=tokens)
    with refuses("file", "got x in", rule="b.npz"):
        predict(of_tokens, tmp_path / "b.npz")
    with refuses("data", "none.npz", error=FileNotFoundError):
        predict(of_tokens, tmp_path / "none.npz")
    of_vectors = arrays_run(
        tmp_path / "vectors", tokens, tokens[:, 0], inputs="vector", d_input=1, **fields
    )
    with refuses("inputs", "nan at (0, 0)", rule="finite"):
        predict(of_vectors, {"inputs": np.full((1, LENGTH), np.nan)})
    of_table = table_run(tmp_path / "table", target="size")
    with refuses("missing", "1 of 'x'"):
        predict(of_table, NEW_ROWS)
    with refuses("features", "'x'"):
        predict(of_table, {"who": ["a"]})
    with refuses("length", 5):
        predict(of_table, {"who": ["a"] * 6, "x": [1] * 6})
    (tmp_path / "empty.csv").write_text("who,x\n")
    with refuses("file", "empty.csv"):
        predict(of_table, tmp_path / "empty.csv")


def test_other_data_may_have_gaps_and_any_order(tmp_path, caplog):
    write(tmp_path / "a.csv")
    restored = restored_on(tmp_path)
    level, last = np.round(LEVEL, 4), np.round(LEVEL, 4)
    level[-3], last[-3] = np.nan, level[-4]
    found = predict(restored, {"time": TIMES[::-1], "level": level[::-1]})
    assert "'level' of the data has 1 missing values" in caplog.text
    np.testing.assert_allclose(
        found["forecast"], predict(restored, {"time": TIMES, "level": last})["forecast"]
    )


def test_file_that_is_not_there_or_has_no_target_is_refused(tmp_path):
    restored = restored_on(write(tmp_path / "a.csv").parent)
    with refuses("data", "none.csv", rule="exist", error=FileNotFoundError):
        predict(restored, tmp_path / "none.csv")
    empty = write(tmp_path / "c.csv", level=np.full(HOURS, np.nan))
    with refuses("target", "'level'", rule="all 500 are missing"):
        predict(restored, empty)


def test_columns_that_name_a_series_together_are_written_as_in_the_file(tmp_path):
    lines = ["time,store,dept,level"]
    pairs = [("N", "1"), ("N", "2"), ("a/b", "1")]
    for place, (store, dept) in enumerate(pairs):
        levels = zip(TIMES, LEVEL + 30 * place, strict=True)
        lines += [f"{time},{store},{dept},{value:.4f}" for time, value in levels]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    restored = restored_on(tmp_path, group=("store", "dept"))
    table = predict(restored)
    assert list(table)[:3] == ["store", "dept", "time"]
    named = [*zip(table["store"], table["dept"], strict=True)][::HORIZON]
    assert named == pairs
    # Each is the forecast of its rows alone, and that of a stream of them.
    pushed = stream(restored)
    for place, (store, dept) in enumerate(pairs):
        frame = {"time": TIMES, "level": np.round(LEVEL + 30 * place, 4)}
        frame |= {"store": [store] * HOURS, "dept": [int(dept)] * HOURS}
        alone = predict(restored, frame)
        own = slice(place * HORIZON, (place + 1) * HORIZON)
        np.testing.assert_allclose(alone["forecast"], table["forecast"][own])
        found = None
        for row in range(HOURS - WINDOW - 2, HOURS):
            found = pushed.push({name: x[row] for name, x in frame.items()})
        assert found["store"][0] == store and found["dept"][0] == dept
        np.testing.assert_allclose(found["forecast"], alone["forecast"], rtol=1e-5)
