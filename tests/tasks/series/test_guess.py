"""Guesses from files of which the time, the period and the columns are known."""

import numpy as np
import pytest

from ssm_jax.tasks import SeriesTask
from ssm_jax.tasks.series.guess import guess
from tests.bad_inputs import refuses

STEPS = {"h": 24, "15m": 96, "D": 7, "s": None}


def write(path, times, n=1000, words=False):
    rng = np.random.default_rng(0)
    rows = ["year,when,wind,load,gas"]
    for i in range(n):
        gas = "" if i == 3 else rng.normal()
        wind = "N" if words else i
        rows.append(f"{2010 + i // 400},{times[i]},{wind},{rng.normal()},{gas}")
    path.write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize(("step", "season"), STEPS.items())
def test_columns_and_period_of_dates_are_found(step, season, tmp_path):
    number, unit = (15, "m") if step == "15m" else (1, step)
    times = np.datetime64("2020-01-01T00:00:00") + np.arange(1000) * np.timedelta64(
        number, unit
    )
    write(tmp_path / "a.csv", times, words=True)
    horizon = min(season or 24, 12)
    window = min(3 * (season or 24), 50)
    assert guess(str(tmp_path / "a.csv")) == {
        "time": "when",
        "target": "load",
        "inputs": ("load", "gas"),
        "missing": "last",
        "window": window,
        "horizon": horizon,
        # Longer than a window, which is bounded by the validation split.
        "season": season if season != 96 else None,
    }


def test_number_that_increases_is_no_time_unless_it_comes_first(tmp_path):
    write(tmp_path / "a.csv", ["x"] * 1000)
    found = guess(str(tmp_path / "a.csv"), target="gas", season=5)
    assert found["time"] is None and found["inputs"] == ("gas", "wind", "load")
    assert (found["season"], found["horizon"], found["window"]) == (5, 5, 15)
    np.savez(tmp_path / "b.npz", at=np.arange(99), load=np.zeros(99))
    assert guess(str(tmp_path / "b.npz"))["time"] == "at"


def test_hour_that_does_not_recur_is_no_period(tmp_path):
    load = np.random.default_rng(0).normal(size=100)
    np.savez(tmp_path / "a.npz", load=load, hour=np.arange(100))
    found = guess(str(tmp_path / "a.npz"))
    assert (found["season"], found["horizon"], found["window"]) == (None, 1, 5)


@pytest.mark.parametrize("n", [80, 117])
def test_guess_for_a_short_file_has_windows_in_each_split(n, tmp_path):
    np.savez(tmp_path / "a.npz", load=np.random.default_rng(0).normal(size=n))
    found = guess(str(tmp_path / "a.npz"))
    task = SeriesTask(file="a.npz", data_dir=str(tmp_path), **found)
    assert all(task.n_examples(of) > 1 for of in ("train", "validation", "test"))


def test_file_without_a_forecast_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", load=np.zeros(79))
    with refuses("file", 79):
        guess(str(tmp_path / "a.npz"))
    with refuses("target", "'gas'", rule="load"):
        guess(str(tmp_path / "a.npz"), target="gas")
    np.savez(tmp_path / "b.npz", year=np.zeros(99), hour=np.zeros(99))
    with refuses("target", "''", rule="hour"):
        guess(str(tmp_path / "b.npz"))


INPUTS, VALUES = np.zeros((99, 5, 2)), np.linspace(0, 1, 99)
LABELS = np.arange(99) % 3
SETS = {
    "classes": ({"inputs": INPUTS, "targets": LABELS}, "targets int64 (99,)"),
    "classes, lengths": (
        {"inputs": INPUTS, "targets": LABELS, "lengths": LABELS, "names": ["a", "b"]},
        "targets int64 (99,)",
    ),
    "class of a step": ({"inputs": INPUTS, "targets": INPUTS[..., 0] > 0}, "bool"),
    "other names": ({"x": INPUTS, "y": LABELS.astype(str)}, "y <U"),
    "values": ({"inputs": INPUTS, "targets": VALUES}, "targets float64 (99,)"),
}


@pytest.mark.parametrize(("arrays", "shown"), SETS.values(), ids=SETS)
def test_set_of_sequences_is_refused(arrays, shown, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    kind = "regression" if "float" in shown else "classification"
    with refuses("file", shown, rule=f"a {kind} set"):
        guess(str(tmp_path / "a.npz"))


def test_column_beside_arrays_of_other_shapes_is_forecast(tmp_path):
    arrays = {
        "load": np.sin(VALUES * 9),
        "wind": LABELS,
        "images": INPUTS,
        "edges": np.eye(3),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    found = guess(str(tmp_path / "a.npz"), target="load")
    assert found["target"] == "load" and found["inputs"] == ("load", "wind")
