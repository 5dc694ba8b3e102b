"""Evaluation of a model on a split, during training and after it."""

import math
from typing import Any

import jax

from ssm_jax.metrics import Mean
from ssm_jax.tasks.base import Split, Task, n_batches
from ssm_jax.training.losses import Reductions, metrics
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
    """Evaluates a model on a split.

    Args:
      step: The function returned by ``parallel.evaluation_step``.
      parallel: The map over devices that ``step`` belongs to.
      task: The task.
      params: Parameters of the model.
      model_state: Other variables of the model.
      split: The split.
      batch_size: Number of examples per batch, over all devices.
      limit: Maximum number of batches. None means the whole split.
      seed: Seed of generated data.
      carry: Initial states of the first batch, ``(batch_size, ...)`` leaves; each
        further batch starts from the final states of the preceding one. None means
        that every batch starts from zero states.

    Returns:
      The metrics over all targets of the split.

    Raises:
      ValueError: The split is endless and ``limit`` is None.
    """
    count = n_evaluated(task, split, batch_size, limit)
    carry, reductions = parallel.place_carry(carry), []
    for index in range(count):
        # Steps are dispatched asynchronously: the host prepares the next batch while
        # the devices compute.
        batch = parallel.batch(task, split, index, batch_size, seed)
        found, carry = step(params, model_state, batch, carry)
        reductions.append(found)
    # One transfer at the end: to read those of each batch would wait for its step.
    return metrics(total(jax.device_get(reductions)), language=task.spec.language)


def n_evaluated(task: Task, split: Split, batch_size: int, limit: int | None) -> int:
    """Returns the number of batches of an evaluation.

    Args:
      task: The task.
      split: The split.
      batch_size: Number of examples per batch, over all devices.
      limit: Maximum number of batches. None means the whole split.

    Returns:
      The number of batches.

    Raises:
      ValueError: The split is endless and ``limit`` is None.
    """
    count = n_batches(task, split, batch_size)
    if count is None and limit is None:
        raise ValueError(
            f"`evaluation_batches` must be a number for {type(task).__name__}, whose "
            "data are endless, got None; 10 is an example."
        )
    # A limit beyond the end of the split means the whole split.
    return min(c for c in (count, limit) if c is not None)


def total(found: list[Reductions]) -> Reductions:
    """Merges the reductions of several batches, in float64.

    Args:
      found: Reductions of each batch, over all devices.

    Returns:
      Reductions of all batches. Of a regression also ``r2_batch``, the mean of the
      coefficients of determination of those batches that have targets.
    """
    merged = {
        name: first.merge(*(each[name] for each in found[1:]))
        for name, first in found[0].items()
    }
    if "r2" in merged:
        # Not a sum over the rows of a batch, so that it is taken after the devices.
        scores = [each["r2"].compute() for each in found if float(each["r2"].count)]
        merged["r2_batch"] = Mean(math.fsum(scores), float(len(scores)))
    return merged
