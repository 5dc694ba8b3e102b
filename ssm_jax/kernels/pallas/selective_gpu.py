"""The selective recurrence for GPUs: a channel per thread, its states in registers."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from ssm_jax.kernels.axes import match_varying_axes, pad_axis
from ssm_jax.kernels.pallas.gpu import interpreted

# Channels of a warpgroup, and steps whose inputs are loaded at once.
_CHANNELS, _AT_ONCE = 128, 4

# Steps of a block, whose states are in shared memory in the backward pass, and the
# bytes that they may take.
_STEPS, _SHARED = 24, 24 * 2**13


def forward(x, dt, B, C, rates, feedthrough, state, reset, *, with_starts):
    """Returns ``(y, last, starts)``; starts are the states before the blocks."""
    shapes = _Shapes(x, B)
    length, n = shapes.length, shapes.n

    def kernel(flags, x, dt, B, C, rates, feedthrough, first, y, last, *starts):
        row, channels, _ = _place()
        rates = _states(rates, channels)
        feedthrough = feedthrough[channels]

        def steps(begin, count, h):
            at = [begin + u for u in range(count)]
            loaded = [(x[row, t, channels], dt[row, t, channels]) for t in at]
            for t, (x_t, dt_t) in zip(at, loaded, strict=True):
                h = _zero_at(flags, row, t, h)
                step, y_t = dt_t * x_t, feedthrough * x_t
                h = [
                    jnp.exp(-dt_t * rates[i]) * h[i] + step * B[row, t, i]
                    for i in range(n)
                ]
                for i in range(n):
                    y_t += h[i] * C[row, t, i]
                y[row, t, channels] = y_t
            return h

        def block(k, h, count=shapes.steps):
            for ref in starts:
                _store(ref.at[row, k], channels, h)
            begin, (groups, rest) = k * shapes.steps, divmod(count, _AT_ONCE)
            h = jax.lax.fori_loop(
                0, groups, lambda j, h: steps(begin + _AT_ONCE * j, _AT_ONCE, h), h
            )
            return steps(begin + _AT_ONCE * groups, rest, h)

        whole, rest = divmod(length, shapes.steps)
        h = jax.lax.fori_loop(0, whole, block, _states(first.at[row], channels))
        _store(last.at[row], channels, block(whole, h, rest) if rest else h)

    y, last, *starts = shapes.call(
        kernel,
        [shapes.sequence, shapes.state, *[shapes.starts] * with_starts],
        *shapes.operands(x, dt, B, C, rates, feedthrough, reset),
        shapes.pad(jnp.swapaxes(state, 1, 2)),
    )
    return shapes.cut(y), jnp.swapaxes(shapes.cut(last), 1, 2), *starts


def backward(
    x, dt, B, C, rates, feedthrough, state, reset, starts, y_gradient, last_gradient
):
    """Returns the gradients in the arguments of `forward`, from ``x`` to ``state``."""
    shapes = _Shapes(x, B)
    length, n = shapes.length, shapes.n

    def kernel(flags, x, dt, B, C, rates, feedthrough, starts, of_y, of_last, *results):
        of_x, of_dt, of_B, of_C, of_rates, of_feedthrough, of_state, before = results
        row, channels, part = _place()
        rates = _states(rates, channels)
        feedthrough = feedthrough[channels]
        zero = jnp.zeros(_CHANNELS, feedthrough.dtype)

        def recompute(begin, u, h):
            t = begin + u
            x_t, dt_t = x[row, t, channels], dt[row, t, channels]
            h = _zero_at(flags, row, t, h)
            for i in range(n):
                before[u, i] = h[i]
            step = dt_t * x_t
            return [
                jnp.exp(-dt_t * rates[i]) * h[i] + step * B[row, t, i] for i in range(n)
            ]

        def one_step(begin, u, carry):
            t = begin + u
            g, of_rates_sum, of_D_sum = carry
            x_t, dt_t, of_y_t = (ref[row, t, channels] for ref in (x, dt, of_y))
            step, of_step, of_decay = dt_t * x_t, zero, zero
            for i in range(n):
                decay, before_t = jnp.exp(-dt_t * rates[i]), before[u, i]
                g[i] += of_y_t * C[row, t, i]
                h_t = decay * before_t + step * B[row, t, i]
                of_C[row, part, t, i] = jnp.sum(h_t * of_y_t)
                of_B[row, part, t, i] = jnp.sum(g[i] * step)
                of_step += g[i] * B[row, t, i]
                g[i] *= decay
                # In the logarithm of the decay, -dt r.
                of_log = g[i] * before_t
                of_rates_sum[i] -= dt_t * of_log
                of_decay += of_log * rates[i]
            of_x[row, t, channels] = dt_t * of_step + feedthrough * of_y_t
            of_dt[row, t, channels] = x_t * of_step - of_decay
            g = _zero_at(flags, row, t, g)
            return g, of_rates_sum, of_D_sum + x_t * of_y_t

        def block(k, carry, count=shapes.steps):
            begin = k * shapes.steps
            h = _states(starts.at[row, k], channels)
            jax.lax.fori_loop(0, count, partial(recompute, begin), h)
            return jax.lax.fori_loop(
                0, count, lambda u, c: one_step(begin, count - 1 - u, c), carry
            )

        carry = _states(of_last.at[row], channels), [zero] * n, zero
        whole, rest = divmod(length, shapes.steps)
        if rest:
            carry = block(whole, carry, rest)
        g, of_rates_sum, of_D_sum = jax.lax.fori_loop(
            0, whole, lambda k, carry: block(whole - 1 - k, carry), carry
        )
        _store(of_rates.at[row], channels, of_rates_sum)
        of_feedthrough[row, channels] = of_D_sum
        _store(of_state.at[row], channels, g)

    partial_sums = (shapes.batch, shapes.blocks, length, n)
    of_x, of_dt, of_B, of_C, of_rates, of_feedthrough, of_state = shapes.call(
        kernel,
        [
            *[shapes.sequence] * 2,
            *[partial_sums] * 2,
            shapes.state,
            (shapes.batch, shapes.state[-1]),
            shapes.state,
        ],
        *shapes.operands(x, dt, B, C, rates, feedthrough, reset),
        starts,
        shapes.pad(y_gradient),
        shapes.pad(jnp.swapaxes(last_gradient, 1, 2)),
        scratch=[plgpu.SMEM((shapes.steps, n, _CHANNELS), x.dtype)],
    )
    return (
        shapes.cut(of_x),
        shapes.cut(of_dt),
        jnp.sum(of_B, 1),
        jnp.sum(of_C, 1),
        jnp.sum(shapes.cut(of_rates), 0).T,
        jnp.sum(shapes.cut(of_feedthrough), 0),
        jnp.swapaxes(shapes.cut(of_state), 1, 2),
    )


class _Shapes:
    """The sizes of a problem, with channels padded to whole warpgroups.

    Attributes:
      steps: Number of steps of a block.
      blocks: Number of warpgroups of a sequence.
      sequence: Shape ``(b, l, d)``.
      state: Shape ``(b, n, d)``.
      starts: Shape ``(b, blocks of steps, n, d)``.
    """

    def __init__(self, x, B):
        (self.batch, self.length, self._d), self.n = x.shape, B.shape[-1]
        self._like = x
        of_a_step = self.n * _CHANNELS * x.dtype.itemsize
        self.steps = max(1, min(_STEPS, _SHARED // of_a_step))
        self.blocks = pl.cdiv(self._d, _CHANNELS)
        d, count = self.blocks * _CHANNELS, pl.cdiv(self.length, self.steps)
        self.sequence, self.state = (
            (self.batch, self.length, d),
            (self.batch, self.n, d),
        )
        self.starts = (self.batch, count, self.n, d)

    def operands(self, x, dt, B, C, rates, feedthrough, reset):
        """Returns the operands of both passes, the flags of resets first."""
        flags = None if reset is None else reset.astype(jnp.int32)
        padded = map(self.pad, (x, dt, rates.T, feedthrough))
        x, dt, rates, feedthrough = padded
        return flags, x, dt, B, C, rates, feedthrough

    def pad(self, values):
        return pad_axis(values, -1, after=self.blocks * _CHANNELS - self._d)

    def cut(self, values):
        return values[..., : self._d]

    def call(self, kernel, results, *operands, scratch=()):
        """Calls a kernel for each sequence and block; ``results`` are shapes."""
        outputs = plgpu.kernel(
            kernel,
            out_type=[jax.ShapeDtypeStruct(size, self._like.dtype) for size in results],
            scratch_types=scratch,
            grid=(self.batch, self.blocks),
            grid_names=("sequences", "channels"),
            interpret=interpreted(),
        )(*operands)
        # In `shard_map` results of a kernel are not marked as varying, which they are.
        return match_varying_axes(self._like, *outputs)[1:]


def _place():
    """Returns the sequence, the channels and the number of this warpgroup."""
    part = jax.lax.axis_index("channels")
    channels = pl.ds(part * _CHANNELS, _CHANNELS)
    return jax.lax.axis_index("sequences"), channels, part


def _states(ref, channels):
    # A sum: in `shard_map` JAX marks what is loaded as varying, but no result, and what
    # a loop carries must be of one type.
    return [0 + ref[i, channels] for i in range(ref.shape[0])]


def _store(ref, channels, values):
    for i, value in enumerate(values):
        ref[i, channels] = value


def _zero_at(flags, row, t, states):
    """Returns the states, zero if the step depends on no state before it."""
    if flags is None:
        return list(states)
    keep = jnp.full(_CHANNELS, flags[row, t] == 0)
    return [jnp.where(keep, state, 0) for state in states]
