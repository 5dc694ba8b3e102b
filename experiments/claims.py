"""Claims about what models learn, stated before they are measured.

A `Claim` says of several models whether each is expected to solve a task. `run_claim`
trains every model at each learning rate and with each seed, and measures the accuracy
in rows of several lengths; its record is shown as a table.

A model is judged at the learning rate with the highest mean accuracy in the validation
split, by the accuracy in rows ``read_at`` steps long. It solves the task if it is right
in at least 99 of 100 rows of the test split with every seed. It cannot, as far as these
runs show, if with no seed it is more than .05 above the level of a prediction that
tracks nothing. Its accuracy is less if it is below that of the first model of the
claim, or of one that the claim names, by at least .05 and three standard errors over
seeds.
"""

import dataclasses
import json
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import jax
import numpy as np

from experiments.page import PartWithoutRuns
from experiments.records import EXPERIMENTS, experiment_config, machine, record_runs
from ssm_jax.cli import tables
from ssm_jax.cli.summary import paired_difference
from ssm_jax.evaluation import accuracy_by_length, restore
from ssm_jax.training import WorkDir, train

Verdict = Literal["solves", "cannot", "less", "neither"]
Rows = Sequence[Mapping[str, Any]]

RECORDS = EXPERIMENTS / "claims"
SOLVED, SMALLEST = 0.99, 0.05
N_ROWS = 256  # Of each length and split.


@dataclass(frozen=True)
class Claim(PartWithoutRuns):
    """What models are expected to learn of a task.

    Attributes:
      name: Name of the record.
      title: Title of the section.
      statement: What is claimed, and whose claim it is.
      experiment: Name of the experiments, with ``{model}``.
      expected: What is expected of each model, by what its name contains.
      level: Accuracy of a prediction that tracks nothing.
      read_at: Length of the rows by which models are judged.
      read: Whether the accuracy is that of the last targets of rows, or of all.
      lengths: Lengths that are measured, from the shortest one of the training.
      measured: Fields of the task that are others when a model is measured than in
        training, as the shortest word.
      beside: The model that a model is compared with, where it is not the first one.
      learning_rates: Those that are tried.
      seeds: Number of seeds.
    """

    name: str
    title: str
    statement: str
    experiment: str
    expected: Mapping[str, Verdict]
    level: float
    read_at: int
    lengths: tuple[int, ...]
    read: Literal["last_accuracy", "accuracy"] = "last_accuracy"
    measured: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    seeds: int = 3

    def runs(self) -> Iterator[dict[str, Any]]:
        """Yields the model, the learning rate and the seed of each run."""
        for model in self.expected:
            for rate in self.learning_rates:
                for seed in range(self.seeds):
                    yield {"model": model, "learning_rate": rate, "seed": seed}

    def measure(self, run: Mapping[str, Any], workdir: Path) -> dict[str, Any]:
        """Trains a run, or continues it, and measures its accuracy by length.

        Args:
          run: One of `runs`.
          workdir: Its work dir.

        Returns:
          The run with its accuracy in rows of the validation split that are ``read_at``
          steps long, and in those of the test split by length, in float32 and, with the
          same parameters, in float64.
        """
        config = experiment_config(self.experiment.format(model=run["model"]))
        config.optimizer.learning_rate = run["learning_rate"]
        config.training.seed = run["seed"]
        train(config, str(workdir))
        restored = restore(workdir)
        task = dataclasses.replace(cast(Any, restored.task), **self.measured)
        measure = partial(accuracy_by_length, task=task, n_rows=N_ROWS)
        (validation,) = measure(restored, [self.read_at], split="validation")
        with jax.enable_x64(True):
            wide = jax.tree.map(lambda x: x.astype(np.float64), restored.variables)
            in_float64 = measure(
                dataclasses.replace(restored, variables=wide), self.lengths
            )
        return {
            **run,
            "steps": config.training.steps,
            "seconds": WorkDir(str(workdir)).metrics()[-1]["elapsed_s"],
            "validation": validation[self.read],
            "accuracy": self._by_length(measure(restored, self.lengths)),
            "float64": self._by_length(in_float64),
        }

    def _by_length(self, measured):
        return {str(row["length"]): row[self.read] for row in measured}

    def markdown(self, rows: Rows) -> str:
        """Returns the table of the record; empty without one."""
        del rows
        path = RECORDS / f"{self.name}.json"
        if not path.exists():
            return ""
        record = json.loads(path.read_text())
        rows_by_model = {
            model: at_best_rate(found)
            for model in self.expected
            if (found := [row for row in record["rows"] if row["model"] == model])
        }
        lines = []
        for model, rows in rows_by_model.items():
            other = rows_by_model.get(self.reference(model), [])
            lines.append(self._line(model, rows, self._accuracies(other)))
        head = (
            "model",
            "expected",
            "rate",
            f"each seed at {self.read_at:,}",
            *(f"mean at {length:,}" for length in self._shown()),
            "it",
        )
        n_runs, n_rows = len([*self.runs()]), len(record["rows"])
        measured = (
            f"A prediction that tracks nothing is right in {self.level:.3g} of all "
            f"rows. {n_rows} of {n_runs} runs, measured by `python -m "
            f"experiments.synthetic.claims --claim={self.name} --workdir=FOLDER` on "
            f"{machine(record)}. In float64 these means differ by at most "
            f"{self._largest_change(rows_by_model.values()):.3f}."
        )
        text = textwrap.fill(measured, 88, break_on_hyphens=False)
        return f"{self.statement}\n{text}\n\n{tables.markdown([head, *lines])}"

    def _shown(self):
        """The shortest and the longest rows, where they are not those of each seed."""
        ends = dict.fromkeys((self.lengths[0], self.lengths[-1]))
        return [length for length in ends if length != self.read_at]

    def _line(self, model, rows, reference):
        seeds = self._accuracies(rows)
        means = (
            statistics.mean(row["accuracy"][str(length)] for row in rows)
            for length in self._shown()
        )
        expected = self.expected[model]
        if expected == "less" and self.beside:
            expected = f"less than {self.reference(model)}"
        return (
            model,
            expected,
            f"{rows[0]['learning_rate']:g}",
            ", ".join(f"{accuracy:.3f}" for accuracy in seeds),
            *(f"{mean:.3f}" for mean in means),
            self.verdict(seeds, reference),
        )

    def _largest_change(self, models):
        """How much the mean accuracy of a model at a length changes in float64."""

        def mean(rows, dtype, length):
            return statistics.mean(row[dtype][str(length)] for row in rows)

        return max(
            abs(mean(rows, "float64", length) - mean(rows, "accuracy", length))
            for rows in models
            for length in self.lengths
        )

    def _accuracies(self, rows):
        """The accuracy of each seed."""
        rows = sorted(rows, key=lambda row: row["seed"])
        return [row["accuracy"][str(self.read_at)] for row in rows]

    def reference(self, model: str) -> str:
        """Returns the model that a model is compared with."""
        return self.beside.get(model, next(iter(self.expected)))

    def verdict(
        self, accuracies: Sequence[float], reference: Sequence[float]
    ) -> Verdict:
        """Says what the accuracies of a model show.

        Args:
          accuracies: That of each seed at the best learning rate.
          reference: Those of the model that it is compared with.
        """
        if min(accuracies) >= SOLVED:
            return "solves"
        if max(accuracies) <= self.level + SMALLEST:
            return "cannot"
        pairs = zip(accuracies, reference, strict=False)
        difference = paired_difference([[x - y] for x, y in pairs])
        if difference.verdict == "below" and difference.mean <= -SMALLEST:
            return "less"
        return "neither"


def at_best_rate(rows: Rows) -> Rows:
    """Returns the rows of the learning rate with the best validation.

    Args:
      rows: Rows of one model.
    """
    rates = dict.fromkeys(row["learning_rate"] for row in rows)
    by_rate = [[row for row in rows if row["learning_rate"] == rate] for rate in rates]
    return max(by_rate, key=lambda rows: statistics.mean(r["validation"] for r in rows))


def run_claim(claim: Claim, workdir: Path, record: Path) -> None:
    """Does the runs of a claim that its record lacks, and writes each into it.

    Args:
      claim: The claim.
      workdir: Directory of the work dirs.
      record: Path of the record.
    """

    def measure(run):
        name = "{model}-{learning_rate:g}-{seed}".format(**run)
        return claim.measure(run, workdir / name)

    record_runs(record, claim.runs(), measure, claim=claim.name)
