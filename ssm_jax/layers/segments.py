"""Layers that mix steps, evaluated without padding and segment by segment."""

from collections.abc import Callable

import jax.numpy as jnp

from ssm_jax.recurrences.families.nonfinite import isolate_segments
from ssm_jax.sharding.axis import length_axis
from ssm_jax.types import Activations, Outputs, PyTree, Steps


def mix_segments(
    mix: Callable[[Activations, PyTree], tuple[Outputs, PyTree]],
    x: Activations,
    state: PyTree,
    reset: Steps | None,
    mask: Steps | None,
) -> tuple[Outputs, PyTree]:
    """Evaluates a layer on inputs that are zero at padding.

    Args:
      mix: Maps ``x`` and a state to outputs and the final state, with ``reset`` and
        ``mask``.
      x: Input of the layer, ``(*b, l, d)``.
      state: State before the first step, or None.
      reset: True where a segment starts, ``(*b, l)``, or None.
      mask: True at valid steps, ``(*b, l)``, or None.

    Returns:
      ``(y, state)``: outputs in the dtype of ``x``, and the final state. What is not
      finite stays in its segment.
    """
    if mask is not None:
        # NaN at padding would reach the gradients of linear maps of the inputs.
        x = jnp.where(jnp.asarray(mask)[..., None], x, 0)

    def run(x, state):
        y, state = mix(x, state)
        return y.astype(jnp.result_type(x)), state

    return isolate_segments(run, x, state, reset, mask, axis_name=length_axis())
