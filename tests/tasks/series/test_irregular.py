"""Series at irregular times: the distances of their rows reach the model."""

import types
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from ssm_jax import testing
from ssm_jax.config import spec
from ssm_jax.evaluation import Restored, evaluate_run, predict, stream
from ssm_jax.models import (
    LastHead,
    RecurrentNetwork,
    StepHead,
    VectorEncoder,
)
from ssm_jax.recurrences import DLR, GRU, S5
from ssm_jax.tasks import SeriesTask, TaskSpec
from ssm_jax.tasks.base import check_batch
from ssm_jax.training import Optimizer, TrainConfig, train
from tests.bad_inputs import refuses

N, WINDOW, HORIZON = 300, 8, 2
SECOND = np.timedelta64(1, "s")
RNG = np.random.default_rng(0)
GAPS = RNG.integers(60, 7200, N)
TIMES = np.datetime64("2024-03-01T00:00:00") + np.cumsum(GAPS) * SECOND
LEVEL = RNG.normal(size=N)
UNIT = S5(d_state=4, blocks=1, dt_min=0.1, dt_max=1.0)


def write(path, rows=slice(None), shops=("a",)):
    lines = ["time,level,shop"]
    for shop in shops:
        pairs = zip(TIMES[rows], LEVEL[rows], strict=True)
        lines += [f"{time},{level:.4f},{shop}" for time, level in pairs]
    path.write_text("\n".join(lines) + "\n")
    return path


def task_on(path, **fields) -> Any:
    options: dict[str, Any] = {
        "target": "level",
        "time": "time",
        "irregular": True,
        "window": WINDOW,
        "horizon": HORIZON,
    }
    return SeriesTask(file=path.name, data_dir=str(path.parent), **(options | fields))


def test_dt_is_the_distance_of_rows_by_their_median(tmp_path):
    task = task_on(write(tmp_path / "a.csv", shops="ab"), group="shop")
    testing.check_task(task)
    usual = np.median(GAPS[1 : int(0.7 * N)])  # of the train split
    per_row = GAPS / usual
    for split in ("validation", "test"):
        batch = task.batch(split, 0, 16, seed=0)
        assert batch.dt.dtype == np.float32 and (batch.dt[:, 0] == 1).all()
        starts = task.first_targets(split)[:16] - WINDOW
        expected = [per_row[start + 1 : start + WINDOW] for start in starts]
        np.testing.assert_allclose(batch.dt[:, 1:], expected, rtol=1e-6)
    np.testing.assert_allclose(task.next_dt()[1, 1:], per_row[1 - WINDOW :], rtol=1e-6)
    later = TIMES[-1] + np.arange(1, HORIZON + 1) * (usual * 1e6).astype("m8[us]")
    np.testing.assert_array_equal(task.next_times(), [later, later])
    # Other data are measured by the distance of the training, which is kept.
    rare = write(tmp_path / "b.csv", slice(0, N, 4))
    np.savez(tmp_path / "statistics.npz", **task.compute_statistics())
    kept = task_on(rare, group="shop", statistics=str(tmp_path / "statistics.npz"))
    np.testing.assert_allclose(
        kept.next_dt()[0, 1:],
        np.diff(TIMES[::4][-WINDOW:]) / SECOND / usual,
        rtol=1e-6,
    )
    np.testing.assert_array_equal(task.on(kept.table).next_dt(), kept.next_dt())
    # Without the field nothing is there.
    plain = task_on(write(tmp_path / "a.csv"), irregular=False)
    assert plain.batch("train", 0, 16, seed=1).dt is None and plain.next_dt() is None
    assert "usual_step" not in plain.compute_statistics()


def test_irregular_rows_need_a_time_and_no_step(tmp_path):
    path = write(tmp_path / "a.csv")
    for fields in ({"time": None}, {"step": "1h", "missing": "last"}):
        with refuses("irregular", rule="must be False"):
            task_on(path, **fields)


@pytest.mark.full
def test_rows_that_arrive_have_the_predictions_of_one_call(tmp_path, key):
    task = task_on(write(tmp_path / "a.csv"))
    model = RecurrentNetwork(UNIT, LastHead(HORIZON), VectorEncoder(4))
    variables = jax.jit(model.init)(key, np.zeros((1, WINDOW, 1), np.float32))
    training = TrainConfig(steps=1, batch_size=16)
    restored = Restored(model, variables, task, training, 1)
    pushed: Any = stream(restored)
    last = {}
    for row in range(N - 40, N):
        last = pushed.push({"time": TIMES[row], "level": LEVEL[row].round(4)}) or {}
    for end in (N - 20, N):
        write(tmp_path / "b.csv", slice(end))
        whole = predict(restored, tmp_path / "b.csv")
        part = predict(restored, write(tmp_path / "c.csv", slice(end - WINDOW, end)))
        np.testing.assert_allclose(part["forecast"], whole["forecast"], rtol=1e-4)
        np.testing.assert_array_equal(part["time"], whole["time"])
    np.testing.assert_allclose(last["forecast"], whole["forecast"], rtol=1e-4)
    np.testing.assert_array_equal(last["time"], whole["time"])
    # The distances are read: equal ones have another forecast.
    frame = {"time": TIMES[0] + np.arange(N) * 3600 * SECOND, "level": LEVEL}
    equal = predict(restored, frame)["forecast"]
    assert np.abs(equal - whole["forecast"]).max() > 1e-3


@pytest.mark.full
def test_state_is_carried_over_irregular_steps(key):
    x = RNG.normal(size=(1, WINDOW, 1)).astype(np.float32)
    dt = (GAPS[None, :WINDOW] / 3600).astype(np.float32)
    model = RecurrentNetwork(UNIT, StepHead(2), VectorEncoder(4))
    variables = jax.jit(model.init)(key, x)
    described: dict[str, Any] = {
        "length": WINDOW,
        "inputs": "vector",
        "d_input": 1,
        "d_output": 2,
    }
    described |= {"targets": "regression", "l_output": WINDOW}
    training = TrainConfig(steps=1, batch_size=16)
    found: Any = []
    for irregular in (True, False):
        # The stream asks for no data.
        task: Any = types.SimpleNamespace(
            spec=TaskSpec(**described, irregular=irregular),
            n_examples=pytest.fail,
            batch=pytest.fail,
        )
        found.append(stream(Restored(model, variables, task, training, 1)))
    steps = np.stack(
        [found[0].push(*step) for step in zip(x[0], dt[0].tolist(), strict=True)]
    )
    whole, _ = model.apply(variables, x, dt=dt)
    np.testing.assert_allclose(steps, whole[0], rtol=0, atol=1e-5)
    with refuses("dt", 2.0, rule="must be 1"):
        found[1].push(x[0, 0], 2.0)


@pytest.mark.full
@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf, None])
def test_sizes_of_steps_are_finite_and_there_if_the_spec_says_so(tmp_path, value):
    task = task_on(write(tmp_path / "a.csv"))
    batch = task.batch("train", 0, 4, seed=0)
    check_batch(batch, task.spec, "correct it")
    bad = None if value is None else np.where(batch.dt > 1.5, value, batch.dt)
    shown = "NoneType" if value is None else value
    with refuses("dt", shown):
        check_batch(batch._replace(dt=bad), task.spec, "correct it")


def decaying(path):
    """A level that follows its input at a rate, reported one row later."""
    rng = np.random.default_rng(1)
    gaps, inputs = rng.exponential(size=1500), rng.normal(size=1500)
    level, reported = 0.0, []
    for gap, value in zip(gaps, inputs, strict=True):
        reported.append(level)
        level = value + (level - value) * np.exp(-gap)
    columns = {"t": np.cumsum(gaps), "input": inputs, "level": np.array(reported)}
    np.savez(path, **columns)


def config(path, recurrence, **fields):
    task = {"time": "t", "target": "level", "inputs": ("input",), "horizon": 1}
    return ConfigDict(
        {
            "experiment": "tests/irregular",
            "task": spec(SeriesTask, file=str(path), window=12, **task, **fields),
            "model": spec(
                RecurrentNetwork,
                recurrence=recurrence,
                head=LastHead(1),
                encoder=VectorEncoder(4),
            ),
            "optimizer": spec(Optimizer, learning_rate=1e-2),
            "training": spec(TrainConfig, steps=150, batch_size=32, evaluate_every=150),
        }
    )


@pytest.mark.full
def test_a_level_that_decays_between_rows_is_forecast_by_their_distances(tmp_path):
    decaying(path := tmp_path / "a.npz")
    errors = {}
    for irregular in (True, False):
        workdir = str(tmp_path / f"run-{irregular}")
        train(config(path, UNIT, irregular=irregular), workdir)
        errors[irregular] = evaluate_run(workdir)["forecast"]["model"]["mae"]
    assert errors[True] < 0.3 * errors[False]


@pytest.mark.full
@pytest.mark.parametrize("recurrence", [GRU(d_state=4), DLR(d_state=4)])
def test_models_without_step_sizes_are_refused_at_set_up(recurrence, tmp_path):
    decaying(path := tmp_path / "a.npz")
    with refuses("model", type(recurrence).__name__, rule="step sizes"):
        train(config(path, recurrence, irregular=True), str(tmp_path / "run"))
