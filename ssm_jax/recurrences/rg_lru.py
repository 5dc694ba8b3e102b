"""RG-LRU: a real diagonal recurrence whose decay and input are gated by the input."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from ssm_jax.fields import check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.kernels.precision import sigmoid
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.initializers import inverse_softplus
from ssm_jax.recurrences.families.input_dependent import InputDependent
from ssm_jax.types import Activations, Array, Float, PRNGKey, Steps

_LARGEST_SLOPE = 1000.0


@dataclass(frozen=True, kw_only=True)
class RGLRU(InputDependent):
    r"""Real-gated linear recurrent unit, the recurrence of Griffin and RecurrentGemma.

    .. math::
      r_t = \sigma(W_a x_t + b_a), \quad i_t = \sigma(W_x x_t + b_x), \quad
      \log a_t = -c \, r_t \operatorname{softplus}(\Lambda), \qquad
      h_t = a_t h_{t-1} + \sqrt{1 - a_t^2} \; i_t x_t

    The first step of a sequence has 1 in place of the root: ``h_1 = i_1 x_1``. The
    matrices are block-diagonal, a block for each head. The state is ``(*b, d + 1)``:
    ``h``, and then 1 after a step and 0 before the first one. The output is ``h``.

    Attributes:
      n_heads: Number of blocks of each matrix; divides the width.
      exponent: ``c``.
      r_min: Smallest initial decay of an open gate, to the power ``1 / c``.
      r_max: Largest.

    Parameters, float32, for inputs of width ``d``, ``k = d / n_heads``:
      input_gate_kernel, decay_gate_kernel: ``(n_heads, k, k)``, ``W_x`` and ``W_a``,
        normal with standard deviation ``1 / sqrt(k)``.
      input_gate_bias, decay_gate_bias: ``(d,)``, ``b_x`` and ``b_a``, zeros.
      inverse_softplus_rate: ``(d,)``, ``Lambda``; ``exp(-2 softplus(Lambda))`` is
        uniform in ``[r_min**2, r_max**2]``.

    Raises:
      ValueError: A field is out of its range; in `init`, ``n_heads`` does not divide
        ``d``.

    Example:
      >>> unit = RGLRU(n_heads=2)
      >>> params = unit.init(jax.random.key(0), d_in=4)
      >>> y, state = jax.jit(unit.apply)(params, jnp.ones((8, 4)))
      >>> y.shape, state.shape
      ((8, 4), (5,))

    Note:
      The derivative of the root is at most 1000, as in the authors' code: it has no
      bound where the decay is 1. The paper has the opposite sign of ``Lambda``.

    References:
      De, Smith, Fernando, Botev and others, `Griffin: Mixing Gated Linear Recurrences
      with Local Attention for Efficient Language Models
      <https://arxiv.org/abs/2402.19427>`_, 2024, section 2.4
    """

    n_heads: int = 1
    exponent: float = 8.0
    r_min: float = 0.9
    r_max: float = 0.999

    # Inputs of a step depend on whether there was one before it.
    diagonal: ClassVar[bool] = False

    def __post_init__(self):
        check_fields(self)
        if self.n_heads < 1 or self.exponent <= 0:
            raise ValueError(
                f"`n_heads` and `exponent` must be positive, got {self.n_heads} and "
                f"{self.exponent}; 10 and 8 are those of the smallest published model."
            )
        if not 0 < self.r_min <= self.r_max < 1:
            raise ValueError(
                f"`r_min` must be in (0, r_max] with r_max below 1, got {self.r_min} "
                f"with r_max {self.r_max}; 0.9 and 0.999 are the published values."
            )

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        if d_in % self.n_heads:
            raise ValueError(
                f"`n_heads` must divide the width, {d_in}, got {self.n_heads}; the "
                "blocks share it evenly."
            )
        size = d_in // self.n_heads
        shape, std = (self.n_heads, size, size), size**-0.5
        key_input, key_decay, key_rate = jax.random.split(key, 3)
        # 1 - radius**2, in which radii near one keep their digits.
        gap = 1 - self.r_max**2
        gap += jax.random.uniform(key_rate, (d_in,)) * (self.r_max**2 - self.r_min**2)
        rate = -jnp.log1p(-gap) / 2
        return {
            "input_gate_kernel": std * jax.random.normal(key_input, shape),
            "input_gate_bias": jnp.zeros(d_in),
            "decay_gate_kernel": std * jax.random.normal(key_decay, shape),
            "decay_gate_bias": jnp.zeros(d_in),
            "inverse_softplus_rate": inverse_softplus(rate),
        }

    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Float[jax.Array, "*b n"]:
        """Returns zeros, batch axes first."""
        return jnp.zeros((*batch_shape, d_in + 1))

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        return len(params["inverse_softplus_rate"])

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns a group without weight decay for biases and rates."""
        names = ("input_gate_bias", "decay_gate_bias", "inverse_softplus_rate")
        return dict.fromkeys(names, ParamGroup(weight_decay=False))

    def form_of_rows(
        self, params: Params, x: Activations, dt: Any, state: Array, reset: Any
    ) -> ChunkedForm:
        """Returns `chunked_form` with the first steps of sequences."""
        del dt
        is_first = jnp.zeros_like(x[..., 0], bool) if reset is None else reset
        starts = is_first[..., :1] | (state[..., -1:] == 0)
        is_first = jnp.concatenate([starts, is_first[..., 1:]], -1)
        return self.chunked_form(params, x, is_first)

    def chunked_form(
        self, params: Params, x: Activations, is_first: Steps | None = None
    ) -> ChunkedForm:
        """Returns the gated decay and input of each step.

        Args:
          params: Parameters, float32.
          x: Input, ``(*b, l, d)``, float32.
          is_first: True at the first step of a sequence, ``(*b, l)``. None means that
            there is no such step.
        """
        log_decay = -self.exponent * self._gate(params, "decay", x)
        softplus = jax.nn.softplus(params["inverse_softplus_rate"])
        log_decay = log_decay * promoted_like(softplus, log_decay)
        entering = self._gate(params, "input", x) * x
        if is_first is None:
            is_first = jnp.zeros_like(x[..., 0], bool)

        def form(inputs):
            log_decay, entering, is_first = inputs
            root = _sqrt(-jnp.expm1(2 * log_decay))
            entering = jnp.where(is_first[..., None], entering, root * entering)
            # The last entry is 1 after any step.
            ones = jnp.ones_like(entering[..., :1])
            decay = jnp.concatenate([jnp.exp(log_decay), 0 * ones], -1)
            return decay, jnp.concatenate([entering, ones], -1)

        return ChunkedForm(
            form, lambda _, h: h[..., :-1], (log_decay, entering, is_first)
        )

    def _gate(self, params, name, x):
        """A gate of the input, ``(*b, l, d)``."""
        kernel, bias = (params[f"{name}_gate_{of}"] for of in ("kernel", "bias"))
        blocks = x.reshape(*x.shape[:-1], self.n_heads, -1)
        gate = jnp.einsum("...hi,hij->...hj", blocks, kernel, precision="highest")
        return sigmoid(gate.reshape(x.shape) + promoted_like(bias, x))


@jax.custom_jvp
def _sqrt(x):
    """The square root, with a derivative of at most 1000."""
    return jnp.sqrt(x)


@_sqrt.defjvp
def _sqrt_jvp(primals, tangents):
    (x,), (tangent,) = primals, tangents
    y = jnp.sqrt(x)
    return y, tangent / jnp.maximum(2 * y, 1 / _LARGEST_SLOPE)
