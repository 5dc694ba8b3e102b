"""Models of segments, one of which is not finite."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.kernels.arguments import is_array
from ssm_jax.models.heads import LastHead
from ssm_jax.recurrences.families.nonfinite import isolate_segments
from ssm_jax.sharding.axis import last_output, length_axis, sum_over_pieces
from ssm_jax.types import Activations, Array, Inexact, PyTree, Steps


def predict_segments(
    encode: Callable[[Array], Activations],
    predict: Callable[[Activations, PyTree], tuple[Inexact[Array, "..."], PyTree]],
    inputs: Array,
    state: PyTree,
    reset: Steps | None,
    mask: Steps | None,
    *,
    head: nn.Module | None,
    bidirectional: bool | None = None,
) -> tuple[Any, ...]:
    """Predicts so that a segment that is not finite leaves the others as they are.

    Args:
      encode: Maps inputs to ``(*b, l, d)``.
      predict: Maps what is encoded and the states of all layers to predictions, at all
        or the last steps, ``(*b, k, o)``, or of rows, ``(*b, o)``, and final states.
      inputs: Features, ``(*b, l, f)``, or tokens, ``(*b, l)``.
      state: States of all layers, leaves ``(*b, ...)``.
      reset: True where a segment starts. None: one segment, left as it is.
      mask: True at valid steps.
      head: The head that makes the predictions. Those of a row by a `LastHead` depend
        on the last valid step, by any other on all valid steps.
      bidirectional: As for `isolate_segments`.

    Returns:
      The results of ``predict``.
    """

    def select(steps, predictions):
        n_axes = predictions.ndim - 1
        if n_axes == steps.ndim - 1:
            return steps[..., -predictions.shape[-2] :, :]
        if isinstance(head, LastHead):
            return last_output(steps, mask)[..., 0, :]
        # Of pairs of sequences, too: all axes that the predictions do not have.
        return sum_over_pieces(jnp.sum(steps, tuple(range(n_axes, steps.ndim - 1))))

    options = {
        "axis_name": length_axis(),
        "bidirectional": bidirectional,
        "select": select,
    }

    def of_features(inputs, state):
        return predict(encode(inputs), state)

    floating = is_array(inputs) and jnp.issubdtype(inputs.dtype, jnp.floating)
    shapes = (inputs.shape[:-1], inputs.shape[-2:-1]) if floating else ()
    if reset is not None and reset.shape in shapes:
        # Before the encoder, whose gradient would have what is not finite times 0.
        return isolate_segments(of_features, inputs, state, reset, mask, **options)
    return isolate_segments(predict, encode(inputs), state, reset, mask, **options)
