"""Recurrent networks with dense recurrent weights: RNN, GRU and LSTM."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from ssm_jax.fields import check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.precision import affine_f32, matmul_f32, sigmoid
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.recurrences.families.base import Params
from ssm_jax.recurrences.families.nonlinear import Nonlinear
from ssm_jax.types import Array, Float, PRNGKey


@dataclass(frozen=True, kw_only=True)
class _Gated(Nonlinear):
    """Base class: gates that are affine in input and state.

    Attributes:
      d_state: Size of the output, ``n``.
    """

    d_state: int = 200
    n_gates = 1

    def __post_init__(self):
        check_fields(self)
        if self.d_state < 1:
            raise ValueError(
                f"`d_state` must be positive, got {self.d_state}; the published size "
                "is 200."
            )

    @property
    def d_hidden(self) -> int:
        """Size of the state."""
        return self.d_state

    def d_out(self, d_in: int) -> int:
        """Returns ``d_state``, for every ``d_in``."""
        del d_in
        return self.d_state

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        return len(params["input_kernel"])

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        n = self.d_state
        shape = (d_in + n, self.n_gates * n)
        # One matrix for input and state, as in TensorFlow's cells: the fan-in is d + n.
        kernel = jax.nn.initializers.glorot_uniform()(key, shape, jnp.float32)
        return {
            "input_kernel": kernel[:d_in],
            "recurrent_kernel": kernel[d_in:],
            "bias": jnp.zeros(self.n_gates * n),
        }

    def input_projection(self, params, x):
        """Returns the input part of each gate."""
        # One product for all steps; only that with the state is sequential. Each gate
        # is an array: on CPUs a step that slices gates out of one is not vectorized.
        gates = affine_f32(x, params["input_kernel"], params["bias"])
        return jnp.split(gates, self.n_gates, -1)

    @abc.abstractmethod
    def _step(self, params, h, gates) -> tuple[Array, Array]:
        """Returns the next state and the diagonal of its Jacobian."""

    def _state_gates(self, params, h) -> Sequence[Float[Array, "*b n"]]:
        """Returns the state part of each gate."""
        gates = matmul_f32(h, params["recurrent_kernel"])
        return jnp.split(gates, self.n_gates, -1)

    def nonlinear_term(self, params, h, u):
        """Returns the next state."""
        return self._step(params, h, u)[0]

    def diagonal(self, params, h, u):
        """Returns the diagonal of the Jacobian."""
        return self._step(params, h, u)[1]

    def _own_weights(self, params, gate, h) -> Float[Array, "... n"]:
        """Returns the weight of each entry of ``h`` in its own gate."""
        n = self.d_state
        kernel = params["recurrent_kernel"][:, gate * n : (gate + 1) * n]
        return promoted_like(jnp.diagonal(kernel), h)


# Each with its derivative as a function of its value.
_ACTIVATIONS = {
    "tanh": (jnp.tanh, lambda h: 1 - jnp.square(h)),
    "sigmoid": (jax.nn.sigmoid, lambda h: h * (1 - h)),
    "identity": (lambda x: x, jnp.ones_like),
}


@dataclass(frozen=True, kw_only=True)
class RNN(_Gated):
    r"""Elman's network, ``h_t = phi(W x_t + U h_{t-1} + b)``.

    Attributes:
      d_state: Size of the state, ``n``.
      activation: ``phi``. ``"sigmoid"`` is that of the FRU's authors on IMDB;
        ``"identity"`` is the linear network, whose gradients can be bounded.

    Parameters, float32, for inputs of width ``d``; matrices are initialized as one,
    Glorot uniform, biases to zero:
      input_kernel: ``(d, n)``, ``W``.
      recurrent_kernel: ``(n, n)``, ``U``.
      bias: ``(n,)``.

    Raises:
      ValueError: ``d_state`` is not positive, or ``activation`` is unknown.

    Example:
      >>> rnn = RNN(d_state=4)
      >>> params = rnn.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(rnn.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 4), (4,))

    References:
      Elman, `Finding Structure in Time <https://doi.org/10.1207/s15516709cog1402_1>`_,
      1990
    """

    activation: Literal["tanh", "sigmoid", "identity"] = "tanh"

    def __post_init__(self):
        super().__post_init__()
        if self.activation not in _ACTIVATIONS:
            raise ValueError(
                f"`activation` must be one of {', '.join(_ACTIVATIONS)}, got "
                f"{self.activation!r}; Elman's network has tanh."
            )

    def _step(self, params, h, gates):
        phi, derivative = _ACTIVATIONS[self.activation]
        # The derivatives are functions of the value, so that phi is evaluated once.
        (of_x,), (of_h,) = gates, self._state_gates(params, h)
        h = phi(of_x + of_h)
        return h, derivative(h) * self._own_weights(params, 0, h)


@dataclass(frozen=True, kw_only=True)
class GRU(_Gated):
    r"""Gated recurrent unit.

    .. math::
      r, z = \sigma(W x_t + U h_{t-1} + b), \quad
      c = \tanh(W_c x_t + b_c + r (U_c h_{t-1} + b_u)), \quad
      h_t = (1 - z) c + z h_{t-1}

    Attributes:
      d_state: Size of the state, ``n``.

    Parameters, float32, for inputs of width ``d``; matrices are initialized as one,
    Glorot uniform, biases to zero:
      input_kernel: ``(d, 3 n)``, ``W`` of ``r``, ``z`` and ``c``.
      recurrent_kernel: ``(n, 3 n)``, ``U`` likewise.
      bias: ``(3 n,)``, ``b`` and ``b_c``.
      recurrent_bias: ``(n,)``, ``b_u``.

    Raises:
      ValueError: ``d_state`` is not positive.

    Example:
      >>> gru = GRU(d_state=4)
      >>> params = gru.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(gru.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 4), (4,))

    References:
      Cho et al., `Learning Phrase Representations using RNN Encoder-Decoder
      <https://arxiv.org/abs/1406.1078>`_, 2014, section 2.3; with the reset gate
      after the product, as in cuDNN and Flax
    """

    n_gates = 3

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        return dict(super().init(key, d_in)) | {
            "recurrent_bias": jnp.zeros(self.d_state)
        }

    def _step(self, params, h, gates):
        r, z, c = gates
        of_r, of_z, of_c = self._state_gates(params, h)
        # Separate from the input bias: `r` multiplies it, as in cuDNN.
        of_c = of_c + promoted_like(params["recurrent_bias"], of_c)
        r, gate = sigmoid(r + of_r), z + of_z
        # `1 - z` would lose its digits near z = 1.
        z, one_minus_z = sigmoid(gate), sigmoid(-gate)
        c = jnp.tanh(c + r * of_c)
        # Diagonal of d h_t / d h_{t-1}: through h, the gate, and c (with r).
        own_r, own_z, own_c = (self._own_weights(params, gate, h) for gate in range(3))
        jacobian_c = (1 - c * c) * (r * own_c + r * (1 - r) * own_r * of_c)
        jacobian_diagonal = (
            z + (h - c) * z * one_minus_z * own_z + one_minus_z * jacobian_c
        )
        return one_minus_z * c + z * h, jacobian_diagonal


@dataclass(frozen=True, kw_only=True)
class LSTM(_Gated):
    r"""Long short-term memory.

    .. math::
      i, f, o = \sigma(W x_t + U h_{t-1} + b), \quad
      c_t = f c_{t-1} + i \tanh(W_g x_t + U_g h_{t-1} + b_g), \quad
      h_t = o \tanh(c_t)

    The state is ``(*b, 2 n)``: ``c``, then ``h``.

    Attributes:
      d_state: Size of ``h``, ``n``.
      forget_bias: Added to ``b`` of ``f``.

    Parameters, float32, for inputs of width ``d``; matrices are initialized as one,
    Glorot uniform, biases to zero:
      input_kernel: ``(d, 4 n)``, ``W`` of ``i``, ``f``, ``g`` and ``o``.
      recurrent_kernel: ``(n, 4 n)``, ``U`` likewise.
      bias: ``(4 n,)``.

    Raises:
      ValueError: ``d_state`` is not positive.

    Example:
      >>> lstm = LSTM(d_state=4)
      >>> params = lstm.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(lstm.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 4), (8,))

    References:
      Hochreiter and Schmidhuber, `Long Short-Term Memory
      <https://doi.org/10.1162/neco.1997.9.8.1735>`_, 1997; Gers, Schmidhuber and
      Cummins, `Learning to Forget <https://doi.org/10.1162/089976600300015015>`_, 2000
    """

    forget_bias: float = 1.0
    n_gates = 4

    @property
    def d_hidden(self) -> int:
        """Size of ``c`` and ``h`` together."""
        return 2 * self.d_state

    def readout(self, params, h):
        """Returns ``h``."""
        del params
        return h[..., self.d_state :]

    def _step(self, params, h, gates):
        c_prev, h = jnp.split(h, 2, -1)
        i, f, g, o = map(jnp.add, gates, self._state_gates(params, h))
        # The forget bias is a constant, not part of `bias`, as in TensorFlow's cell.
        i, f, o = map(sigmoid, (i, f + self.forget_bias, o))
        g = jnp.tanh(g)
        c = f * c_prev + i * g
        tanh_c = jnp.tanh(c)
        # `h` depends on its previous value also through `c`: the chain rule.
        own_i, own_f, own_g, own_o = (
            self._own_weights(params, gate, h) for gate in range(4)
        )
        jacobian_c = (
            f * (1 - f) * own_f * c_prev
            + i * (1 - i) * own_i * g
            + i * (1 - g * g) * own_g
        )
        jacobian_h = (
            o * (1 - o) * own_o * tanh_c + o * (1 - tanh_c * tanh_c) * jacobian_c
        )
        # c_t depends on c_{t-1} only through the factor f: gates read h.
        jacobian_diagonal = jnp.concatenate([f, jacobian_h], -1)
        return jnp.concatenate([c, o * tanh_c], -1), jacobian_diagonal
