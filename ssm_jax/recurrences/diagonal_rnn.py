"""A linear recurrence whose diagonal eigenvalues are functions of the input."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from ssm_jax.fields import PositiveInt, check_fields
from ssm_jax.kernels import parts
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.kernels.precision import affine_f32, sigmoid
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.input_dependent import InputDependent
from ssm_jax.types import Activations, Inexact, PRNGKey

Eigenvalues = Literal["sigmoid", "tanh", "cosine", "phase"]

# Of the initial eigenvalues at inputs of zero, each distributed uniformly between two
# arguments of the function: decays from .5 to .99, of both signs, and all phases.
_ARGUMENTS = {
    "sigmoid": (0.0, 4.6),
    "tanh": (-2.6, 2.6),
    "cosine": (0.0, jnp.pi),
    "phase": (-jnp.pi, jnp.pi),
}


@dataclass(frozen=True, kw_only=True)
class DiagonalRNN(InputDependent):
    r"""A linear RNN with diagonal transitions, whose eigenvalues the input chooses.

    .. math::
      h_t = f(W x_t + b) \, h_{t-1} + V x_t + c

    The range of ``f`` decides which automata the recurrence follows. Nonnegative
    eigenvalues never change the sign of a state, as parity needs; real ones do not turn
    a state by a third of a circle, as sums modulo 3 need; and no diagonal ones compute
    products whose order matters. Open ranges let states shrink, slowly.

    The state is ``(*b, n)``, complex with ``"phase"``, and the output is the state;
    real parts come before imaginary ones.

    Attributes:
      d_state: Number of states, ``n``.
      eigenvalues: The function ``f``. ``"sigmoid"``: in (0, 1). ``"tanh"``: in (-1, 1).
        ``"cosine"``: in [-1, 1], both ends included. ``"phase"``: ``f(z) = exp(i z)``,
        of modulus 1.

    Parameters, float32, for inputs of width ``d``; ``m = 2 n`` with ``"phase"``, else
    ``n``:
      kernel: ``(d, n + m)``, ``W`` and ``V``, normal with standard deviation
        ``1 / sqrt(d)``.
      bias: ``(n + m,)``, ``b`` and ``c``. ``b`` is initialized uniform: in [0, 4.6] for
        ``"sigmoid"``, in [-2.6, 2.6] for ``"tanh"``, in [0, pi] for ``"cosine"`` and in
        [-pi, pi] for ``"phase"``; ``c`` to zero.

    Raises:
      ValueError: ``d_state`` is not positive, or ``eigenvalues`` is unknown.

    Example:
      >>> unit = DiagonalRNN(d_state=3, eigenvalues="phase")
      >>> params = unit.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(unit.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 6), (3,))

    References:
      Grazzi, Siems, Zela, Franke, Hutter and Pontil, `Unlocking State-Tracking in
      Linear RNNs Through Negative Eigenvalues <https://arxiv.org/abs/2411.12537>`_,
      2024, sections 3 and 4
    """

    d_state: PositiveInt = 64
    eigenvalues: Eigenvalues = "tanh"

    def __post_init__(self):
        check_fields(self)

    @property
    def _is_complex(self):
        return self.eigenvalues == "phase"

    def d_out(self, d_in: int) -> int:
        """Returns the number of real numbers of a state."""
        del d_in
        return self.d_state * (1 + self._is_complex)

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        return len(params["kernel"])

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        key_kernel, key_bias = jax.random.split(key)
        low, high = _ARGUMENTS[self.eigenvalues]
        shape = d_in, self.d_state + self.d_out(d_in)
        b = jax.random.uniform(key_bias, (self.d_state,), minval=low, maxval=high)
        return {
            "kernel": d_in**-0.5 * jax.random.normal(key_kernel, shape),
            "bias": jnp.concatenate([b, jnp.zeros(self.d_out(d_in))]),
        }

    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Inexact[jax.Array, "*b n"]:
        """Returns zeros, batch axes first."""
        del d_in
        dtype = jnp.complex64 if self._is_complex else None
        return jnp.zeros((*batch_shape, self.d_state), dtype)

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns a group without weight decay for the bias, which sets time scales."""
        return {"bias": ParamGroup(weight_decay=False)}

    def chunked_form(self, params: Params, x: Activations) -> ChunkedForm:
        """Returns the eigenvalues and the projected input of each step."""
        n = self.d_state

        def form(inputs):
            z, entering = inputs[..., :n], inputs[..., n:]
            if self._is_complex:
                decay = parts.join((jnp.cos(z), jnp.sin(z)))
                return decay, parts.join((entering[..., :n], entering[..., n:]))
            f = {"sigmoid": sigmoid, "tanh": jnp.tanh, "cosine": jnp.cos}
            return f[self.eigenvalues](z), entering

        def read(_, h):
            return jnp.concatenate(parts.split(h), -1)

        # The product of all steps at once, as it is small beside the states.
        inputs = affine_f32(x, params["kernel"], params["bias"])
        return ChunkedForm(form, read, inputs)
