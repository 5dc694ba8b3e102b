"""Summaries of runs over seeds: means, standard errors and notes.

Two results differ if their `Difference` is more than `ERRORS` of its standard errors. A
note is added to a result that is not better than its trivial baseline, to one that does
not differ from the best comparable one, to one of other data than it was trained on,
and to one that is stale.
"""

import itertools
import math
import re
import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ssm_jax.evaluation.forecast import MODEL

Row = Mapping[str, Any]

METRICS = ("r2", "perplexity", "macro_f1", "accuracy")
"""The metric of a run is the first of these that its evaluation has."""

FALLING = ("loss", "mae", "rmse", "perplexity", "bits_per_token")
"""The metrics of which less is better."""

ERRORS = 3.0
"""Number of standard errors by which a result must differ from another."""


class Difference(NamedTuple):
    """The mean of a difference, with its standard error.

    Attributes:
      mean: The mean.
      error: Its standard error; None if it cannot be estimated.
      n_seeds: Number of seeds. The error of a single one does not contain how much
        seeds differ.
    """

    mean: float
    error: float | None
    n_seeds: int

    @property
    def verdict(self) -> str:
        """``"above"`` or ``"below"`` 0, ``"within"`` errors of it, or ``"unknown"``."""
        if self.error is None:
            return "unknown"
        if abs(self.mean) <= ERRORS * self.error:
            return "within"
        return "above" if self.mean > 0 else "below"


def paired_difference(by_seed: Sequence[Sequence[float]]) -> Difference:
    """Returns the mean of differences of the same documents and seeds.

    Its error is that over documents or that over seeds, whichever is larger.

    Args:
      by_seed: Differences of each document, for each seed.

    Example:
      >>> paired_difference([[1.0, 2.0], [2.0, 3.0]])
      Difference(mean=2.0, error=0.5, n_seeds=2)
    """
    seed_means = [statistics.mean(values) for values in by_seed]
    document_means = [statistics.mean(values) for values in zip(*by_seed, strict=True)]
    errors = [
        statistics.stdev(values) / math.sqrt(len(values))
        for values in (seed_means, document_means)
        if len(values) > 1
    ]
    return Difference(
        statistics.mean(seed_means), max(errors, default=None), len(by_seed)
    )


@dataclass(frozen=True)
class Summary:
    """The runs of one experiment that differ only in their seed.

    Attributes:
      rows: Rows of the runs; stale runs are included only if all runs are stale.
    """

    rows: tuple[Row, ...]

    @property
    def last(self) -> Row:
        """The row of the last run."""
        return max(self.rows, key=lambda row: row["date"])

    @property
    def name(self) -> str:
        """The experiment and its variant, as in ``--config``."""
        return name_of(self.rows[0])

    @property
    def choices(self) -> tuple[str, ...]:
        """The choices of the variant, as ``("model=s5", "length=16")``."""
        return tuple(self.rows[0]["variant"].split(","))

    @property
    def metric(self) -> str:
        """The split and the metric, as ``"test accuracy"``."""
        return self.rows[0]["metric"]

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return statistics.mean(row["value"] for row in self.rows)

    @property
    def std(self) -> float | None:
        """The sample standard deviation over seeds; None for a single seed."""
        values = [row["value"] for row in self.rows]
        return statistics.stdev(values) if len(values) > 1 else None

    @property
    def error(self) -> float | None:
        """The standard error of `mean`; None if it cannot be estimated.

        For an accuracy it is the maximum of the binomial error for the number of
        examples evaluated and the error of the mean over seeds.
        """
        # Seeds share the test examples, so their mean does not reduce the binomial
        # error of these; the larger of the two errors is reported.
        errors = [] if self.std is None else [self.std / math.sqrt(len(self.rows))]
        if self.metric.endswith("accuracy") and self._baseline:
            p = min(max(self.mean, 0.0), 1.0)
            errors.append(math.sqrt(p * (1 - p) / self._baseline["n_examples"]))
        return max(errors, default=None)

    @property
    def baseline(self) -> float | None:
        """The same metric of the trivial baseline; None if it was not measured."""
        if not self._baseline:
            return None
        return self._baseline[self.metric.split()[-1]]

    @property
    def device(self) -> str:
        """The devices of the last run, as ``"1 x cpu (2 cores)"``."""
        row = self.last
        cores = f" ({row['cpus']} cores)" if row["platform"] == "cpu" else ""
        return f"{row['n_devices']} x {row['device']}{cores}"

    @property
    def stale(self) -> str | None:
        """The reason why the result is stale; None if it is not."""
        return self.rows[0].get("stale")

    @property
    def _baseline(self):
        return self.rows[0].get("baseline")

    @property
    def _data(self):
        """A key of the data: their trivial baseline, which depends on them alone."""
        baseline = self._baseline or {}
        # The last digits differ between machines, and further metrics between versions.
        values = (
            None if value is None else f"{value:.6g}"
            for value in (self.baseline, baseline.get("loss"))
        )
        sizes = (baseline.get(name) for name in ("name", "n_train", "n_examples"))
        return (*sizes, *values)

    def notes(self, others: Sequence["Summary"]) -> list[str]:
        """Returns the notes on the result.

        Args:
          others: All results; it is compared to those of the same `kind`.
        """
        notes = [f"stale: {self.stale}"] if self.stale else []
        if any(row.get("changed_data") for row in self.rows):
            notes.append("evaluated on other data than those of the training")
        error = ERRORS * (self.error or 0.0)
        if self._baseline and self.baseline is not None:
            name, falls = self._baseline["name"], self.metric.split()[-1] in FALLING
            gain = (self.baseline - self.mean) * (1 if falls else -1)
            if gain == 0:
                notes.append(f"= {name}")
            elif gain <= error:
                side = "below" if falls else "above"
                notes.append(f"not {side} the {name} by {ERRORS:g} standard errors")
        if self.error and self._baseline and self.metric.endswith("accuracy"):
            best = max((s for s in others if s.kind == self.kind), key=lambda s: s.mean)
            if best.name != self.name and self.difference(best).verdict == "within":
                notes.append(f"within {ERRORS:g} standard errors of {best.name}")
        return notes

    def difference(self, other: "Summary") -> Difference:
        """Returns this result less another one, of independent runs."""
        error = None
        if self.error is not None and other.error is not None:
            # Errors of independent results add in quadrature.
            error = math.hypot(self.error, other.error)
        n_seeds = min(len(self.rows), len(other.rows))
        return Difference(self.mean - other.mean, error, n_seeds)

    @property
    def kind(self) -> tuple[Any, ...]:
        """A key that is equal for comparable results: same data, steps and validity."""
        row = self.rows[0]
        return (
            row["experiment"], row["steps"], self.metric, self.stale, self._data,
        )  # fmt: skip


def beside_baselines(evaluation: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the metrics of the model of an evaluation and of its trivial baselines.

    Args:
      evaluation: The result of `ssm_jax.evaluation.evaluate_run`, or the row of a
        forecast.

    Returns:
      Metrics by name, that of the headline first: for `MODEL`, then for each baseline.
      Those of a forecast are in the units of its file.

    Example:
      >>> baseline = {"name": "mean", "loss": 1.0, "r2": 0.0, "n_examples": 9}
      >>> beside_baselines({"step": 5, "loss": 0.2, "r2": 0.8, "baseline": baseline})
      {'model': {'r2': 0.8, 'loss': 0.2}, 'mean': {'r2': 0.0, 'loss': 1.0}}
    """
    if forecast := evaluation.get("forecast"):
        # By what is there: a version may have further baselines, metrics and entries.
        found = {
            name: {key: x for key, x in errors.items() if isinstance(x, float | None)}
            for name, errors in forecast.items()
            if isinstance(errors, Mapping) and "mae" in errors
        }
        return {
            name: {"mae": metrics.pop("mae"), **metrics}
            for name, metrics in found.items()
        }
    baseline = evaluation.get("baseline") or {}
    metrics = [name for name in METRICS if name in evaluation]
    metrics += [
        name
        for name, value in baseline.items()
        if isinstance(value, float | None)
        and name not in metrics
        and name in evaluation
    ]
    found = {MODEL: evaluation}
    if baseline:
        found[baseline["name"]] = baseline
    return {
        name: {metric: measured.get(metric) for metric in metrics}
        for name, measured in found.items()
    }


def describe_step(evaluation: Mapping[str, Any]) -> str:
    """Says which step of the training the model of an evaluation is of.

    Args:
      evaluation: The result of `ssm_jax.evaluation.evaluate_run`, or a row of a table.

    Example:
      >>> describe_step({"step": 50}), describe_step({"best_step": 0, "steps": 500})
      ('step 50', 'step 0 of 500, before training')
    """
    # A row of a table has it under another name.
    step = evaluation.get("best_step", evaluation.get("step"))
    found = f"step {step}"
    if "steps" in evaluation:
        found += f" of {evaluation['steps']}"
    if step != 0:
        return found
    if "linear" in (evaluation.get("forecast") or {}):
        return f"{found}, the linear forecast that training began with"
    return f"{found}, before training"


def gain_over_linear(evaluation: Mapping[str, Any]) -> str:
    """Says what the layers of a model add to the linear forecast that it begins as.

    Returns:
      A sentence, or nothing for other models.

    Example:
      >>> forecast = {"model": {"mae": 0.9}, "linear": {"mae": 1.0}}
      >>> gain_over_linear({"step": 50, "forecast": forecast})
      'The layers of the model lower the MAE of the linear forecast by 10.0 %.'
    """
    forecast = evaluation.get("forecast") or {}
    if "linear" not in forecast:
        return ""
    if evaluation.get("best_step", evaluation.get("step")) == 0:
        return (
            "The model is the linear forecast: in no evaluation was it better with its "
            "layers by more than chance."
        )
    gain = 1 - forecast[MODEL]["mae"] / forecast["linear"]["mae"]
    change = "lower" if gain >= 0 else "raise"
    return (
        f"The layers of the model {change} the MAE of the linear forecast by "
        f"{100 * abs(gain):.1f} %."
    )


def in_units(row: Row) -> Row:
    """Returns the row of a forecast by its errors in the units of the file.

    Its metric is the mean absolute error, and its baseline the best one. Other rows,
    and those beside a published result, are returned as they are.
    """
    if "forecast" not in row or row["paper"] is not None:
        return row
    measured = beside_baselines(row)
    model, split = measured.pop(MODEL), row["metric"].split()[0]
    baseline = None
    if measured:
        best = min(measured, key=lambda name: measured[name]["mae"])
        baseline = {**(row["baseline"] or {}), **measured[best], "name": best}
    return {
        **row,
        "metric": f"{split} mae",
        "value": model["mae"],
        "baseline": baseline,
    }


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """Groups rows that differ only in their seed, sorted by name."""

    def key(row):
        return name_of(row), row["metric"]

    ordered = sorted(rows, key=lambda row: (sort_key(row), row["metric"]))
    results = []
    # `groupby` joins adjacent rows only, which is why they are sorted first.
    for _, group in itertools.groupby(ordered, key):
        runs = tuple(group)
        results.append(Summary(tuple(r for r in runs if not r.get("stale")) or runs))
    return results


def name_of(row: Row) -> str:
    """The experiment and the variant of a run, as in ``--config``."""
    return row["experiment"] + (f":{row['variant']}" if row["variant"] else "")


def common_choices(names: Iterable[str]) -> str:
    """Returns the experiment and the choices that all names share; empty if none.

    Example:
      >>> common_choices(["fru/imdb:model=fru,size=small", "fru/imdb:size=small"])
      'fru/imdb:size=small'
    """
    names = dict.fromkeys(names)
    experiments = {name.partition(":")[0] for name in names}
    if len(names) < 2 or len(experiments) > 1:
        return ""
    first, *others = (name.partition(":")[2].split(",") for name in names)
    shared = [choice for choice in first if all(choice in other for other in others)]
    return f"{experiments.pop()}:{','.join(shared)}".rstrip(":")


def distinct_choices(name: str, common: str) -> str:
    """Returns the choices of a name that are not among the common ones.

    Args:
      name: A name, as `name_of` returns it.
      common: What it shares with others, as `common_choices` returns it.

    Example:
      >>> distinct_choices("fru/imdb:model=fru,size=small", "fru/imdb:size=small")
      'model=fru'
    """
    if not common:
        return name
    shared = common.partition(":")[2].split(",")
    choices = name.partition(":")[2].split(",")
    return (
        ", ".join(choice for choice in choices if choice not in shared)
        or "nothing else"
    )


def sort_key(row: Row) -> list[tuple[int, str]]:
    """A sort key in which numbers in the name compare as numbers, 16 before 128."""
    words = re.split(r"(\d+)", name_of(row))
    # Pairs, because Python does not compare integers with strings.
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]


def format_result(summary: Summary) -> str:
    """Formats the mean, with the standard deviation over seeds after ±."""
    mean, std = summary.mean, summary.std
    # Rounded to four digits, values just below 1 would all read 1.0000.
    text = f"{mean:.4f}" if not 0.99995 <= mean < 1 else f"1 - {1 - mean:.1e}"
    if std is not None:
        text += f" ± {std:.4f}"
    if summary.metric.endswith("perplexity"):
        # The mean of the losses in bits, not the logarithm of the mean perplexity.
        bits = statistics.mean(math.log2(row["value"]) for row in summary.rows)
        text += f" ({bits:.4f} bits)"
    return text + (" (stale)" if summary.stale else "")


def number(value: float | None, digits: str = ".4f") -> str:
    """Formats a number for a table; empty for None."""
    # A negative rounding error would be shown as -0.0000.
    return "" if value is None else f"{value:{digits}}".replace("-0.0000", "0.0000")


class Footnotes:
    """Numbers the notes of a table; equal notes share a number."""

    def __init__(self) -> None:
        """Starts without notes."""
        self._numbers: dict[str, int] = {}

    def mark(self, notes: Sequence[str]) -> str:
        """Returns the cell that refers to the given notes."""
        numbers = [self._numbers.setdefault(n, len(self._numbers) + 1) for n in notes]
        return " ".join(f"[{number}]" for number in numbers)

    def lines(self) -> list[str]:
        """Returns the notes as one Markdown list by number; empty without notes."""
        items = [
            textwrap.fill(f"- [{number}] {text}", 88, subsequent_indent="  ") + "\n"
            for text, number in self._numbers.items()
        ]
        return ["".join(items)] if items else []
