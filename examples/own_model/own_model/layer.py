"""A layer around any recurrence, with a gate from its input."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.layers import Recurrent
from ssm_jax.recurrences import Recurrence


class GatedOutput(nn.Module):
    """Multiplies the outputs of a recurrence by a gate, and maps them to the width.

    Attributes:
      recurrence: The recurrence.
    """

    recurrence: Recurrence

    def initial_state(self, batch_shape: tuple[int, ...], d_model: int) -> Any:
        """The state before the first step of inputs of width ``d_model``."""
        return self.recurrence.initial_state(batch_shape, d_model)

    @nn.compact
    def __call__(self, x, state=None, *, reset=None, mask=None, train=False):
        """Maps ``x`` ``(*b, l, d)`` to ``(y, state)``; ``y`` has the shape of ``x``."""
        del train  # There is no dropout in this layer.
        if mask is not None:
            # Whatever padded steps hold, also NaN, must not reach the gradients.
            x = jnp.where(jnp.asarray(mask)[..., None], x, 0)
        recurrent = Recurrent(self.recurrence, name="recurrent")
        y, state = recurrent(x, state, reset=reset, mask=mask)
        gate = nn.Dense(y.shape[-1], name="gate")(x)
        return nn.Dense(x.shape[-1], name="out")(jax.nn.silu(gate) * y), state
