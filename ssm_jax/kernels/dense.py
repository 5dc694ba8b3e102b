"""Linear recurrences with a dense matrix, one of each channel, in real numbers.

A step is held as what it changes, ``h_t = h_{t-1} + E h_{t-1} + b x_t``: a slow system
is little but the identity, and ``I + E`` rounded to float32 would lose what matters of
``E``. The change over twice as many steps is ``2 E + E**2``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.arguments import check_flags
from ssm_jax.kernels.recurrence import match_varying_axes
from ssm_jax.types import Array, Float, Int, Steps

_LONGEST = 128
_FULL = jax.lax.Precision.HIGHEST

Sequences = Float[Array, "*b l d"]
DenseState = Float[Array, "*b d n"]


class DenseSSM(NamedTuple):
    """``h_t = h_{t-1} + E h_{t-1} + b x_t, y_t = c h_t`` of each channel.

    Attributes:
      A_minus_I: What a step changes, ``E``, ``(d, n, n)``.
      B: How the input enters, ``b``, ``(d, n)``.
      C: How the state leaves, ``c``, ``(d, n)``.
    """

    A_minus_I: Float[Array, "d n n"]
    B: Float[Array, "d n"]
    C: Float[Array, "d n"]


def change_over(change: Float[Array, "d n n"], steps: int) -> Float[Array, "d n n"]:
    """What many steps change, ``(I + E)**steps - I``.

    Args:
      A_minus_I: What one step changes, ``(d, n, n)``.
      steps: Number of steps.

    Returns:
      ``(d, n, n)``.

    Example:
      >>> print(change_over(jnp.array([[[0.1]]]), 2))
      [[[0.21000001]]]
    """
    total = jnp.zeros_like(change)
    while steps:
        if steps % 2:
            total = _both(total, change)
        steps //= 2
        change = _both(change, change) if steps else change
    return total


def step_by_step(
    system: DenseSSM,
    x: Sequences,
    state: DenseState | None = None,
    *,
    reset: Steps | None = None,
    lengths: Int[Array, "*b"] | None = None,
) -> tuple[Sequences, DenseState]:
    """Evaluates a dense recurrence one step after another.

    Args:
      system: The recurrence.
      x: Sequences, ``(*b, l, d)``.
      state: State before the first step, ``(*b, d, n)``. None means zeros.
      reset: True where the state before is forgotten, ``(*b, l)``, or None.
      lengths: Steps of each row that count, ``(*b,)``; those behind leave the state as
        it is. None means all.

    Returns:
      ``(y, last)``: outputs, ``(*b, l, d)``, and the state after the last step that
      counts, ``(*b, d, n)``.

    Example:
      >>> half = DenseSSM(jnp.array([[[-0.5]]]), jnp.ones((1, 1)), jnp.ones((1, 1)))
      >>> y, last = step_by_step(half, jnp.ones((3, 1)))
      >>> print(y[:, 0], last)
      [1.   1.5  1.75] [[1.75]]
    """
    check_flags("reset", reset)
    system, x, start = _together(system, x, state)
    *batch, length, _ = x.shape
    c = _block_length(length)
    lengths = jnp.full(batch, length) if lengths is None else lengths
    counts = jnp.arange(length) < lengths[..., None]

    def one_step(h, inputs):
        x, cut, counts = inputs
        before = h if cut is None else jnp.where(cut[..., None, None], 0, h)
        after = _add_step(before, system.A_minus_I, system.B * x[..., None])
        return jnp.where(counts[..., None, None], after, h), _leave(system, after)

    def in_blocks(values):
        values = jnp.moveaxis(values, len(batch), 0)
        fill = [(0, -length % c)] + [(0, 0)] * (values.ndim - 1)
        return jnp.pad(values, fill).reshape(-1, c, *values.shape[1:])

    # Only the states between blocks are kept for the backward pass.
    one_block = jax.checkpoint(lambda h, inputs: jax.lax.scan(one_step, h, inputs))
    inputs = jax.tree.map(in_blocks, (x, reset, counts))
    last, y = jax.lax.scan(one_block, start, inputs)
    y = y.reshape(-1, *y.shape[2:])[:length]
    return jnp.moveaxis(y, 0, len(batch)), last


def block_by_block(
    system: DenseSSM,
    x: Sequences,
    state: DenseState | None = None,
    *,
    lengths: Int[Array, "*b"] | None = None,
) -> tuple[Sequences, DenseState]:
    """Evaluates a dense recurrence in matrix products, block by block.

    A block is ``sqrt(l)`` steps, at most 128. Its outputs are a small Toeplitz matrix
    times its inputs, and what the state before it makes of them.

    Args:
      system: The recurrence.
      x: Sequences, ``(*b, l, d)``.
      state: State before the first step, ``(*b, d, n)``. None means zeros.
      lengths: Steps of each row that count, ``(*b,)``. None means all.

    Returns:
      ``(y, last)``, as `step_by_step` gives them.
    """
    system, x, start = _together(system, x, state)
    *batch, length, d = x.shape
    c = _block_length(length)
    fill = [(0, 0)] * len(batch) + [(0, -length % c), (0, 0)]
    blocks = jnp.pad(x, fill).reshape(*batch, -1, c, d)
    over_block, entering, leaving = _tables(system, c)

    def pass_on(h, added):
        return _add_step(h, over_block, added), h

    added = _einsum("...qcd,cdn->q...dn", blocks, jnp.flip(entering, 0))
    last, starts = jax.lax.scan(pass_on, start, added)
    y = _einsum("q...dn,cdn->...qcd", starts, leaving)
    y += _einsum("...qjd,ijd->...qid", blocks, _toeplitz(system, entering))
    y = y.reshape(*batch, -1, d)[..., :length, :]
    if lengths is None and length % c == 0:
        return y, last
    # The last steps of a row begin at the start of its last block that is not full.
    lengths = jnp.full(batch, length) if lengths is None else lengths
    starts = jnp.moveaxis(jnp.concatenate([starts, last[None]]), 0, len(batch))
    full = (lengths // c)[..., None, None, None]
    before = jnp.take_along_axis(starts, full, -3)[..., 0, :, :]
    block = jnp.minimum(full, blocks.shape[-3] - 1)
    rest = jnp.take_along_axis(blocks, block, -3)[..., 0, :, :]
    return y, step_by_step(system, rest, before, lengths=lengths % c)[1]


def _tables(system, c):
    """The change over ``c`` steps, ``A**r b`` and ``c A**(r + 1)``, ``A = I + E``."""
    change = system.A_minus_I
    entering = system.B[None]
    leaving = (system.C + _einsum("dn,dnm->dm", system.C, change))[None]
    while len(entering) < c:
        later = entering + _einsum("dnm,rdm->rdn", change, entering)
        entering = jnp.concatenate([entering, later])
        later = leaving + _einsum("rdn,dnm->rdm", leaving, change)
        leaving = jnp.concatenate([leaving, later])
        change = _both(change, change)
    return change, entering, leaving


def _toeplitz(system, entering):
    """``T[i, j]``: what input ``j`` adds to output ``i`` of a block, ``(c, c, d)``."""
    kernel = _leave(system, entering)
    steps = jnp.arange(len(kernel))
    lags = steps[:, None] - steps
    return jnp.where((lags >= 0)[..., None], kernel[jnp.maximum(lags, 0)], 0)


def _together(system, x, state):
    if state is None:
        state = jnp.zeros((*x.shape[:-2], *system.B.shape), system.B.dtype)
    return match_varying_axes(system, x, state)


def _both(first, second):
    return first + second + _einsum("dnm,dmk->dnk", first, second)


def _add_step(h, change, added):
    return h + _einsum("dnm,...dm->...dn", change, h) + added


def _leave(system, h):
    return _einsum("...dn,dn->...d", h, system.C)


def _einsum(formula, one, other):
    return jnp.einsum(formula, one, other, precision=_FULL)


def _block_length(length):
    return min(_LONGEST, 1 << ((length - 1).bit_length() + 1) // 2)
