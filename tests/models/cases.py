"""Causal layers to test, each in the same small model."""

from typing import Any

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
    RecurrentLayer,
    RetNet,
    RotaryAttention,
    ShortConvolution,
    SlidingAttention,
)
from ssm_jax.models import Block, SequenceModel, StepHead
from ssm_jax.recurrences import (
    CES,
    DLR,
    DSS,
    FRU,
    GRU,
    LRU,
    LSTM,
    MLSTM,
    RGLRU,
    RNN,
    S4,
    S4D,
    S5,
    SRU,
    SSD,
    BoundedEigenvalues,
    DampedEMA,
    DiagonalRNN,
    ExponentialSmoothing,
    GatedDeltaRule,
    GatedLinearAttention,
    LinOSS,
    MinGRU,
    MinLSTM,
    Retention,
    SelectiveSSM,
    SGConv,
    TrapezoidalSSD,
    log_spaced,
)
from tests.tiers import tiered

VOCABULARY = 7

# The published initial rates: the slowest states decay over thousands of steps.
SIZES = {"d_statistic": 4, "d_feedback": 4, "d_output": 8}
RECURRENCES = {
    "dlr": DLR(d_state=16),
    "dlr_prod": DLR(d_state=8, readout="prod"),
    "dlr_real": DLR(d_state=16, eigenvalues="real"),
    "dlr_cut": DLR(d_state=16, max_kernel_length=8),
    "sgconv": SGConv(d_state=4, length=16),
    "dss": DSS(d_state=8),
    "s4d": S4D(d_state=8),
    "s4": S4(d_state=8),
    "s5": S5(d_state=8, blocks=2),
    "bounded": BoundedEigenvalues(
        recurrence=S5(d_state=8, blocks=2), largest_state=200.0
    ),
    "lru": LRU(d_state=8),
    "linoss": LinOSS(d_state=4),
    "smoothing_real": CES(eigenvalues="real"),
    "ema": ExponentialSmoothing(),
    "damped_ema": DampedEMA(d_state=4),
    "sru": SRU(**SIZES),
    "fru": FRU(frequencies=log_spaced(5, 250.0), horizon=1000, **SIZES),
    "rnn": RNN(d_state=8),
    "gru": GRU(d_state=8),
    "lstm": LSTM(d_state=8),
    "rg_lru": RGLRU(n_heads=2),
    "min_gru": MinGRU(),
    # Not of modulus 1, whose states and their rounding grow with the length.
    "diagonal_rnn": DiagonalRNN(d_state=8),
    "min_lstm": MinLSTM(),
    "gated_attention": GatedLinearAttention(n_heads=2, d_key=2, rank=2),
}
LAYERS = {
    name: RecurrentLayer(recurrence, ChannelMixing())
    for name, recurrence in RECURRENCES.items()
} | {
    "ets_mlp": ETSMLP(CES(), d_hidden=8, gate=True, kernel_init="xavier"),
    "griffin": Griffin(RGLRU(n_heads=2)),
    "mamba": Mamba(SelectiveSSM(d_state=4)),
    "mamba2": Mamba2(SSD(d_head=4, d_state=4)),
    "gated_delta_net": GatedDeltaNet(GatedDeltaRule(n_heads=2, d_key=3, d_value=4)),
    "ret_net": RetNet(Retention(n_heads=2)),
    "mamba3": Mamba3(TrapezoidalSSD(d_head=4, d_state=4)),
    "mlstm": MLSTMLayer(MLSTM(d_head=4)),
    "linear_attention": Attention(n_heads=2, kind="linear"),
    "local_attention": RotaryAttention(n_heads=2, window=3),
    "sliding_attention": SlidingAttention(n_heads=2, window=3, n_kv_heads=1),
    "short_convolution": ShortConvolution(),
}
STATELESS = {
    "attention": Attention(n_heads=2),
    "attention_rotary": Attention(n_heads=2, kind="rotary"),
    "rotary_attention": RotaryAttention(n_heads=2),
}


HYBRIDS = {
    "hybrid": (LAYERS["griffin"], LAYERS["sliding_attention"]),
}
"""Several layers of one model."""


def model(
    layer: nn.Module | tuple[nn.Module, ...], encoder: nn.Module
) -> SequenceModel:
    """A language model of one block, or of one of each layer."""
    head = StepHead(VOCABULARY)
    if isinstance(layer, tuple):
        blocks = tuple(Block(each, prenorm=True) for each in layer)
        return SequenceModel(encoder, blocks, len(layer), head)
    return SequenceModel(encoder, Block(layer, prenorm=True), 1, head)


def each_layer(
    layers: dict[str, Any],
    fast: tuple[str, ...],
    full: tuple[str, ...] | None = None,
) -> pytest.MarkDecorator:
    """Marks a test to run on layers, by their tiers as in `tiered`."""
    return pytest.mark.parametrize("layer", tiered(layers, fast, full=full))
