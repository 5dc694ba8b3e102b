"""mLSTM: a matrix memory with an exponential input gate and a normalizer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import PositiveInt, check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.axes import append_axes
from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.kernels.matrix import matrix_recurrence
from ssm_jax.kernels.precision import MAX_EXPONENT
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.input_dependent import InputDependent
from ssm_jax.recurrences.families.padding import state_after
from ssm_jax.types import Activations, Array, Float, PRNGKey, Steps


@dataclass(frozen=True, kw_only=True)
class MLSTM(InputDependent):
    r"""LSTM with a matrix memory, the recurrence of xLSTM that has no nonlinearity.

    .. math::
      C_t = f_t C_{t-1} + i_t k_t v_t^\top, \quad n_t = f_t n_{t-1} + i_t k_t, \quad
      h_t = \frac{C_t^\top q_t}{\max(|n_t \cdot q_t|, 1)}

    .. math::
      f_t = \sigma(\tilde f_t + b_f), \quad i_t = \exp(\tilde i_t + b_i)

    in each head, with keys divided by ``sqrt(d_k)``. The input is ``q``, ``k``, ``v``,
    ``i~`` and ``f~``, side by side: of ``h`` heads queries and keys of size ``d_k``,
    values of size ``d_v``, and a number for each gate, ``h (2 d_k + d_v + 2)`` in all,
    which gives ``h``. The output is that of all heads, of width ``h d_v``.

    ``C`` and ``n`` are stored times ``exp(-m)``, which keeps them bounded, with ``m_t =
    max(log f_t + m_{t-1}, log i_t, 0)``. The state is ``(*b, h, d_k + 1, d_v + 1)``:
    ``C`` with ``n`` as one more column; the last row is zero but for its last entry,
    ``m``.

    Attributes:
      d_head: Size of a value, ``d_v``.
      d_key: Size of a key, ``d_k``. None: that of a value.

    Parameters, float32:
      input_bias: ``(h,)``, ``b_i``, normal with standard deviation 0.1.
      forget_bias: ``(h,)``, ``b_f``, from 3 to 6 in equal steps.

    Raises:
      ValueError: A size is not positive; in `init`, the width is not that of heads.

    Example:
      >>> mlstm = MLSTM(d_head=4)
      >>> params = mlstm.init(jax.random.key(0), d_in=2 * (3 * 4 + 2))
      >>> y, state = jax.jit(mlstm.apply)(params, jnp.ones((8, 28)))
      >>> y.shape, state.shape
      ((8, 8), (2, 5, 5))

    Note:
      ``h`` does not depend on the choice of ``m``, so that no gradient of it passes
      through ``m``. In the authors' code ``m`` may be negative, and 1e-6 is added to
      the divisor. Here ``m`` is at least 0, so that ``exp(-m)``, which the 1 of the
      divisor becomes, does not overflow; it is at least ``exp(-30)``. Weight decay is
      not applied to the biases.

    References:
      Beck, Pöppel, Spanring, Auer and others, `xLSTM: Extended Long Short-Term Memory
      <https://arxiv.org/abs/2405.04517>`_, 2024, section 2.3 and appendix A
    """

    d_head: PositiveInt = 64
    d_key: PositiveInt | None = None

    # The inputs of a step depend on the maximum, which is part of the state.
    diagonal: ClassVar[bool] = False

    def __post_init__(self):
        check_fields(self)

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        heads = self._heads(d_in)
        return {
            "input_bias": 0.1 * jax.random.normal(key, (heads,)),
            "forget_bias": jnp.linspace(3.0, 6.0, heads),
        }

    @property
    def _d_key(self):
        return self.d_key or self.d_head

    def _heads(self, d_in):
        """Returns the number of heads."""
        of_head = 2 * self._d_key + self.d_head + 2
        heads, rest = divmod(d_in, of_head)
        if heads < 1 or rest:
            near = max(1, heads)
            raise ValueError(
                "`d_in` must be h * (2 d_k + d_head + 2), such as "
                f"{near} * (2 * {self._d_key} + {self.d_head} + 2) = {near * of_head}, "
                f"got {d_in}; the input is queries, keys, values and gates, side by "
                "side."
            )
        return heads

    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Float[jax.Array, "*b h k v"]:
        """Returns zeros, batch axes first."""
        heads = self._heads(d_in)
        return jnp.zeros((*batch_shape, heads, self._d_key + 1, self.d_head + 1))

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        return len(params["input_bias"]) * (2 * self._d_key + self.d_head + 2)

    def d_out(self, d_in: int) -> int:
        """Returns the width of all heads."""
        return self._heads(d_in) * self.d_head

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns a group without weight decay for the biases."""
        names = ("input_bias", "forget_bias")
        return dict.fromkeys(names, ParamGroup(weight_decay=False))

    def form_of_rows(
        self, params: Params, x: Activations, dt: Any, state: Array, reset: Any
    ) -> ChunkedForm:
        """Returns `chunked_form` with maxima that continue those of the state."""
        del dt
        return self.chunked_form(params, x, state[..., -1, -1], reset)

    def chunked_form(
        self,
        params: Params,
        x: Activations,
        m_0: Float[Array, "*b h"] | None = None,
        reset: Steps | None = None,
    ) -> ChunkedForm:
        """Returns the evaluation of memory and normalizer by `matrix_recurrence`.

        Args:
          params: Parameters, float32.
          x: Input, ``(*b, l, d)``, float32.
          m_0: Maximum before the first step, ``(*b, h)``. None means 0.
          reset: True where a segment starts, ``(*b, l)``, or None.
        """
        heads, d_key = len(params["input_bias"]), self._d_key
        sizes = heads * d_key, heads * d_key, heads * self.d_head, heads
        q, k, v, i, f = jnp.split(x, np.cumsum(sizes), -1)
        q, k, v = (y.reshape(*y.shape[:-1], heads, -1) for y in (q, k, v))
        log_input = i + promoted_like(params["input_bias"], i)
        log_forget = jax.nn.log_sigmoid(f + promoted_like(params["forget_bias"], f))
        m_0 = jnp.zeros_like(i[..., 0, :]) if m_0 is None else m_0
        m = _maxima(log_forget, log_input, m_0, reset)
        log_decay, log_scale = _stabilized(log_forget, log_input, m_0, m, reset)
        k = k * (jnp.exp(log_scale) * d_key**-0.5)[..., None]
        # The normalizer is the memory of a value of 1.
        v = jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1)

        def by_products(state, reset, valid, method):
            flags = {"reset": reset, "mask": valid}
            start = None if state is None else state[..., :-1, :]
            y, last = matrix_recurrence(
                q, k, v, log_decay, state=start, **flags, method=method
            )
            # exp(-m), bounded so that a derivative of the quotient is finite.
            smallest = jax.lax.stop_gradient(jnp.exp(-jnp.minimum(m, MAX_EXPONENT)))
            divisor = jnp.maximum(jnp.abs(y[..., -1:]), smallest[..., None])
            y = (y[..., :-1] / divisor).reshape(*y.shape[:-2], -1)
            lengths = None if valid is None else jnp.sum(valid, -1)
            m_last = state_after(m, m_0, lengths)[..., None, None]
            # C exp(-m), of which the evaluation takes exp(-m) as a constant: times 1.
            change = _zero_with_gradient(m_last)
            if lengths is not None:
                # Without a valid step the stored memory is the one before, as it is.
                change = jnp.where(append_axes(lengths > 0, change.ndim), change, 0)
            last = last * (1 - change)
            last_row = jnp.zeros_like(last[..., :1, :]).at[..., -1:].set(m_last)
            return y, jnp.concatenate([last, last_row], -2)

        return ChunkedForm(None, None, x, products=by_products)


def _maxima(log_forget, log_input, m_0, reset):
    """Returns ``m_t = max(log f_t + m_{t-1}, log i_t, 0)``, ``(*b, l, h)``.

    By an associative scan of the maps ``m -> max(m + g, b)``.
    """
    axis = log_forget.ndim - 2
    at_least = jnp.maximum(log_input, 0)
    carried = m_0 + log_forget[..., 0, :]
    if reset is not None:
        reset = reset[..., None]
        carried = jnp.where(reset[..., 0, :], -jnp.inf, carried)
    first = jnp.maximum(at_least[..., 0, :], carried)
    at_least = at_least.at[..., 0, :].set(first)

    def combine(left, right):
        (g_left, b_left, reset_left), (g_right, b_right, reset_right) = left, right
        carried, is_reset = b_left + g_right, None
        if reset is not None:
            carried = jnp.where(reset_right, -jnp.inf, carried)
            is_reset = reset_left | reset_right
        return g_left + g_right, jnp.maximum(carried, b_right), is_reset

    maps = log_forget, at_least, reset
    return jax.lax.associative_scan(combine, maps, axis=axis)[1]


def _stabilized(log_forget, log_input, m_0, m, reset):
    """Returns logarithms of decays and of scales of keys, both at most 0.

    Those of a memory that is stored times ``exp(-m)``. It is multiplied by ``exp(m)``
    again where it is read, so that outputs have no gradient by ``m``.
    """
    before = jnp.concatenate([m_0[..., None, :], m[..., :-1, :]], -2)
    before = jax.lax.stop_gradient(before)
    if reset is not None:
        before = jnp.where(reset[..., None], 0, before)
    g = jax.lax.stop_gradient(log_forget)
    at_least = jnp.maximum(jax.lax.stop_gradient(log_input), 0)
    is_decayed = g + before >= at_least
    m = jnp.where(is_decayed, g + before, at_least)
    # Where m decays as the memory does, the stored memory stays as it is. A difference
    # of two maxima would be off by their rounding, at each step with the same sign.
    log_decay = log_forget + jnp.where(is_decayed, -g, before - at_least)
    # The memory before the first step is stored times exp(-m_0), which is no constant.
    log_decay = log_decay.at[..., 0, :].add(_zero_with_gradient(m_0))
    return log_decay, log_input - m


def _zero_with_gradient(m):
    """Zero with the derivative of ``m``."""
    return m - jax.lax.stop_gradient(m)
