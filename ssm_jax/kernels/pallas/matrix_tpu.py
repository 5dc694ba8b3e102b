"""The recurrence of matrices for TPUs, chunk by chunk.

Steps are sublanes and the entries of keys or values, of one head after the other, are
lanes: the arrays of a layer before they are divided into heads, which are then not
transposed. Decays and flags have their steps in the lanes: in the sublanes, a register
of 8 x 128 would hold as few as 8 of their numbers.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from ssm_jax.kernels.axes import pad_axis
from ssm_jax.kernels.matrix import LOG_DECAY_MIN
from ssm_jax.kernels.pallas.tpu import call, round_up, shaped

# Steps of a chunk, of whole registers. The matrix unit multiplies 128 x 128 entries at
# a time, so that shorter chunks would take as long and store more states. Registers
# have 8 rows of 128 lanes, of bfloat16 twice as many rows.
_STEPS, _ROWS, _LANES = 128, 16, 128

# Most entries of the states of a block: of 32 heads of Mamba-2 they, their gradients
# and their values would not fit in VMEM.
_ENTRIES = 2**17


def forward(q, k, v, log_decay, state, reset, mask, *, with_starts):
    """Returns ``(o, last, starts)``; starts are the states before the chunks, or None.

    What is not finite sets the outputs that it reaches to NaN, and states, by which the
    next chunk knows it.

    Args:
      q: Queries, ``(b, l, g, k)``.
      k: Keys, ``(b, l, g, k)``.
      v: Values, ``(b, l, h, v)``.
      log_decay: Log decays, ``(b, l, h)``, or None.
      state: State before the first step, ``(b, h, k, v)``, in whose dtype sums are.
      reset: Where segments start, ``(b, l)``, or None.
      mask: Valid steps, ``(b, l)``, or None.
      with_starts: Whether the states before the chunks are stored.
    """
    blocks = _Blocks(q, v)

    def kernel(q, k, v, decay, reset, valid, first, o, last, starts):
        # The last state stays in VMEM until the next sequence or heads.
        @pl.when(pl.program_id(2) == 0)
        def start():
            last[...] = first[...]

        if starts is not None:
            starts[0] = last[...]
        seen, outputs = _seen(blocks.size, reset), []
        for i, head in enumerate(blocks.heads(q, k, v, decay)):
            rows = blocks.value_heads(i)
            states, marks = _find(head, [last[0, n] for n in rows], seen, valid)
            of_head, states = _chunk(head, states, seen, marks)
            for n, y, after, flags in zip(
                rows, of_head, states, marks.values, strict=True
            ):
                outputs.append(_mark(flags.reached, y))
                last[0, n] = _mark(flags.after, after)
        o[0] = _side_by_side(outputs).astype(o.dtype)

    starts = (shaped(state, blocks.starts_shape), blocks.starts)
    o, last, starts = call(
        kernel,
        blocks.grid,
        [*blocks.operands(q, k, v, log_decay, reset, mask), (state, blocks.state)],
        [
            (shaped(v, blocks.values_shape), blocks.values),
            (shaped(state, state.shape), blocks.state),
            starts if with_starts else (None, blocks.starts),
        ],
        [],
    )
    return o.reshape(v.shape), last, starts


def backward(q, k, v, log_decay, reset, mask, starts, o_gradient, last_gradient):
    """Returns the gradients in the arguments of `forward`, from ``q`` to ``state``."""
    blocks = _Blocks(q, v, reverse=True)

    def kernel(q, k, v, decay, reset, valid, starts, of_o, of_last, *of_arguments):
        of_q, of_k, of_v, of_decay, of_state = of_arguments

        # The gradient in the state before a chunk stays in VMEM, as the state does.
        @pl.when(pl.program_id(2) == 0)
        def start():
            of_state[...] = of_last[...]

        seen, gradients = _seen(blocks.size, reset), []
        of_y = blocks.zero_after_end(of_o[0]).astype(of_state.dtype)
        of_y = blocks.split_values(of_y)
        for i, head in enumerate(blocks.heads(q, k, v, decay)):
            rows = blocks.value_heads(i)
            states, marks = _find(head, [starts[0, 0, n] for n in rows], seen, valid)
            of_after = [of_state[0, n] for n in rows]
            of_results = (
                [
                    _mark_dependent(x.reached, y)
                    for x, y in zip(marks.values, of_y[i], strict=True)
                ],
                [
                    _mark_dependent(x.after, y)
                    for x, y in zip(marks.values, of_after, strict=True)
                ],
            )
            one_chunk = partial(_chunk, seen=seen, marks=marks)
            _, pull_back = jax.vjp(one_chunk, head, states)
            of_head, of_states = pull_back(of_results)
            gradients.append(of_head)
            for n, of_before in zip(rows, of_states, strict=True):
                of_state[0, n] = of_before
        of_q[0, 0] = _side_by_side([head.q for head in gradients]).astype(of_q.dtype)
        of_k[0, 0] = _side_by_side([head.k for head in gradients]).astype(of_k.dtype)
        of_v[0] = _side_by_side([x for head in gradients for x in head.v])
        if of_decay is not None:
            of_rows = [x for head in gradients for x in head.decay]
            for n, of_row in enumerate(of_rows):
                of_decay[0, 0, n : n + 1] = of_row

    decays, parts = shaped(starts, blocks.decays_shape), blocks.parts_shape
    of_q, of_k, of_v, of_decay, of_state = call(
        kernel,
        blocks.grid,
        [
            *blocks.operands(q, k, v, log_decay, reset, mask),
            (starts, blocks.starts),
            (o_gradient.reshape(blocks.values_shape), blocks.values),
            (last_gradient, blocks.state),
        ],
        [
            (shaped(q if blocks.splits == 1 else starts, parts), blocks.parts),
            (shaped(k if blocks.splits == 1 else starts, parts), blocks.parts),
            (shaped(v, blocks.values_shape), blocks.values),
            (None if log_decay is None else decays, blocks.decays),
            (shaped(starts, last_gradient.shape), blocks.state),
        ],
        [],
    )
    if log_decay is not None:
        of_decay = blocks.steps_first(of_decay)
    # A state that is not finite was replaced by zeros.
    finite = jnp.all(jnp.isfinite(starts[:, 0]), (-2, -1), keepdims=True)
    of_state = jnp.where(finite, of_state, 0)
    of_q, of_k = (
        jnp.sum(of_x, 1).astype(x.dtype).reshape(x.shape)
        for of_x, x in ((of_q, q), (of_k, k))
    )
    return of_q, of_k, of_v.reshape(v.shape), of_decay, of_state


class _Head(NamedTuple):
    """A head of keys in a chunk of ``c`` steps, and the values that share it.

    Attributes:
      q: Queries, ``(c, k)``.
      k: Keys, ``(c, k)``.
      v: Values of each head, ``(c, v)``.
      decay: Log decays of each head, ``(1, c)``, or None.
    """

    q: Any
    k: Any
    v: Any
    decay: Any


class _Seen(NamedTuple):
    """What the steps of a chunk see; all but the first are None in one segment.

    Attributes:
      steps: Whether a step sees another one, ``(c, c)``.
      before: Whether it sees the state before the chunk, ``(c, 1)``.
      after: Whether the state after the chunk sees it, ``(c, 1)``.
      across: Whether the state after sees the one before, ``(1, 1)``.
    """

    steps: Any
    before: Any
    after: Any
    across: Any


class _OfValues(NamedTuple):
    """Marks of a head of values, 1 or 0.

    Attributes:
      v: Which values are zeros, ``(c, 1)``.
      decay: Which log decays are, ``(1, c)``, or None.
      reached: Which outputs are not finite, ``(c, 1)``.
      after: Whether the state after the chunk is not, ``(1, 1)``.
    """

    v: Any
    decay: Any
    reached: Any
    after: Any


class _Marks(NamedTuple):
    """What is replaced in a chunk of a head of keys, 1 or 0.

    Attributes:
      q: Which queries are zeros, ``(c, 1)``.
      k: Which keys are, ``(c, 1)``.
      values: The marks of each head of values.
    """

    q: Any
    k: Any
    values: Any


def _seen(size, reset):
    step, other = _indices(size)
    if reset is None:
        return _Seen(other <= step, None, None, None)
    resets = reset[0]
    # By comparison, so that no weight across a reset depends on a decay.
    segment = jnp.sum(jnp.where(other <= step, resets, 0), 1, keepdims=True)
    last = jnp.sum(resets, 1, keepdims=True)
    return _Seen(
        (other <= step) & (segment == _row(segment)),
        segment == 0,
        segment == last,
        last == 0,
    )


def _find(head, states, seen, valid):
    """Returns states with zeros for those that are not finite, and the `_Marks`."""
    padding, padding_row = 0, 0
    if valid is not None:
        padding_row = 1 - valid[0]
        padding = _column(padding_row)
    bad_q, bad_k, finite, values = _bad(head.q), _bad(head.k), [], []
    for i, (v, state) in enumerate(zip(head.v, states, strict=True)):
        bad_v, before = _bad(v), jnp.max(_bad(state), 0, keepdims=True)
        bad, decay = _row(jnp.maximum(bad_k, bad_v)), None
        if head.decay is not None:
            # The smallest of them may be -inf.
            bad_decay = jnp.where(head.decay[i] < jnp.inf, 0, 1).astype(bad.dtype)
            bad = jnp.maximum(bad, bad_decay)
            decay = jnp.maximum(bad_decay, padding_row)
        # Nothing reads what is not finite at padding.
        bad = bad * (1 - padding_row)
        reached = jnp.max(jnp.where(seen.steps, bad, 0), 1, keepdims=True)
        finite.append(_zero_where(before, state))
        if seen.before is not None:
            before = jnp.where(seen.before, before, 0)
        reached, v_zero = jnp.maximum(reached, before), jnp.maximum(bad_v, padding)
        of_outputs = jnp.maximum(reached, bad_q)
        values.append(_OfValues(v_zero, decay, of_outputs, reached[-1:]))
    return finite, _Marks(bad_q, jnp.maximum(bad_k, padding), values)


def _chunk(head, states, seen, marks):
    """Evaluates a chunk as `ssm_jax.kernels.matrix` does, of arrays of two axes.

    Args:
      head: A head of keys and its values.
      states: State of each of them before the chunk, ``(k, v)``.
      seen: What its steps see.
      marks: What is replaced by zeros.

    Returns:
      Outputs of each of them, ``(c, v)``, and the states after the chunk.
    """
    dtype, (step, other) = states[0].dtype, _indices(len(head.q))
    q = _zero_where(marks.q, head.q.astype(dtype))
    k = _zero_where(marks.k, head.k.astype(dtype))
    products = jnp.where(seen.steps, _dot(q, k, 1, 1), 0)
    k_after = k if seen.after is None else jnp.where(seen.after, k, 0)
    outputs, after = [], []
    for i, (flags, state) in enumerate(zip(marks.values, states, strict=True)):
        v = _zero_where(flags.v, head.v[i].astype(dtype))
        scores, reading, written, left = products, q, v, state
        if head.decay is not None:
            decay = jnp.maximum(head.decay[i], LOG_DECAY_MIN)
            decay = jnp.where(flags.decay > 0, 0, decay)
            until = jnp.where(other <= step, decay, 0)
            # Of each pair of steps, the decays after the one up to the other.
            sums = _dot(until, (other < step).astype(dtype), 1, 0)
            # Zero before the exponential, whose gradient would be infinity times zero.
            exponent = jnp.where(seen.steps, sums, 0)
            scores = jnp.exp(exponent) * products
            reading = q * jnp.exp(jnp.sum(until, 1, keepdims=True))
            since = jnp.sum(jnp.where(step < other, decay, 0), 1, keepdims=True)
            written = v * jnp.exp(since)
            left = state * jnp.exp(jnp.sum(decay, 1, keepdims=True))
        if seen.before is not None:
            reading = jnp.where(seen.before, reading, 0)
            left = jnp.where(seen.across, left, 0)
        outputs.append(_dot(reading, state, 1, 0) + _dot(scores, v, 1, 0))
        after.append(left + _dot(k_after, written, 0, 0))
    return outputs, after


class _Blocks:
    """The blocks of some heads of keys, with their values, and of a chunk of steps.

    Attributes:
      size: Number of steps of a chunk, ``c``.
      grid: Numbers of sequences, of blocks of heads and of chunks.
      splits: Number of blocks of values that share a head of keys.
      keys: Blocks of ``(b, l, g k)``.
      parts: Blocks of ``(b, splits, l, g k)``, of each block of values.
      values: Blocks of ``(b, l, h v)``.
      decays: Blocks of ``(b, blocks of heads, heads of values, l)``.
      state: Blocks of ``(b, h, k, v)``.
      starts: Blocks of ``(b, chunks, h, k, v)``.
    """

    def __init__(self, q, v, *, reverse=False):
        (b, length, groups, d_key), (heads, d_value) = q.shape, v.shape[2:]
        self._length, self._reverse = length, reverse
        self._d_key, self._d_value = d_key, d_value
        self.size = size = min(_STEPS, round_up(length, _ROWS))
        together = self._together = _heads_together(groups, d_key, heads * d_value)
        splits = self.splits = 1
        if together == 1:
            splits = self.splits = _splits(groups, heads // groups, d_key, d_value)
        self._shared = heads // groups // splits
        count, values = pl.cdiv(length, size), together * self._shared
        self.grid = b, groups // together * splits, count

        def at(n):
            return count - 1 - n if reverse else n

        def group(j):
            return jax.lax.div(j, splits)

        width = together * d_key
        self.keys = pl.BlockSpec((1, size, width), lambda i, j, n: (i, at(n), group(j)))
        self.parts = pl.BlockSpec(
            (1, 1, size, width),
            lambda i, j, n: (i, jax.lax.rem(j, splits), at(n), group(j)),
        )
        self.values = pl.BlockSpec(
            (1, size, values * d_value), lambda i, j, n: (i, at(n), j)
        )
        self.decays = pl.BlockSpec(
            (1, 1, values, size), lambda i, j, n: (i, j, 0, at(n))
        )
        self._row = pl.BlockSpec((1, 1, size), lambda i, j, n: (i, 0, at(n)))
        of_state = values, d_key, d_value
        self.state = pl.BlockSpec((1, *of_state), lambda i, j, n: (i, j, 0, 0))
        self.starts = pl.BlockSpec(
            (1, 1, *of_state), lambda i, j, n: (i, at(n), j, 0, 0)
        )
        self.keys_shape = b, length, groups * d_key
        self.parts_shape = b, splits, length, groups * d_key
        self.values_shape = b, length, heads * d_value
        self.decays_shape = b, self.grid[1], values, count * size
        self.starts_shape = b, count, heads, d_key, d_value

    def operands(self, q, k, v, log_decay, reset, mask):
        """Returns the operands of both passes with their specs."""
        if mask is None and self._length % self.size:
            # What is after the end may be anything, also NaN.
            mask = jnp.ones_like(q[..., 0, 0], bool)
        if log_decay is not None:
            log_decay = jnp.swapaxes(self._pad(log_decay), 1, 2)
            log_decay = log_decay.reshape(self.decays_shape)

        def row(flags):
            if flags is not None:
                return self._pad(flags.astype(jnp.float32))[:, None]

        return [
            (q.reshape(self.keys_shape), self.keys),
            (k.reshape(self.keys_shape), self.keys),
            (v.reshape(self.values_shape), self.values),
            (log_decay, self.decays),
            (row(reset), self._row),
            (row(mask), self._row),
        ]

    def heads(self, q, k, v, decay):
        """Returns the heads of keys of a block."""
        values, heads = self.split_values(v[0]), []
        for i in range(self._together):
            lanes = slice(i * self._d_key, (i + 1) * self._d_key)
            rows, decays = self.value_heads(i), None
            if decay is not None:
                decays = [decay[0, 0, n : n + 1] for n in rows]
            heads.append(_Head(q[0][:, lanes], k[0][:, lanes], values[i], decays))
        return heads

    def split_values(self, x):
        """Returns the values ``(c, v)`` of each head of keys in a block."""
        values = range(self._together * self._shared)
        values = [x[:, n * self._d_value : (n + 1) * self._d_value] for n in values]
        heads = map(self.value_heads, range(self._together))
        return [[values[n] for n in rows] for rows in heads]

    def value_heads(self, i):
        """Returns the places of the heads of values of a head of keys in a block."""
        return range(i * self._shared, (i + 1) * self._shared)

    def zero_after_end(self, x):
        """Returns a block of steps with zeros after the last one."""
        if self._length % self.size == 0:
            return x
        # What is there may be anything, also NaN.
        chunk = pl.program_id(2)
        if self._reverse:
            chunk = self.grid[2] - 1 - chunk
        step = jax.lax.broadcasted_iota(jnp.int32, x.shape, 0)
        return jnp.where(chunk * self.size + step < self._length, x, 0)

    def steps_first(self, x):
        """Returns numbers of heads of values, ``(b, l, h)``, from their blocks."""
        b, blocks, rows, _ = x.shape
        x = x[..., : self._length].reshape(b, blocks * rows, self._length)
        return jnp.swapaxes(x, 1, 2)

    def _pad(self, x):
        return pad_axis(x, 1, after=self.grid[2] * self.size - self._length)


def _heads_together(groups, d_key, d_values):
    """Returns the fewest heads of keys whose entries are whole registers, or all."""
    width = math.gcd(d_key, d_values // groups)
    whole = (n for n in range(1, groups) if groups % n == 0 and n * width % _LANES == 0)
    return next(whole, groups)


def _splits(groups, shared, d_key, d_value):
    """Returns among how many blocks the values of a head of keys are divided."""
    entries = d_key * -(-d_value // _LANES) * _LANES
    splits = 1
    for n in range(1, shared + 1):
        heads = shared // n
        if shared % n == 0 and (groups * n == 1 or heads * d_value % _LANES == 0):
            splits = n
            if heads * entries <= _ENTRIES:
                break
    return splits


def _indices(size):
    """Returns the number of the row and of the column of each of ``(c, c)`` entries."""
    return (
        jax.lax.broadcasted_iota(jnp.int32, (size, size), 0),
        jax.lax.broadcasted_iota(jnp.int32, (size, size), 1),
    )


def _column(row):
    """Returns the numbers ``(1, c)`` as ``(c, 1)``."""
    step, other = _indices(row.shape[1])
    return jnp.sum(jnp.where(step == other, row, 0), 1, keepdims=True)


def _row(column):
    """Returns the numbers ``(c, 1)`` as ``(1, c)``."""
    step, other = _indices(column.shape[0])
    return jnp.sum(jnp.where(step == other, column, 0), 0, keepdims=True)


def _bad(x):
    """Returns 1 for the rows with a number that is not finite, else 0: ``(c, 1)``."""
    # TPUs may compare no bfloat16, and their maximum may ignore NaN.
    x = jnp.abs(x.astype(jnp.promote_types(x.dtype, jnp.float32)))
    return jnp.max(jnp.where(x < jnp.inf, 0.0, 1.0), 1, keepdims=True)


def _zero_where(flags, x):
    return jnp.where(jnp.broadcast_to(flags, x.shape) > 0, 0, x)


def _mark(flags, x):
    return jnp.where(jnp.broadcast_to(flags, x.shape) > 0, jnp.nan, x)


def _mark_dependent(flags, gradient):
    """Returns a gradient, NaN in what is NaN unless it is 0, as of `nan_where`."""
    return _mark(jnp.where(gradient != 0, flags, 0), gradient)


def _side_by_side(arrays):
    return arrays[0] if len(arrays) == 1 else jnp.concatenate(arrays, 1)


def _dot(x, y, axis, of_y):
    """Sums the products over an axis of each of two matrices, in full float32."""
    return jax.lax.dot_general(
        x, y, (((axis,), (of_y,)), ((), ())), precision=jax.lax.Precision.HIGHEST
    )
