"""Early stopping."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ssm_jax.tasks.base import TaskSpec
from ssm_jax.training.losses import main_metric


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
      >>> lines = [{name: 0.2, "validation/loss": loss} for loss in losses]
      >>> evaluations_since_best(lines, Digits().spec)
      2
    """
    name = f"validation/{main_metric(spec)}"
    # A loss that is not finite ends the run, so that all of them can be compared.
    ranks = [
        (line[name], -line.get("validation/loss", math.inf))
        for line in lines
        if name in line
    ]
    return len(ranks) - 1 - ranks.index(max(ranks)) if ranks else 0
