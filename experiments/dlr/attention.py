"""Layers of the attention baselines of the paper on DLR, as specs for its experiments.

Gupta, Mehta and Berant, arXiv 2212.00768, completed from the authors' repository: four
heads, rotary positions and a learned scale. Each spec takes the place of the
`RecurrentLayer` of a model, in a block with the same norm.
"""

from ssm_jax.config import Config, spec
from ssm_jax.layers import RotaryAttention


def attention(*, bidirectional: bool = False) -> Config:
    """The attention of table 1; causal on the atomic tasks."""
    return spec(RotaryAttention, n_heads=4, bidirectional=bidirectional)


def attention_feedforward(d_model: int = 128, *, bidirectional: bool = False) -> Config:
    """The attention of table 6, with two feed-forward sublayers of width ``16 d``.

    Args:
      d_model: Number of channels of the model.
      bidirectional: Whether each step attends to later steps too.
    """
    layer = attention(bidirectional=bidirectional)
    layer.d_feedforward = 16 * d_model
    return layer


def local_attention(*, bidirectional: bool = False, window: int = 1024) -> Config:
    """The attention of table 3, in windows and with a GLU.

    Args:
      bidirectional: False for ListOps-SubTrees, True for Pathfinder-Segmentation.
      window: Length of a window.
    """
    layer = attention(bidirectional=bidirectional)
    layer.update(window=window, mixing="glu")
    return layer
