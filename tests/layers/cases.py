"""Layers over time to test, and their compiled evaluation, shared by the tests."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from ssm_jax.layers import (
    ETSMLP,
    Attention,
    ChannelMixing,
    GatedDeltaNet,
    Griffin,
    Mamba,
    Mamba2,
    Mamba3,
    MLSTMLayer,
    Recurrent,
    RecurrentLayer,
    RetNet,
    RotaryAttention,
    ShortConvolution,
    SlidingAttention,
)
from ssm_jax.recurrences import (
    CES,
    DLR,
    MLSTM,
    RGLRU,
    SSD,
    GatedDeltaRule,
    GatedLinearAttention,
    Retention,
    SelectiveSSM,
    TrapezoidalSSD,
)
from tests.tiers import tiered

BATCH, LENGTH, HALF, WIDTH = 3, 10, 5, 4


class Row(NamedTuple):
    """A layer and the properties that it must have.

    Attributes:
      layer: The layer.
      directions: 1 for a causal layer, 2 for a bidirectional one.
      drops: Whether it has dropout.
      fast: Whether the fast tier tests it, by default.
    """

    layer: nn.Module
    directions: int = 1
    drops: bool = False
    fast: bool = True

    @property
    def has_state(self):
        """Whether the layer hands on a state."""
        return self.layer.initial_state((BATCH,), WIDTH) is not None


PLAIN = DLR(d_state=3, lr_multiplier=0.1)
BOTH = DLR(d_state=3, bidirectional=True)
# Decays that are visible within a few steps.
FAST = {"r_min": 0.5, "dt_min": 0.1, "dt_max": 0.5}
AHEAD, ALL_AROUND = (CES(**FAST, bidirectional=b) for b in (False, True))
ROWS = {
    "recurrent": Row(Recurrent(PLAIN)),
    "glu": Row(RecurrentLayer(PLAIN, ChannelMixing("glu", dropout=0.5)), drops=True),
    "bidirectional": Row(RecurrentLayer(BOTH, ChannelMixing()), directions=2),
    "ets_mlp": Row(ETSMLP(AHEAD, 6, kernel_init="xavier", dropout=0.5), drops=True),
    "ets_mlp_gate": Row(ETSMLP(AHEAD, 6, gate=True, kernel_init="uniform")),
    "ets_mlp_bidirectional": Row(
        ETSMLP(ALL_AROUND, 6, activation="gelu", kernel_init="xavier"), directions=2
    ),
    "softmax": Row(Attention(2, bidirectional=True, dropout=0.5), 2, drops=True),
    "softmax_causal": Row(Attention(2)),
    "softmax_rotary": Row(Attention(2, "rotary", d_head=6)),
    "linear": Row(Attention(2, "linear", bidirectional=True), directions=2),
    "linear_causal": Row(Attention(2, "linear")),
    "rotary": Row(RotaryAttention(2, bidirectional=True, dropout=0.5), 2, drops=True),
    "rotary_causal": Row(RotaryAttention(2, d_feedforward=6)),
    "local": Row(RotaryAttention(2, 5, bidirectional=True, mixing="glu"), directions=2),
    "local_causal": Row(RotaryAttention(2, window=2)),
    "sliding": Row(SlidingAttention(2, window=3, n_kv_heads=1)),
    "short_convolution": Row(ShortConvolution(d_conv=4)),
    "griffin": Row(Griffin(RGLRU(n_heads=2, r_min=0.7), width=6)),
    "mamba": Row(Mamba(SelectiveSSM(d_state=3, dt_min=0.05, dt_max=0.5))),
    "mamba2": Row(
        Mamba2(SSD(d_head=2, d_state=3, n_groups=2, dt_min=0.05, dt_max=0.5)),
        fast=False,
    ),
    "gated_delta_net": Row(
        GatedDeltaNet(
            GatedDeltaRule(
                n_heads=2, d_key=2, d_value=3, n_key_heads=1, dt_min=0.05, dt_max=0.5
            )
        ),
        fast=False,
    ),
    "ret_net": Row(RetNet(Retention(n_heads=2)), fast=False),
    "gla": Row(RetNet(GatedLinearAttention(n_heads=2, rank=2)), fast=False),
    "delta_net": Row(
        GatedDeltaNet(
            GatedDeltaRule(n_heads=2, d_key=2, d_value=3, decay=False), gate=False
        ),
        fast=False,
    ),
    "mamba3": Row(
        Mamba3(TrapezoidalSSD(d_head=2, d_state=4, dt_min=0.05, dt_max=0.5)),
        fast=False,
    ),
    "mlstm": Row(MLSTMLayer(MLSTM(d_head=2)), fast=False),
}
FAST = tuple(name for name, row in ROWS.items() if row.fast)


def rows(fast=FAST, full=None, **expected):
    """Parametrizes a test over the rows with the given attributes.

    The rows of other names than `fast` are marked full; those that are not in ``full``
    either, if it is given, nightly.
    """
    found = {
        name: row
        for name, row in ROWS.items()
        if all(getattr(row, key) == value for key, value in expected.items())
    }
    return pytest.mark.parametrize("row", tiered(found, fast, full=full))


def _drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


X = _drawn(0, BATCH, LENGTH, WIDTH)
WEIGHTS = _drawn(1, BATCH, LENGTH, WIDTH)
ALL, NONE = np.ones((BATCH, LENGTH), bool), np.zeros((BATCH, LENGTH), bool)
# Rows with padding at the end, at the start and in between; five valid steps each.
MASK = np.array(
    [
        [1, 1, 1, 1, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 1, 1, 1, 1],
        [0, 1, 1, 0, 1, 0, 0, 1, 1, 0],
    ],
    bool,
)


@functools.cache
def initialized(row):
    """Variables of a layer, initialized once."""
    return jax.jit(row.layer.init)(jax.random.key(0), X[:, :HALF])


def decode(layer, variables, x):
    """Outputs and last state of a layer that is given one token at a time."""

    def step(state, token):
        y, state = layer.apply(variables, token[:, None], state)
        return state, y[:, 0]

    start = layer.initial_state(x.shape[:1], x.shape[-1])
    last, y = jax.lax.scan(step, start, jnp.swapaxes(x, 0, 1))
    return jnp.swapaxes(y, 0, 1), last


def state_of(row):
    """A random state of a layer; positive, like those of linear attention."""
    zero = row.layer.initial_state((BATCH,), WIDTH)
    if zero is None:
        return None
    return jax.tree.map(lambda v: np.abs(_drawn(2, *v.shape)).astype(v.dtype), zero)


@functools.cache
def _evaluation(row):
    @jax.jit
    def run(variables, x, state, weights, flags):
        def apply(x, state):
            return row.layer.apply(variables, x, state, **flags)

        out, pull = jax.vjp(apply, x, state)
        return out, pull((weights, jax.tree.map(jnp.zeros_like, out[1])))

    return run


def evaluate(row, x, state, weights, **flags):
    """``((y, last), (of_x, of_state))``; the gradient is that of ``sum(weights y)``."""
    return _evaluation(row)(initialized(row), x, state, weights, flags)


def evaluate_whole(row, *, x=X, weights=WEIGHTS, reset=NONE, mask=ALL):
    """`evaluate` at the full length with all arguments, compiled once for all tests."""
    return evaluate(row, x, state_of(row), weights, reset=reset, mask=mask)
