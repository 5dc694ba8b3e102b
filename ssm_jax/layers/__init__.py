"""Flax modules: parameters and projections around recurrences."""

from ssm_jax.layers.attention import Attention as Attention
from ssm_jax.layers.channel_mixing import ChannelMixing as ChannelMixing
from ssm_jax.layers.channel_mixing import Linear as Linear
from ssm_jax.layers.dropout import RowDropout as RowDropout
from ssm_jax.layers.dropout import row_keys as row_keys
from ssm_jax.layers.dropout import rows_from as rows_from
from ssm_jax.layers.ets_mlp import ETSMLP as ETSMLP
from ssm_jax.layers.mamba import Mamba as Mamba
from ssm_jax.layers.mlp import MLP as MLP
from ssm_jax.layers.recurrent import LabelledParam as LabelledParam
from ssm_jax.layers.recurrent import Recurrent as Recurrent
from ssm_jax.layers.recurrent import RecurrentLayer as RecurrentLayer
from ssm_jax.layers.short_convolution import ShortConvolution as ShortConvolution
