"""The page and the picture of experiments on own data."""

import numpy as np
import pytest

from experiments.own_data import beijing
from experiments.own_data.figures import beijing as picture
from experiments.own_data.tables import PAPER
from experiments.records import records
from ssm_jax.evaluation.run import FORECAST_FILE
from ssm_jax.training import WorkDir
from tests.bad_inputs import refuses
from tests.cli.test_tables import cells


def test_page_has_the_errors_of_all_models_beside_the_baselines():
    rows = [row for row in records() if row["experiment"] == "own_data/beijing"]
    for part in PAPER.parts:
        text = part.markdown(records())
        (table,) = (part for part in text.split("\n\n") if part[:10] == "| forecast")
        head, *lines = cells(table)
        hours = ["1 ahead", "6 ahead", "24 ahead"]
        assert head == ["forecast", "all steps", *hours, "seeds"]
        lines_by_name = {line[0]: line for line in lines}
        for model in ("s5", "dlr", "ces", "gru"):
            variant = f"model={model},size=small"
            errors = [r["forecast"]["model"] for r in rows if r["variant"] == variant]
            line = lines_by_name.pop(f"own_data/beijing:{variant}")
            assert line[-1] == str(len(errors)) == "3"
            for text, hour in zip(line[2:5], (1, 6, 24), strict=True):
                values = [error[f"{part.metric}_by_step"][hour - 1] for error in errors]
                mean, std = map(float, text.split(" ± "))
                np.testing.assert_allclose(mean, np.mean(values), atol=0.0051)
                np.testing.assert_allclose(std, np.std(values, ddof=1), atol=0.0051)
        assert list(lines_by_name) == ["last value", "seasonal"]


@pytest.fixture
def work(tmp_path):
    """A work dir with forecasts of two days."""
    folder = WorkDir(tmp_path / "run")
    with folder.claim(beijing.get_config("model=gru,size=small")):
        pass
    series = np.arange(120.0)
    series[90] = np.nan
    first = np.array([72, 96])
    model = first[:, None] + np.arange(24) + 1.0
    np.savez(folder.path / FORECAST_FILE, series=series, first=first, model=model)
    return folder


def test_picture_has_the_forecasts_of_the_run_and_the_errors_of_the_records(work):
    above, *panels = picture.draw(str(work.path)).axes
    drawn = [line.get_xydata() for line in above.lines if len(line.get_xydata()) == 24]
    for start, xy in zip((72, 96), drawn, strict=True):
        np.testing.assert_allclose(xy[:, 0] * 24, start + np.arange(24))
        np.testing.assert_array_equal(xy[:, 1], start + 1 + np.arange(24.0))
    assert "GRU" in [text.get_text() for text in above.get_legend().texts][1]
    names = [line.get_label() for line in panels[0].lines]
    assert names == ["S5", "DLR", "CES", "GRU", "last value", "seasonal"]
    (row,) = [
        row for row in records() if row["variant"] == "model=s5,size=small"
        and row["experiment"] == "own_data/beijing" and row["seed"] == 0
    ]  # fmt: skip
    for axes, metric in zip(panels, ("mae", "r2"), strict=True):
        errors = row["forecast"]["last value"][f"{metric}_by_step"]
        np.testing.assert_array_equal(axes.lines[4].get_ydata(), errors)


def test_run_that_is_not_evaluated_is_refused(work):
    (work.path / FORECAST_FILE).unlink()
    with refuses("--data", work.path):
        picture.draw(str(work.path))
