"""The baselines of the paper's tables, as blocks in the place of its own.

They have the width, the number of layers, the normalisation and the training of the
model they stand beside: a comparison of layers, not of what each paper tuned. What the
papers on state spaces have in common is kept: the decays, steps and input matrices of a
recurrence learn at 1e-3 at most and without weight decay.

The figures that the paper's tables print for them were measured with hyperparameters
of their own papers, or by a Transformer of which the paper says nothing. No published
figure stands beside a baseline, therefore.
"""

from typing import Any

from ssm_jax.config import Config, spec
from ssm_jax.layers import MLP, Attention, ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, PositionalEmbedding
from ssm_jax.recurrences import DSS, S4, S4D, S5

ATTENTIONS = {"transformer": "softmax", "linear_attention": "linear"}
SSM_LEARNING_RATE = 1e-3
"""The highest learning rate of what `Recurrence.groups` sets apart."""

RECURRENCES = {
    "dss_exp": lambda length: spec(DSS, bidirectional=True),
    "dss_softmax": lambda length: spec(
        DSS, bidirectional=True, kernel="softmax", length=length
    ),
    "s4": lambda length: spec(S4, bidirectional=True),
    "s4d": lambda length: spec(S4D, bidirectional=True),
    "s5": lambda length: spec(S5, bidirectional=True),
}
NAMES = (*ATTENTIONS, *RECURRENCES)
"""Words of a variant."""


def parts(name: str, setting: Any, length: int) -> dict[str, Config]:
    """The fields of a `SequenceModel` that a baseline has its own of.

    Args:
      name: One of `NAMES`.
      setting: The sizes, an `experiments.etsmlp.parts.Setting`.
      length: Steps of a sequence, or a reference.

    Returns:
      ``block`` and, for attention, ``positions`` and ``encoder_dropout``.
    """
    around = {"norm": setting.norm, "prenorm": True}
    if name in RECURRENCES:
        mixing = spec(ChannelMixing, kind="glu", dropout=setting.dropout)
        recurrence = RECURRENCES[name](length)
        rate = setting.learning_rate
        recurrence.lr_multiplier = min(SSM_LEARNING_RATE, rate) / rate
        layer = spec(RecurrentLayer, recurrence=recurrence, mixing=mixing)
        return {"block": spec(Block, layer=layer, dropout=setting.dropout, **around)}
    attention = spec(
        Attention,
        n_heads=8 if setting.d_model % 128 == 0 else 4,
        kind=ATTENTIONS[name],
        bidirectional=True,
        dropout=setting.dropout,
    )
    mlp = spec(MLP, d_hidden=2 * setting.d_model, dropout=setting.dropout)
    return {
        "block": spec(Block, layer=attention, feedforward=mlp, **around),
        "positions": spec(PositionalEmbedding, max_length=length),
        "encoder_dropout": setting.dropout,
    }
