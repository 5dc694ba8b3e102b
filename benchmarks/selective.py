"""The selective SSM compared to a plain `jax.lax.scan` over its steps."""

import logging
from collections.abc import Iterable

import jax
import jax.numpy as jnp

from benchmarks.exact import relative_error
from benchmarks.measurement import Row
from benchmarks.plain import selected
from benchmarks.scans import compared
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.recurrences import SelectiveSSM
from ssm_jax.recurrences.families.base import Params
from ssm_jax.types import Activations, Outputs

SIZES = ((1, 64), (8, 64), (1, 256))
"""Batch and channels."""


def plain(params: Params, x: Activations) -> Outputs:
    """The equations of `SelectiveSSM`, one `jax.lax.scan` that stores every state."""
    rates = jnp.exp(params["log_rate"])
    dt, B, C = selected(params, x)

    def step(h, inputs):
        x, dt, B, C = inputs
        h = jnp.exp(-dt[..., None] * rates) * h + (dt * x)[..., None] * B[:, None]
        return h, jnp.sum(h * C[:, None], -1) + params["feedthrough"] * x

    steps = jax.tree.map(lambda v: jnp.moveaxis(v, 1, 0), (x, dt, B, C))
    _, y = jax.lax.scan(step, jnp.zeros((len(x), *rates.shape)), steps)
    return jnp.moveaxis(y, 0, 1)


def selective_rows(length: int, *, repeats: int) -> Iterable[Row]:
    """Times a method against the plain scan, in turns.

    The method is ``"sequential"`` on CPUs, else ``"pallas"``.

    Args:
      length: Number of steps.
      repeats: Number of timed turns.

    Yields:
      A row for each batch and number of channels, with 16 states per channel: the
      method, the result of `compared`, and the maximum difference relative to the
      largest output.
    """
    selective = SelectiveSSM()
    method = "sequential" if target_platform() == "cpu" else "pallas"

    def ours(params, x):
        return selective.apply(params, x, method=method)[0]

    for batch, d in SIZES:
        logging.info("batch %d, %d channels, %d steps", batch, d, length)
        params = selective.init(jax.random.key(0), d)
        x = jax.random.normal(jax.random.key(1), (batch, length, d))
        wanted = jax.jit(plain)(params, x)
        error = relative_error(jax.jit(ours)(params, x), wanted)
        yield {
            "what": "selective",
            "method": method,
            "length": length,
            "batch": batch,
            "d": d,
            **compared(ours, plain, params, x, repeats=repeats),
            "error": error,
        }
