"""Linear forecasts against least squares, and what the choice among them finds."""

import numpy as np
import pytest

from ssm_jax.tasks import SeriesTask
from ssm_jax.tasks.series import linear
from ssm_jax.tasks.series.linear import (
    Examples,
    Fold,
    LinearForecast,
    LinearMap,
    Windows,
)

N, WINDOW, HORIZON = 200, 8, 3


def windows(seed=0, n=N, others=0, phases=0, known=0):
    rng = np.random.default_rng(seed)
    shapes = (WINDOW, others, phases, known)
    return Windows(*(rng.normal(size=(n, width)) for width in shapes))


@pytest.mark.parametrize("level", ["train", "last value", "window"])
def test_map_is_that_of_penalised_least_squares(level):
    of = windows(others=2, phases=2, known=3)
    targets = np.random.default_rng(1).normal(size=(N, HORIZON))
    first = LinearMap(level, 5, phases=True, others=True, known=True)
    (found,) = first.fit(of, targets, [3.0])
    # The definition: rows of the window's scale, of which the intercept is one column.
    mean, scale = np.zeros((N, 1)), np.ones((N, 1))
    if level == "last value":
        mean = of.target[:, -1:]
    if level == "window":
        mean = of.target.mean(1, keepdims=True)
        scale = of.target.std(1, keepdims=True)
    further = [scale * x for x in (of.phases, of.others, of.known)]
    features = np.hstack([of.target[:, -5:] - mean, *further, scale])
    penalty = 3.0 * np.eye(features.shape[1])
    penalty[-1, -1] = 0.0
    solution = np.linalg.solve(
        features.T @ features + penalty, features.T @ (targets - mean)
    )
    np.testing.assert_allclose(found.coefficients, solution[:-1], atol=1e-10)
    np.testing.assert_allclose(found.intercept, solution[-1], atol=1e-10)
    np.testing.assert_allclose(found(of), mean + features @ solution, atol=1e-10)


def walk(n, seed):
    return np.cumsum(np.random.default_rng(seed).normal(size=n))


def parts(series, first, last):
    at = np.arange(first, last - WINDOW - HORIZON)[:, None]
    empty = np.empty((len(at), 0))
    target = series[at + np.arange(WINDOW)]
    following = series[at + WINDOW + np.arange(HORIZON)]
    return Examples(Windows(target, empty, empty, empty), following)


def best(folds, lags=(WINDOW,)):
    return linear.mean_of_best(linear.candidates(folds, lags), folds)


def test_walk_is_forecast_by_its_last_value():
    series = walk(900, 0) / 10
    fold = Fold(parts(series, 0, 600), parts(series, 600, 900))
    found = best([fold], lags=(2, WINDOW))
    assert found.members == ()
    windows = fold.held_out.windows
    np.testing.assert_array_equal(found(windows), windows.target[:, -1:].repeat(3, 1))


def test_level_that_changes_is_subtracted():
    rng = np.random.default_rng(0)
    wave = np.sin(2 * np.pi * np.arange(900) / WINDOW)
    series = wave + 10 * np.repeat(rng.normal(size=9), 100) + 0.1 * rng.normal(size=900)
    fold = Fold(parts(series, 0, 600), parts(series, 600, 900))
    found = best([fold], lags=(2, WINDOW))
    assert found.members[0].level != "train" and found.members[0].lags == WINDOW


def test_columns_of_noise_are_left_out():
    series = np.sin(2 * np.pi * np.arange(900) / WINDOW)
    series = series + 0.3 * np.random.default_rng(0).normal(size=900)
    fold = Fold(parts(series, 0, 600), parts(series, 600, 900))

    def beside(columns):
        """The fold with other columns."""
        return Fold(
            *(
                part._replace(windows=part.windows._replace(others=columns(part)))
                for part in fold
            )
        )

    rng = np.random.default_rng(1)
    noise = beside(lambda part: rng.normal(size=(len(part.targets), 200)))
    found = best([noise])
    assert not any(member.others for member in found.members)
    # A column that has the next value is read.
    known = best([beside(lambda part: part.targets)])
    assert known.members[0].others


def test_ridge_reads_lags_alone():
    series = np.sin(2 * np.pi * np.arange(900) / WINDOW)
    fold = Fold(parts(series, 0, 600), parts(series, 600, 900))
    with_targets = [
        part._replace(windows=part.windows._replace(others=part.targets))
        for part in fold
    ]
    folds = [Fold(*with_targets)]
    for ordered in (
        linear.candidates(folds, (2, WINDOW)),
        linear.candidates(folds, (2, WINDOW), ridge_alone=True),
    ):
        (member,) = linear.ridge(ordered).members
        assert (member.others, member.phases) == (False, False)
        assert member.level in ("train", "last value")
    assert {candidate.map.others for candidate in ordered} == {False}


def test_choice_is_made_by_all_folds():
    """The last fold alone is one in which the level does not change."""
    rng = np.random.default_rng(0)
    level = np.repeat([0, 9, -9, 5, 5, 5], 150)
    wave = np.sin(2 * np.pi * np.arange(900) / WINDOW)
    series = level + wave + 0.1 * rng.normal(size=900)
    folds = [
        Fold(parts(series, 0, first), parts(series, first, first + 150))
        for first in (140, 290, 600)
    ]

    def levels(folds):
        return [member.level for member in best(folds).members]

    assert "train" in levels(folds[-1:]) and "train" not in levels(folds)


def test_older_steps_of_a_long_window_are_averaged():
    n_steps = 2_000
    target = np.random.default_rng(0).normal(size=(50, n_steps))
    empty = np.empty((50, 0))
    first = LinearMap("train", n_steps, phases=False, others=False)
    (found,) = first.fit(Windows(target, empty, empty, empty), target[:, :2], [1.0])
    assert found.coefficients.shape == (512, 2)
    ones = Windows(np.ones((1, n_steps)), *[np.empty((1, 0))] * 3)
    expected = found.coefficients.sum(0) + found.intercept
    np.testing.assert_allclose(found(ones)[0], expected)


def test_maps_are_restored_from_their_arrays(tmp_path):
    of, targets = windows(), np.zeros((N, HORIZON))
    maps = LinearMap("window", 4, phases=False, others=False).fit(of, targets, [1.0])
    forecast = LinearForecast(tuple(maps), HORIZON)
    np.savez(tmp_path / "a.npz", **forecast.arrays())
    with np.load(tmp_path / "a.npz") as arrays:
        again = LinearForecast.of(dict(arrays))
    np.testing.assert_array_equal(again(of), forecast(of))
    (member,) = again.members
    assert (member.level, member.lags, member.phases) == ("window", 4, False)
    empty = LinearForecast.of(LinearForecast((), HORIZON).arrays())
    assert empty == LinearForecast((), HORIZON)


def seasonal(folder, n=600, name="a.npz", shift=0.0):
    rng = np.random.default_rng(0)
    level = 100 + 7 * np.sin(2 * np.pi * np.arange(n) / 24) + rng.normal(size=n)
    np.savez(folder / name, level=level + shift)
    return level + shift


def task(folder, file="a.npz", **fields):
    options = {"target": "level", "window": 24, "horizon": 6, "linear": True}
    return SeriesTask(file=file, data_dir=str(folder), **(options | fields))


@pytest.mark.parametrize("normalize", ["train", "window"])
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_prediction_of_zeros_is_the_linear_forecast(tmp_path, normalize, split):
    level = seasonal(tmp_path)
    it = task(tmp_path, normalize=normalize)
    request = split, 0, 16, 0
    batch, zeros = it.batch(*request), np.zeros((16, 6))
    baselines = it.baselines(*request)
    np.testing.assert_allclose(it.in_units(zeros, *request), baselines["linear"])
    assert set(baselines) == {"last value", "ridge", "linear"}
    # Targets are the errors of it, of a mean square of 1 in the train split.
    values = it.in_units(batch.targets, *request)
    np.testing.assert_allclose(
        values - baselines["linear"], batch.targets * it.scale(*request), atol=1e-4
    )
    if split == "test":
        first = it.first_targets("test")[:16, None]
        np.testing.assert_allclose(values, level[first + np.arange(6)], rtol=1e-5)
    n = it.n_examples("train")
    targets = it.batch("train", 0, n, 0).targets
    np.testing.assert_allclose(np.sqrt(np.mean(targets**2)), 1.0, rtol=1e-4)


def test_window_is_normalised_by_itself(tmp_path):
    level = seasonal(tmp_path)
    it = task(tmp_path, linear=False, normalize="window")
    batch = it.batch("test", 0, 4, 0)
    np.testing.assert_allclose(batch.inputs.mean(1), 0, atol=1e-5)
    np.testing.assert_allclose(batch.inputs.std(1), 1, rtol=1e-4)
    window = level[it.first_targets("test")[:4, None] + np.arange(-24, 0)]
    mean, std = window.mean(1, keepdims=True), window.std(1, keepdims=True)
    expected = (it.in_units(batch.targets, "test", 0, 4, 0) - mean) / std
    np.testing.assert_allclose(batch.targets, expected, rtol=1e-4, atol=1e-5)


def test_statistics_of_a_training_are_used_for_other_data(tmp_path):
    seasonal(tmp_path)
    seasonal(tmp_path, n=900, name="b.npz", shift=50.0)
    of_training = task(tmp_path, normalize="window")
    np.savez(tmp_path / "statistics.npz", **of_training.compute_statistics())
    stored = str(tmp_path / "statistics.npz")
    again = task(tmp_path, normalize="window", statistics=stored)
    for split in ("train", "test"):
        one, other = (t.batch(split, 0, 8, 0) for t in (of_training, again))
        np.testing.assert_array_equal(one.inputs, other.inputs)
        np.testing.assert_array_equal(one.targets, other.targets)
    grown = task(tmp_path, "b.npz", normalize="train", statistics=stored)
    assert grown.preprocessing()["columns"] == of_training.preprocessing()["columns"]
    own = task(tmp_path, "b.npz", normalize="train")
    assert own.preprocessing()["columns"] != of_training.preprocessing()["columns"]


def test_statistics_of_other_columns_are_refused(tmp_path):
    seasonal(tmp_path)
    np.savez(tmp_path / "s.npz", **task(tmp_path).compute_statistics())
    for stored in ("s.npz", "a.npz"):
        np.savez(tmp_path / "b.npz", flow=np.arange(600.0))
        it = task(tmp_path, "b.npz", target="flow", statistics=str(tmp_path / stored))
        with pytest.raises(ValueError, match="`statistics` must be"):
            it.batch("test", 0, 4, 0)


def test_absolute_loss_is_of_a_forecast(tmp_path):
    assert task(tmp_path, loss="absolute").spec.loss == "absolute"
    for fields in ({"linear": True}, {"linear": False, "loss": "absolute"}):
        with pytest.raises(ValueError, match="`linear` and `loss` must be left out"):
            task(tmp_path, classes=("a", "b"), inputs=("level",), **fields)
    with pytest.raises(ValueError, match="`differences` must be False"):
        task(tmp_path, differences=True)
