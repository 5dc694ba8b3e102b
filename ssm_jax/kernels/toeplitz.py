"""Convolutions by Toeplitz matrices: of short sequences, and of blocks with few modes.

Within a short block every step is a weighted sum of the block's steps; what passes from
block to block is a state of each mode. Of a block's steps a few numbers enter the
state, and leave it, by the powers of the decays. All of it is products of rows of
channels, so nothing is transposed, and a state exists of each block, not of each step.
"""

import math
from functools import reduce
from operator import add

import jax
import jax.numpy as jnp

from ssm_jax.kernels import plan, shift
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.kernels.axes import join_axis, match_varying_axes, split_axis
from ssm_jax.kernels.nonfinite import all_finite, contain_nonfinite
from ssm_jax.kernels.powers import LogDecay, decay_powers, n_step_decay
from ssm_jax.kernels.promotion import common_dtype
from ssm_jax.kernels.recurrence import linear_recurrence
from ssm_jax.kernels.sharding import is_sharded, reshard_like
from ssm_jax.types import Array, Float, Inexact

# Blocks that are summed side by side: enough for the vector units, few to be kept.
_BLOCKS_PER_SUM = 16

_Term = tuple[Float[Array, "i _ d"], Float[Array, "k _ d"]]


@jax.jit
def block_convolution(
    u: Float[Array, "*b l d"],
    log_decay: LogDecay,
    w: Inexact[Array, "d n"],
    log_decay_backward: LogDecay | None = None,
    w_backward: Inexact[Array, "d n"] | None = None,
    feedthrough: Float[Array, " d"] | None = None,
) -> Float[Array, "*b l d"]:
    """Convolves each channel with the real part of its modes' sum.

    Differentiable any number of times in reverse mode; not in forward mode.

    ``y_t = sum_j k_j u_{t-j} + sum_j k'_j u_{t+1+j}``, ``k_j = Re sum_n w_n lam_n**j``
    and ``k'`` likewise; without ``w_backward`` only the first sum. To that is added
    what goes straight to the output.

    Args:
      u: Sequences, ``(*b, l, d)``, float32.
      log_decay: Logarithm of the decays, leaves ``(d, n)``.
      w: Weight of each mode, ``(d, n)``, real or complex.
      log_decay_backward: As ``log_decay``, for what comes after a step.
      w_backward: As ``w``, for what comes after a step.
      feedthrough: Factor of the step itself, ``(d,)``. None is zeros.

    Returns:
      ``y``, ``(*b, l, d)``.

    Example:
      >>> half = LogDecay(jnp.log(jnp.array([[0.5]])))
      >>> print(block_convolution(jnp.ones((3, 1)), half, jnp.ones((1, 1)))[:, 0])
      [1.   1.5  1.75]
    """
    check_floating("u", u)
    *batch, length, d = u.shape
    c = plan.convolution_block(length)
    x = split_axis(u.reshape(-1, length, d), 1, c)
    log, n = log_decay, log_decay.log_abs.shape[-1]
    if w_backward is not None and log_decay_backward is not None:
        # The modes of both sides are evaluated as one; from the `n`-th on they see
        # blocks, and the steps of each, in the order that is turned round.
        log = jax.tree.map(
            lambda *parts: jnp.concatenate(parts, -1), log, log_decay_backward
        )
        w = jnp.concatenate([w, w_backward], -1)
    log, w = jax.tree.map(jnp.transpose, (log, w))
    x, log, w, feedthrough = match_varying_axes(x, log, w, feedthrough)
    rows, x = len(x), x.reshape(-1, c, d)
    within, entering, leaving = _weights(log, w, feedthrough, c, n)
    entered = _mix((entering, x))
    h = _starts(log, entered.reshape(rows, -1, *entered.shape[1:]), c, n)
    mix = _mix if w_backward is not None else _mix_causal
    y = mix((within, x), (leaving, h.reshape(len(x), -1, d)))
    y = join_axis(y.reshape(rows, -1, c, d), 1, length)
    return y.reshape(*batch, length, d)


@jax.jit
def direct_convolution(
    u: Float[Array, "*b l d"],
    forward: Float[Array, "d l"],
    backward: Float[Array, "d l"] | None = None,
) -> Float[Array, "*b l d"]:
    """Convolves each channel with its kernel, by one product with a Toeplitz matrix.

    ``y_t = sum_j forward_j u_{t-j} + sum_j backward_j u_{t+1+j}``. It takes time and
    memory of ``l**2``, and is faster than an FFT for short sequences.

    Args:
      u: Sequences, ``(*b, l, d)``, float32.
      forward: Kernel over the current and past steps, ``(d, l)``.
      backward: Kernel over future steps, ``(d, l)``. None means zeros; then values that
        are not finite reach no earlier step.

    Returns:
      ``y``, ``(*b, l, d)``.

    Example:
      >>> y = direct_convolution(jnp.ones((3, 1)), jnp.array([[1.0, 1.0, 0.0]]))
      >>> print(y[:, 0])
      [1. 2. 2.]
    """
    ahead = forward.T
    behind = jnp.zeros_like(ahead) if backward is None else backward.T
    matrices = _toeplitz(ahead, behind)

    def multiply(u):
        return jnp.einsum("...jd,ijd->...id", u, matrices, precision="highest")

    return contain_nonfinite(multiply, u) if backward is None else multiply(u)


def _toeplitz(ahead, behind):
    """Returns the weights from step ``j`` to step ``i``, ``(i, j, d)``.

    Args:
      ahead: Weights from a step to itself and later ones, ``(c, d)``.
      behind: Weights to earlier steps, the step before first, ``(c, d)``.
    """
    c = len(ahead)
    taps = jnp.concatenate([jnp.flip(behind[: c - 1], 0), ahead])
    return taps[jnp.arange(c)[:, None] - jnp.arange(c)[None] + c - 1]


def _weights(log_decay, w, feedthrough, c, n):
    """From step to step of a block, from steps into states, from these into steps.

    ``(i, j, d)`` each. A state counts as its real and its imaginary part.
    """
    power = decay_powers(log_decay, jnp.arange(c + 1))
    dtype = common_dtype(w, power)
    weighted_powers = w[None].astype(dtype) * power.astype(dtype)
    ahead, behind = (
        jnp.sum(jnp.real(v), 1) for v in jnp.split(weighted_powers[:c], [n], 1)
    )
    if feedthrough is not None:
        ahead = ahead.at[0].add(feedthrough)
    within = _toeplitz(ahead, behind)
    entering = jnp.swapaxes(_flip_backward_modes(jnp.flip(power[:c], 0), 0, n), 0, 1)
    # What comes after a step leaves out the step itself.
    leaving = _flip_backward_modes(
        jnp.concatenate([weighted_powers[1:, :n], weighted_powers[:c, n:]], 1), 0, n
    )
    if jnp.iscomplexobj(power):
        entering = jnp.concatenate([jnp.real(entering), jnp.imag(entering)])
        leaving = jnp.concatenate([jnp.real(leaving), -jnp.imag(leaving)], 1)
    return within, entering, jnp.real(leaving)


def _starts(log_decay, entered, c, n):
    """The state that each block starts from, ``(rows, blocks, parts, d)``."""
    modes, d = log_decay.log_abs.shape
    is_complex = entered.shape[2] > modes
    if is_complex:
        entered = jax.lax.complex(entered[:, :, :modes], entered[:, :, modes:])
    entered, block_decay = (
        _flip_backward_modes(entered, 1, n),
        n_step_decay(log_decay, c),
    )
    if is_sharded(entered, slice(3, None)):
        # The modes of sharded channels are no one axis.
        def previous_states(log_decay, entered):
            return shift.shift_right(linear_recurrence(log_decay, entered)[0])

        h = jax.vmap(previous_states, (0, 2), 2)(block_decay, entered)
    else:
        entered = entered.reshape(*entered.shape[:2], -1)
        block_decay = jax.tree.map(jnp.ravel, block_decay)
        h = shift.shift_right(linear_recurrence(block_decay, entered)[0])
    h = _flip_backward_modes(h.reshape(*h.shape[:2], modes, d), 1, n)
    return jnp.concatenate([jnp.real(h), jnp.imag(h)], 2) if is_complex else h


def _flip_backward_modes(values, axis, n):
    """Turns an axis round for the modes from the ``n``-th on; modes are next to it."""
    ahead, behind = jnp.split(values, [n], axis + 1)
    return jnp.concatenate([ahead, jnp.flip(behind, axis)], axis + 1)


@jax.custom_vjp
def _mix(*terms: _Term) -> Float[Array, "k i d"]:
    """Mixes the steps of each block: ``y_ki = sum_j m_ij v_kj``, of each channel.

    Differentiable any number of times in reverse mode; not in forward mode.

    Args:
      *terms: Weights ``m``, ``(i, j, d)``, and values ``v``, ``(k, j, d)``; one term or
        more, whose sum is taken.

    Returns:
      ``y``, ``(k, i, d)``; zeros where all weights are, whatever the values.
    """
    weights, values = terms[0]
    nothing = jnp.zeros_like(weights[None, :, 0] * values[:, :1])
    # XLA fuses nothing with a conditional. Without it, on CPUs, whatever makes weights
    # and values is evaluated anew for each of the products they are in.
    some = reduce(jnp.logical_or, (jnp.any(weights != 0) for weights, _ in terms))
    return jax.lax.cond(some, _products, lambda _: nothing, terms)


@jax.custom_vjp
def _mix_causal(*terms: _Term) -> Float[Array, "k i d"]:
    """`_mix` whose first weights are zero from a step to earlier ones.

    Values of the first term that are not finite reach no earlier step of their block.
    """

    def mix_contained(within, *others):
        weights, x = within
        return contain_nonfinite(lambda x: _products([(weights, x), *others]), x)

    # To select the finite values at every call would read and write all of them.
    _, x = terms[0]
    return jax.lax.cond(all_finite(x), _mix, mix_contained, *terms)


def _products(terms):
    products = (
        weights[None, :, j] * values[:, j : j + 1]
        for weights, values in terms
        for j in range(weights.shape[1])
    )
    return reduce(add, products)


@jax.custom_vjp
def _correlate(
    g: Float[Array, "k i d"], v: Float[Array, "k j d"]
) -> Float[Array, "i j d"]:
    """Sums products over blocks, ``sum_k g_ki v_kj``: the cotangent of `_mix`'s ``m``.

    Args:
      g: Cotangents, ``(k, i, d)``.
      v: Values, ``(k, j, d)``.

    Returns:
      The sums, ``(i, j, d)``.
    """
    if is_sharded(g, slice(1)):
        # A slice of the blocks would be one of a few devices.
        return jnp.sum(g[:, :, None] * v[:, None], 0)
    size = math.gcd(len(g), _BLOCKS_PER_SUM)

    def step(k, totals):
        # Whole arrays, cut here: reshaped ones would be made once more for the loop.
        g_k, v_k = (
            jax.lax.dynamic_slice_in_dim(values, k * size, size) for values in (g, v)
        )
        return totals + g_k[:, :, None] * v_k[:, None]

    zeros = jnp.zeros_like(g[:size, :, None] * v[:size, None])
    return reduce(add, jax.lax.fori_loop(0, len(g) // size, step, zeros))


def _swap_steps(weights):
    return jnp.swapaxes(weights, 0, 1)


def _mix_backward(terms, g):
    return tuple(
        (reshard_like(_correlate(g, v), m), reshard_like(_mix((_swap_steps(m), g)), v))
        for m, v in terms
    )


def _correlate_backward(values, sums):
    g, v = values
    of_g, of_v = _mix((sums, v)), _mix((_swap_steps(sums), g))
    return reshard_like(of_g, g), reshard_like(of_v, v)


_mix.defvjp(lambda *terms: (_mix(*terms), terms), _mix_backward)
_mix_causal.defvjp(lambda *terms: (_mix_causal(*terms), terms), _mix_backward)
_correlate.defvjp(lambda *values: (_correlate(*values), values), _correlate_backward)
