"""Reference implementation of the kernels: NumPy loops in float64."""

from typing import NamedTuple

import chex
import jax
import numpy as np


class Problem(NamedTuple):
    """A recurrence and the weights of its loss, ``Re(sum(c h) + sum(c_last h_last))``.

    Attributes:
      a: Decay, ``(*b, l, n)`` or ``(n,)``.
      b: Input, ``(*b, l, n)``.
      h0: State before the first step, ``(*b, n)``.
      c: Weight of each state, ``(*b, l, n)``.
      c_last: Weight of the last state, ``(*b, n)``.
      reset: True where a segment starts, ``(l,)`` or ``(*b, l)``, or None.
      reverse: Whether steps are evaluated from the last to the first.
    """

    a: np.ndarray
    b: np.ndarray
    h0: np.ndarray
    c: np.ndarray
    c_last: np.ndarray
    reset: np.ndarray | None = None
    reverse: bool = False


def draw(rng, shape, *, is_complex=True):
    """Draws normal numbers, rounded to float32 or complex64."""
    values = rng.normal(size=shape)
    if is_complex:
        values = values + 1j * rng.normal(size=shape)
    return values.astype(np.complex64 if is_complex else np.float32)


def problem(a, b_shape, *, seed=0, is_complex=True, reset=None, reverse=False):
    """Returns a problem with decay ``a`` and random other arrays."""
    rng = np.random.default_rng(seed)
    b, c = (draw(rng, b_shape, is_complex=is_complex) for _ in range(2))
    state = (*b_shape[:-2], b_shape[-1])
    h0, c_last = (draw(rng, state, is_complex=is_complex) for _ in range(2))
    return Problem(a, b, h0, c, c_last, reset, reverse)


def states(p):
    """Evaluates a problem step by step, ``(h, h_last)``."""
    a, b, keep, order = _prepare(p)
    h, state = np.empty_like(b), p.h0.astype(complex)
    for t in order:
        state = keep[t] * a[t] * state + b[t]
        h[t] = state
    return np.moveaxis(h, 0, -2), state


def gradients(p):
    """Differentiates the loss in ``a``, ``b`` and ``h0`` by the adjoint recurrence.

    Complex gradients follow JAX: the derivative itself, not its conjugate.
    """
    a, b, keep, order = _prepare(p)
    h, _ = (np.moveaxis(v, -2, 0) if v.ndim == b.ndim else v for v in states(p))
    c = np.moveaxis(p.c, -2, 0)
    of_a, of_b, g = np.empty_like(b), np.empty_like(b), p.c_last.astype(complex)
    for i in reversed(range(len(order))):
        t = order[i]
        h_prev = h[order[i - 1]] if i else p.h0
        g = g + c[t]
        of_b[t], of_a[t] = g, keep[t] * g * h_prev
        g = keep[t] * a[t] * g
    if p.a.ndim == 1:
        of_a = of_a.sum(tuple(range(of_a.ndim - 1)))
    else:
        of_a = np.moveaxis(of_a, 0, -2)
    grads = (of_a, np.moveaxis(of_b, 0, -2), g)
    return tuple(
        grad if np.iscomplexobj(value) else grad.real
        for grad, value in zip(grads, (p.a, p.b, p.h0), strict=True)
    )


def assert_close(actual, expected, tolerance):
    """Checks that the error of each array is within ``tolerance`` of its maximum."""
    actual = jax.tree.map(lambda v: np.asarray(v, complex), actual)
    expected = jax.tree.map(lambda v: np.asarray(v, complex), expected)
    largest = jax.tree.map(lambda v: np.abs(v).max() or 1.0, expected)
    chex.assert_trees_all_close(
        *(jax.tree.map(np.divide, tree, largest) for tree in (actual, expected)),
        rtol=0,
        atol=tolerance,
    )


def _prepare(p):
    """Returns decay, input and keep flags, time axis first, and the order of steps."""
    b = np.moveaxis(p.b, -2, 0).astype(complex)
    a = np.broadcast_to(p.a.astype(complex), p.b.shape)
    steps = range(len(b))
    keep = np.ones((*p.b.shape[:-1], 1))
    for t in steps[1:] if p.reverse else steps:
        # A reset separates its step from the previous one in time, in both directions.
        if p.reset is not None:
            keep[..., t - 1 if p.reverse else t, 0] = ~p.reset[..., t]
    order = steps[::-1] if p.reverse else steps
    return np.moveaxis(a, -2, 0), b, np.moveaxis(keep, -2, 0), order
