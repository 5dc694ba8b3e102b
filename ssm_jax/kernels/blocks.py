"""Convolution with the kernel of few modes, block by block, without FFT.

Inside a block the kernel is a small Toeplitz matrix; what passes from block to block is
a state of each mode. All of it is matrix products, so with a handful of modes a channel
it beats the FFT: its cost a step is the length of a block, not the logarithm of the
sequence's, but it reads and writes the sequence once and forms no spectrum of it.
"""

import math

import jax
import jax.numpy as jnp

from ssm_jax.kernels.convolution import modal_kernel
from ssm_jax.kernels.powers import LogDecay, powers, repeated
from ssm_jax.kernels.recurrence import linear_recurrence
from ssm_jax.types import Array, Float, Inexact

_LONGEST = 64
_FULL = jax.lax.Precision.HIGHEST


def block_length(length: int) -> int:
    """Steps of a block for a sequence of ``length`` steps."""
    return min(_LONGEST, math.isqrt(length - 1) + 1)


@jax.jit
def block_convolution(
    u: Float[Array, "*b l d"],
    log_decay: LogDecay,
    w: Inexact[Array, "d n"],
    log_decay_backward: LogDecay | None = None,
    w_backward: Inexact[Array, "d n"] | None = None,
) -> Float[Array, "*b l d"]:
    """Convolves each channel with the real part of its modes' sum.

    ``y_t = sum_j k_j u_{t-j} + sum_j k'_j u_{t+1+j}``, ``k_j = Re sum_n w_n lam_n**j``
    and ``k'`` likewise; without ``w_backward`` only the first sum.

    Args:
      u: Sequences, ``(*b, l, d)``, float32.
      log_decay: Logarithm of the decays, leaves ``(d, n)``.
      w: Weight of each mode, ``(d, n)``, real or complex.
      log_decay_backward: As ``log_decay``, for what comes after a step.
      w_backward: As ``w``, for what comes after a step.

    Returns:
      ``y``, ``(*b, l, d)``.

    Example:
      >>> half = LogDecay(jnp.log(jnp.array([[0.5]])))
      >>> print(block_convolution(jnp.ones((3, 1)), half, jnp.ones((1, 1)))[:, 0])
      [1.   1.5  1.75]
    """
    *batch, length, d = u.shape
    c = block_length(length)
    n_blocks = -(-length // c)
    rows = math.prod(batch)
    blocks = jnp.pad(u.reshape(rows, length, d), [(0, 0), (0, -length % c), (0, 0)])
    # Channels first: a batch of matrix products, one a channel.
    blocks = blocks.reshape(-1, d).T.reshape(d, rows * n_blocks, c)
    ahead = modal_kernel(log_decay, w, c)
    behind = jnp.zeros_like(ahead)
    if w_backward is not None and log_decay_backward is not None:
        behind = modal_kernel(log_decay_backward, w_backward, c)
    y = _product(blocks, _toeplitz(ahead, behind))
    shape = (rows, n_blocks)
    y += _passed_on(blocks, log_decay, w, shape, reverse=False)
    if w_backward is not None and log_decay_backward is not None:
        y += _passed_on(blocks, log_decay_backward, w_backward, shape, reverse=True)
    y = y.reshape(d, -1).T.reshape(rows, n_blocks * c, d)
    return y[:, :length].reshape(u.shape)


def _passed_on(blocks, log_decay, w, shape, *, reverse):
    """What the blocks before (or, in reverse, after) each block add to its outputs."""
    d, _, c = blocks.shape
    n = w.shape[-1]
    steps = jnp.arange(c + 1)
    power = jnp.moveaxis(powers(log_decay, steps), 0, 1)  # (d, c + 1, n)
    entering = power[:, :c] if reverse else jnp.flip(power[:, :c], 1)
    leaving = jnp.flip(power[:, :c], 1) if reverse else power[:, 1:]
    total = _product(blocks, _parts(entering, -1))  # (d, rows * n_blocks, 2 n)
    total = total.reshape(d, *shape, -1)
    if jnp.iscomplexobj(power):
        total = jax.lax.complex(total[..., :n], total[..., n:])
    total = jnp.moveaxis(total, 0, -2).reshape(*shape, d * n)
    over_block = jax.tree.map(jnp.ravel, repeated(log_decay, c))
    h, _ = linear_recurrence(over_block, total, reverse=reverse)
    zero = jnp.zeros_like(h[:, :1])
    if reverse:
        h = jnp.concatenate([h[:, 1:], zero], 1)
    else:
        h = jnp.concatenate([zero, h[:, :-1]], 1)
    h = jnp.moveaxis(h.reshape(*shape, d, n), -2, 0).reshape(d, -1, n)
    weights = jnp.swapaxes(jnp.conj(w[:, None] * leaving), 1, 2)
    return _product(_parts(h, -1), _parts(weights, 1))


def _toeplitz(ahead, behind):
    """``T[j, i]``: what input ``j`` adds to output ``i`` of a block, ``(d, c, c)``."""
    d, c = ahead.shape
    line = jnp.concatenate([jnp.flip(behind[:, : c - 1], 1), ahead], 1)
    # Each row is the line shifted by one: repeated with a gap of one, and cut anew.
    line = jnp.pad(line, [(0, 0), (0, 1)])
    rows = jnp.broadcast_to(line[:, None], (d, c, 2 * c)).reshape(d, -1)
    rows = rows[:, : c * (2 * c - 1)].reshape(d, c, 2 * c - 1)
    return rows[:, :, c - 1 :]


def _parts(values, axis):
    """Real and imaginary parts side by side, if there are two."""
    if not jnp.iscomplexobj(values):
        return values
    return jnp.concatenate([jnp.real(values), jnp.imag(values)], axis)


def _product(left, right):
    return jnp.matmul(left, right, precision=_FULL)
