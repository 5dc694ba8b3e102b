"""Columns that are known in the future: what a window shows, and that no more leaks."""

import dataclasses

import numpy as np
import pytest

from ssm_jax.evaluation import Restored, forecasts, predict, stream
from ssm_jax.evaluation.forecast import interval_widths
from ssm_jax.tasks import SeriesTask
from ssm_jax.tasks.series.guess import guess
from ssm_jax.training import TrainConfig
from tests.bad_inputs import refuses
from tests.evaluation.test_predict import Dull
from tests.tiers import tiered

N, WINDOW, HORIZON = 400, 10, 4
RNG = np.random.default_rng(0)
PROMO = RNG.integers(0, 2, N + 20).astype(float)
HEAT = RNG.normal(size=N)
LEVEL = np.sin(np.arange(N) / 3) + 4 * PROMO[:N] + 0.1 * RNG.normal(size=N)
DAYS = np.datetime64("2023-01-01") + np.arange(N + 20)


def write(path, n_ahead=HORIZON, *, level=LEVEL, heat=HEAT, promo=PROMO, name=None):
    """Rows of all days with a target, and of some after them, where it is left out."""
    lines = ["day,level,promo,heat" + (",shop" if name else "")]
    for i in range(N + n_ahead):
        cells = f",{promo[i]},"
        if i < N:
            cells = f"{level[i]:.6f}{cells}{heat[i]:.6f}"
        lines.append(f"{DAYS[i]},{cells}" + (f",{name}" if name else ""))
    path.write_text("\n".join(lines) + "\n")
    return path


def task_on(path, **fields):
    options = {
        "time": "day",
        "target": "level",
        "inputs": ("level", "promo", "heat"),
        "known": ("promo",),
        "window": WINDOW,
        "horizon": HORIZON,
    }
    return SeriesTask(file=str(path), **(options | fields))


def whole(task, split):
    n = task.n_examples(split)
    return task.batch(split, 0, n, seed=0)


@pytest.mark.parametrize("normalize", ["train", "window"])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_window_shows_a_known_column_horizon_steps_later(tmp_path, split, normalize):
    task = task_on(write(tmp_path / "a.csv"), normalize=normalize)
    last = task.first_targets(split)[:, None] + np.arange(-WINDOW, 0)
    train = PROMO[: int(0.7 * N)]
    expected = (PROMO[last + HORIZON] - train.mean()) / train.std()
    found = whole(task, split).inputs
    np.testing.assert_allclose(found[..., 1], expected, atol=1e-5)
    # All other features are those of a task that knows nothing.
    bare = task_on(write(tmp_path / "b.csv", 0), known=(), normalize=normalize)
    np.testing.assert_array_equal(
        found[..., [0, 2]], whole(bare, split).inputs[..., [0, 2]]
    )
    np.testing.assert_array_equal(
        whole(task, split).targets, whole(bare, split).targets
    )
    assert task.values().shape == (N,) and found.shape[-1] == task.spec.d_input


@pytest.mark.parametrize(
    "missing", tiered(["error", "last", "interpolate"], full=["error", "interpolate"])
)
@pytest.mark.parametrize("normalize", tiered(["train", "window"]))
def test_nothing_else_of_the_future_is_shown(tmp_path, missing, normalize):
    fields = {"linear": True, "normalize": normalize, "missing": missing}
    task = task_on(write(tmp_path / "a.csv"), **fields)
    end = N - 20
    level, heat, promo = LEVEL.copy(), HEAT.copy(), PROMO.copy()
    level[end:], heat[end:], promo[end + HORIZON :] = 50, -50, 7
    other = task_on(
        write(tmp_path / "b.csv", level=level, heat=heat, promo=promo), **fields
    )
    first = task.first_targets("test")
    before = first <= end
    n = len(first)
    request = "test", 0, n, 0
    inputs, others = whole(task, "test").inputs, whole(other, "test").inputs
    np.testing.assert_array_equal(inputs[before], others[before])
    for name, values in task.baselines(*request).items():
        found = other.baselines(*request)[name]
        np.testing.assert_array_equal(values[before], found[before])
    assert 20 < before.sum() < n
    # The first window that reaches further shows the change.
    assert (inputs[before.sum()] != others[before.sum()]).any()


def test_linear_forecast_reads_what_is_known_of_the_steps_predicted(tmp_path):
    path, errors = write(tmp_path / "a.csv"), {}
    for known in ((), ("promo",)):
        bare = write(tmp_path / "b.csv", 0)
        task = task_on(path if known else bare, known=known, linear=True)
        n = task.n_examples("test")
        targets = task.in_units(whole(task, "test").targets, "test", 0, n, 0)
        baselines = task.baselines("test", 0, n, 0)
        errors[known] = np.abs(baselines["linear"] - targets).mean()
        errors["ridge", known] = np.abs(baselines["ridge"] - targets).mean()
    assert errors["promo",] < 0.4 * errors[()]
    # The baseline reads lags alone.
    np.testing.assert_allclose(errors["ridge", ()], errors["ridge", ("promo",)])


def test_statistics_have_the_maps_of_known_columns(tmp_path):
    task = task_on(write(tmp_path / "a.csv"), linear=True)
    arrays = task.compute_statistics()
    np.savez(tmp_path / "s.npz", **arrays)
    again = task_on(tmp_path / "a.csv", linear=True, statistics=str(tmp_path / "s.npz"))
    np.testing.assert_array_equal(
        whole(again, "test").targets, whole(task, "test").targets
    )
    # Statistics of earlier versions do not say that there are none.
    bare = task_on(write(tmp_path / "b.csv", 0), known=(), linear=True)
    arrays = bare.compute_statistics()
    old = {name: x for name, x in arrays.items() if not name.endswith("/known")}
    assert len(old) < len(arrays)
    np.savez(tmp_path / "old.npz", **old)
    stored = str(tmp_path / "old.npz")
    again = task_on(tmp_path / "b.csv", known=(), linear=True, statistics=stored)
    np.testing.assert_array_equal(
        whole(again, "test").targets, whole(bare, "test").targets
    )


def restored_on(path, **fields):
    task = task_on(path, linear=True, **fields)
    restored = Restored(Dull(HORIZON), {}, task, TrainConfig(steps=1, batch_size=32), 1)
    widths = interval_widths(forecasts(restored, "validation"))
    return dataclasses.replace(restored, widths=widths)


def test_rows_without_a_target_are_the_future(tmp_path, caplog):
    restored = restored_on(write(tmp_path / "a.csv", HORIZON + 3))
    task = restored.task
    last = np.arange(N - WINDOW, N)
    train = PROMO[: int(0.7 * N)]
    expected = (PROMO[last + HORIZON] - train.mean()) / train.std()
    np.testing.assert_allclose(task.next_inputs()[0, :, 1], expected, atol=1e-5)
    table = predict(restored)
    np.testing.assert_array_equal(table["day"], DAYS[N : N + HORIZON])
    # What is known of them is in the forecast: the level follows the promotion.
    high = PROMO[N : N + HORIZON] == 1
    assert table["forecast"][high].min() > 2.5 > table["forecast"][~high].max()
    new = write(tmp_path / "new.csv")
    for data in (new, tmp_path / "a.csv"):
        np.testing.assert_allclose(
            predict(restored, data)["forecast"], table["forecast"]
        )
    assert not [r for r in caplog.records if "missing values" in r.getMessage()]


def test_future_of_too_few_rows_is_refused_with_their_number(tmp_path):
    restored = restored_on(write(tmp_path / "a.csv", 1))
    whole(restored.task, "test")
    with refuses("known", "got 1", rule="add 3 rows with 'promo'"):
        predict(restored)
    with refuses("data", "got 0", rule="add 4 rows with 'promo'"):
        predict(restored, write(tmp_path / "b.csv", 0))
    gap = PROMO.copy()
    gap[N + 2] = np.nan
    rows = write(tmp_path / "c.csv", promo=gap).read_text().replace("nan", "")
    (tmp_path / "c.csv").write_text(rows)
    with refuses("data", "got 2", rule="4 steps after the last one of 'level'"):
        predict(restored, tmp_path / "c.csv")
    with refuses("restored", "'promo'", rule="predict"):
        stream(restored)


def test_each_series_has_a_future_of_its_own(tmp_path):
    paths = [write(tmp_path / f"{name}.csv", n, name=name) for name, n in
             (("A", HORIZON), ("B", HORIZON + 2), ("C", 2))]  # fmt: skip
    texts = [path.read_text().split("\n", 1) for path in paths]
    both = tmp_path / "both.csv"
    both.write_text(texts[0][0] + "\n" + texts[0][1] + texts[1][1])
    restored = restored_on(both, group="shop")
    table = predict(restored)
    expected = [*DAYS[N : N + HORIZON]] * 2
    np.testing.assert_array_equal(table["day"], np.array(expected))
    np.testing.assert_allclose(
        table["forecast"][:HORIZON], table["forecast"][HORIZON:], rtol=1e-5
    )
    three = both.read_text() + texts[2][1]
    (tmp_path / "three.csv").write_text(three)
    with refuses("data", "got 2", rule="'C'"):
        predict(restored, tmp_path / "three.csv")


def test_gaps_of_known_columns_are_marked_where_they_are_read(tmp_path):
    gap = PROMO.copy()
    gap[N - 6] = np.nan
    path = write(tmp_path / "a.csv", promo=gap)
    path.write_text(path.read_text().replace("nan", ""))
    with refuses("missing", "'promo'", rule="'last'"):
        whole(task_on(path), "test")
    inputs = whole(task_on(path, missing="last"), "test").inputs
    # Inputs are the columns, each with its mark; the gap is HORIZON steps earlier.
    marks = inputs[-1, :, 3]
    last = N - HORIZON - WINDOW + np.arange(WINDOW)
    np.testing.assert_array_equal(marks, last + HORIZON != N - 6)
    (at,) = np.flatnonzero(marks == 0)
    assert inputs[-1, at, 2] == inputs[-1, at - 1, 2]


def test_fields_that_do_not_fit_are_refused(tmp_path):
    path = write(tmp_path / "a.csv")
    for known in (("level",), ("rain",)):
        with refuses("known", known, rule="`inputs`"):
            task_on(path, known=known)
    with refuses("known", "3 for 4", rule="`window`"):
        task_on(path, window=3)
    with refuses("known", "('a', 'b')", rule="`classes`"):
        task_on(path, classes=("a", "b"), horizon=1)
    # Without it, rows without a target are refused as before.
    with refuses("missing", "'level'", rule="'last'"):
        whole(task_on(path, known=()), "test")


def test_known_columns_are_stated(tmp_path):
    path = str(write(tmp_path / "a.csv", 14))
    fields = guess(path, target="level", known="promo")
    assert fields["known"] == ("promo",) and fields["missing"] == "error"
    task = SeriesTask(file=path, **fields)
    # The rows of the future are as many as the horizon, a week here.
    assert task.horizon == 7 and task.next_inputs().shape[1] == task.window
    both = guess(path, target="level", known="promo, heat")
    assert both["known"] == ("promo", "heat") and both["missing"] == "last"
    for known in ("level", "promo,level", "day"):
        with refuses("known", known.split(",")[-1], rule="target"):
            guess(path, target="level", known=known)
    with refuses("known", "'rain'", rule="promo"):
        guess(path, target="level", known="rain")
