"""The recurrence of matrices for GPUs, chunk by chunk, by the Triton of Pallas.

A program evaluates a head of values of a sequence. Its state stays on the chip from one
chunk to the next.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

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
from ssm_jax.kernels.platforms import target_platform

# Steps of a chunk. With 64 of them the gradient of heads of 64 entries spills 3.0 KB
# of registers of each thread instead of 1.1 KB, compiled for an H100. Decays of entries
# of keys need more arrays: with 32 steps they spill 5.7 KB, with 16 steps 1.7 KB.
_STEPS, _STEPS_BY_KEY = 32, 16

# Most entries of a key or of a value, so that a chunk fits on the chip.
_ENTRIES = 128

# Fewest rows and columns of a product of matrices.
_ROWS = 16

# Warps of a program: a state of 128 x 128 is in 64 registers of each thread.
_WARPS = 8

# As accurate as float32: of three parts in bfloat16 of each number, six products.
_PRECISION = jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X6


def forward(q, k, v, log_decay, beta, state, reset, mask, *, with_starts):
    """Returns ``(o, last, starts)``, as the kernel for TPUs does."""
    blocks = _Blocks(q, v, log_decay, state.dtype)

    def kernel(q, k, v, decay, beta, reset, valid, first, o, last, starts):
        def chunk(n, state):
            if starts is not None:
                blocks.store_state(starts, state, n)
            head, states, seen, marks = blocks.chunk(
                n, q, k, v, decay, beta, reset, valid, state
            )
            (y,), (after,) = blocks.evaluate(head, states, seen=seen, marks=marks)
            (flags,) = marks.values
            blocks.store_values(o, n, mark(flags.reached, y))
            return mark(flags.after, after)

        state = blocks.load_state(first)
        blocks.store_state(last, jax.lax.fori_loop(0, blocks.count, chunk, state))

    starts = (shape_struct(state, blocks.starts_shape), blocks.starts)
    return blocks.call(
        kernel,
        [
            *blocks.operands(q, k, v, log_decay, beta, reset, mask),
            (state, blocks.state),
        ],
        [
            (shape_struct(v, v.shape), blocks.values),
            (shape_struct(state, state.shape), blocks.state),
            starts if with_starts else (None, blocks.starts),
        ],
    )


def backward(q, k, v, log_decay, beta, reset, mask, starts, o_gradient, last_gradient):
    """Returns the gradients in the arguments of `forward`, from ``q`` to ``state``."""
    blocks = _Blocks(q, v, log_decay, starts.dtype)

    def kernel(
        q, k, v, decay, beta, reset, valid, starts, of_o, of_last, *of_arguments
    ):
        of_q, of_k, of_v, of_decay, of_beta, of_state = of_arguments

        def chunk(n, of_after):
            n = blocks.count - 1 - n
            before = blocks.load_state(starts, n)
            head, states, seen, marks = blocks.chunk(
                n, q, k, v, decay, beta, reset, valid, before
            )
            (flags,) = marks.values
            of_y = blocks.load_values(of_o, n).astype(of_after.dtype)
            of_results = (
                [mark_dependent(flags.reached, of_y)],
                [mark_dependent(flags.after, of_after)],
            )
            one_chunk = partial(blocks.evaluate, seen=seen, marks=marks)
            _, pull_back = jax.vjp(one_chunk, head, states)
            of_head, (of_before,) = pull_back(of_results)
            blocks.store_keys(of_q, n, of_head.q)
            blocks.store_keys(of_k, n, of_head.k)
            blocks.store_values(of_v, n, of_head.v[0])
            if of_head.decay is not None:
                blocks.store_numbers(of_decay, n, of_head.decay[0])
            if of_head.key_decay is not None:
                blocks.store_keys(of_decay, n, of_head.key_decay)
            if of_beta is not None:
                blocks.store_numbers(of_beta, n, of_head.beta[0])
            return of_before

        of_last = blocks.load_state(of_last)
        of_first = jax.lax.fori_loop(0, blocks.count, chunk, of_last)
        blocks.store_state(of_state, of_first)

    parts, of_steps = blocks.parts_shape, shape_struct(starts, v.shape[:-1])
    of_decays = shape_struct(starts, parts) if blocks.by_key else of_steps
    of_q, of_k, of_v, of_decay, of_beta, of_state = blocks.call(
        kernel,
        [
            *blocks.operands(q, k, v, log_decay, beta, reset, mask),
            (starts, blocks.starts),
            (o_gradient, blocks.values),
            (last_gradient, blocks.state),
        ],
        [
            (shape_struct(q if blocks.shared == 1 else starts, parts), blocks.parts),
            (shape_struct(k if blocks.shared == 1 else starts, parts), blocks.parts),
            (shape_struct(v, v.shape), blocks.values),
            (None if log_decay is None else of_decays, blocks.decay_parts),
            (None if beta is None else of_steps, blocks.numbers),
            (shape_struct(starts, last_gradient.shape), blocks.state),
        ],
    )
    # A state that is not finite was replaced by zeros.
    finite = jnp.all(jnp.isfinite(starts[:, 0]), (-2, -1), keepdims=True)
    of_state = jnp.where(finite, of_state, 0)
    if blocks.shared > 1:

        def sum_of_shared(of_x, x):
            of_x = of_x.reshape(*x.shape[:-1], blocks.shared, -1)
            return jnp.sum(of_x, -2).astype(x.dtype)

        of_q, of_k = sum_of_shared(of_q, q), sum_of_shared(of_k, k)
        if blocks.by_key:
            of_decay = sum_of_shared(of_decay, log_decay)
    return of_q, of_k, of_v, of_decay, of_beta, of_state


class _Blocks:
    """The arrays of a head of values, and their chunks.

    Attributes:
      size: Number of steps of a chunk, ``c``.
      count: Number of chunks.
      shared: Number of heads of values that share one of keys.
      by_key: Whether decays are those of entries of keys.
      evaluate: Evaluates a chunk, in at least float32.
      keys: Blocks of ``(b, l, g, k)``: all steps of a head, of a power of two entries.
      parts: Blocks of ``(b, l, h, k)``, of each head of values.
      values: Blocks of ``(b, l, h, v)``.
      numbers: Blocks of numbers of heads of values, ``(b, l, h)``.
      decays: Blocks of the log decays.
      decay_parts: Blocks of them, of each head of values.
      state: Blocks of ``(b, h, k, v)``.
      starts: Blocks of ``(b, chunks, h, k, v)``.
    """

    def __init__(self, q, v, log_decay, dtype):
        (b, length, groups, d_key), (heads, d_value) = q.shape, v.shape[2:]
        if max(d_key, d_value) > _ENTRIES:
            raise ValueError(
                f"`method` must not be 'pallas' on a GPU for heads of {d_key} x "
                f"{d_value} entries, got 'pallas'; its kernel has at most {_ENTRIES} "
                "of a key and of a value, or use 'auto' or 'chunked'."
            )
        self._length, self._d_key, self._d_value = length, d_key, d_value
        self.by_key = log_decay is not None and log_decay.ndim == q.ndim
        steps = _STEPS_BY_KEY if self.by_key else _STEPS
        self.size = min(steps, _padded(length))
        self._keys, self._values = _padded(d_key), _padded(d_value)
        self.count, self.shared = pl.cdiv(length, self.size), heads // groups
        self._grid = heads, b
        steps, state = self.count * self.size, (self._keys, self._values)

        def group(j):
            return jax.lax.div(j, self.shared)

        of_keys = None, steps, None, self._keys
        self.keys = pl.BlockSpec(of_keys, lambda j, i: (i, 0, group(j), 0))
        self.parts = pl.BlockSpec(of_keys, lambda j, i: (i, 0, j, 0))
        of_values = None, steps, None, self._values
        self.values = pl.BlockSpec(of_values, lambda j, i: (i, 0, j, 0))
        self.numbers = pl.BlockSpec((None, steps, None), lambda j, i: (i, 0, j))
        self.decays = self.keys if self.by_key else self.numbers
        self.decay_parts = self.parts if self.by_key else self.numbers
        self._flags = pl.BlockSpec((None, steps), lambda j, i: (i, 0))
        self.state = pl.BlockSpec((None, None, *state), lambda j, i: (i, j, 0, 0))
        self.starts = pl.BlockSpec(
            (None, self.count, None, *state), lambda j, i: (i, 0, j, 0, 0)
        )
        self.parts_shape = b, length, heads, d_key
        self.starts_shape = b, self.count, heads, d_key, d_value
        self._interpreted = target_platform() not in ("gpu", "cuda")
        precision = jax.lax.Precision.HIGHEST
        # Of float64, and where the kernel is interpreted, as it is.
        if dtype == jnp.float32 and not self._interpreted:
            precision = _PRECISION
        self.evaluate = partial(evaluate, precision=precision)

    def operands(self, q, k, v, log_decay, beta, reset, mask):
        """Returns the operands of both passes with their specs."""

        def numbers(flags):
            return None if flags is None else flags.astype(jnp.float32)

        return [
            (q, self.keys),
            (k, self.keys),
            (v, self.values),
            (log_decay, self.decays),
            (beta, self.numbers),
            (numbers(reset), self._flags),
            (numbers(mask), self._flags),
        ]

    def call(self, kernel, operands, results):
        """Calls a kernel for each head of values of each sequence."""

        def of_leaves(pairs):
            return [
                jax.tree.map(lambda _, spec=spec: spec, tree) for tree, spec in pairs
            ]

        return pl.pallas_call(
            kernel,
            grid=self._grid,
            in_specs=of_leaves(operands),
            out_specs=of_leaves(results),
            out_shape=[tree for tree, _ in results],
            compiler_params=plgpu.CompilerParams(num_warps=_WARPS, num_stages=1),
            interpret=self._interpreted,
        )(*(tree for tree, _ in operands))

    def chunk(self, n, q, k, v, decay, beta, reset, valid, state):
        """Returns a head, its states, zero if not finite, what is seen, and marks."""
        head = Head(
            self._load_keys(q, n),
            self._load_keys(k, n),
            [self.load_values(v, n)],
            None if self.by_key else self._load_rows(decay, n),
            self._load_keys(decay, n) if self.by_key else None,
            self._load_rows(beta, n),
        )
        seen = seen_steps(self.size, self._load_numbers(reset, n))
        bad = find_bad(head, [state])
        marks = find_reached(bad, head, seen, self._load_numbers(valid, n))
        return head, [zero_where(bad.states[0], state)], seen, marks

    def _load_keys(self, ref, n):
        return _load(*self._steps(ref, n, self._d_key))

    def store_keys(self, ref, n, x):
        """Writes numbers of the keys of a chunk, ``(c, k)``."""
        _store(*self._steps(ref, n, self._d_key), x)

    def load_values(self, ref, n):
        """Returns numbers of the values of a chunk, ``(c, v)``, 0 after the end."""
        return _load(*self._steps(ref, n, self._d_value))

    def store_values(self, ref, n, x):
        """Writes what `load_values` reads."""
        _store(*self._steps(ref, n, self._d_value), x)

    def store_numbers(self, ref, n, x):
        """Writes numbers of the steps of a chunk, ``(1, c)``."""
        _store(*self._numbers(ref, n), x.reshape(self.size))

    def load_state(self, ref, *chunk):
        """Returns a state, of a chunk if there are several."""
        return _load(*self._entries(ref, chunk))

    def store_state(self, ref, x, *chunk):
        """Writes what `load_state` reads."""
        _store(*self._entries(ref, chunk), x)

    def _load_rows(self, ref, n):
        return None if ref is None else [self._load_numbers(ref, n)]

    def _load_numbers(self, ref, n):
        return None if ref is None else _load(*self._numbers(ref, n))[None]

    def _steps(self, ref, n, width):
        sizes, first = (self.size, ref.shape[-1]), n * self.size
        mask = _before(sizes, 0, first, self._length, self._length % self.size == 0)
        mask = _both(mask, _before(sizes, 1, 0, width, width == sizes[1]))
        return ref.at[pl.ds(first, self.size), :], mask

    def _numbers(self, ref, n):
        sizes, first = (self.size,), n * self.size
        mask = _before(sizes, 0, first, self._length, self._length % self.size == 0)
        return ref.at[pl.ds(first, self.size)], mask

    def _entries(self, ref, chunk):
        sizes = self._keys, self._values
        ends = self._d_key, self._d_value
        rows, columns = (
            _before(sizes, axis, 0, ends[axis], ends[axis] == sizes[axis])
            for axis in (0, 1)
        )
        return ref.at[(*chunk, slice(None), slice(None))], _both(rows, columns)


def _padded(size):
    return max(_ROWS, pl.next_power_of_2(size))


def _before(sizes, axis, first, end, every):
    """Returns which entries of a block are before the end of an axis; None: all are."""
    if every:
        return None
    return first + jax.lax.broadcasted_iota(jnp.int32, sizes, axis) < end


def _both(mask, other):
    if mask is None or other is None:
        return other if mask is None else mask
    return mask & other


def _load(ref, mask):
    return plgpu.load(ref, mask=mask, other=None if mask is None else 0)


def _store(ref, mask, x):
    plgpu.store(ref, x.astype(ref.dtype), mask=mask)
