"""Baselines of the paper's tables, as blocks that replace those of ETSMLP.

They have the width, number of layers, normalization and training of the ETSMLP that
they are compared to, so that layers are compared and not tuned hyperparameters. As in
the papers on state space models, the decays, time steps and input matrices of a
recurrence have a learning rate of at most 1e-3 and no weight decay.

The published results of the baselines were measured with the hyperparameters of their
own papers, or with a Transformer that the paper does not describe. They are therefore
not compared with results here.
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
"""Values of ``model`` in a variant."""


def fields(name: str, setting: Any, length: int) -> dict[str, Config]:
    """Returns the fields of a `SequenceModel` that differ for a baseline.

    Args:
      name: One of `NAMES`.
      setting: The sizes, an `experiments.etsmlp.settings.Setting`.
      length: Length of the sequences, or a reference to it.

    Returns:
      ``block`` and, for attention, ``positions`` and ``encoder_dropout``.
    """
    norm_fields = {"norm": setting.norm, "prenorm": True}
    if name in RECURRENCES:
        mixing = spec(ChannelMixing, kind="glu", dropout=setting.dropout)
        recurrence = RECURRENCES[name](length)
        rate = setting.learning_rate
        recurrence.lr_multiplier = min(SSM_LEARNING_RATE, rate) / rate
        layer = spec(RecurrentLayer, recurrence=recurrence, mixing=mixing)
        return {
            "block": spec(Block, layer=layer, dropout=setting.dropout, **norm_fields)
        }
    attention = spec(
        Attention,
        n_heads=8 if setting.d_model % 128 == 0 else 4,
        kind=ATTENTIONS[name],
        bidirectional=True,
        dropout=setting.dropout,
    )
    mlp = spec(MLP, d_hidden=2 * setting.d_model, dropout=setting.dropout)
    return {
        "block": spec(Block, layer=attention, feedforward=mlp, **norm_fields),
        "positions": spec(PositionalEmbedding, max_length=length),
        "encoder_dropout": setting.dropout,
    }
