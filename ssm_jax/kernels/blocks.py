"""Convolution with the kernel of few modes, block by block, without FFT.

All blocks of a sequence are stepped through side by side, each from a state of zero,
and what leaves the states is summed at once, so no state of a step is ever kept; what
passes from block to block is a state of each mode. The gradient has the same cost: that
of the input is the same convolution the other way round, that of a mode is summed from
its state and the derivative of its state by its decay, which is stepped beside it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.powers import LogDecay, powers, two_float_decay
from ssm_jax.kernels.recurrence import as_varying_together
from ssm_jax.types import Array, Float, Inexact

# Within a block powers are products of a rounded decay; its error grows with them.
_LONGEST = 128


def block_length(length: int) -> int:
    """Steps of a block for a sequence of ``length`` steps."""
    return min(_LONGEST, length)


@jax.jit
def block_convolution(
    u: Float[Array, "*b l d"],
    log_decay: LogDecay,
    w: Inexact[Array, "d n"],
    log_decay_backward: LogDecay | None = None,
    w_backward: Inexact[Array, "d n"] | None = None,
) -> Float[Array, "*b l d"]:
    """Convolves each channel with the real part of its modes' sum.

    Differentiable any number of times in reverse mode; not in forward mode.

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
    x = jnp.pad(u.reshape(-1, length, d), [(0, 0), (0, -length % c), (0, 0)])
    x = x.reshape(len(x), -1, c, d)
    sides = [(log_decay, w)]
    if w_backward is not None and log_decay_backward is not None:
        sides.append((log_decay_backward, w_backward))
    # Modes first: what is done to a state is then done to whole rows of channels.
    x, sides = as_varying_together(x, jax.tree.map(jnp.transpose, sides))
    y = _convolved(_ORDERS[: len(sides)], x, sides)
    return y.reshape(len(x), -1, d)[:, :length].reshape(*batch, length, d)


class _Order(NamedTuple):
    """How a side is stepped through.

    Attributes:
      reverse: From the last step to the first.
      strict: A step sees what is before it, not itself.
    """

    reverse: bool
    strict: bool


_ORDERS = _Order(reverse=False, strict=False), _Order(reverse=True, strict=True)


class _Decay(NamedTuple):
    """Decay of a step, in two floats, and of a whole block."""

    high: Inexact[Array, "n 1 1 d"]
    low: Inexact[Array, "n 1 1 d"]
    whole: Inexact[Array, "n 1 d"]

    def step(self, h, x):
        return self.high * h + (self.low * h + x)


def _evaluate(orders, x, sides):
    """The sum of all sides' convolutions, ``(rows, blocks, c, d)`` like ``x``."""
    return _summed(orders, x, _decays(x, sides), sides)


def _forward(orders, x, sides):
    decays = _decays(x, sides)
    return _summed(orders, x, decays, sides), (x, decays, sides)


def _backward(orders, kept, g):
    x, decays, sides = kept
    turned = tuple(order._replace(reverse=not order.reverse) for order in orders)
    of_sides = [
        _of_modes(order, x, g, decay, log_decay, w)
        for order, decay, (log_decay, w) in zip(orders, decays, sides, strict=True)
    ]
    return _summed(turned, g, decays, sides), of_sides


_convolved = jax.custom_vjp(_evaluate, nondiff_argnums=(0,))
_convolved.defvjp(_forward, _backward)


def _decays(x, sides):
    def of(log_decay):
        high, low = (part[:, None, None] for part in two_float_decay(log_decay))
        whole = powers(log_decay, jnp.asarray(x.shape[2]))[:, None]
        return _Decay(high, low, whole)

    return [of(log_decay) for log_decay, _ in sides]


def _summed(orders, x, decays, sides):
    y = None
    for order, decay, (_, w) in zip(orders, decays, sides, strict=True):
        y = _added(order, x, decay, w, y)
    return jnp.moveaxis(jnp.asarray(y), 0, 2)


def _added(order, x, decay, w, y):
    """Adds a side's convolution to ``y``, ``(c, rows, blocks, d)``; None is zero."""
    weight = w[:, None, None]

    def step(h, inputs):
        k, y = inputs
        after = decay.step(h, _at(x, k))
        leaving = jnp.sum(jnp.real(weight * (h if order.strict else after)), 0)
        return after, leaving if y is None else y + leaving

    (h,) = _starts(order, x, decay)
    inputs = jnp.arange(x.shape[2]), y
    return jax.lax.scan(step, h, inputs, reverse=order.reverse)[1]


def _of_modes(order, x, g, decay, log_decay, w):
    """Cotangents of decay and weight: sums over all steps of states and slopes."""

    def step(carry, k):
        h, f, of_w, of_log = carry
        after = decay.step(h, _at(x, k)), decay.step(f + h, 0)
        seen = (h, f) if order.strict else after
        g_k = _at(g, k)
        return (*after, of_w + g_k * seen[0], of_log + g_k * seen[1]), None

    h, f = _starts(order, x, decay, slopes=True)
    sums = (h, f, jnp.zeros_like(h), jnp.zeros_like(f))
    steps = jnp.arange(x.shape[2])
    sums, _ = jax.lax.scan(step, sums, steps, reverse=order.reverse)
    of_w, of_log = (jnp.sum(total, (1, 2)) for total in sums[2:])
    of_log = w * of_log
    angles = [None if angle is None else -jnp.imag(of_log) for angle in log_decay[1:]]
    of_w = of_w.astype(w.dtype) if jnp.iscomplexobj(w) else jnp.real(of_w)
    return LogDecay(jnp.real(of_log), *angles), of_w


def _starts(order, x, decay, *, slopes=False):
    """States before each block, ``(n, rows, blocks, d)``, and if asked their slopes.

    A slope is the derivative of a state by the logarithm of its decay.
    """
    c = x.shape[2]

    def step(carry, k):
        h, *f = carry
        slopes = (decay.step(slope + h, 0) for slope in f)
        return (decay.step(h, _at(x, k)), *slopes), None

    def across(before, added):
        h, *f = before
        passed = decay.whole * h, *(decay.whole * (slope + c * h) for slope in f)
        return jax.tree.map(jnp.add, passed, added), before

    zeros = (jnp.zeros_like(decay.high * x[:, :, 0]),) * (2 if slopes else 1)
    added, _ = jax.lax.scan(step, zeros, jnp.arange(c), reverse=order.reverse)
    added = jax.tree.map(lambda h: jnp.moveaxis(h, 2, 0), added)
    zeros = jax.tree.map(lambda h: jnp.zeros_like(h[0]), added)
    _, starts = jax.lax.scan(across, zeros, added, reverse=order.reverse)
    return jax.tree.map(lambda h: jnp.moveaxis(h, 0, 2), starts)


def _at(x, k):
    """Step ``k`` of all blocks, ``(rows, blocks, d)``."""
    return jax.lax.dynamic_index_in_dim(x, k, 2, keepdims=False)
