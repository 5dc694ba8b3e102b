"""The recurrence of matrices for TPUs, chunk by chunk.

Steps are sublanes and the entries of keys or values, of one head after the other, are
lanes: the arrays of a layer before they are divided into heads, which are then not
transposed. Decays and flags have their steps in the lanes: in the sublanes, a register
of 8 x 128 would hold as few as 8 of their numbers.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from ssm_jax.kernels.axes import pad_axis
from ssm_jax.kernels.pallas.devices import shape_struct
from ssm_jax.kernels.pallas.matrix_chunk import (
    Head,
    evaluate,
    find_bad,
    find_reached,
    mark,
    mark_dependent,
    seen_steps,
    zero_where,
)
from ssm_jax.kernels.pallas.tpu import call, round_up

# Steps of a chunk, of whole registers. The matrix unit multiplies 128 x 128 entries at
# a time, so that shorter chunks would take as long and store more states. Registers
# have 8 rows of 128 lanes, of bfloat16 twice as many rows.
_STEPS, _ROWS, _LANES = 128, 16, 128

# Most entries of the states of a block: of 32 heads of Mamba-2 they, their gradients
# and their values would not fit in VMEM.
_ENTRIES = 2**17

# Most numbers of the keys of a chunk with decays of their entries: each halving of it
# has such arrays. Those of 256 entries and 128 steps would not fit in VMEM.
_KEYS = 2**14

# In full float32.
_evaluate = partial(evaluate, precision=jax.lax.Precision.HIGHEST)


def forward(q, k, v, log_decay, beta, state, reset, mask, *, with_starts):
    """Returns ``(o, last, starts)``; starts are the states before the chunks, or None.

    What is not finite sets the outputs that it reaches to NaN, and states, by which the
    next chunk knows it.

    Args:
      q: Queries, ``(b, l, g, k)``.
      k: Keys, ``(b, l, g, k)``.
      v: Values, ``(b, l, h, v)``.
      log_decay: Log decays, ``(b, l, h)`` or ``(b, l, g, k)``, or None.
      beta: Weights of the delta rule, ``(b, l, h)``, or None.
      state: State before the first step, ``(b, h, k, v)``, in whose dtype sums are.
      reset: Where segments start, ``(b, l)``, or None.
      mask: Valid steps, ``(b, l)``, or None.
      with_starts: Whether the states before the chunks are stored.
    """
    blocks = _Blocks(q, v, log_decay)

    def kernel(q, k, v, decay, beta, reset, valid, first, o, last, starts):
        # The last state stays in VMEM until the next sequence or heads.
        @pl.when(pl.program_id(2) == 0)
        def start():
            last[...] = first[...]

        if starts is not None:
            starts[0] = last[...]
        seen, outputs = seen_steps(blocks.size, _numbers(reset)), []
        for i, head in enumerate(blocks.heads(q, k, v, decay, beta)):
            rows = blocks.value_heads(i)
            before = [last[0, n] for n in rows]
            states, marks = _find(head, before, seen, _numbers(valid))
            of_head, states = _evaluate(head, states, seen=seen, marks=marks)
            for n, y, after, flags in zip(
                rows, of_head, states, marks.values, strict=True
            ):
                outputs.append(mark(flags.reached, y))
                last[0, n] = mark(flags.after, after)
        o[0] = _side_by_side(outputs).astype(o.dtype)

    starts = (shape_struct(state, blocks.starts_shape), blocks.starts)
    o, last, starts = call(
        kernel,
        blocks.grid,
        [
            *blocks.operands(q, k, v, log_decay, beta, reset, mask),
            (state, blocks.state),
        ],
        [
            (shape_struct(v, blocks.values_shape), blocks.values),
            (shape_struct(state, state.shape), blocks.state),
            starts if with_starts else (None, blocks.starts),
        ],
        [],
    )
    return o.reshape(v.shape), last, starts


def backward(q, k, v, log_decay, beta, reset, mask, starts, o_gradient, last_gradient):
    """Returns the gradients in the arguments of `forward`, from ``q`` to ``state``."""
    blocks = _Blocks(q, v, log_decay, reverse=True)

    def kernel(
        q, k, v, decay, beta, reset, valid, starts, of_o, of_last, *of_arguments
    ):
        of_q, of_k, of_v, of_decay, of_beta, of_state = of_arguments

        # The gradient in the state before a chunk stays in VMEM, as the state does.
        @pl.when(pl.program_id(2) == 0)
        def start():
            of_state[...] = of_last[...]

        seen, gradients = seen_steps(blocks.size, _numbers(reset)), []
        of_y = blocks.zero_after_end(of_o[0]).astype(of_state.dtype)
        of_y = blocks.split_values(of_y)
        for i, head in enumerate(blocks.heads(q, k, v, decay, beta)):
            rows = blocks.value_heads(i)
            before = [starts[0, 0, n] for n in rows]
            states, marks = _find(head, before, seen, _numbers(valid))
            of_after = [of_state[0, n] for n in rows]
            of_results = (
                [
                    mark_dependent(x.reached, y)
                    for x, y in zip(marks.values, of_y[i], strict=True)
                ],
                [
                    mark_dependent(x.after, y)
                    for x, y in zip(marks.values, of_after, strict=True)
                ],
            )
            one_chunk = partial(_evaluate, seen=seen, marks=marks)
            _, pull_back = jax.vjp(one_chunk, head, states)
            of_head, of_states = pull_back(of_results)
            gradients.append(of_head)
            for n, of_before in zip(rows, of_states, strict=True):
                of_state[0, n] = of_before
        of_q[0, 0] = _side_by_side([head.q for head in gradients]).astype(of_q.dtype)
        of_k[0, 0] = _side_by_side([head.k for head in gradients]).astype(of_k.dtype)
        of_v[0] = _side_by_side([x for head in gradients for x in head.v])
        if blocks.by_key:
            of_decay[0, 0] = _side_by_side([head.key_decay for head in gradients])
        elif of_decay is not None:
            _store_rows(of_decay, [head.decay for head in gradients])
        if of_beta is not None:
            _store_rows(of_beta, [head.beta for head in gradients])

    of_steps, parts = shape_struct(starts, blocks.numbers_shape), blocks.parts_shape
    of_decays = shape_struct(starts, parts) if blocks.by_key else of_steps
    of_q, of_k, of_v, of_decay, of_beta, of_state = call(
        kernel,
        blocks.grid,
        [
            *blocks.operands(q, k, v, log_decay, beta, reset, mask),
            (starts, blocks.starts),
            (o_gradient.reshape(blocks.values_shape), blocks.values),
            (last_gradient, blocks.state),
        ],
        [
            (shape_struct(q if blocks.splits == 1 else starts, parts), blocks.parts),
            (shape_struct(k if blocks.splits == 1 else starts, parts), blocks.parts),
            (shape_struct(v, blocks.values_shape), blocks.values),
            (None if log_decay is None else of_decays, blocks.decay_parts),
            (None if beta is None else of_steps, blocks.numbers),
            (shape_struct(starts, last_gradient.shape), blocks.state),
        ],
        [],
    )
    # A state that is not finite was replaced by zeros.
    finite = jnp.all(jnp.isfinite(starts[:, 0]), (-2, -1), keepdims=True)
    of_state = jnp.where(finite, of_state, 0)

    def sum_of_splits(of_x, x):
        return jnp.sum(of_x, 1).astype(x.dtype).reshape(x.shape)

    of_q, of_k = sum_of_splits(of_q, q), sum_of_splits(of_k, k)
    if blocks.by_key:
        of_decay = sum_of_splits(of_decay, log_decay)
    elif of_decay is not None:
        of_decay = blocks.steps_first(of_decay)
    if of_beta is not None:
        of_beta = blocks.steps_first(of_beta)
    return of_q, of_k, of_v.reshape(v.shape), of_decay, of_beta, of_state


class _Blocks:
    """The blocks of some heads of keys, with their values, and of a chunk of steps.

    Attributes:
      size: Number of steps of a chunk, ``c``.
      grid: Numbers of sequences, of blocks of heads and of chunks.
      splits: Number of blocks of values that share a head of keys.
      by_key: Whether decays are those of entries of keys.
      keys: Blocks of ``(b, l, g k)``.
      parts: Blocks of ``(b, splits, l, g k)``, of each block of values.
      values: Blocks of ``(b, l, h v)``.
      numbers: Blocks of numbers of heads of values, ``(b, blocks of heads, chunks,
        heads of values, c)``.
      decays: Blocks of the log decays.
      decay_parts: Blocks of them, of each block of values.
      state: Blocks of ``(b, h, k, v)``.
      starts: Blocks of ``(b, chunks, h, k, v)``.
    """

    def __init__(self, q, v, log_decay, *, reverse=False):
        (b, length, groups, d_key), (heads, d_value) = q.shape, v.shape[2:]
        self._length, self._reverse = length, reverse
        self._d_key, self._d_value = d_key, d_value
        self.by_key = log_decay is not None and log_decay.ndim == q.ndim
        size = min(_STEPS, round_up(length, _ROWS))
        if self.by_key:
            # Powers of two, since a chunk is halved again and again.
            most = 2 ** int(math.log2(max(_ROWS, _KEYS // d_key)))
            size = min(pl.next_power_of_2(size), most)
        self.size = size
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
        # A chunk has axes of its own: not all are as long as a register.
        self.numbers = pl.BlockSpec(
            (1, 1, 1, values, size), lambda i, j, n: (i, j, at(n), 0, 0)
        )
        self.decays = self.keys if self.by_key else self.numbers
        self.decay_parts = self.parts if self.by_key else self.numbers
        self._row = pl.BlockSpec((1, 1, 1, size), lambda i, j, n: (i, at(n), 0, 0))
        of_state = values, d_key, d_value
        self.state = pl.BlockSpec((1, *of_state), lambda i, j, n: (i, j, 0, 0))
        self.starts = pl.BlockSpec(
            (1, 1, *of_state), lambda i, j, n: (i, at(n), j, 0, 0)
        )
        self.keys_shape = b, length, groups * d_key
        self.parts_shape = b, splits, length, groups * d_key
        self.values_shape = b, length, heads * d_value
        self.numbers_shape = b, self.grid[1], count, values, size
        self.starts_shape = b, count, heads, d_key, d_value

    def operands(self, q, k, v, log_decay, beta, reset, mask):
        """Returns the operands of both passes with their specs."""
        if mask is None and self._length % self.size:
            # What is after the end may be anything, also NaN.
            mask = jnp.ones_like(q[..., 0, 0], bool)

        def steps_last(x):
            if x is not None:
                b, blocks, count, values, size = self.numbers_shape
                x = self._pad(x).reshape(b, count, size, blocks, values)
                return jnp.transpose(x, (0, 3, 1, 4, 2))

        if self.by_key:
            log_decay = log_decay.reshape(self.keys_shape)
        else:
            log_decay = steps_last(log_decay)

        def row(flags):
            if flags is not None:
                flags = self._pad(flags.astype(jnp.float32))
                return flags.reshape(len(flags), -1, 1, self.size)

        return [
            (q.reshape(self.keys_shape), self.keys),
            (k.reshape(self.keys_shape), self.keys),
            (v.reshape(self.values_shape), self.values),
            (log_decay, self.decays),
            (steps_last(beta), self.numbers),
            (row(reset), self._row),
            (row(mask), self._row),
        ]

    def heads(self, q, k, v, decay, beta):
        """Returns the heads of keys of a block."""
        values = self.split_values(v[0])

        def entries(ref, i):
            return ref[0][:, i * self._d_key : (i + 1) * self._d_key]

        def rows(ref, i):
            if ref is not None:
                return [ref[0, 0, 0, n : n + 1] for n in self.value_heads(i)]

        return [
            Head(
                entries(q, i),
                entries(k, i),
                values[i],
                None if self.by_key else rows(decay, i),
                entries(decay, i) if self.by_key else None,
                rows(beta, i),
            )
            for i in range(self._together)
        ]

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
        b, blocks, count, rows, size = x.shape
        x = jnp.transpose(x, (0, 2, 4, 1, 3)).reshape(b, count * size, blocks * rows)
        return x[:, : self._length]

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


def _find(head, states, seen, valid):
    """Returns states with zeros for those that are not finite, and the marks."""
    bad = find_bad(head, states)
    pairs = zip(bad.states, states, strict=True)
    states = [zero_where(flags, state) for flags, state in pairs]
    return states, find_reached(bad, head, seen, valid)


def _numbers(of_steps):
    """Returns the numbers ``(1, c)`` of a block of flags, or None."""
    return None if of_steps is None else of_steps[0, 0]


def _store_rows(ref, numbers):
    """Writes the numbers ``(1, c)`` of the heads of values of each head of keys."""
    for n, row in enumerate(row for rows in numbers for row in rows):
        ref[0, 0, 0, n : n + 1] = row


def _side_by_side(arrays):
    return arrays[0] if len(arrays) == 1 else jnp.concatenate(arrays, 1)
