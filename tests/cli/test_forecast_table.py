"""The table of forecasts, from rows of two seeds."""

from ssm_jax.cli import forecast_table


def row(seed, shift):
    def errors(mae):
        steps = [mae + step for step in range(8)]
        return {"mae": mae, "r2": 0.5, "mae_by_step": steps, "r2_by_step": [None] * 8}

    return {
        "experiment": "a",
        "variant": "",
        "seed": seed,
        "forecast": {"model": errors(10.0 + shift), "last value": errors(20.0)},
    }


def test_seeds_are_averaged_and_baselines_are_beside_them():
    table = forecast_table.by_step([row(0, 0.0), {"experiment": "b"}, row(1, 2.0)])
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("|")
    ]
    assert lines[0] == ["forecast", "metric", "all steps", "step 1", "step 2", "step 8"]
    spread = ["11 ± 1.4", "11 ± 1.4", "12 ± 1.4", "18 ± 1.4"]
    assert lines[2] == ["model", "MAE", *spread]
    assert lines[3] == ["last value", "MAE", "20", "20", "21", "27"]
    assert lines[4] == ["model", "R2", "0.5", "", "", ""]
    assert forecast_table.by_step([{"experiment": "b"}]) == ""
