"""Retention, the recurrence of RetNet: linear attention whose keys decay and rotate."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import PositiveInt, check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.kernels.matrix import matrix_recurrence
from ssm_jax.kernels.precision import matmul_f32
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.rotary import angles_of, rotate
from ssm_jax.kernels.sharding import take
from ssm_jax.recurrences.families.base import Params
from ssm_jax.recurrences.families.input_dependent import InputDependent
from ssm_jax.types import Activations, Complex, PRNGKey


@dataclass(frozen=True, kw_only=True)
class Retention(InputDependent):
    r"""Linear attention in several heads, whose keys decay and rotate as time passes.

    .. math::
      S_t = \gamma e^{-i \theta} S_{t-1} + k_t v_t^\top, \qquad
      y_t = \operatorname{Re} (S_t^\top \bar q_t) / \sqrt{d_k}

    with queries, keys and values linear in ``x``, and the entries ``2 j`` and ``2 j +
    1`` of queries and keys as the real and imaginary part of one number. Of steps ``m``
    and ``n`` the product of query and key is that of rotary positions, ``R_n q_n \cdot
    R_m k_m``, with decay ``gamma**(n - m)``: the state has the rotation that is left to
    its own step, so that no position is carried. Head ``i`` has ``gamma = 1 - 2**(-5 -
    i)``; the angles are ``theta_j = 10000**(-2 j / d_k)``. The state is ``(*b, h, d_k /
    2, d_v)``, complex; the output is that of all heads, of width ``h d_v``.

    Attributes:
      n_heads: ``h``; divides the width.
      d_key: Size of a key, ``d_k``, even. None: ``d / h``.
      d_value: Size of a value, ``d_v``. None: ``2 d / h``, as published.

    Parameters, float32, for inputs of width ``d``, initialized Glorot uniform:
      query_kernel, key_kernel: ``(d, h d_k)``.
      value_kernel: ``(d, h d_v)``.

    Raises:
      ValueError: A size is not positive; in `init`, ``n_heads`` does not divide ``d``,
        or ``d_k`` is odd.

    Example:
      >>> retention = Retention(n_heads=2)
      >>> params = retention.init(jax.random.key(0), d_in=8)
      >>> y, state = jax.jit(retention.apply)(params, jnp.ones((16, 8)))
      >>> y.shape, state.shape, state.dtype
      ((16, 16), (2, 2, 8), dtype('complex64'))

    Note:
      The authors' code has angles from 1 to 1/10000 with both ends, multiplies the
      initial matrices by ``2**-2.5``, and divides by sums of decays and of scores,
      which the norm of the layer undoes; it differs between its forms.

    References:
      Sun, Dong, Huang, Ma, Xia, Xue, Wang and Wei, `Retentive Network: A Successor to
      Transformer for Large Language Models <https://arxiv.org/abs/2307.08621>`_, 2023,
      section 2, without the norm and the gate, which belong to the layer
    """

    n_heads: PositiveInt = 8
    d_key: PositiveInt | None = None
    d_value: PositiveInt | None = None

    def __post_init__(self):
        check_fields(self)
        self._check_key(self.d_key or 2)

    def _check_key(self, d_key):
        if d_key % 2:
            raise ValueError(
                f"`d_key` must be even, got {d_key}; pairs of entries are rotated."
            )

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        d_key, d_value = self._sizes(d_in)
        shapes = {"query_kernel": d_key, "key_kernel": d_key, "value_kernel": d_value}
        draw = jax.nn.initializers.glorot_uniform()
        keys = jax.random.split(key, len(shapes))
        return {
            name: draw(of_name, (d_in, self.n_heads * size), jnp.float32)
            for of_name, (name, size) in zip(keys, shapes.items(), strict=True)
        }

    def _sizes(self, d_in):
        """Returns the sizes of a key and of a value."""
        if d_in % self.n_heads:
            raise ValueError(
                f"`n_heads` must divide the width, {d_in}, got {self.n_heads}; the "
                "heads share it evenly."
            )
        share = d_in // self.n_heads
        d_key = self.d_key or share
        self._check_key(d_key)
        return d_key, self.d_value or 2 * share

    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Complex[jax.Array, "*b h k v"]:
        """Returns zeros, batch axes first."""
        d_key, d_value = self._sizes(d_in)
        shape = *batch_shape, self.n_heads, d_key // 2, d_value
        return jnp.zeros(shape, jnp.complex64)

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        return len(params["value_kernel"])

    def d_out(self, d_in: int) -> int:
        """Returns the width of all heads of values."""
        return self.n_heads * self._sizes(d_in)[1]

    def chunked_form(self, params: Params, x: Activations) -> ChunkedForm:
        """Returns the recurrence as products of matrices, its only form.

        Queries and keys are rotated by their positions, the states by the last one.
        """
        length = x.shape[-2]
        # Matrix products of all steps at once, as they are small beside the states.
        names = ("query_kernel", "key_kernel", "value_kernel")
        q, k, v = (matmul_f32(x, params[name]) for name in names)
        q, k, v = (y.reshape(*y.shape[:-1], self.n_heads, -1) for y in (q, k, v))
        d_key = k.shape[-1]
        log_gamma = np.log1p(-(2.0 ** (-5 - np.arange(self.n_heads))))

        def by_products(state, reset, valid, method):
            log_decay = jnp.zeros_like(v[..., 0])
            log_decay = log_decay + promoted_like(log_gamma, log_decay)
            # The state before the first step is at position 0.
            o, last = matrix_recurrence(
                rotate(q, 1),
                rotate(k, 1),
                v,
                log_decay,
                state=None if state is None else _pairs(state),
                reset=reset,
                mask=valid,
                method=method,
            )
            last = _complex(last.swapaxes(-1, -2)).swapaxes(-1, -2)
            # From position 0 to that of the last valid step.
            if valid is None:
                back = np.exp(-1j * angles_of(np.array([length]), d_key))
            else:
                back = np.exp(-1j * angles_of(np.arange(length + 1), d_key))
                back = take(jnp.asarray(back, last.dtype), jnp.sum(valid, -1))
                back = back[..., None, :]
            y = o.reshape(*o.shape[:-2], -1) * d_key**-0.5
            return y, last * promoted_like(back[..., None], last)

        return ChunkedForm(None, None, x, products=by_products)


def _complex(x):
    """Pairs of entries, ``(*b, k)``, as complex numbers, ``(*b, k / 2)``."""
    return jax.lax.complex(x[..., ::2], x[..., 1::2])


def _pairs(state):
    """Complex rows of a state, ``(*b, k / 2, v)``, as pairs of rows, ``(*b, k, v)``."""
    rows = jnp.stack([jnp.real(state), jnp.imag(state)], -2)
    return rows.reshape(*state.shape[:-2], -1, state.shape[-1])
