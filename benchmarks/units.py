"""FRU and SRU in this library, and evaluated as in their equations."""

import logging
from collections.abc import Iterable

import jax
import jax.numpy as jnp

from benchmarks.measurement import Row, measure, ratios
from ssm_jax.recurrences import FRU, SRU, Nonlinear, log_spaced
from ssm_jax.recurrences.families.running_sums import RunningSums


class _AsWritten(RunningSums):
    """All sums are updated at each step, and all outputs are computed."""

    def run(self, params, x, steps, h0, solver, *, reset, lengths, last_only):
        del reset, lengths, last_only
        named = self.named(params)
        own = x @ named.input + named.input_bias
        c = self.weights(params, jnp.broadcast_to(steps, own.shape[:-1]))
        h, stats = solver(self.nonlinear_term, params, (own, c), h0)
        o = h @ named.output + named.output_bias
        return jax.nn.relu(o), h[..., -1, :], stats

    def decay(self, params):
        del params
        return jnp.repeat(jnp.asarray(self.decays), self.d_statistic)

    def nonlinear_term(self, params, h, u):
        own, c = u
        named = self.named(params)
        g = jax.nn.relu(h @ named.feedback + named.feedback_bias)
        s = jax.nn.relu(own + g @ named.statistic)
        sums = c[..., :, None] * s[..., None, :]
        return sums.reshape(*sums.shape[:-2], -1)


class _FRU(_AsWritten, FRU):
    """The FRU as in its equations."""


class _SRU(_AsWritten, SRU):
    """The SRU as in its equations."""


def unit_rows(length: int, *, batch: int = 64, repeats: int) -> Iterable[Row]:
    """Times units whose last output is used, and their gradients.

    Args:
      length: Sequence length, and the horizon of the FRU.
      batch: Number of sequences.
      repeats: Number of timed runs of each.

    Yields:
      For each unit a row as in its equations, a row for this library, and their ratio.
    """
    x = jax.random.normal(jax.random.key(0), (batch, length, 1))
    waves = {"frequencies": log_spaced(60, float(length)), "horizon": length}
    for usual, ours in ((_FRU(**waves), FRU(**waves)), (_SRU(), SRU())):
        name = type(ours).__name__
        logging.info("%s, %d steps, batches of %d", name, length, batch)
        found = [_row(unit, x, repeats) for unit in (usual, ours)]
        yield {"what": f"{name} as written", "length": length} | found[0]
        yield {"what": name, "length": length} | found[1]
        yield {"what": f"{name} ratio", "length": length} | ratios(*found)


def _row(unit: Nonlinear, x: jax.Array, repeats: int) -> Row:
    params = unit.init(jax.random.key(1), x.shape[-1])

    def loss(params, x):
        return jnp.sum(jnp.sin(unit.solve(params, x, last_only=True)[0][..., -1, :]))

    forward, _ = measure("forward", loss, params, x, repeats=repeats)
    grad, _ = measure("grad", jax.value_and_grad(loss), params, x, repeats=repeats)
    kept = ("forward_s", "forward_bytes", "grad_s", "grad_bytes")
    return {name: (forward | grad)[name] for name in kept}
