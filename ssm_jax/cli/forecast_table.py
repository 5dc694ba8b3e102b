"""Markdown table of the errors of forecasts by the step predicted."""

import itertools
import statistics
from collections.abc import Sequence

from ssm_jax.cli.summary import Row, in_order, name_of
from ssm_jax.cli.tables import markdown, plain_text

_METRICS = {"mae": "MAE", "r2": "R2"}


def by_step(rows: Sequence[Row]) -> str:
    """Returns a Markdown table of errors over all steps and at some of them.

    Args:
      rows: Rows of runs; those without a forecast are left out.

    Returns:
      The table, with a line for each metric of the model of an experiment and of each
      baseline, and columns for the first step, that after a quarter of the horizon and
      the last; empty if there is no forecast. Runs that differ only in their seed are
      averaged, with the sample standard deviation after ±.
    """
    of_forecasts = sorted((row for row in rows if "forecast" in row), key=in_order)
    parts = []
    for experiment, group in itertools.groupby(of_forecasts, key=name_of):
        found = [row["forecast"] for row in group]
        horizon = len(found[0]["model"]["mae_by_step"])
        steps = sorted({1, max(1, horizon // 4), horizon})
        header = ("forecast", "metric", "all steps", *(f"step {n}" for n in steps))
        cells: list[tuple[str, ...]] = [header]
        for metric, which in itertools.product(_METRICS, found[0]):
            of_seeds = [each[which] for each in found]
            columns = [
                [each[metric] for each in of_seeds],
                *(
                    [each[f"{metric}_by_step"][n - 1] for each in of_seeds]
                    for n in steps
                ),
            ]
            cells.append((which, _METRICS[metric], *map(_shown, columns)))
        parts.append(
            f"{plain_text(experiment)}, on the {horizon} steps after a window:\n"
        )
        parts.append(markdown(cells))
    return "\n".join(["", *parts]) if parts else ""


def _shown(values):
    """The mean over seeds, with the standard deviation of several."""
    if None in values:
        return ""  # R2 of equal targets
    mean = f"{statistics.mean(values):.4g}"
    # Baselines are equal for all seeds.
    if len(set(values)) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values):.2g}"
