"""Models of published shapes."""

from collections.abc import Collection

import jax.numpy as jnp

from ssm_jax.fields import Depth, PositiveInt
from ssm_jax.layers import GatedMLP, Griffin, Mamba2, SlidingAttention
from ssm_jax.models.block import Block
from ssm_jax.models.encoders import TokenEncoder
from ssm_jax.models.stack import SequenceModel
from ssm_jax.recurrences import RGLRU, SSD


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


def mamba2_attention(
    d_model: PositiveInt = 2560,
    n_layers: Depth = 64,
    n_heads: PositiveInt = 30,
    *,
    attention: Collection[int] = (9, 18, 27, 36, 45, 56),
    recurrence: SSD | None = None,
    vocabulary: PositiveInt = 50_288,
    window: PositiveInt = 2048,
) -> SequenceModel:
    """Returns a model of Mamba-2 with attention, by default as that of 2.7B.

    A few of its layers are attention in place of `Mamba2`, and none is followed by an
    MLP. Heads of the attention have 128 channels, of which rotary positions turn half;
    logits are those of the embedding table. Two differences from the authors' model: a
    step attends to the last ``window`` steps, so that the state has a fixed size, and
    queries, keys and values pass no short convolution. As a config:
    ``spec(SequenceModel, ...)`` of the fields of what is returned; a ``pattern`` that
    repeats, such as ``"aaaaaaaab"``, is compiled once for all its periods.

    Args:
      d_model: Width of the model.
      n_layers: Number of layers.
      n_heads: Number of heads of the attention.
      attention: Numbers of the layers of attention, counted from 0.
      recurrence: Recurrence of the other layers. None means ``SSD()``.
      vocabulary: Number of tokens.
      window: Number of steps that a step attends to.

    Raises:
      ValueError: A layer of attention is not among the layers.

    Example:
      >>> ssd = SSD(d_head=8, d_state=4)
      >>> model = mamba2_attention(16, 3, 2, attention=[1], recurrence=ssd)
      >>> [type(block.layer).__name__ for block in model.blocks]
      ['Mamba2', 'SlidingAttention', 'Mamba2']

    References:
      Dao and Gu, `Transformers are SSMs <https://arxiv.org/abs/2405.21060>`_, 2024,
      section 9.2
    """
    if wrong := [i for i in attention if not 0 <= i < n_layers]:
        raise ValueError(
            f"`attention` must be numbers of layers from 0 to {n_layers - 1}, got "
            f"{wrong[0]}; they are counted from 0."
        )
    layers = (
        Mamba2(recurrence or SSD(), n_layers=n_layers),
        SlidingAttention(n_heads=n_heads, window=window, d_head=128, d_rotary=64),
    )
    recurrent, attentive = (Block(layer, norm="rms", prenorm=True) for layer in layers)
    return SequenceModel(
        encoder=TokenEncoder(d_model, vocabulary, std=0.02),
        block=(recurrent, attentive),
        n_layers=n_layers,
        head=None,
        pattern="".join("ab"[i in attention] for i in range(n_layers)),
    )
