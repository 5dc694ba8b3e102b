"""HGRU: a recurrence whose forget gates see the input only and have a lower bound."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ssm_jax.fields import Fraction, PositiveInt, check_fields
from ssm_jax.recurrences import ChunkedForm, InputDependent

Params = Mapping[str, jax.Array]


@dataclass(frozen=True, kw_only=True)
class HGRU(InputDependent):
    r"""The unit of HGRN, with real states and a fixed bound, parallel over the length.

    .. math::
      h_t = f_t h_{t-1} + (1 - f_t) \operatorname{SiLU}(W x_t + b), \qquad
      f_t = \gamma + (1 - \gamma) \sigma(V x_t + c)

    Its decays depend on the input. `InputDependent` evaluates such recurrences by all
    methods of `ssm_jax.kernels.linear_recurrence`, with states, resets and masks; a
    subclass only says what decays, inputs and outputs are.

    Attributes:
      d_state: Number of states, and of outputs.
      lower_bound: ``gamma``; layers with a larger one remember longer.

    Parameters, float32, for inputs of width ``d``:
      candidate_kernel, forget_kernel: ``(d, d_state)``, ``W`` and ``V``, Glorot
        uniform.
      candidate_bias, forget_bias: ``(d_state,)``, ``b`` and ``c``, zero.

    References:
      Qin, Yang and Zhong, `Hierarchically Gated Recurrent Neural Network for Sequence
      Modeling <https://arxiv.org/abs/2311.04823>`_, 2023, section 3.2
    """

    d_state: PositiveInt = 16
    lower_bound: Fraction = 0.0

    def __post_init__(self):
        check_fields(self)

    def init(self, key: jax.Array, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        draw = jax.nn.initializers.glorot_uniform()
        shape = d_in, self.d_state
        candidate, forget = jax.random.split(key)
        return {
            "candidate_kernel": draw(candidate, shape),
            "candidate_bias": jnp.zeros(self.d_state),
            "forget_kernel": draw(forget, shape),
            "forget_bias": jnp.zeros(self.d_state),
        }

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> jax.Array:
        """Returns zeros, ``(*b, d_state)``."""
        del d_in
        return jnp.zeros((*batch_shape, self.d_state))

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        return len(params["forget_kernel"])

    def d_out(self, d_in: int) -> int:
        """Returns the number of outputs."""
        del d_in
        return self.d_state

    def chunked_form(self, params: Params, x: jax.Array) -> ChunkedForm:
        """Returns decays and inputs of the recurrence; its states are the outputs."""

        def decay_and_input(inputs):
            candidate, forget = inputs
            # 1 - f without cancellation.
            entering = (1 - self.lower_bound) * jax.nn.sigmoid(-forget)
            decay = self.lower_bound + (1 - self.lower_bound) * jax.nn.sigmoid(forget)
            return decay, entering * jax.nn.silu(candidate)

        projections = tuple(
            x @ params[f"{name}_kernel"] + params[f"{name}_bias"]
            for name in ("candidate", "forget")
        )
        return ChunkedForm(decay_and_input, lambda inputs, h: h, projections)
