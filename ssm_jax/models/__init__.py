"""Models: encoders, blocks, heads and the stack of them."""

from ssm_jax.models.block import Block
from ssm_jax.models.encoders import (
    PositionalEmbedding,
    ScalarEncoder,
    TokenEncoder,
    VectorEncoder,
)
from ssm_jax.models.heads import LastHead, PairHead, PooledHead, StepHead
from ssm_jax.models.network import RecurrentNetwork
from ssm_jax.models.norm import BatchNorm, Norm, ScalarNorm
from ssm_jax.models.published import mamba2_attention, recurrent_gemma
from ssm_jax.models.recurrences import layer_recurrences
from ssm_jax.models.stack import SequenceModel

__all__ = [
    "BatchNorm",
    "Block",
    "LastHead",
    "Norm",
    "PairHead",
    "PooledHead",
    "PositionalEmbedding",
    "RecurrentNetwork",
    "ScalarEncoder",
    "ScalarNorm",
    "SequenceModel",
    "StepHead",
    "TokenEncoder",
    "VectorEncoder",
    "layer_recurrences",
    "mamba2_attention",
    "recurrent_gemma",
]
