"""A pass over a split that measures a model, in training and after it."""

import math
from typing import Any

import jax

from ssm_jax.metrics import is_reduction
from ssm_jax.tasks.base import Split, Task, n_batches
from ssm_jax.training.losses import Sums, metrics
from ssm_jax.training.parallel import DataParallel
from ssm_jax.types import PyTree


def evaluate(
    step: Any,
    parallel: DataParallel,
    task: Task,
    params: PyTree,
    model_state: PyTree,
    *,
    split: Split,
    batch_size: int,
    limit: int | None,
    seed: int,
    carry: PyTree = None,
) -> dict[str, float]:
    """Measures a model on a split.

    Args:
      step: What ``parallel.evaluation_step`` returned.
      parallel: What maps the step.
      task: The task.
      params: The model's parameters.
      model_state: Its other variables.
      split: Which part of the data.
      batch_size: Examples of a batch, over all devices.
      limit: Batches. None means the whole split.
      seed: Of endless data.
      carry: States that the first batch starts from, ``(batch_size, ...)`` leaves, and
        each further one from what the last left of them. None: all start afresh.

    Returns:
      The metrics over all targets.

    Raises:
      ValueError: The split is endless and ``limit`` is None.
    """
    count = n_evaluated(task, split, batch_size, limit)
    carry, sums = parallel.split(carry), []
    for index in range(count):
        batch = parallel.split(task.batch(split, index, batch_size, seed))
        found, carry = step(params, model_state, batch, carry)
        sums.append(found)
    return metrics(total(jax.device_get(sums)), language=task.spec.language)


def n_evaluated(task: Task, split: Split, batch_size: int, limit: int | None) -> int:
    """Batches of an evaluation.

    Args:
      task: The task.
      split: Which part of the data.
      batch_size: Examples of a batch, over all devices.
      limit: The most batches. None means the whole split.

    Returns:
      Their number.

    Raises:
      ValueError: The split is endless and ``limit`` is None.
    """
    count = n_batches(task, split, batch_size)
    if count is None and limit is None:
        raise ValueError(
            f"`evaluation_batches` must be a number for {type(task).__name__}, whose "
            "data have no end, got None; 10 is one."
        )
    return min(c for c in (count, limit) if c is not None)


def total(sums: list[Sums]) -> Sums:
    """Merges the sums and reductions of several batches, in float64."""

    def merged(parts):
        if is_reduction(parts[0]):
            return parts[0].merge(*parts[1:])
        return math.fsum(float(part) for part in parts)

    return {name: merged([each[name] for each in sums]) for name in sums[0]}
