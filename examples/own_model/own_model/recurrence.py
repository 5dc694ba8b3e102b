"""The minimal GRU: a gated recurrence whose gates see the input only."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ssm_jax.fields import PositiveInt, check_fields
from ssm_jax.recurrences import ChunkedForm, InputDependent

Params = Mapping[str, jax.Array]


@dataclass(frozen=True, kw_only=True)
class MinGRU(InputDependent):
    r"""A minimal gated recurrent unit, evaluated in parallel over the length.

    .. math::
      h_t = (1 - z_t) h_{t-1} + z_t (W x_t + b), \qquad z_t = \sigma(V x_t + c)

    Its decays depend on the input. `InputDependent` evaluates such recurrences by all
    methods of `ssm_jax.kernels.linear_recurrence`, with states, resets and masks; a
    subclass only says what decays, inputs and outputs are.

    Attributes:
      d_state: Number of states, and of outputs.

    Parameters, float32, for inputs of width ``d``:
      candidate_kernel, gate_kernel: ``(d, d_state)``, ``W`` and ``V``, Glorot uniform.
      candidate_bias, gate_bias: ``(d_state,)``, ``b`` and ``c``, zero.

    References:
      Feng, Tung, Ahmed, Bengio and Hajimirsadeghi, `Were RNNs All We Needed?
      <https://arxiv.org/abs/2410.01201>`_, 2024, section 3.1
    """

    d_state: PositiveInt = 16

    def __post_init__(self):
        check_fields(self)

    def init(self, key: jax.Array, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        draw = jax.nn.initializers.glorot_uniform()
        shape = d_in, self.d_state
        candidate, gate = jax.random.split(key)
        return {
            "candidate_kernel": draw(candidate, shape),
            "candidate_bias": jnp.zeros(self.d_state),
            "gate_kernel": draw(gate, shape),
            "gate_bias": jnp.zeros(self.d_state),
        }

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> jax.Array:
        """Returns zeros, ``(*b, d_state)``."""
        del d_in
        return jnp.zeros((*batch_shape, self.d_state))

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        return len(params["gate_kernel"])

    def d_out(self, d_in: int) -> int:
        """Returns the number of outputs."""
        del d_in
        return self.d_state

    def chunked_form(self, params: Params, x: jax.Array) -> ChunkedForm:
        """Returns decays and inputs of the recurrence; its states are the outputs."""

        def decay_and_input(inputs):
            candidate, gate = inputs
            z = jax.nn.sigmoid(gate)
            # 1 - z without cancellation.
            return jax.nn.sigmoid(-gate), z * candidate

        projections = tuple(
            x @ params[f"{name}_kernel"] + params[f"{name}_bias"]
            for name in ("candidate", "gate")
        )
        return ChunkedForm(decay_and_input, lambda inputs, h: h, projections)
