"""Flax modules: parameters and projections around recurrences."""

from ssm_jax.layers.attention import Attention
from ssm_jax.layers.channel_mixing import ChannelMixing, Linear
from ssm_jax.layers.dropout import RowDropout, row_keys, rows_from
from ssm_jax.layers.ets_mlp import ETSMLP
from ssm_jax.layers.expert_choice import ExpertChoiceMLP
from ssm_jax.layers.gated_delta_net import GatedDeltaNet
from ssm_jax.layers.griffin import Griffin
from ssm_jax.layers.mamba import Mamba
from ssm_jax.layers.mamba2 import Mamba2
from ssm_jax.layers.mamba3 import Mamba3
from ssm_jax.layers.mlp import MLP, GatedMLP
from ssm_jax.layers.mlstm import MLSTMLayer
from ssm_jax.layers.recurrent import LabelledParam, Recurrent, RecurrentLayer
from ssm_jax.layers.ret_net import RetNet
from ssm_jax.layers.rotary_attention import RotaryAttention
from ssm_jax.layers.short_convolution import ShortConvolution
from ssm_jax.layers.sliding_attention import SlidingAttention

__all__ = [
    "ETSMLP",
    "MLP",
    "Attention",
    "ChannelMixing",
    "ExpertChoiceMLP",
    "GatedDeltaNet",
    "GatedMLP",
    "Griffin",
    "LabelledParam",
    "Linear",
    "MLSTMLayer",
    "Mamba",
    "Mamba2",
    "Mamba3",
    "Recurrent",
    "RecurrentLayer",
    "RetNet",
    "RotaryAttention",
    "RowDropout",
    "ShortConvolution",
    "SlidingAttention",
    "row_keys",
    "rows_from",
]
