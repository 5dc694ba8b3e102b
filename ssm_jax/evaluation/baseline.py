"""Trivial baselines: predictions that do not depend on the input."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from ssm_jax.metrics import R2, BalancedAccuracy, ClassMean, MacroF1, Mean
from ssm_jax.tasks.base import Batch, Split, Task, n_batches, rows_of_batch
from ssm_jax.training.losses import metrics
from ssm_jax.training.measure import finite_or_none, n_evaluated, total

TRAIN_STEPS = 2**26
"""Maximum number of sequence steps of the train split that a baseline is fitted to."""

ENDLESS_EXAMPLES = 1_000
"""Training examples that a baseline is fitted to if the train split is endless."""

_STEPS_PER_BATCH = 2**18


def trivial_baseline(
    task: Task, split: Split, *, batch_size: int, limit: int | None, seed: int
) -> dict[str, Any]:
    """Evaluates the best prediction that does not depend on the input.

    For classification the prediction is the class frequencies of the train split:
    accuracy is that of the majority class, loss is the cross entropy with the
    frequencies, or with equal frequencies if the classes are balanced. For language
    models this is the unigram model. For regression the prediction is the mean of each
    output over the train split.

    Args:
      task: The task.
      split: Split to evaluate on; the batches are those of `evaluate`.
      batch_size: Examples per batch of that evaluation.
      limit: Number of batches of that evaluation. None means the whole split.
      seed: Seed of that evaluation.

    Returns:
      A dict with ``name`` (``"majority class"``, ``"unigram"`` or ``"mean"``), the
      metrics of the task, None for those that are not defined, ``n_train``, the number
      of training targets counted, and ``n_examples``, the number of examples evaluated.

    Raises:
      ValueError: The split is endless and ``limit`` is None.

    Example:
      >>> from ssm_jax.tasks import Digits
      >>> result = trivial_baseline(Digits(), "test", batch_size=50, limit=None, seed=0)
      >>> result["name"], round(result["accuracy"], 3), result["n_examples"]
      ('majority class', 0.1, 300)
    """
    count = n_evaluated(task, split, batch_size, limit)
    evaluated = (rows_of_batch(task, split, i, batch_size, seed) for i in range(count))
    fit = _fit_mean if task.spec.targets == "regression" else _fit_frequencies
    parts, n_train, n_examples = fit(task, _train_batches(task, seed), evaluated)
    name = "majority class" if "accuracy" in parts else "mean"
    return {
        "name": "unigram" if task.spec.language else name,
        **finite_or_none(metrics(parts, language=task.spec.language), "baseline"),
        "n_train": n_train,
        "n_examples": n_examples,
    }


def _train_batches(task: Task, seed: int) -> Iterator[Batch]:
    """Batches of equal size from the train split, of at most `TRAIN_STEPS` steps."""
    n_max, n = max(1, TRAIN_STEPS // task.spec.length), task.n_examples("train")
    fields = {field.name for field in dataclasses.fields(cast(Any, task))}
    if n is not None and n > n_max and "n_train" in fields:
        # A shuffled sample touches almost every block of a task that generates its
        # examples in blocks; its first examples are independent draws already.
        task = dataclasses.replace(cast(Any, task), n_train=n_max)
    n = ENDLESS_EXAMPLES if n is None else min(n, n_max)
    max_batch_size = min(n, max(1, _STEPS_PER_BATCH // task.spec.length))
    # Equal batches of nearly the maximum size leave out fewer than `count` examples.
    count = -(-n // max_batch_size)
    batch_size = n // count
    available = n_batches(task, "train", batch_size)
    count = count if available is None else min(count, available)
    return (rows_of_batch(task, "train", i, batch_size, seed) for i in range(count))


def _fit_frequencies(task, train, evaluated):
    """Metrics of the class frequencies, reduced, and the two counts."""
    n_classes = task.spec.d_output
    counts = np.zeros(n_classes, np.int64)
    for batch in train:
        counts += np.bincount(batch.targets[batch.loss_mask], minlength=n_classes)
    # Add-one smoothing: a class without training examples has a finite loss.
    log_p = np.log((counts + 1) / (counts.sum() + n_classes))
    if task.spec.class_weight == "balanced":
        log_p = np.full(n_classes, -np.log(n_classes))
    # The loss depends on the evaluated targets only through their counts.
    evaluated_counts = np.zeros(n_classes, np.int64)
    n_examples = 0
    for batch in evaluated:
        targets = batch.targets[batch.loss_mask]
        evaluated_counts += np.bincount(targets, minlength=n_classes)
        n_examples += _count_examples(batch)
    n, majority = float(evaluated_counts.sum()), np.argmax(counts)
    losses = -evaluated_counts * log_p
    parts: dict[str, Any] = {
        "loss": Mean(float(np.sum(losses)), n),
        "accuracy": Mean(float(evaluated_counts[majority]), n),
    }
    if n_classes == 2:
        # All scores are equal. One class has no curve.
        parts["auc"] = Mean(0.5 if evaluated_counts.all() else math.nan)
    if task.spec.class_weight == "balanced":
        confusion = np.zeros((n_classes, n_classes))
        confusion[:, majority] = evaluated_counts
        parts["loss"] = ClassMean(losses, evaluated_counts)
        parts["macro_f1"] = MacroF1(confusion)
        parts["balanced_accuracy"] = BalancedAccuracy(confusion)
    return parts, int(counts.sum()), n_examples


def _fit_mean(task, train, evaluated):
    """Metrics of the mean target, reduced, and the two counts."""
    # Sums over millions of targets are taken in float64.
    sums, n_train = np.zeros(task.spec.d_output), 0
    for batch in train:
        sums += batch.targets[batch.loss_mask].sum(0, dtype=np.float64)
        n_train += int(batch.loss_mask.sum())
    mean = sums / n_train
    parts, n_examples = [], 0
    for batch in evaluated:
        targets = batch.targets[batch.loss_mask].astype(np.float64)
        error = np.sum(np.square(targets - mean))
        batch_mean = np.sum(targets) / max(targets.size, 1)
        squares = np.sum(np.square(targets - batch_mean))
        parts.append(
            {
                "loss": Mean(error, targets.size),
                "mae": Mean(np.sum(np.abs(targets - mean)), targets.size),
                "r2": R2(error, targets.size, batch_mean, squares),
            }
        )
        n_examples += _count_examples(batch)
    return total(parts), n_train, n_examples


def _count_examples(batch: Batch) -> int:
    """Number of examples with a target; the others fill up the last batch."""
    return int(batch.loss_mask.reshape(len(batch.loss_mask), -1).any(1).sum())
