"""The selective recurrence for GPUs: a channel per thread, its states in registers."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from ssm_jax.kernels.pallas.gpu import interpreted

# Channels of a warpgroup, and steps whose inputs are loaded at once.
_CHANNELS, _AT_ONCE = 128, 4


def forward(x, dt, B, C, rates, feedthrough, state, reset):
    """Returns ``(y, last, None)``; the backward pass computes the states anew."""
    (b, length, d), n = x.shape, B.shape[-1]
    fill = -d % _CHANNELS

    def pad(values):
        return jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, fill)])

    def kernel(flags, x, dt, B, C, rates, feedthrough, first, y, last):
        row = jax.lax.axis_index("sequences")
        channels = pl.ds(jax.lax.axis_index("channels") * _CHANNELS, _CHANNELS)
        rates = [rates[i, channels] for i in range(n)]
        feedthrough = feedthrough[channels]

        def steps(start, count, h):
            at = [start + u for u in range(count)]
            loaded = [(x[row, t, channels], dt[row, t, channels]) for t in at]
            for t, (x_t, dt_t) in zip(at, loaded, strict=True):
                if flags is not None:
                    keep = jnp.full(_CHANNELS, flags[row, t] == 0)
                    h = [jnp.where(keep, state, 0) for state in h]
                step, out = dt_t * x_t, feedthrough * x_t
                h = [
                    jnp.exp(-dt_t * rate) * state + step * B[row, t, i]
                    for i, (rate, state) in enumerate(zip(rates, h, strict=True))
                ]
                for i, state in enumerate(h):
                    out += state * C[row, t, i]
                y[row, t, channels] = out
            return h

        groups, rest = divmod(length, _AT_ONCE)
        h = jax.lax.fori_loop(
            0,
            groups,
            lambda k, h: steps(k * _AT_ONCE, _AT_ONCE, h),
            [first[row, i, channels] for i in range(n)],
        )
        h = steps(groups * _AT_ONCE, rest, h)
        for i, value in enumerate(h):
            last[row, i, channels] = value

    varying = jax.typeof(x).manual_axis_type

    def shape(*size):
        return jax.ShapeDtypeStruct(size, x.dtype, manual_axis_type=varying)

    y, last = plgpu.kernel(
        kernel,
        out_type=[shape(b, length, d + fill), shape(b, n, d + fill)],
        grid=(b, (d + fill) // _CHANNELS),
        grid_names=("sequences", "channels"),
        interpret=interpreted(),
    )(
        None if reset is None else reset.astype(jnp.int32),
        pad(x),
        pad(dt),
        B,
        C,
        pad(rates.T),
        pad(feedthrough),
        pad(jnp.swapaxes(state, 1, 2)),
    )
    return y[..., :d], jnp.swapaxes(last[..., :d], 1, 2), None
