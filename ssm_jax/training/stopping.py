"""How far a run is: its last and its best step, its end and early stopping."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ssm_jax.config import Config
from ssm_jax.tasks.base import TaskSpec
from ssm_jax.training.checkpointing import integrity
from ssm_jax.training.losses import MAIN_METRICS, main_metric


def evaluations_since_best(lines: Iterable[Mapping[str, Any]], spec: TaskSpec) -> int:
    """Counts the evaluations after the best one of a run.

    It is computed from the metrics that a run has logged, so that an interrupted run
    stops where one that was not interrupted does.

    Args:
      lines: Lines of metrics; those without a validation metric are ignored.
      spec: Spec of the task. An evaluation is better if its `main_metric` is larger, or
        equal and the loss is lower.

    Returns:
      The number of evaluations after the first of the best; 0 without any.

    Example:
      >>> from ssm_jax.tasks import Digits
      >>> losses = [0.9, 0.5, 0.5, 0.6]
      >>> name = "validation/accuracy"
      >>> lines = [
      ...     {"step": step, name: 0.2, "validation/loss": loss}
      ...     for step, loss in enumerate(losses, 1)
      ... ]
      >>> evaluations_since_best(lines, Digits().spec)
      2
    """
    return _since_best(lines, f"validation/{main_metric(spec)}")


def last_step(lines: Sequence[Mapping[str, Any]]) -> int:
    """Returns the last step that a run has logged; 0 without any.

    Args:
      lines: Lines of metrics.
    """
    return lines[-1]["step"] if lines else 0


def best_step(lines: Sequence[Mapping[str, Any]]) -> int | None:
    """Returns the step of the best checkpoint of a run; None without validation.

    Args:
      lines: Lines of metrics, or the metrics of all checkpoints with their ``step``.

    Example:
      >>> best_step([{"step": 1, "validation/r2": 0.5}, {"step": 2, "elapsed_s": 9.0}])
      1
    """
    records = ({"step": line["step"], "metrics": line} for line in lines)
    return integrity.best_step(records, _ranking_metric(lines), "validation/loss")


def is_finished(lines: Sequence[Mapping[str, Any]], training: Config) -> bool:
    """Whether a run has taken all of its steps, or was stopped early.

    Args:
      lines: Lines of metrics.
      training: The config of its `TrainConfig`.

    Example:
      >>> from ml_collections import ConfigDict
      >>> lines = [{"step": 1, "validation/r2": 0.5}, {"step": 2, "validation/r2": 0.4}]
      >>> [
      ...     is_finished(lines, ConfigDict({"steps": 9, "patience": patience}))
      ...     for patience in (1, 2, None)
      ... ]
      [True, False, False]
    """
    if last_step(lines) >= training.steps:
        return True
    # Runs of earlier versions have no such field.
    patience = training.get("patience")
    name = _ranking_metric(lines)
    return bool(patience and name and _since_best(lines, name) >= patience)


def _ranking_metric(lines):
    """The metric in validation that the checkpoints of a run are ranked by, or None."""
    names = [f"validation/{name}" for name in MAIN_METRICS]
    return next((n for n in names if any(n in line for line in lines)), None)


def _since_best(lines, name):
    # A loss that is not finite ends the run. A metric that is not defined is None, and
    # no better than any other.
    ranks = [
        integrity.rank(
            line["step"],
            -math.inf if line[name] is None else line[name],
            line.get("validation/loss"),
        )
        for line in lines
        if name in line
    ]
    return len(ranks) - 1 - ranks.index(max(ranks)) if ranks else 0
