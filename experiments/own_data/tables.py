"""Forecasts of data that the user brings."""

from experiments.page import Forecast, Paper

_EXPERIMENT = "own_data/beijing:.*"
_HOURS = (1, 6, 24)

PAPER = Paper(
    "Forecasts of own data",
    "",
    (
        Forecast(
            "Beijing PM2.5: mean absolute error",
            """\
`own_data/beijing` predicts the next 24 hours of the concentration of PM2.5, in
micrograms per cubic metre, from three days of it and of the weather (`size=small`). The
last 20 % of the five years, from January 2014, are the test split. The baseline `last
value` repeats the last value before the forecast, `seasonal` the last 24 hours.
""",
            _EXPERIMENT,
            "mae",
            _HOURS,
        ),
        Forecast(
            "Beijing PM2.5: R2",
            """\
The picture has forecasts of the next 24 hours, each from a dotted line on, beside the
measured values; below, the errors by the hour ahead, with the sample standard deviation
over seeds as bands. Drawn by `python -m experiments.own_data.figures.beijing`.
""",
            _EXPERIMENT,
            "r2",
            _HOURS,
            {"Forecasts, MAE and R2 by the hour ahead": "own_data/beijing.png"},
        ),
    ),
)
"""Each experiment beside its baselines."""
