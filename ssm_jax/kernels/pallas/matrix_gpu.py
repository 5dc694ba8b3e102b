"""The recurrence of matrices for GPUs, chunk by chunk, by the Triton of Pallas.

A program evaluates a head of values of a sequence. Its state stays in registers from
one chunk to the next.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from ssm_jax.kernels.axes import match_varying_axes
from ssm_jax.kernels.pallas.matrix_chunk import (
    Head,
    evaluate,
    find_not_finite,
    mark,
    mark_dependent,
    seen_steps,
)
from ssm_jax.kernels.pallas.tpu import round_up, shaped
from ssm_jax.kernels.platforms import target_platform

# Most steps of a chunk.
_STEPS = 64

# Fewest rows and columns of a product of matrices.
_ROWS = 16
_OPTIONS = {"num_warps": 8, "num_stages": 1}
_PREC = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3


def forward(q, k, v, log_decay, state, reset, mask, *, with_starts):
    """Returns ``(o, last, starts)`` like `ssm_jax.kernels.pallas.matrix_tpu.forward`."""
    blocks = _Blocks(q, v, state.dtype)

    def kernel(q, k, v, decay, reset, valid, first, o, last, starts):
        def chunk(n, state):
            if starts is not None:
                blocks.store_state(starts.at[n], state)
            head, seen, states, marks = blocks.chunk(
                n, q, k, v, decay, reset, valid, state
            )
            (y,), (after,) = blocks.evaluate(head, states, seen=seen, marks=marks)
            (flags,) = marks.values
            blocks.store_values(o, n, mark(flags.reached, y))
            return mark(flags.after, after)

        state = blocks.load_state(first)
        blocks.store_state(last, jax.lax.fori_loop(0, blocks.count, chunk, state))

    starts = (shaped(state, blocks.starts_shape), blocks.starts)
    return blocks.call(
        kernel,
        [*blocks.operands(q, k, v, log_decay, reset, mask), (state, blocks.state)],
        [
            (shaped(v, v.shape), blocks.values),
            (shaped(state, state.shape), blocks.state),
            starts if with_starts else (None, blocks.starts),
        ],
    )


def backward(q, k, v, log_decay, reset, mask, starts, o_gradient, last_gradient):
    """Returns the gradients in the arguments of `forward`, from ``q`` to ``state``."""
    blocks = _Blocks(q, v, starts.dtype)

    def kernel(q, k, v, decay, reset, valid, starts, of_o, of_last, *of_arguments):
        of_q, of_k, of_v, of_decay, of_state = of_arguments

        def chunk(n, of_after):
            n = blocks.count - 1 - n
            before = blocks.load_state(starts.at[n])
            head, seen, states, marks = blocks.chunk(
                n, q, k, v, decay, reset, valid, before
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
            if of_decay is not None:
                blocks.store_row(of_decay, n, of_head.decay[0])
            return of_before

        gradient = blocks.load_state(of_last)
        blocks.store_state(of_state, jax.lax.fori_loop(0, blocks.count, chunk, gradient))

    parts = blocks.parts_shape
    decays = None if log_decay is None else shaped(starts, log_decay.shape)
    of_q, of_k, of_v, of_decay, of_state = blocks.call(
        kernel,
        [
            *blocks.operands(q, k, v, log_decay, reset, mask),
            (starts, blocks.starts),
            (o_gradient, blocks.values),
            (last_gradient, blocks.state),
        ],
        [
            (shaped(q if blocks.shared == 1 else starts, parts), blocks.parts),
            (shaped(k if blocks.shared == 1 else starts, parts), blocks.parts),
            (shaped(v, v.shape), blocks.values),
            (decays, blocks.decays),
            (shaped(starts, last_gradient.shape), blocks.state),
        ],
    )
    # A state that is not finite was replaced by zeros.
    finite = jnp.all(jnp.isfinite(starts[:, 0]), (-2, -1), keepdims=True)
    of_state = jnp.where(finite, of_state, 0)
    if blocks.shared > 1:
        of_q, of_k = (
            jnp.sum(x.reshape(*q.shape[:-1], blocks.shared, -1), -2).astype(q.dtype)
            for x in (of_q, of_k)
        )
    return of_q, of_k, of_v, of_decay, of_state


class _Blocks:
    """The arrays of a head of values, and their chunks.

    Attributes:
      count: Number of chunks.
      shared: Heads of values that share one of keys.
    """

    def __init__(self, q, v, dtype):
        (b, length, groups, d_key), (heads, d_value) = q.shape, v.shape[2:]
        self._length, self._d_key, self._d_value = length, d_key, d_value
        size = self._size = min(_STEPS, max(_ROWS, pl.next_power_of_2(length)))
        keys, values = (
            max(_ROWS, pl.next_power_of_2(width)) for width in (d_key, d_value)
        )
        self._keys, self._values = keys, values
        self.count, self.shared = pl.cdiv(length, size), heads // groups
        self._grid = heads, b
        steps = self.count * size

        def group(j):
            return jax.lax.div(j, self.shared)

        self.keys = pl.BlockSpec(
            (None, steps, None, keys), lambda j, i: (i, 0, group(j), 0)
        )
        self.parts = pl.BlockSpec((None, steps, None, keys), lambda j, i: (i, 0, j, 0))
        self.values = pl.BlockSpec(
            (None, steps, None, values), lambda j, i: (i, 0, j, 0)
        )
        self.decays = pl.BlockSpec((None, steps, None), lambda j, i: (i, 0, j))
        self._flags = pl.BlockSpec((None, steps), lambda j, i: (i, 0))
        self.state = pl.BlockSpec(
            (None, None, keys, values), lambda j, i: (i, j, 0, 0)
        )
        self.starts = pl.BlockSpec(
            (None, self.count, None, keys, values), lambda j, i: (i, 0, j, 0, 0)
        )
        self.parts_shape = b, length, heads, d_key
        self.starts_shape = b, self.count, heads, d_key, d_value
        self._interpreted = target_platform() not in ("gpu", "cuda")
        precision = jax.lax.Precision.HIGHEST
        if dtype == jnp.float32 and not self._interpreted:
            precision = _PREC
        self.evaluate = partial(evaluate, precision=precision)

    def operands(self, q, k, v, log_decay, reset, mask):
        def numbers(flags):
            return None if flags is None else flags.astype(jnp.float32)

        return [
            (q, self.keys),
            (k, self.keys),
            (v, self.values),
            (log_decay, self.decays),
            (numbers(reset), self._flags),
            (numbers(mask), self._flags),
        ]

    def chunk(self, n, q, k, v, decay, reset, valid, state):
        """Returns the head of a chunk, what its steps see, and what is not finite."""
        head = Head(
            self.load_keys(q, n),
            self.load_keys(k, n),
            [self.load_values(v, n)],
            None if decay is None else [self._load_row(decay, n)],
        )
        seen = seen_steps(self._size, self._load_row(reset, n))
        valid = self._load_row(valid, n)
        states, marks = find_not_finite(head, [state], seen, valid)
        return head, seen, states, marks

    def load_keys(self, ref, n):
        return _load(*self._steps(ref, n, self._d_key))

    def load_values(self, ref, n):
        return _load(*self._steps(ref, n, self._d_value))

    def store_keys(self, ref, n, x):
        _store(*self._steps(ref, n, self._d_key), x)

    def store_values(self, ref, n, x):
        _store(*self._steps(ref, n, self._d_value), x)

    def load_state(self, ref):
        return _load(*self._entries(ref))

    def store_state(self, ref, x):
        _store(*self._entries(ref), x)

    def _load_row(self, ref, n):
        """Returns numbers of steps as ``(1, c)``, or None."""
        if ref is not None:
            return _load(*self._numbers(ref, n))[None]

    def store_row(self, ref, n, x):
        _store(*self._numbers(ref, n), x.reshape(self._size))

    def _steps(self, ref, n, width):
        sizes = self._size, ref.shape[-1]
        part = ref.at[pl.ds(n * self._size, self._size), :]
        return part, _within(sizes, (n * self._size, 0), (self._length, width))

    def _numbers(self, ref, n):
        first = n * self._size
        return ref.at[pl.ds(first, self._size)], _within(
            (self._size,), (first,), (self._length,)
        )

    def _entries(self, ref):
        return ref, _within(ref.shape, (0, 0), (self._d_key, self._d_value))

    def call(self, kernel, operands, results):
        def of_leaves(pairs):
            return [
                jax.tree.map(lambda _, spec=spec: spec, tree) for tree, spec in pairs
            ]

        outputs = pl.pallas_call(
            kernel,
            grid=self._grid,
            in_specs=of_leaves(operands),
            out_specs=of_leaves(results),
            out_shape=[tree for tree, _ in results],
            compiler_params=plgpu.CompilerParams(**_OPTIONS),
            interpret=self._interpreted,
        )(*(tree for tree, _ in operands))
        return outputs


def _within(sizes, first, ends):
    """Returns which entries of a block are before the ends of their axes, or None."""
    mask = None
    for axis, (start, end) in enumerate(zip(first, ends, strict=True)):
        if isinstance(start, int) and end == sizes[axis]:
            continue
        index = jax.lax.broadcasted_iota(jnp.int32, sizes, axis)
        inside = start + index < end
        mask = inside if mask is None else mask & inside
    return mask


def _load(ref, mask):
    return plgpu.load(ref, mask=mask, other=None if mask is None else 0)


def _store(ref, mask, x):
    plgpu.store(ref, x.astype(ref.dtype), mask=mask)
