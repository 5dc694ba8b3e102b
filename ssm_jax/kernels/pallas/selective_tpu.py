"""The selective recurrence for TPUs.

Channels are lanes and the states of a channel are sublanes. ``B`` and ``C`` have their
steps in the lanes: one step is a column, which all channels share.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ssm_jax.kernels.axes import pad_axis
from ssm_jax.kernels.pallas.devices import shape_struct
from ssm_jax.kernels.pallas.tpu import call

# Steps of a block, one register of columns, and steps of a tile, a register of rows.
_STEPS, _ROWS = 128, 8

# Largest number of channels of a block, and lanes of a register: blocks of whole
# registers, as all channels of a wide layer would not fit in VMEM.
_CHANNELS, _LANES = 256, 128


def forward(x, dt, B, C, rates, feedthrough, state, reset, *, with_starts):
    """Returns ``(y, last, starts)``; starts are the states before the blocks."""
    del with_starts  # They are a small part of the results.
    blocks = _Blocks(x, B)

    def kernel(flags, x, dt, B, C, rates, feedthrough, first, y, last, starts, h_ref):
        @pl.when(pl.program_id(2) == 0)
        def start():
            h_ref[...] = first[0]

        starts[0, 0] = h_ref[...]
        rates, feedthrough = rates[...], feedthrough[...]

        def one_tile(i, carry):
            h, B_tile, C_tile = carry
            rows = pl.ds(pl.multiple_of(_ROWS * i, _ROWS), _ROWS)
            x_tile, dt_tile, y_rows = x[0, rows, :], dt[0, rows, :], []
            for r in range(_ROWS):
                x_row, dt_row = x_tile[r : r + 1], dt_tile[r : r + 1]
                h = _zero_at(flags, _ROWS * i + r, h)
                step = dt_row * x_row * B_tile[:, r : r + 1]
                h = jnp.exp(-dt_row * rates) * h + step
                y_row = jnp.sum(h * C_tile[:, r : r + 1], 0, keepdims=True)
                y_rows.append(y_row + feedthrough * x_row)
            y[0, rows, :] = jnp.concatenate(y_rows, 0)
            # The columns of the next tile become the first ones.
            return h, _roll(B_tile, -_ROWS), _roll(C_tile, -_ROWS)

        carry = h_ref[...], B[0], C[0]
        h, *_ = jax.lax.fori_loop(0, _STEPS // _ROWS, one_tile, carry)
        h_ref[...] = h
        last[0] = h

    y, last, starts = blocks.call(
        kernel,
        [
            (blocks.pad_flags(reset), blocks.flags),
            *blocks.operands(x, dt, B, C, rates, feedthrough),
            (jnp.swapaxes(state, 1, 2), blocks.state),
        ],
        [
            (blocks.padded, blocks.rows),
            (blocks.state_shape, blocks.state),
            (blocks.starts_shape, blocks.starts),
        ],
        [blocks.scratch()],
    )
    return y[:, : x.shape[1]], jnp.swapaxes(last, 1, 2), starts


def backward(
    x, dt, B, C, rates, feedthrough, state, reset, starts, y_gradient, last_gradient
):
    """Returns the gradients in the arguments of `forward`, from ``x`` to ``state``."""
    blocks = _Blocks(x, B, reverse=True)

    def kernel(
        flags,
        x,
        dt,
        B,
        C,
        rates,
        feedthrough,
        starts,
        of_y,
        of_last,
        *refs,
    ):
        of_x, of_dt, of_B, of_C, of_rates, of_feedthrough, of_state, h_ref, g_ref = refs

        @pl.when(pl.program_id(2) == 0)
        def start():
            g_ref[...] = of_last[0]
            of_rates[0] = jnp.zeros_like(rates)
            of_feedthrough[0] = jnp.zeros_like(feedthrough)

        rates, feedthrough = rates[...], feedthrough[...]

        def recompute(i, carry):
            h, B_tile = carry
            rows = pl.ds(pl.multiple_of(_ROWS * i, _ROWS), _ROWS)
            x_tile, dt_tile = x[0, rows, :], dt[0, rows, :]
            for r in range(_ROWS):
                x_row, dt_row = x_tile[r : r + 1], dt_tile[r : r + 1]
                h_ref[_ROWS * i + r] = h = _zero_at(flags, _ROWS * i + r, h)
                step = dt_row * x_row * B_tile[:, r : r + 1]
                h = jnp.exp(-dt_row * rates) * h + step
            return h, _roll(B_tile, -_ROWS)

        count = _STEPS // _ROWS
        jax.lax.fori_loop(0, count, recompute, (starts[0, 0], B[0]))
        column = jax.lax.broadcasted_iota(jnp.int32, B.shape[1:], 1)

        def one_tile(k, carry):
            i = count - 1 - k
            g, B_tile, C_tile, of_B_tile, of_C_tile, of_rates_sum, of_D_sum = carry
            rows = pl.ds(pl.multiple_of(_ROWS * i, _ROWS), _ROWS)
            tiles = x[0, rows, :], dt[0, rows, :], of_y[0, rows, :]
            of_x_rows, of_dt_rows = [], []
            for r in reversed(range(_ROWS)):
                x_row, dt_row, of_y_row = (tile[r : r + 1] for tile in tiles)
                B_t, C_t = B_tile[:, r : r + 1], C_tile[:, r : r + 1]
                before, t = h_ref[_ROWS * i + r], _ROWS * i + r
                decay, step = jnp.exp(-dt_row * rates), dt_row * x_row
                g += C_t * of_y_row
                h = decay * before + step * B_t
                of_C_t = jnp.sum(h * of_y_row, 1, keepdims=True)
                of_B_t = jnp.sum(g * step, 1, keepdims=True)
                of_C_tile = jnp.where(column == t, of_C_t, of_C_tile)
                of_B_tile = jnp.where(column == t, of_B_t, of_B_tile)
                of_step = jnp.sum(g * B_t, 0, keepdims=True)
                g *= decay
                # In the logarithm of the decay, -dt r.
                of_log = g * before
                of_rates_sum -= dt_row * of_log
                of_decay = jnp.sum(of_log * rates, 0, keepdims=True)
                of_dt_rows.append(x_row * of_step - of_decay)
                of_x_rows.append(dt_row * of_step + feedthrough * of_y_row)
                of_D_sum += x_row * of_y_row
                g = _zero_at(flags, t, g)
            of_x[0, rows, :] = jnp.concatenate(of_x_rows[::-1], 0)
            of_dt[0, rows, :] = jnp.concatenate(of_dt_rows[::-1], 0)
            B_tile, C_tile = _roll(B_tile, _ROWS), _roll(C_tile, _ROWS)
            return g, B_tile, C_tile, of_B_tile, of_C_tile, of_rates_sum, of_D_sum

        carry = (
            g_ref[...],
            _roll(B[0], _ROWS),
            _roll(C[0], _ROWS),
            jnp.zeros_like(B[0]),
            jnp.zeros_like(C[0]),
            of_rates[0],
            of_feedthrough[0],
        )
        g, _, _, of_B[0, 0], of_C[0, 0], of_rates[0], of_feedthrough[0] = (
            jax.lax.fori_loop(0, count, one_tile, carry)
        )
        g_ref[...] = g
        of_state[0] = g

    columns = (blocks.columns_shape, blocks.partial_columns)
    channels = blocks.channels_shape
    of_x, of_dt, of_B, of_C, of_rates, of_feedthrough, of_state = blocks.call(
        kernel,
        [
            (blocks.pad_flags(reset), blocks.flags),
            *blocks.operands(x, dt, B, C, rates, feedthrough),
            (starts, blocks.starts),
            (blocks.pad(y_gradient), blocks.rows),
            (jnp.swapaxes(last_gradient, 1, 2), blocks.state),
        ],
        [
            (blocks.padded, blocks.rows),
            (blocks.padded, blocks.rows),
            columns,
            columns,
            (blocks.state_shape, blocks.state),
            (channels, blocks.of_row),
            (blocks.state_shape, blocks.state),
        ],
        [blocks.scratch(_STEPS), blocks.scratch()],
    )
    length = x.shape[1]
    of_B, of_C = (
        jnp.swapaxes(jnp.sum(value, 1), 1, 2)[:, :length] for value in (of_B, of_C)
    )
    return (
        of_x[:, :length],
        of_dt[:, :length],
        of_B,
        of_C,
        jnp.sum(of_rates, 0).T,
        jnp.sum(of_feedthrough, (0, 1)),
        jnp.swapaxes(of_state, 1, 2),
    )


class _Blocks:
    """The blocks of ``(b, l, d)``, padded to whole blocks of steps; specs and shapes.

    Attributes:
      rows: Blocks of ``(b, l, d)``.
      columns: Blocks of ``(b, n, l)``.
      partial_columns: Blocks of ``(b, blocks of channels, n, l)``.
      state: Blocks of ``(b, n, d)``.
      starts: Blocks of ``(b, blocks of steps, n, d)``.
      rates: Blocks of ``(n, d)``.
      channels: Blocks of ``(1, d)``.
      of_row: Blocks of ``(b, 1, d)``.
      flags: Blocks of ``(b, 1, l)``, one number per step.
    """

    def __init__(self, x, B, *, reverse=False):
        (b, self._length, d), n = x.shape, B.shape[-1]
        self._like, count = x, pl.cdiv(self._length, _STEPS)
        size = next((size for size in (_CHANNELS, _LANES) if d % size == 0), d)
        n_blocks = d // size
        self._grid, self._n, self._size = (b, n_blocks, count), n, size

        def at(k):
            return count - 1 - k if reverse else k

        self.rows = pl.BlockSpec((1, _STEPS, size), lambda i, j, k: (i, at(k), j))
        self.columns = pl.BlockSpec((1, n, _STEPS), lambda i, j, k: (i, 0, at(k)))
        self.partial_columns = pl.BlockSpec(
            (1, 1, n, _STEPS), lambda i, j, k: (i, j, 0, at(k))
        )
        self.state = pl.BlockSpec((1, n, size), lambda i, j, k: (i, 0, j))
        self.starts = pl.BlockSpec((1, 1, n, size), lambda i, j, k: (i, at(k), 0, j))
        self.rates = pl.BlockSpec((n, size), lambda i, j, k: (0, j))
        self.channels = pl.BlockSpec((1, size), lambda i, j, k: (0, j))
        self.of_row = pl.BlockSpec((1, 1, size), lambda i, j, k: (i, 0, j))
        self.flags = pl.BlockSpec(
            (1, 1, _STEPS), lambda i, j, k: (i, 0, at(k)), memory_space=pltpu.SMEM
        )
        length = count * _STEPS
        self.padded, self.state_shape = (b, length, d), (b, n, d)
        self.columns_shape = (b, n_blocks, n, length)
        self.starts_shape, self.channels_shape = (b, count, n, d), (b, 1, d)

    def operands(self, x, dt, B, C, rates, feedthrough):
        """Returns the operands of both passes with their specs."""
        # A padded step of zero is the identity.
        return [
            (self.pad(x), self.rows),
            (self.pad(dt), self.rows),
            (jnp.swapaxes(self.pad(B), 1, 2), self.columns),
            (jnp.swapaxes(self.pad(C), 1, 2), self.columns),
            (rates.T, self.rates),
            (feedthrough[None], self.channels),
        ]

    def pad(self, values):
        """Returns ``(b, l, ...)`` padded to whole blocks of steps."""
        return pad_axis(values, 1, after=self._grid[2] * _STEPS - self._length)

    def pad_flags(self, reset):
        """Returns resets as numbers, or None."""
        return None if reset is None else self.pad(reset.astype(jnp.int32))[:, None]

    def scratch(self, *leading):
        """Returns the memory of one state, or of several."""
        return pltpu.VMEM((*leading, self._n, self._size), self._like.dtype)

    def call(self, kernel, operands, results, scratch):
        """Calls a kernel with the blocks of operands; results are shapes and specs."""
        shapes = [(shape_struct(self._like, size), spec) for size, spec in results]
        return call(kernel, self._grid, operands, shapes, scratch)


def _zero_at(flags, t, state):
    """Returns the state, zero if the step depends on no state before it."""
    return state if flags is None else jnp.where(flags[0, 0, t] == 0, state, 0)


def _roll(columns, shift):
    """Moves columns to the right, from the last ones to the first."""
    return pltpu.roll(columns, shift % _STEPS, 1)
