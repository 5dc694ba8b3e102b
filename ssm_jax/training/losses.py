"""Losses and metrics as sums, which add up over devices and batches.

A mean over the whole data is the ratio of two sums, whatever the sizes of batches and
the number of devices; a mean of means is not.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from ssm_jax.layers.recurrent import recurrences_of
from ssm_jax.metrics import is_reduction
from ssm_jax.recurrences import Recurrence, TimeInvariant
from ssm_jax.types import Array, Bool, Float, Int, PyTree

Targets = Literal["regression", "classification"]
Sums = dict[str, Any]
"""By name: a number, which is a sum, or a `Mean` or `Max`."""


def loss_sums(
    targets: Targets,
    predictions: Float[Array, "*b o"],
    expected: Float[Array, "*b o"] | Int[Array, "*b"],
    mask: Bool[Array, "*b"],
) -> Sums:
    """Sums the loss, and what the metrics need, over the targets that count.

    Args:
      targets: ``"regression"``: squared error. ``"classification"``: cross-entropy in
        nats of the softmax of ``predictions``.
      predictions: Values or logits, ``(*b, o)``.
      expected: Values, ``(*b, o)``, or classes, ``(*b,)``.
      mask: True where a target counts, ``(*b,)``.

    Returns:
      Sums by name, to be added to those of other batches: ``loss`` and ``n``, the
      number of terms in it, and further ones that `metrics` reads.

    Raises:
      ValueError: The shapes do not fit, which broadcasting would hide.
    """
    wanted = (*mask.shape, predictions.shape[-1])
    fits = expected.shape == (wanted if targets == "regression" else wanted[:-1])
    if predictions.shape != wanted or not fits:
        raise ValueError(
            f"`predictions` must fit the targets {expected.shape} and their mask "
            f"{mask.shape}, got {predictions.shape}; the head of the model sets it."
        )
    if targets == "classification":
        loss = optax.softmax_cross_entropy_with_integer_labels(predictions, expected)
        hit = jnp.argmax(predictions, -1) == expected
        return {
            "loss": jnp.sum(jnp.where(mask, loss, 0)),
            "n": jnp.sum(mask, dtype=jnp.float32),
            "correct": jnp.sum(mask & hit, dtype=jnp.float32),
        }
    weight = jnp.broadcast_to(mask[..., None], expected.shape)
    expected = jnp.where(weight, expected, 0)
    return {
        "loss": jnp.sum(jnp.where(weight, jnp.square(predictions - expected), 0)),
        "n": jnp.sum(weight, dtype=jnp.float32),
        "sum": jnp.sum(expected),
        "square": jnp.sum(jnp.square(expected)),
    }


def largest_number(states: PyTree) -> Float[Array, ""]:
    """The largest modulus among the numbers of some states."""
    return jnp.max(jnp.stack([jnp.max(jnp.abs(x)) for x in jax.tree.leaves(states)]))


def largest_modulus(
    recurrence: Recurrence | None, params: PyTree
) -> Float[Array, ""] | None:
    """The largest modulus of an eigenvalue of a model.

    Args:
      recurrence: That of its layers.
      params: The model's parameters.

    Returns:
      A number; None where the recurrence changes in time.
    """
    if not isinstance(recurrence, TimeInvariant):
        return None
    logs = [recurrence.modes(of).log_decay.log_abs for of in recurrences_of(params)]
    return jnp.exp(jnp.max(jnp.stack([jnp.max(log) for log in logs])))


def mean_square(states: PyTree) -> Float[Array, ""]:
    """The mean squared modulus of the numbers of some states.

    Raises:
      ValueError: There are no states.
    """
    leaves = jax.tree.leaves(states)
    if not leaves:
        raise ValueError(
            "`state_penalty` must be 0 for a model without states, got another; "
            "recurrences in one direction have some."
        )
    squares = [
        jnp.sum(jnp.square(jnp.real(x)) + jnp.square(jnp.imag(x))) for x in leaves
    ]
    return jnp.sum(jnp.stack(squares)) / sum(leaf.size for leaf in leaves)


def metrics(sums: Mapping[str, Any], *, language: bool = False) -> dict[str, float]:
    """The metrics that sums over some data come to.

    Args:
      sums: What `loss_sums` returned, added up.
      language: Whether the classes are the tokens of a text.

    Returns:
      ``loss``, the mean; and ``accuracy`` in [0, 1] of a classification, ``r2`` of a
      regression: 1 minus the mean squared error over that of the best constant, taken
      as at least 1e-5. Each `Mean` and `Max` under its name: of steps of training the
      ``gradient_norm`` (before it is clipped), where states go on into the next batch
      ``largest_state``, and what layers sowed. Of language also ``perplexity``, the
      exponential of the loss, and ``bits_per_token``.

    Example:
      >>> metrics({"loss": 3.0, "n": 4.0, "correct": 1.0})
      {'loss': 0.75, 'accuracy': 0.25}
      >>> sums = {"loss": 4 * math.log(8), "n": 4.0, "correct": 1.0}
      >>> {name: round(x, 6) for name, x in metrics(sums, language=True).items()}
      {'loss': 2.079442, 'accuracy': 0.25, 'perplexity': 8.0, 'bits_per_token': 3.0}
    """
    seen = {name: v.compute() for name, v in sums.items() if is_reduction(v)}
    total = {name: float(v) for name, v in sums.items() if not is_reduction(v)}
    n = max(total["n"], 1.0)
    loss = total["loss"] / n
    if language:
        # A float64 has no room for e^710; such a loss says enough by itself.
        seen["perplexity"] = math.exp(min(loss, 700.0))
        seen["bits_per_token"] = loss / math.log(2)
    if "correct" in total:
        return {"loss": loss, "accuracy": total["correct"] / n} | seen
    variance = total["square"] / n - (total["sum"] / n) ** 2
    return {"loss": loss, "r2": 1.0 - loss / max(variance, 1e-5)} | seen


def main_metric(targets: Targets) -> str:
    """The metric that says how good a model is; the greater the better.

    Args:
      targets: What the model predicts.

    Returns:
      ``"r2"`` or ``"accuracy"``.
    """
    return "r2" if targets == "regression" else "accuracy"
