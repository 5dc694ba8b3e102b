"""Trivial baselines: what the data alone predict, beside the metrics of a model."""

import dataclasses
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from ssm_jax.tasks.base import Batch, Split, Task, n_batches
from ssm_jax.training.evaluate import n_evaluated
from ssm_jax.training.losses import metrics

TRAIN_STEPS = 2**26
"""Steps of train examples that a baseline is computed from, at most."""

ENDLESS_EXAMPLES = 1_000
"""Train examples that it is computed from where the train split is endless."""

_STEPS_AT_ONCE = 2**18


def trivial_baseline(
    task: Task, split: Split, *, batch_size: int, limit: int | None, seed: int
) -> dict[str, Any]:
    """Measures the best prediction that does not depend on the input.

    For classes it is their frequency in the train split: always the majority class,
    with the entropy of the frequencies as loss; for the tokens of a text, the unigram.
    For values it is the mean of each output over the train split.

    Args:
      task: The task.
      split: The split to evaluate on; the same batches as `evaluate` takes.
      batch_size: Examples of a batch in that evaluation.
      limit: Batches of that evaluation. None means the whole split.
      seed: Seed of that evaluation.

    Returns:
      ``name``: ``"majority class"``, ``"unigram"`` or ``"mean"``; the metrics that a
      model has on this task; ``n_train``, the train targets that were counted; and
      ``n_examples``, the examples evaluated.

    Raises:
      ValueError: The split is endless and ``limit`` is None.

    Example:
      >>> from ssm_jax.tasks import Digits
      >>> found = trivial_baseline(Digits(), "test", batch_size=50, limit=None, seed=0)
      >>> found["name"], round(found["accuracy"], 3), found["n_examples"]
      ('majority class', 0.1, 300)
    """
    count = n_evaluated(task, split, batch_size, limit)
    evaluated = (task.batch(split, i, batch_size, seed) for i in range(count))
    measure = _of_values if task.spec.targets == "regression" else _of_classes
    sums, n_train, n_examples = measure(task, _train_batches(task, seed), evaluated)
    name = "majority class" if "correct" in sums else "mean"
    return {
        "name": "unigram" if task.spec.language else name,
        **metrics(sums, language=task.spec.language),
        "n_train": n_train,
        "n_examples": n_examples,
    }


def _train_batches(task: Task, seed: int) -> Iterator[Batch]:
    """Batches of equal size that hold the train split, or enough examples of it."""
    most, n = max(1, TRAIN_STEPS // task.spec.length), task.n_examples("train")
    fields = {field.name for field in dataclasses.fields(cast(Any, task))}
    if n is not None and n > most and "n_train" in fields:
        # A task that draws its examples in blocks would draw almost all of them for a
        # shuffled sample; the first ones are as good.
        task = dataclasses.replace(cast(Any, task), n_train=most)
    n = ENDLESS_EXAMPLES if n is None else min(n, most)
    at_once = min(n, max(1, _STEPS_AT_ONCE // task.spec.length))
    n_parts = -(-n // at_once)
    batch_size = n // n_parts
    available = n_batches(task, "train", batch_size)
    n_parts = n_parts if available is None else min(n_parts, available)
    return (task.batch("train", i, batch_size, seed) for i in range(n_parts))


def _of_classes(task, train, evaluated):
    n_classes = task.spec.d_output
    counts = np.zeros(n_classes, np.int64)
    for batch in train:
        counts += np.bincount(batch.targets[batch.loss_mask], minlength=n_classes)
    # One is added to each count: a class that was never met has a finite loss.
    log_p = np.log((counts + 1) / (counts.sum() + n_classes))
    found = np.zeros(n_classes, np.int64)
    n_examples = 0
    for batch in evaluated:
        found += np.bincount(batch.targets[batch.loss_mask], minlength=n_classes)
        n_examples += _count_examples(batch)
    sums = {
        "loss": float(-np.sum(found * log_p)),
        "n": float(found.sum()),
        "correct": float(found[np.argmax(counts)]),
    }
    return sums, int(counts.sum()), n_examples


def _of_values(task, train, evaluated):
    total, n_train = np.zeros(task.spec.d_output), 0
    for batch in train:
        total += batch.targets[batch.loss_mask].sum(0, dtype=np.float64)
        n_train += int(batch.loss_mask.sum())
    mean = total / n_train
    sums: dict[str, float] = dict.fromkeys(("loss", "n", "sum", "square"), 0.0)
    n_examples = 0
    for batch in evaluated:
        targets = batch.targets[batch.loss_mask].astype(np.float64)
        sums["loss"] += float(np.sum(np.square(targets - mean)))
        sums["n"] += targets.size
        sums["sum"] += float(np.sum(targets))
        sums["square"] += float(np.sum(np.square(targets)))
        n_examples += _count_examples(batch)
    return sums, n_train, n_examples


def _count_examples(batch: Batch) -> int:
    return int(batch.loss_mask.reshape(len(batch.loss_mask), -1).any(1).sum())
