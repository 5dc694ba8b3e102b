"""Linear recurrences with a dense state matrix per channel, in real arithmetic.

The state matrix is stored as ``E = A - I``, so that ``h_t = h_{t-1} + E h_{t-1} + B
x_t``. For a slow system ``A`` is close to the identity, and rounding ``A`` to float32
would lose most digits of ``E``. Squaring becomes ``A**2 - I = 2 E + E**2``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.arguments import check_flags
from ssm_jax.kernels.axes import (
    join_chunks,
    match_varying_axes,
    split_axis,
    split_chunks,
    valid_steps,
)
from ssm_jax.kernels.nonfinite import contain_nonfinite
from ssm_jax.kernels.plan import dense_block
from ssm_jax.kernels.precision import einsum_f32
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.sharding import state_of_rows
from ssm_jax.types import Array, Float, Int, Steps

Sequences = Float[Array, "*b l d"]
DenseState = Float[Array, "*b d n"]


class DenseSSM(NamedTuple):
    """State space model ``h_t = A h_{t-1} + B x_t, y_t = C h_t`` of each channel.

    Attributes:
      A_minus_I: State matrix minus the identity, ``(d, n, n)``.
      B: Input vector, ``(d, n)``.
      C: Output vector, ``(d, n)``.
    """

    A_minus_I: Float[Array, "d n n"]
    B: Float[Array, "d n"]
    C: Float[Array, "d n"]


def n_step_change(
    A_minus_I: Float[Array, "d n n"], steps: int
) -> Float[Array, "d n n"]:
    """Computes ``A**steps - I`` by repeated squaring, without forming ``A``.

    Args:
      A_minus_I: State matrix minus the identity, ``(d, n, n)``.
      steps: Number of steps.

    Returns:
      ``A**steps - I``, ``(d, n, n)``.

    Example:
      >>> print(n_step_change(jnp.array([[[0.1]]]), 2))
      [[[0.21000001]]]
    """
    # Product of the powers A**1, A**2, A**4, ... of the binary digits of `steps`.
    total, square = jnp.zeros_like(A_minus_I), A_minus_I
    while steps:
        if steps % 2:
            total = _compose(total, square)
        steps //= 2
        square = _compose(square, square) if steps else square
    return total


def step_by_step(
    system: DenseSSM,
    x: Sequences,
    state: DenseState | None = None,
    *,
    reset: Steps | None = None,
    lengths: Int[Array, "*b"] | None = None,
) -> tuple[Sequences, DenseState]:
    """Evaluates a dense recurrence sequentially.

    Args:
      system: State space model of each channel.
      x: Inputs, ``(*b, l, d)``.
      state: State before the first step, ``(*b, d, n)``. None means zeros.
      reset: True where a segment starts, ``(*b, l)``; the state before such a step is
        set to zeros. None means one segment.
      lengths: Number of valid steps of each sequence, ``(*b,)``; later steps leave the
        state unchanged. None means all steps.

    Returns:
      ``(y, last)``: outputs, ``(*b, l, d)``, and the state after the last valid step,
      ``(*b, d, n)``.

    Example:
      >>> half = DenseSSM(jnp.array([[[-0.5]]]), jnp.ones((1, 1)), jnp.ones((1, 1)))
      >>> y, last = step_by_step(half, jnp.ones((3, 1)))
      >>> print(y[:, 0], last)
      [1.   1.5  1.75] [[1.75]]
    """
    check_flags("reset", reset)
    system, x, h0 = _match_axes(system, x, state)
    *batch, length, _ = x.shape
    c = dense_block(length)
    lengths = jnp.full(batch, length) if lengths is None else lengths
    valid = valid_steps(lengths, length)

    def step(h, inputs):
        x, reset, valid = inputs
        h_prev = h if reset is None else jnp.where(reset[..., None, None], 0, h)
        Bx = promoted_like(system.B, x[..., None]) * x[..., None]
        h_next = _add_step(h_prev, system.A_minus_I, Bx)
        return jnp.where(valid[..., None, None], h_next, h), _readout(system, h_next)

    def split_blocks(values):
        return split_chunks(jnp.moveaxis(values, len(batch), 0), axis=0, size=c)

    # Rematerialize within blocks: the backward pass stores one state per block.
    scan_block = jax.checkpoint(lambda h, inputs: jax.lax.scan(step, h, inputs))
    inputs = jax.tree.map(split_blocks, (x, reset, valid))
    last, y = jax.lax.scan(scan_block, h0, inputs)
    y = join_chunks(y, axis=0, length=length)
    return jnp.moveaxis(y, 0, len(batch)), last


def block_by_block(
    system: DenseSSM,
    x: Sequences,
    state: DenseState | None = None,
    *,
    lengths: Int[Array, "*b"] | None = None,
) -> tuple[Sequences, DenseState]:
    """Evaluates a dense recurrence in blocks, by matrix products.

    A block has about ``sqrt(l)`` steps, at most 128. Its outputs are the product of a
    Toeplitz matrix with its inputs, plus the response to the state before the block.

    Args:
      system: State space model of each channel.
      x: Inputs, ``(*b, l, d)``.
      state: State before the first step, ``(*b, d, n)``. None means zeros.
      lengths: Number of valid steps of each sequence, ``(*b,)``. None means all steps.

    Returns:
      ``(y, last)`` as `step_by_step` returns them.
    """
    system, x, h0 = _match_axes(system, x, state)
    *batch, length, d = x.shape
    c = dense_block(length)
    blocks = split_axis(x, -2, c)
    block_change, A_powers_B, C_A_powers = _tables(system, c)

    def carry_state(h, block_input):
        return _add_step(h, block_change, block_input), h

    # The state of each block, by a sequential scan over blocks only.
    block_inputs = einsum_f32("...qcd,cdn->q...dn", blocks, jnp.flip(A_powers_B, 0))
    last, starts = jax.lax.scan(carry_state, h0, block_inputs)
    # Response to the state before each block, plus that to the inputs of the block.
    y = einsum_f32("q...dn,cdn->...qcd", starts, C_A_powers)
    toeplitz = _toeplitz(system, A_powers_B)

    def within_blocks(blocks):
        return einsum_f32("...qjd,ijd->...qid", blocks, toeplitz)

    y += contain_nonfinite(within_blocks, blocks)
    y = y.reshape(*batch, -1, d)[..., :length, :]
    if lengths is None and length % c == 0:
        return y, last
    # `last` includes padded steps. Step sequentially through the incomplete block of
    # each sequence instead, from the state before it.
    lengths = jnp.full(batch, length) if lengths is None else lengths
    starts = jnp.moveaxis(jnp.concatenate([starts, last[None]]), 0, len(batch))
    n_full = (lengths // c)[..., None, None, None]
    h_prev = jnp.take_along_axis(starts, n_full, -3)[..., 0, :, :]
    # If all blocks are full, the index is clipped and no step of the block is taken.
    block = jnp.minimum(n_full, blocks.shape[-3] - 1)
    last_block = jnp.take_along_axis(blocks, block, -3)[..., 0, :, :]
    return y, step_by_step(system, last_block, h_prev, lengths=lengths % c)[1]


def _tables(system, c):
    """Returns ``A**c - I``, and ``A**r B`` and ``C A**(r + 1)`` for ``r < c``."""
    change = system.A_minus_I
    A_powers_B = system.B[None]
    C_A_powers = (system.C + einsum_f32("dn,dnm->dm", system.C, change))[None]
    # Doubling: `log2(c)` batched products in place of `c` sequential ones.
    while len(A_powers_B) < c:
        upper = A_powers_B + einsum_f32("dnm,rdm->rdn", change, A_powers_B)
        A_powers_B = jnp.concatenate([A_powers_B, upper])
        upper = C_A_powers + einsum_f32("rdn,dnm->rdm", C_A_powers, change)
        C_A_powers = jnp.concatenate([C_A_powers, upper])
        change = _compose(change, change)
    return change, A_powers_B, C_A_powers


def _toeplitz(system, A_powers_B):
    """Returns ``T[i, j] = C A**(i - j) B`` for ``j <= i``, else 0, ``(c, c, d)``."""
    kernel = _readout(system, A_powers_B)
    steps = jnp.arange(len(kernel))
    lags = steps[:, None] - steps[None]
    return jnp.where((lags >= 0)[..., None], kernel[jnp.maximum(lags, 0)], 0)


def _match_axes(system, x, state):
    """Returns the arguments, the state as an array, with equal `shard_map` axes."""
    if state is None:
        state = jnp.zeros((*x.shape[:-2], *system.B.shape), system.B.dtype)
    state = state_of_rows(state, x, per_channel=True)
    return match_varying_axes(system, x, state)


def _compose(first, second):
    """Returns ``(I + first) (I + second) - I``."""
    return first + second + einsum_f32("dnm,dmk->dnk", first, second)


def _add_step(h, change, inputs):
    # The small change is added to the state; `A h` would round it away.
    return h + einsum_f32("dnm,...dm->...dn", change, h) + inputs


def _readout(system, h):
    return einsum_f32("...dn,dn->...d", h, system.C)
