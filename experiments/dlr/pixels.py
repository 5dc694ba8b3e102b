"""Model and optimizer of the experiments on images as sequences of pixels.

The blocks of the paper's image tasks (pre-norm, GLU, bidirectional DLR, cosine schedule
with warmup) with other sizes, since the paper has no such task.
"""

from ssm_jax.config import Config, spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, PooledHead, SequenceModel, VectorEncoder
from ssm_jax.recurrences import DLR
from ssm_jax.training import Optimizer


def model(*, d_model: int, d_state: int, n_layers: int, dropout: float) -> Config:
    """Returns the spec of a classifier with ten classes."""
    recurrence = spec(DLR, d_state=d_state, bidirectional=True, dt_min=1e-3)
    mixing = spec(ChannelMixing, kind="glu", dropout=dropout)
    layer = spec(RecurrentLayer, recurrence=recurrence, mixing=mixing)
    return spec(
        SequenceModel,
        encoder=spec(VectorEncoder, d_model=d_model),
        block=spec(Block, layer=layer, prenorm=True, dropout=dropout),
        n_layers=n_layers,
        head=spec(PooledHead, d_output=10),
    )


def optimizer(learning_rate: float, training: Config) -> Config:
    """Returns AdamW with a cosine decay that ends with the training."""
    return spec(
        Optimizer,
        learning_rate=learning_rate,
        schedule="cosine",
        warmup_steps=50,
        schedule_steps=training.get_ref("steps"),
        weight_decay=0.01,
    )
