"""Models of segments, one of which is not finite."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.kernels.arguments import is_array
from ssm_jax.models.heads import LastHead
from ssm_jax.recurrences.families.nonfinite import FiniteInputs, finite_inputs
from ssm_jax.sharding.axis import last_output, length_axis, sum_over_pieces
from ssm_jax.types import Activations, Array, Inexact, PyTree, Steps


def encoded_inputs(
    encode: Callable[[Array], Activations],
    inputs: Array,
    state: PyTree,
    reset: Steps | None,
    mask: Steps | None,
) -> FiniteInputs:
    """Encodes inputs, with zeros in place of values that are not finite.

    Args:
      encode: Maps inputs to ``(*b, l, d)``.
      inputs: Features, ``(*b, l, f)``, or tokens, ``(*b, l)``.
      state: States of all layers, leaves ``(*b, ...)``.
      reset: True where a segment starts. None: nothing is replaced.
      mask: True at valid steps.

    Returns:
      As `finite_inputs`; ``x`` is what is encoded.
    """
    if reset is None:
        return FiniteInputs(encode(inputs), state)
    axis_name = length_axis()
    floating = is_array(inputs) and jnp.issubdtype(inputs.dtype, jnp.floating)
    if floating and reset.shape in (inputs.shape[:-1], inputs.shape[-2:-1]):
        # Before the encoder, whose gradient would have them times 0.
        found = finite_inputs(inputs, state, reset, mask, axis_name=axis_name)
        return found._replace(x=encode(found.x))
    return finite_inputs(encode(inputs), state, reset, mask, axis_name=axis_name)


def nan_predictions(
    found: FiniteInputs,
    predictions: Inexact[Array, "..."],
    state: PyTree,
    mask: Steps | None,
    *,
    head: nn.Module | None,
    bidirectional: bool | None = None,
) -> tuple[Inexact[Array, "..."], PyTree]:
    """Returns predictions and final states, NaN where they depend on such values.

    Args:
      found: The result of `encoded_inputs`.
      predictions: At all or the last steps, ``(*b, k, o)``, or of rows, ``(*b, o)``.
      state: Final states of all layers.
      mask: True at valid steps.
      head: The head that made the predictions. Those of a row by a `LastHead` depend on
        the last valid step, by any other on all valid steps.
      bidirectional: As for `FiniteInputs.nan_outputs`.
    """
    n_axes = predictions.ndim - 1

    def select(steps):
        if n_axes == steps.ndim - 1:
            return steps[..., -predictions.shape[-2] :, :]
        if isinstance(head, LastHead):
            return last_output(steps, mask)[..., 0, :]
        # Of pairs of sequences, too: all axes that the predictions do not have.
        return sum_over_pieces(jnp.sum(steps, tuple(range(n_axes, steps.ndim - 1))))

    return found.nan_outputs(
        predictions, state, bidirectional=bidirectional, select=select
    )
