"""Losses and metrics as reductions, which are merged over devices and batches.

The mean over a split is the ratio of two sums. It does not depend on the batch size or
the number of devices, unlike a mean over the means of batches of different sizes.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.core import Tracer

from ssm_jax.fields import check_indices
from ssm_jax.metrics import (
    AUC,
    R2,
    BalancedAccuracy,
    ClassMean,
    MacroF1,
    Mean,
    Reduction,
    Skill,
)
from ssm_jax.models.recurrences import layer_recurrences
from ssm_jax.recurrences import TimeInvariant
from ssm_jax.tasks.base import TaskSpec
from ssm_jax.types import Array, Bool, Float, Int, PyTree

Targets = Literal["regression", "classification"]
Reductions = dict[str, Any]
"""A `Reduction` for each name; that of ``"loss"`` is a `Mean` or a `ClassMean`."""

NAN_TARGETS = "nan_targets"
"""The share of targets whose loss is NaN, which is no metric of the log.

The most likely class of NaN logits is any of them, so that neither accuracy nor F1
shows that there is none.
"""

PREDICTED = (
    *("accuracy", "auc", "balanced_accuracy", "macro_f1"),
    *("mae", "r2", "r2_batch", "skill", "skill_low"),
)
"""The metrics that are not defined if the loss of a target is NaN."""


def cross_entropy(
    logits: Float[Array, "*b o"], classes: Int[Array, "*b"]
) -> Float[Array, "*b"]:
    """Computes the cross-entropy of the softmax of logits in nats.

    A class that is not in ``[0, o)`` gives NaN; negative ones do not count from the
    end. The gradient with respect to the logits is then zero.

    Args:
      logits: ``(*b, o)``.
      classes: Integers, ``(*b,)``.

    Returns:
      The cross-entropies, ``(*b,)``.

    Example:
      >>> loss = cross_entropy(jnp.zeros((3, 2)), jnp.array([1, 2, -1]))
      >>> [round(float(value), 3) for value in loss]
      [0.693, nan, nan]
    """
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, classes)
    return jnp.where(_is_class(classes, logits.shape[-1]), loss, jnp.nan)


def _is_class(classes, n_classes):
    return (classes >= 0) & (classes < n_classes)


def loss_sums(
    targets: Targets,
    predictions: Float[Array, "*b o"],
    expected: Float[Array, "*b o"] | Int[Array, "*b"],
    mask: Bool[Array, "*b"],
    class_weight: Literal["balanced"] | None = None,
    loss: Literal["squared", "absolute"] = "squared",
) -> Reductions:
    """Reduces the loss and the metrics over the targets in the mask.

    With balanced classes the loss is the mean over classes of the mean cross-entropy of
    their targets; in a batch, a target has the weight of 1 over the number of targets
    of its class, over all devices.

    Args:
      targets: ``"regression"``: error of values. ``"classification"``: cross-entropy
        in nats of the softmax of ``predictions``.
      predictions: Values or logits, ``(*b, o)``.
      expected: Values, ``(*b, o)``, or classes, ``(*b,)``. A class in the mask that is
        not in ``[0, o)`` makes the loss and the accuracy NaN.
      mask: True at targets that are part of the loss, ``(*b,)``.
      class_weight: ``"balanced"``: all classes contribute equally to the loss of a
        classification. None: all targets do.
      loss: The loss of a regression, the squared or the absolute error.

    Returns:
      Reductions by name, to be merged with those of other batches: ``loss``, a `Mean`
      over entries of the targets or a `ClassMean`, and ``accuracy``, or ``mae`` and
      ``r2``; of absolute errors also ``skill``; of two classes also ``auc``. With
      balanced classes also ``macro_f1`` and ``balanced_accuracy``. ``nan_targets`` is a
      `Mean`: the number of targets whose loss is NaN, and that of all.

    Raises:
      ValueError: The shapes do not fit, or a target that counts is no index of a class
        (where values are known outside of `jax.jit`).
    """
    # Broadcasting would turn (b, 1) - (b,) into (b, b) without an error.
    shape = (*mask.shape, predictions.shape[-1])
    fits = expected.shape == (shape if targets == "regression" else shape[:-1])
    if predictions.shape != shape or not fits:
        raise ValueError(
            f"`predictions` must fit the targets {expected.shape} and their mask "
            f"{mask.shape}, got {predictions.shape}; the head of the model sets it."
        )
    # A sum in bfloat16 has eight significant bits.
    predictions = predictions.astype(jnp.promote_types(predictions.dtype, jnp.float32))
    if targets == "classification":
        n_classes = predictions.shape[-1]
        if not any(isinstance(x, Tracer) for x in (expected, mask)):
            classes, counts = np.asarray(expected), np.asarray(mask)
            remedy = "`loss_mask` is false where there is no target"
            check_indices("expected", classes, n_classes, remedy, counts=counts)
        entropy = cross_entropy(predictions, expected)
        wrong = mask & ~_is_class(expected, n_classes)
        hits = (mask & (jnp.argmax(predictions, -1) == expected)).astype(jnp.float32)
        # Counts of a batch are exact in float32 up to 2^24; batches add in float64.
        n = jnp.sum(mask, dtype=jnp.float32)
        n_nan = jnp.sum(mask & jnp.isnan(entropy), dtype=jnp.float32)
        # `where` instead of a product with the mask: NaN * 0 is NaN.
        entropy = jnp.where(mask, entropy, 0)
        reductions: Reductions = {
            "accuracy": Mean(jnp.sum(jnp.where(wrong, jnp.nan, hits)), n),
            NAN_TARGETS: Mean(n_nan, n),
        }
        if predictions.shape[-1] == 2:
            reductions["auc"] = AUC.of(
                predictions[..., 1] - predictions[..., 0], expected, mask
            )
        if class_weight is None:
            return {"loss": Mean(jnp.sum(entropy), n), **reductions}
        counts = _confusion_counts(predictions, expected, mask)
        return {
            "loss": _class_mean(entropy, expected, mask, predictions.shape[-1]),
            **reductions,
            "macro_f1": MacroF1(counts),
            "balanced_accuracy": BalancedAccuracy(counts),
        }
    weight = jnp.broadcast_to(mask[..., None], expected.shape)
    # Zeroed once, so that NaN outside the mask reaches none of the sums.
    expected = jnp.where(weight, expected, 0)
    difference = jnp.where(weight, predictions - expected, 0)
    error = jnp.sum(jnp.square(difference))
    n = jnp.sum(weight, dtype=jnp.float32)
    mean = jnp.sum(expected) / jnp.maximum(n, 1)
    deviation = jnp.where(weight, expected - mean, 0)
    # The sum of many targets far from zero is rounded; that of deviations is not.
    rounding = jnp.sum(deviation) / jnp.maximum(n, 1)
    square = jnp.sum(jnp.square(deviation)) - n * jnp.square(rounding)
    is_nan = jnp.any(jnp.isnan(difference), -1)
    n_targets = jnp.sum(mask, dtype=jnp.float32)
    absolute = jnp.sum(jnp.abs(difference))
    reductions = {
        "loss": Mean(error if loss == "squared" else absolute, n),
        "mae": Mean(absolute, n),
        "r2": R2(error, n, mean + rounding, square),
        NAN_TARGETS: Mean(jnp.sum(is_nan, dtype=jnp.float32), n_targets),
    }
    if loss == "absolute":
        reductions["skill"] = Skill(absolute, jnp.sum(jnp.abs(expected)))
    return reductions


def _class_mean(loss, expected, mask, n_classes):
    """Sums losses, 0 outside of the mask, and targets by class."""
    steps = tuple(range(mask.ndim))
    is_class = jax.nn.one_hot(expected, n_classes, dtype=bool)
    # A target of no class, whose loss is NaN, counts in every class: in none it would
    # be left out without an error.
    is_class |= ~_is_class(expected, n_classes)[..., None]
    return ClassMean(
        jnp.sum(jnp.where(is_class, loss[..., None], 0), steps),
        jnp.sum(is_class & mask[..., None], steps, dtype=jnp.float32),
    )


def _confusion_counts(predictions, expected, mask):
    """Counts targets by class and predicted class, ``(k, k)``."""
    k = predictions.shape[-1]
    cell = k * expected + jnp.argmax(predictions, -1)
    # XLA fuses the comparisons into the sum; a scatter takes longer for few classes.
    is_cell = jax.nn.one_hot(cell, k**2, dtype=bool) & mask[..., None]
    # int32 is exact up to 2^31, float32 only up to 2^24.
    return jnp.sum(is_cell, tuple(range(mask.ndim)), dtype=jnp.int32).reshape(k, k)


def largest_number(states: PyTree) -> Float[Array, ""]:
    """Returns the maximum modulus of the entries of states."""
    return jnp.max(jnp.stack([jnp.max(jnp.abs(x)) for x in jax.tree.leaves(states)]))


def largest_modulus(model: nn.Module, params: PyTree) -> Float[Array, ""] | None:
    """Returns the maximum modulus of the eigenvalues of a model.

    Args:
      model: The model.
      params: Parameters of the model.

    Returns:
      The maximum over the time-invariant recurrences of its layers, ``()``; None if it
      has none.
    """
    # `log_abs` is accurate near |lam| = 1; `exp` is monotonic, so it comes last.
    logs = [
        recurrence.modes(layer_params).log_decay.log_abs
        for recurrence, layer_params in layer_recurrences(model, params)
        if isinstance(recurrence, TimeInvariant)
    ]
    if not logs:
        return None
    return jnp.exp(jnp.max(jnp.stack([jnp.max(log) for log in logs])))


def mean_square(states: PyTree) -> Float[Array, ""]:
    """Returns the mean squared modulus of the entries of states.

    Raises:
      ValueError: There are no states.
    """
    leaves = jax.tree.leaves(states)
    if not leaves:
        raise ValueError(
            "`state_penalty` must be 0 for a model without states, got another; "
            "unidirectional recurrences have some."
        )
    # Without `abs`, which takes a root that would be squared again.
    squares = [
        jnp.sum(jnp.square(jnp.real(x)) + jnp.square(jnp.imag(x))) for x in leaves
    ]
    return jnp.sum(jnp.stack(squares)) / sum(leaf.size for leaf in leaves)


def metrics(
    found: Mapping[str, Reduction], *, language: bool = False
) -> dict[str, float]:
    """Computes metrics from the reductions of all batches.

    Args:
      found: Reductions of `loss_sums`, merged over batches, and those of sown metrics.
      language: Whether the classes are the tokens of a text.

    Returns:
      Metrics by name. ``loss``: the mean loss. ``accuracy``, in [0, 1], for a
      classification, with ``auc`` if there are two classes, and ``macro_f1`` and
      ``balanced_accuracy`` if its classes are balanced; of equal logits the first class
      is predicted. For a regression ``mae``, the
      mean absolute error; ``r2``, 1 minus the ratio of the mean squared error to the
      variance of the targets, or to 1e-5 if that is larger; and ``r2_batch``, the mean
      of ``r2`` over batches, as the paper on DLR reports it, which depends on the batch
      size. For one of absolute errors also ``skill``, 1 minus the ratio of ``mae`` to
      that of zero predictions, and ``skill_low``, which is less by two standard errors
      over batches, so that a skill that the next data may not show does not count.
      ``perplexity``, the exponential of the loss, and ``bits_per_token`` for language.
      Of training steps ``gradient_norm``, before clipping, and ``largest_state`` if
      states are carried between batches; and the metrics that layers sow.

      A metric is NaN where it is not defined: ``auc`` without targets of both classes,
      and each of `PREDICTED` if the loss of a target is NaN. ``perplexity`` is infinite
      beyond 1.8e308. A work dir records both as null.

    Example:
      >>> metrics({"loss": Mean(3.0, 4.0), "accuracy": Mean(1.0, 4.0)})
      {'loss': 0.75, 'accuracy': 0.25}
      >>> found = metrics({"loss": Mean(4 * math.log(8), 4.0)}, language=True)
      >>> {name: round(value, 6) for name, value in found.items()}
      {'loss': 2.079442, 'perplexity': 8.0, 'bits_per_token': 3.0}
    """
    # A jitted step returns names in alphabetical order; in the log, loss comes first.
    names = ["loss", *sorted(found.keys() - {"loss", NAN_TARGETS})]
    computed = {name: found[name].compute() for name in names}
    if NAN_TARGETS in found and found[NAN_TARGETS].compute():
        computed |= dict.fromkeys(computed.keys() & {*PREDICTED}, math.nan)
    if language:
        computed["perplexity"] = perplexity(computed["loss"])
        computed["bits_per_token"] = computed["loss"] / math.log(2)
    return computed


def perplexity(loss: float) -> float:
    """Returns ``exp(loss)``; infinite if that overflows.

    Args:
      loss: A mean loss in nats per token.
    """
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


MAIN_METRICS = ("macro_f1", "accuracy", "skill_low", "r2")
"""The `main_metric` of a run is the first of these that its log has."""


def main_metric(spec: TaskSpec) -> str:
    """Returns the name of the metric that ranks checkpoints; larger is better.

    Args:
      spec: Spec of the task.

    Returns:
      ``"r2"``, or ``"skill_low"`` for absolute errors; ``"accuracy"``, or
      ``"macro_f1"`` for balanced classes.
    """
    if spec.targets == "regression":
        return "r2" if spec.loss == "squared" else "skill_low"
    return "accuracy" if spec.class_weight is None else "macro_f1"
