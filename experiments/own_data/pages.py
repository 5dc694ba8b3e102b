"""The page ``experiments/results/own_data.md``: forecasts beside their baselines."""

import itertools
import statistics
from collections.abc import Sequence

from ssm_jax.cli.summary import Row, in_order, name_of
from ssm_jax.cli.tables import markdown

PICTURE = "own_data/beijing.png"
HOURS = (1, 6, 24)
METRICS = {
    "mae": ("Mean absolute error, in micrograms per cubic metre", ".2f"),
    "r2": ("R2", ".3f"),
}

_PAGE = """\
# Forecasts of own data

Results of experiments whose file the user brings. Means over seeds, followed by the
sample standard deviation over seeds after ±, on the test split. Written by
`python -m experiments.ledger` from the records in this directory.

## Beijing PM2.5

`own_data/beijing` predicts the next 24 hours of the concentration of PM2.5 from three
days of it and of the weather (`size=small`). The last 20 % of the five years, from
January 2014, are the test split. The baseline `last value` repeats the last value
before the forecast, `seasonal` the last 24 hours.

One hour ahead no model has a smaller absolute error than the last value; over all 24
hours the four have smaller ones than both baselines, and differ from each other by less
than three standard errors.

{tables}
Above, forecasts of the next 24 hours, each from a dotted line on, beside the measured
values; below, the errors by the hour ahead, with the sample standard deviation over
seeds as bands. Drawn by `python -m experiments.own_data.figures.beijing`.

![Forecasts, and their MAE and R2 by the hour ahead]({picture})
"""


def page(rows: Sequence[Row]) -> str:
    """Returns the page.

    Args:
      rows: All records; those without a forecast are left out.
    """
    found = [row for row in rows if row["experiment"] == "own_data/beijing"]
    parts = [
        f"{title}:\n\n{_table(found, metric, digits)}"
        for metric, (title, digits) in METRICS.items()
    ]
    return _PAGE.format(tables="\n".join(parts), picture=PICTURE)


def _table(rows: Sequence[Row], metric: str, digits: str) -> str:
    """A line per experiment and per baseline: all hours together, and some of them."""
    ordered, lines = sorted(rows, key=in_order), []
    for name, of in itertools.groupby(ordered, key=name_of):
        group = list(of)
        errors = [row["forecast"]["model"] for row in group]
        last = max(group, key=lambda row: row["date"])
        lines.append(
            (
                f"`{name}`",
                *_cells(errors, metric, digits),
                str(len(group)),
                str(last["steps"]),
                f"{statistics.mean(row['seconds'] for row in group):.0f}",
                last["commit"] or "",
                last["date"],
            )
        )
    # The baselines have no seed: those of all runs are equal.
    for name in [name for name in ordered[0]["forecast"] if name != "model"]:
        cells = _cells([ordered[0]["forecast"][name]], metric, digits)
        lines.append((name, *cells, *[""] * 5))
    head = (
        "forecast",
        "all 24 hours",
        *(f"{hour} h" for hour in HOURS),
        *("seeds", "steps", "seconds", "commit", "date"),
    )
    return markdown([head, *lines])


def _cells(errors, metric, digits):
    columns = [[each[metric] for each in errors]]
    columns += [
        [each[f"{metric}_by_step"][hour - 1] for each in errors] for hour in HOURS
    ]
    return [_shown(column, digits) for column in columns]


def _shown(values, digits):
    mean = f"{statistics.mean(values):{digits}}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):{digits}}"
