"""Models of published shapes."""

import jax.numpy as jnp

from ssm_jax.fields import Depth, PositiveInt
from ssm_jax.layers import GatedMLP, Griffin, SlidingAttention
from ssm_jax.models.block import Block
from ssm_jax.models.encoders import TokenEncoder
from ssm_jax.models.stack import SequenceModel
from ssm_jax.recurrences import RGLRU


def recurrent_gemma(
    d_model: PositiveInt = 2560,
    n_layers: Depth = 26,
    n_heads: PositiveInt = 10,
    *,
    vocabulary: PositiveInt = 256_000,
    window: PositiveInt = 2048,
) -> SequenceModel:
    """Returns a model of the shape of RecurrentGemma, by default that of 2B.

    Two blocks of `Griffin` are followed by one of multi-query attention to the last
    ``window`` steps, and so on; the last period is cut. Each block has a `GatedMLP` of
    width ``3 d_model``. Logits are those of the embedding table, bounded by 30. Their
    9B has ``d_model=4096, n_layers=38, n_heads=16``. As a config:
    ``spec(SequenceModel, ...)`` of the fields of what is returned.

    Args:
      d_model: Width of the model and of the recurrence.
      n_layers: Number of layers.
      n_heads: Number of heads of the attention, and of the gates of the recurrence.
      vocabulary: Number of tokens.
      window: Number of steps that a step attends to.

    Example:
      >>> model = recurrent_gemma(16, n_layers=5, n_heads=2, vocabulary=7, window=4)
      >>> [type(block.layer).__name__ for block in model.blocks[1:]]
      ['Griffin', 'SlidingAttention', 'Griffin', 'Griffin']

    References:
      Botev, De, Smith and others, `RecurrentGemma: Moving Past Transformers for
      Efficient Open Language Models <https://arxiv.org/abs/2404.07839>`_, 2024
    """
    attention = SlidingAttention(
        n_heads=n_heads,
        window=window,
        n_kv_heads=1,
        d_rotary=d_model // n_heads // 2,
    )
    recurrent, attentive = (
        Block(
            layer,
            norm="rms",
            prenorm=True,
            feedforward=GatedMLP(3 * d_model),
            rms_epsilon=1e-6,
        )
        for layer in (Griffin(RGLRU(n_heads=n_heads)), attention)
    )
    # The authors round the factor of the embedded tokens to bfloat16.
    scale = float(jnp.bfloat16(d_model**0.5))
    encoder = TokenEncoder(d_model, vocabulary, std=d_model**-0.5, scale=scale)
    return SequenceModel(
        encoder=encoder,
        block=(recurrent, attentive),
        n_layers=n_layers,
        head=None,
        pattern="aab",
        logit_cap=30.0,
    )
