"""The modes of a time-invariant recurrence and their convolution kernel."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.kernels.fft import modal_kernel
from ssm_jax.kernels.powers import (
    LogDecay,
    decay_powers,
    multiply_decays,
    n_step_decay,
)
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.kernels.sharding import state_of_rows
from ssm_jax.types import Activations, Array, Complex, Float, Inexact, Readout


class SISOModes(NamedTuple):
    """Modes of single-input, single-output systems, one system per channel.

    The input of a channel drives each of its modes, with its own or shared decays.

    Attributes:
      log_decay: Logarithm of the decays, leaves ``(n,)``, the same for all channels, or
        ``(d, n)``, one row per channel.
      w: Weight of each mode in the output, ``(d, n)``, real or complex.
      feedthrough: ``D``, factor of the input in the output, ``(d,)``.
      w_backward: Weight of each mode of the backward direction, which depends on future
        steps only, ``(d, n)``. None: forward direction only.
      log_decay_backward: Logarithm of the decays of the backward direction. None: the
        same as ``log_decay``.
      readout: ``"real"``: the convolution kernel is ``Re k``, ``k_l = sum_n w_n
        lam_n**l``. ``"prod"``: ``Re k Im k``.
    """

    log_decay: LogDecay
    w: Inexact[Array, "d n"]
    feedthrough: Float[Array, " d"]
    w_backward: Inexact[Array, "d n"] | None = None
    log_decay_backward: LogDecay | None = None
    readout: Readout = "real"

    @property
    def bidirectional(self) -> bool:
        """Whether there is a backward direction."""
        return self.w_backward is not None

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape of the state of one sequence, ``(d, n)``."""
        d, n = self.w.shape
        # A product readout is a real readout of pairs of modes; see `to_real_readout`.
        return (d, n * (n + 1) // 2 if self.readout == "prod" else n)

    @property
    def state_dtype(self) -> np.dtype:
        """Dtype of the state."""
        # Real decays and weights have real states, of half the memory.
        return common_dtype(self.w, _dtype_of(self.log_decay))

    def backward(self) -> "SISOModes":
        """Returns the backward direction as modes of one direction."""
        return self._replace(
            log_decay=self.log_decay_backward or self.log_decay,
            w=self.w_backward,
            w_backward=None,
            log_decay_backward=None,
        )


class MIMOModes(NamedTuple):
    """Modes of one multi-input, multi-output system: all channels share the modes.

    Attributes:
      log_decay: Logarithm of the decays, leaves ``(n,)``.
      B: Input projection, ``(n, d)``.
      C: Readout, ``(d, n)``.
      feedthrough: ``D``, factor of the input in the output, ``(d,)``.
      C_backward: Readout of the backward direction, which depends on the present and
        future steps through the same decays and ``B``, ``(d, n)``. None: forward
        direction only.
    """

    log_decay: LogDecay
    B: Complex[Array, "n d"]
    C: Complex[Array, "d n"]
    feedthrough: Float[Array, " d"]
    C_backward: Complex[Array, "d n"] | None = None

    @property
    def bidirectional(self) -> bool:
        """Whether there is a backward direction."""
        return self.C_backward is not None

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape of the state of one sequence, ``(n,)``."""
        return (len(self.B),)

    @property
    def state_dtype(self) -> np.dtype:
        """Dtype of the state, complex."""
        return common_dtype(self.B, _dtype_of(self.log_decay))

    def backward(self) -> "MIMOModes":
        """Returns the backward direction over future steps as forward modes."""
        C = self.C_backward
        if C is not None:
            # Backward kernels begin at lag 1: one decay more than `C` has.
            C = C * decay_powers(self.log_decay, jnp.ones((), jnp.int32))
        return self._replace(C=C, C_backward=None)


def zero_state(
    modes: SISOModes | MIMOModes, x: Activations
) -> Inexact[jax.Array, "..."]:
    """Returns the state before the first step of ``x``, ``(*b, l, d)``: zeros."""
    zeros = jnp.zeros((*x.shape[:-2], *modes.state_shape), modes.state_dtype)
    return state_of_rows(zeros, x, per_channel=isinstance(modes, SISOModes))


def to_real_readout(modes: SISOModes) -> SISOModes:
    """Returns modes with a real readout and the same convolution kernel.

    ``Re k Im k = Re(-i k**2 / 2)``, and ``k**2`` is a sum over pairs of modes: a
    product readout of ``n`` modes is a real readout of ``n (n + 1) / 2``.

    Args:
      modes: Modes with either readout.

    Returns:
      Modes with ``readout="real"``.

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, appendix A.2
    """
    if modes.readout == "real":
        return modes
    first, second = jnp.triu_indices(modes.w.shape[-1])
    # k**2 has each pair of different modes twice: -i / 2 on the diagonal, -i off it.
    scale = jnp.where(first == second, -0.5j, -1j).astype(modes.w.dtype)

    def square(w):
        return None if w is None else scale[None] * w[:, first] * w[:, second]

    def pairs(log_decay):
        # In log space: complex64 products would round the phase, which powers amplify.
        of_first = jax.tree.map(lambda v: v[..., first], log_decay)
        return multiply_decays(
            of_first, jax.tree.map(lambda v: v[..., second], log_decay)
        )

    return modes._replace(
        log_decay=pairs(modes.log_decay),
        w=square(modes.w),
        w_backward=square(modes.w_backward),
        log_decay_backward=modes.log_decay_backward and pairs(modes.log_decay_backward),
        readout="real",
    )


def resample(modes: SISOModes, step_scale: int) -> SISOModes:
    r"""Returns the modes of the same system with steps ``s`` times as long.

    An input holds for the ``s`` steps that it replaces, and outputs are those at the
    last of them, so that the kernels are sums of ``s`` taps:

    .. math::
      k^{(s)}_l = \sum_{r < s} k_{s l + r}, \qquad
      \lambda^{(s)} = \lambda^s, \qquad
      w^{(s)} = w \sum_{r < s} \lambda^r = w \frac{\lambda^s - 1}{\lambda - 1}

    For continuous modes that are discretized by zero-order hold this is the step size
    ``s Delta``.

    Args:
      modes: The modes, with either readout.
      step_scale: The factor ``s``.

    Returns:
      Modes; if ``s > 1`` with ``readout="real"``, for which a product readout of ``n``
      modes becomes one of ``n (n + 1) / 2``.

    References:
      Gu, Goel and Ré, `Efficiently Modeling Long Sequences with Structured State Spaces
      <https://arxiv.org/abs/2111.00396>`_, 2021, section 4.3 (the change of the step
      size of a trained model)
    """
    if step_scale == 1:
        return modes
    # A product of two sums of taps is not the sum of the products.
    modes = to_real_readout(modes)

    def resampled(log_decay, w):
        # Of s terms: the quotient of the geometric series is 0 / 0 at lam = 1.
        # (d, n), or (n,) if all channels share the decays.
        total = jnp.sum(decay_powers(log_decay, jnp.arange(step_scale)), 0)
        dtype = common_dtype(w, total)
        return w.astype(dtype) * jax.lax.broadcast_to_rank(total, w.ndim).astype(dtype)

    backward = modes.log_decay_backward
    w_backward = modes.w_backward
    if w_backward is not None:
        w_backward = resampled(backward or modes.log_decay, w_backward)
    return modes._replace(
        log_decay=n_step_decay(modes.log_decay, step_scale),
        w=resampled(modes.log_decay, modes.w),
        w_backward=w_backward,
        log_decay_backward=backward and n_step_decay(backward, step_scale),
    )


def convolution_kernel(
    modes: SISOModes | MIMOModes, length: int
) -> Float[Array, "d l"] | Float[Array, "d d l"]:
    """Returns the convolution kernel of the modes, without the feedthrough.

    Args:
      modes: The recurrence.
      length: Number of taps ``l``.

    Returns:
      Kernel of the forward direction, ``(d, l)``; for `MIMOModes` from each input
      channel to each output channel, ``(d, d, l)``, the output channel first.
    """
    if isinstance(modes, MIMOModes):
        # (d, d, n), for inspection only: `apply` computes the states of MIMO modes.
        w = modes.C[:, None] * modes.B.T[None]
        return modal_kernel(modes.log_decay, w, length)
    if modes.readout == "real":
        return modal_kernel(modes.log_decay, modes.w, length)
    # n modes suffice for a kernel; only states need the n (n + 1) / 2 pairs.
    kernel = modal_kernel(modes.log_decay, modes.w, length, part="complex")
    return jnp.real(kernel) * jnp.imag(kernel)


def zero_input_response(
    modes: SISOModes, state: Inexact[Array, "*b d n"], length: int
) -> Float[Array, "*b l d"]:
    """Returns the output of an initial state with zero input.

    Args:
      modes: The modes; only the forward direction is used.
      state: The state at the first step, ``(*b, d, n)``.
      length: Number of steps ``l``.

    Returns:
      ``(*b, l, d)``, the output of the first step first.
    """
    # The response to a state is a kernel with the weights w h.
    state = jnp.asarray(state, common_dtype(state, modes.w))
    weights = promoted_like(modes.w, state) * state
    if modes.log_decay.log_abs.ndim == 1:
        kernel = modal_kernel(modes.log_decay, weights, length)
    else:
        # Decays of each channel fit (d, n) weights only, so batch rows are mapped over.
        rows = weights.reshape(-1, *weights.shape[-2:])
        of_row = jax.vmap(lambda row: modal_kernel(modes.log_decay, row, length))
        kernel = of_row(rows).reshape(*weights.shape[:-1], length)
    return jnp.swapaxes(kernel, -1, -2)


def direction_weights(modes: SISOModes) -> list[LogDecay | Inexact[Array, "d n"]]:
    """Returns decays and weights of each direction for `block_convolution`.

    Args:
      modes: The recurrence.

    Returns:
      ``[log_decay, w]``, leaves ``(d, n)``, followed by those of the backward direction
      if there is one.
    """
    # Blocks carry states, which must belong to a real readout.
    modes = to_real_readout(modes)
    directions = [modes, modes.backward()] if modes.bidirectional else [modes]
    return [
        weight
        for direction in directions
        for weight in (_broadcast_decay(direction.log_decay, modes.w), direction.w)
    ]


def _broadcast_decay(log_decay, w):
    """Broadcasts decays that all channels share to ``(d, n)``."""
    return jax.tree.map(lambda v: jnp.broadcast_to(v, w.shape), log_decay)


def _dtype_of(log_decay):
    dtype = log_decay.log_abs.dtype
    return dtype if log_decay.phase is None else common_dtype(dtype, jnp.complex64)
