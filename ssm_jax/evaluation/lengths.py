"""Accuracy of a model by the length of rows and by the position in them.

Rows are evaluated in pieces of fixed length with the state carried between them, so
that memory does not grow with the length, if the model has states that hold all that
its predictions depend on; otherwise whole.
"""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from ssm_jax.evaluation.restore import Restored
from ssm_jax.fields import PositiveInt, Seed, check_value
from ssm_jax.models.decoding import can_decode
from ssm_jax.tasks.base import Split, Task, rows_of_batch
from ssm_jax.tasks.synthetic.tokens import TokenTask
from ssm_jax.training.measure import n_evaluated

ROWS = 8  # rows of a batch, if there are as many
PIECE = 2048  # steps of a row that are evaluated in one call


def accuracy_by_length(
    restored: Restored,
    lengths: Sequence[int],
    *,
    task: Task | None = None,
    split: Split = "test",
    n_rows: int = 64,
    n_bins: int = 16,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Measures the accuracy of a model in rows of several lengths.

    Args:
      restored: The model. One with positional embeddings for a number of steps, or the
        like, has errors of its own at other lengths.
      lengths: Lengths of rows, as the ``length`` of the task.
      task: A classification with a field ``length``, which is replaced by each of
        ``lengths``. It may differ from the task of the model in other fields too: a
        depth, or the shortest word. None means the task of the model.
      split: Split to evaluate.
      n_rows: Number of rows of each length, rounded up to whole batches of 8, and at
        most those of a finite split.
      n_bins: Number of bins of equal width that the positions of a row are in.
      seed: Seed of generated rows.

    Returns:
      A dict for each length, ready for JSON, with

      - ``split`` and ``length``, ``n_rows``, the number of rows with a target, and
        ``n_targets``;
      - ``accuracy`` of all targets, and ``error``, the standard error of the mean
        accuracy of a row, None for a single one;
      - ``last_accuracy`` of the last target of each row, and ``row_accuracy``, the part
        of the rows all of whose targets are predicted;
      - ``chance``, that of a `TokenTask`, or None;
      - ``accuracy_by_position``, a list of the bins that have targets: ``until``, the
        number of steps to the end of the bin, ``accuracy`` and ``n_targets``;
      - ``trained``, the length of the rows of the training.

    Raises:
      ValueError: ``lengths`` is empty, a number is not positive, a length does not fit
        the task, or the task is no classification with a field ``length``.
      FloatingPointError: Predictions are NaN.
    """
    task = restored.task if task is None else task
    check_value("lengths", tuple(lengths), tuple[PositiveInt, ...], "256 is one")
    if not lengths:
        raise ValueError("`lengths` must hold a length, got none; 256 is one.")
    check_value("n_rows", n_rows, PositiveInt)
    check_value("n_bins", n_bins, PositiveInt)
    check_value("seed", seed, Seed)
    _check_task(task)
    trained = getattr(restored.task, "length", None)
    rows = []
    for length in lengths:
        # The protocol of tasks does not say that they are dataclasses.
        other = dataclasses.replace(cast(Any, task), length=length)
        measured = _measure(restored, other, split, n_rows, n_bins, seed)
        logging.info("length %d: accuracy %.4f", length, measured["accuracy"])
        rows.append({"split": split, "length": length, **measured, "trained": trained})
    return rows


def _check_task(task):
    names = {field.name for field in dataclasses.fields(cast(Any, task))}
    spec = task.spec
    if "length" not in names or spec.targets != "classification" or spec.pair:
        raise ValueError(
            "`task` must be a classification of sequences with a field `length`, got "
            f"{type(task).__name__}; `GroupWords` is one."
        )


def _measure(restored, task, split, n_rows, n_bins, seed):
    """The part of a row that is measured at one length."""
    length, l_output = task.spec.length, task.spec.l_output or 1
    in_pieces = can_decode(restored.model) and restored.mesh is None
    predict = _predict_in_pieces if in_pieces else _predict_whole
    # Whatever the model is, so that all are evaluated on the same rows.
    size = min(ROWS, n_rows)
    n_batches = math.ceil(n_rows / size)
    n_bins = min(n_bins, length)
    bin_of_step = np.arange(length)[length - l_output :] * n_bins // length
    hits_in_bin, targets_in_bin = np.zeros(n_bins), np.zeros(n_bins)
    of_rows = []
    for index in range(n_evaluated(task, split, size, n_batches)):
        batch = rows_of_batch(task, split, index, size, seed)
        predicted, is_nan = predict(restored, batch, task.spec)
        counts = batch.loss_mask.reshape(len(batch.loss_mask), -1)
        if n_nan := int((is_nan & counts).sum()):
            raise FloatingPointError(
                f"predictions must be numbers, got NaN for {n_nan} of {counts.sum()} "
                f"targets in rows of {length} steps; evaluate another checkpoint."
            )
        hits = (predicted == batch.targets.reshape(counts.shape)) & counts
        hits_in_bin += np.bincount(bin_of_step, hits.sum(0), n_bins)
        targets_in_bin += np.bincount(bin_of_step, counts.sum(0), n_bins)
        # Of a row: targets, hits, and whether the last target is one of them.
        last = l_output - 1 - np.argmax(counts[:, ::-1], axis=1)
        last_hit = hits[np.arange(len(hits)), last]
        of_row = np.stack([counts.sum(1), hits.sum(1), last_hit], axis=1)
        of_rows.append(of_row[counts.any(1)])
    n_targets, n_hits, last_hits = np.concatenate(of_rows).T
    accuracies = n_hits / n_targets
    return {
        "n_rows": len(accuracies),
        "n_targets": int(n_targets.sum()),
        "accuracy": float(n_hits.sum() / n_targets.sum()),
        "error": _standard_error(accuracies),
        "last_accuracy": float(last_hits.mean()),
        "row_accuracy": float(np.mean(n_hits == n_targets)),
        "chance": task.chance if isinstance(task, TokenTask) else None,
        "accuracy_by_position": [
            {
                "until": -(-(i + 1) * length // n_bins),
                "accuracy": float(hits_in_bin[i] / targets_in_bin[i]),
                "n_targets": int(targets_in_bin[i]),
            }
            for i in np.flatnonzero(targets_in_bin).tolist()
        ],
    }


def _standard_error(values):
    n = len(values)
    return None if n < 2 else float(np.std(values, ddof=1) / np.sqrt(n))


@partial(jax.jit, static_argnums=0)
def _step(model, variables, inputs, state, flags):
    """The most likely classes, whether a logit of each is NaN, and the final states."""
    logits, state = model.apply(variables, inputs, state, **flags)
    return jnp.argmax(logits, -1), jnp.isnan(logits).any(-1), state


def _predict_in_pieces(restored, batch, spec):
    """Classes of the last steps and which are NaN, both ``(b, l_output)``."""
    ends = [*range(PIECE, spec.length, PIECE), spec.length]
    # The predictions of the last steps, or of the last valid one, are of one piece.
    if len(ends) > 1 and spec.length - ends[-2] < (spec.l_output or 1):
        del ends[-2]
    if spec.l_output is None and batch.mask is not None:
        ends = ends[-1:]
    state = restored.model.initial_state((len(batch.inputs),))
    classes, is_nan = [], []
    for begin, end in zip([0, *ends], ends, strict=False):
        inputs, flags = _cut(batch, begin, end)
        *found, state = _step(restored.model, restored.variables, inputs, state, flags)
        for parts, values in zip((classes, is_nan), found, strict=True):
            parts.append(np.asarray(values).reshape(len(inputs), -1))
    l_output = spec.l_output or 1
    # Of a model that predicts at each step, and of one that does at the last ones.
    return (np.concatenate(parts, 1)[:, -l_output:] for parts in (classes, is_nan))


def _predict_whole(restored, batch, spec):
    """As `_predict_in_pieces`."""
    # Fewer rows at once if they are long, as memory grows with the length.
    n_rows, n = len(batch.inputs), max(1, ROWS * PIECE // spec.length)
    classes, is_nan = [], []
    for first in range(0, n_rows, n):
        inputs, flags = _cut(batch.take(slice(first, first + n)), 0, spec.length)
        logits = restored.apply(inputs, **flags)
        classes.append(np.asarray(jnp.argmax(logits, -1)))
        is_nan.append(np.asarray(jnp.isnan(logits).any(-1)))
    rows = (np.concatenate(x).reshape(n_rows, -1) for x in (classes, is_nan))
    return (x[:, -(spec.l_output or 1) :] for x in rows)


def _cut(batch, begin, end):
    """Inputs and flags of some steps."""
    flags = {name: x for name, x in batch.flags.items() if x is not None}
    return batch.inputs[:, begin:end], {n: x[:, begin:end] for n, x in flags.items()}
