"""Evaluation of a model on a split, during training and after it."""

from typing import Any

import jax

from ssm_jax.metrics import Mean, add_up
from ssm_jax.tasks.base import Split, Task, n_batches
from ssm_jax.training.losses import NAN_TARGETS, PREDICTED, Reductions, metrics
from ssm_jax.training.parallel import DataParallel
from ssm_jax.types import PyTree

# Number of batches whose reductions stay on the devices.
_IN_FLIGHT = 3


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
    allow_nan: bool = False,
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
      allow_nan: Whether predictions may be NaN. The metrics of them are NaN then.

    Returns:
      The metrics over all targets of the split.

    Raises:
      ValueError: The split is endless and ``limit`` is None, or a target is no index of
        a class.
      FloatingPointError: The loss of a target is NaN, unless ``allow_nan``.
    """
    count = n_evaluated(task, split, batch_size, limit)
    carry, reductions = parallel.place_carry(carry), []
    for index in range(count):
        # Steps are dispatched asynchronously: the host prepares the next batch while
        # the devices compute.
        batch = parallel.batch(task, split, index, batch_size, seed)
        found, carry = step(params, model_state, batch, carry)
        reductions.append(found)
        # What is kept per target, as scores are, must not fill the devices. To read
        # those of the last batch would wait for its step.
        if index >= _IN_FLIGHT:
            reductions[index - _IN_FLIGHT] = jax.device_get(
                reductions[index - _IN_FLIGHT]
            )
    merged = total(jax.device_get(reductions))
    found = metrics(merged, language=task.spec.language)
    nan = merged[NAN_TARGETS]
    if nan.total and not allow_nan:
        names = ", ".join(f"`{name}`" for name in ("loss", *PREDICTED) if name in found)
        raise FloatingPointError(
            f"{names} must be of targets whose loss is a number, got NaN for "
            f"{nan.total:.0f} of {nan.count:.0f} targets of the {split} split; "
            "evaluate another checkpoint of the run."
        )
    return found


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
        merged["r2_batch"] = Mean(add_up(scores), float(len(scores)))
    return merged
