"""The ETSMLP layer, the usual implementation of it, and a Transformer block."""

import logging
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import meta

from benchmarks.measurement import Row, measure, ratios
from ssm_jax.layers import ETSMLP, MLP, Attention
from ssm_jax.models import Block
from ssm_jax.recurrences import CES
from ssm_jax.types import Activations, PyTree


class _Usual(CES):
    """The authors' evaluation: an array of exponentials, and an FFT of length 2 L."""

    def apply(self, params, x, state=None, **flags):
        del flags
        length = x.shape[-2]
        ahead, behind = (self._kernel(params, s, length) for s in ("", "_backward"))
        kernel = jnp.concatenate([ahead, jnp.flip(behind, -1)], -1)
        spectrum = jnp.fft.rfft(jnp.swapaxes(x, -1, -2), n=2 * length)
        y = jnp.fft.irfft(spectrum * jnp.fft.rfft(kernel), n=2 * length)
        y = jnp.swapaxes(y[..., :length], -1, -2)
        return y + params["shortcut"] * x, state

    def _kernel(self, params, suffix, length):
        log_mu = jax.lax.complex(*self.log_mu(params, suffix))[:, None]
        re, im = (params[f"log_gain_{part}{suffix}"] for part in ("re", "im"))
        w = jnp.exp(jax.lax.complex(re, im))[:, None] * (1 - jnp.exp(log_mu))
        return jnp.real(w * jnp.exp(log_mu * jnp.arange(length)))


_USUAL, _OURS = (c(bidirectional=True) for c in (_Usual, CES))


def smoothing_rows(
    length: int, *, batch: int = 8, width: int = 160, repeats: int
) -> Iterable[Row]:
    """Times the smoothing, the layer, and a Transformer block of the same width.

    Args:
      length: Sequence length.
      batch: Number of sequences.
      width: Number of channels, inside and outside the layer.
      repeats: Number of timed runs of each.

    Yields:
      A row for each, and rows with the ratios of the usual implementation and of the
      Transformer to ours.
    """
    x = jax.random.normal(jax.random.key(0), (batch, length, width))
    attention = Attention(n_heads=4, bidirectional=True)
    layers = {
        "usual smoothing": _smooth(_USUAL, width),
        "smoothing": _smooth(_OURS, width),
        "usual ETSMLP": _layer(ETSMLP(_USUAL, d_hidden=width), x),
        "ETSMLP": _layer(ETSMLP(_OURS, d_hidden=width), x),
        "Transformer": _layer(
            Block(attention, prenorm=True, feedforward=MLP(d_hidden=2 * width)), x
        ),
    }
    found = {}
    for name, (function, params) in layers.items():
        logging.info("%s, %d steps", name, length)
        found[name] = _costs(function, params, x, repeats)
        yield {"what": name, "length": length} | found[name]
    for slow, fast in (
        ("usual smoothing", "smoothing"),
        ("usual ETSMLP", "ETSMLP"),
        ("Transformer", "ETSMLP"),
    ):
        ratio = ratios(found[slow], found[fast])
        yield {"what": f"{slow} / {fast}", "length": length} | ratio


def _smooth(recurrence: CES, width: int) -> tuple[Callable, PyTree]:
    params = recurrence.init(jax.random.key(1), width)
    return lambda params, x: recurrence.apply(params, x)[0], params


def _layer(layer: nn.Module, x: Activations) -> tuple[Callable, PyTree]:
    variables = meta.unbox(layer.init(jax.random.key(1), x[:1, :2]))
    return lambda variables, x: layer.apply(variables, x)[0], variables


def _costs(function, params, x, repeats):
    def loss(params, x):
        return jnp.vdot(function(params, x), jax.lax.stop_gradient(x))

    gradient = jax.value_and_grad(loss, (0, 1))
    forward, _ = measure("forward", function, params, x, repeats=repeats)
    backward, _ = measure("grad", gradient, params, x, repeats=repeats)
    return forward | backward
