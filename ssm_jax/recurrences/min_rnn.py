"""Minimal GRU and LSTM: gates of the input alone, so that the state enters linearly."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from ssm_jax.fields import check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.kernels.precision import affine_f32, sigmoid
from ssm_jax.recurrences.families.base import Params
from ssm_jax.recurrences.families.input_dependent import InputDependent
from ssm_jax.types import Activations, Array, Float, PRNGKey

Activation = Literal["positive", "identity"]


_ACTIVATIONS = {
    "positive": lambda x: jnp.where(x >= 0, x + 0.5, sigmoid(x)),
    "identity": lambda x: x,
}


@dataclass(frozen=True, kw_only=True)
class _Minimal(InputDependent):
    """Base class: ``h_t = a_t h_{t-1} + b_t`` with both affine in the input.

    Attributes:
      d_state: Size of the state and of the output, ``n``. None: the width of the input.
      activation: ``g``.
    """

    d_state: int | None = None
    activation: Activation = "positive"
    n_gates = 1

    def __post_init__(self):
        check_fields(self)
        if self.d_state is not None and self.d_state < 1:
            raise ValueError(
                f"`d_state` must be positive, got {self.d_state}; None is the width of "
                "the input."
            )

    def d_out(self, d_in: int) -> int:
        """Returns the size of the state."""
        return self.d_state or d_in

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        return len(params["kernel"])

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        n = (self.n_gates + 1) * self.d_out(d_in)
        # The default of `torch.nn.Linear`, which the authors' code has here.
        bound = d_in**-0.5
        key_kernel, key_bias = jax.random.split(key)
        uniform = jax.random.uniform
        return {
            "kernel": uniform(key_kernel, (d_in, n), minval=-bound, maxval=bound),
            "bias": uniform(key_bias, (n,), minval=-bound, maxval=bound),
        }

    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Float[jax.Array, "*b n"]:
        """Returns zeros, batch axes first."""
        return jnp.zeros((*batch_shape, self.d_out(d_in)))

    @abc.abstractmethod
    def _gate(self, gates: Sequence[Array]) -> Array:
        """Returns the logit of the decay."""

    def chunked_form(self, params: Params, x: Activations) -> ChunkedForm:
        """Returns a gate as decay, and what it lets in of the candidate."""
        g = _ACTIVATIONS[self.activation]

        def form(inputs):
            *gates, candidate = jnp.split(inputs, self.n_gates + 1, -1)
            gate = self._gate(gates)
            # 1 - sigmoid(gate) would be 0 where the decay rounds to 1.
            return sigmoid(gate), sigmoid(-gate) * g(candidate)

        # The product of all steps at once, as it is small beside the states.
        inputs = affine_f32(x, params["kernel"], params["bias"])
        return ChunkedForm(form, lambda _, h: h, inputs)


@dataclass(frozen=True, kw_only=True)
class MinGRU(_Minimal):
    r"""A GRU without a reset gate, whose update gate depends on the input alone.

    .. math::
      z_t = \sigma(W_z x_t + b_z), \qquad
      h_t = (1 - z_t) h_{t-1} + z_t \, g(W_h x_t + b_h)

    The output is the state, ``(*b, n)``.

    Attributes:
      d_state: Size of the state and of the output, ``n``. None: the width of the input.
      activation: ``g``: ``"positive"``, ``x + 1/2`` for ``x >= 0`` and the sigmoid of
        ``x`` below, keeps states positive; ``"identity"`` is that of the paper's
        section 3.

    Parameters, float32, for inputs of width ``d``, uniform in ``+-1 / sqrt(d)``:
      kernel: ``(d, 2 n)``, ``W_z`` and ``W_h``.
      bias: ``(2 n,)``, ``b_z`` and ``b_h``.

    Raises:
      ValueError: ``d_state`` is not positive.

    Example:
      >>> unit = MinGRU(d_state=3)
      >>> params = unit.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(unit.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 3), (3,))

    Note:
      The authors' code with ``"positive"`` applies ``g`` to a state that it is given,
      too; here a state is what an earlier call returned, and stays as it is.

    References:
      Feng, Tung, Ahmed, Bengio and Hajimirsadeghi, `Were RNNs All We Needed?
      <https://arxiv.org/abs/2410.01201>`_, 2024, section 3.1 and appendix B
    """

    def _gate(self, gates):
        (z,) = gates
        return -z


@dataclass(frozen=True, kw_only=True)
class MinLSTM(_Minimal):
    r"""An LSTM with gates of the input alone, which are divided by their sum.

    .. math::
      f_t = \sigma(W_f x_t + b_f), \quad i_t = \sigma(W_i x_t + b_i), \qquad
      h_t = \frac{f_t}{f_t + i_t} h_{t-1}
        + \frac{i_t}{f_t + i_t} \, g(W_h x_t + b_h)

    The output is the state, ``(*b, n)``.

    Attributes:
      d_state: Size of the state and of the output, ``n``. None: the width of the input.
      activation: ``g``, as in `MinGRU`.

    Parameters, float32, for inputs of width ``d``, uniform in ``+-1 / sqrt(d)``:
      kernel: ``(d, 3 n)``, ``W_f``, ``W_i`` and ``W_h``.
      bias: ``(3 n,)``, ``b_f``, ``b_i`` and ``b_h``.

    Raises:
      ValueError: ``d_state`` is not positive.

    Example:
      >>> unit = MinLSTM(d_state=3)
      >>> params = unit.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(unit.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 3), (3,))

    References:
      Feng, Tung, Ahmed, Bengio and Hajimirsadeghi, `Were RNNs All We Needed?
      <https://arxiv.org/abs/2410.01201>`_, 2024, section 3.2 and appendix B
    """

    n_gates = 2

    def _gate(self, gates):
        f, i = gates
        # The logit of f / (f + i) is log f - log i, also where both underflow.
        return jax.nn.softplus(-i) - jax.nn.softplus(-f)
