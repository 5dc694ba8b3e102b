"""What the experiments on images read pixel by pixel share: a bidirectional DLR.

The blocks of the paper's image tasks (pre-norm, GLU, both directions, cosine schedule
with warm-up), at a size of their own: the paper has no such task.
"""

from ssm_jax.config import Config, spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, PooledHead, SequenceModel, VectorEncoder
from ssm_jax.recurrences import DLR
from ssm_jax.training import Optimizer


def model(*, d_model: int, d_state: int, n_layers: int, dropout: float) -> Config:
    """The spec of a classifier of ten classes."""
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
    """AdamW over a cosine that ends with the training."""
    return spec(
        Optimizer,
        learning_rate=learning_rate,
        schedule="cosine",
        warmup_steps=50,
        schedule_steps=training.get_ref("steps"),
        weight_decay=0.01,
    )
