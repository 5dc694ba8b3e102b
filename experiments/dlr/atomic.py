"""Model, optimizer and training of the experiments on atomic tasks.

The setting of table 1 of Gupta, Mehta and Berant, arXiv 2212.00768, completed from the
authors' repository: 128 channels, 4,096 states of equal decay, post-norm blocks with
the scalar norm, constant learning rate for all parameters, no weight decay, 43,200
steps with 16 new sequences each.
"""

from ssm_jax.config import Config, spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, StepHead, VectorEncoder
from ssm_jax.recurrences import DLR
from ssm_jax.training import Optimizer, TrainConfig


def model(
    d_output: Config,
    *,
    d_model: int = 128,
    d_state: int = 4096,
    dt: float = 1e-5,
    n_layers: int = 1,
) -> Config:
    """The model of the paper: post-norm blocks of DLR, with a prediction at each step.

    Args:
      d_output: Number of values per prediction; an integer or a reference to a field.
      d_model: Number of channels.
      d_state: Number of states per channel.
      dt: Initial decay rate of all states.
      n_layers: Number of blocks.

    Returns:
      The spec of a `SequenceModel`.
    """
    recurrence = spec(DLR, d_state=d_state, dt_min=dt, dt_max=dt)
    layer = spec(RecurrentLayer, recurrence=recurrence, mixing=spec(ChannelMixing))
    return spec(
        SequenceModel,
        encoder=spec(VectorEncoder, d_model=d_model),
        block=spec(Block, layer=layer, norm="scalar"),
        n_layers=n_layers,
        head=spec(StepHead, d_output=d_output),
    )


def optimizer(learning_rate: float = 1e-4) -> Config:
    """The optimizer of the paper: AdamW without weight decay at a constant rate."""
    return spec(Optimizer, learning_rate=learning_rate)


def training() -> Config:
    """The training of the paper: 12 epochs of 57,600 sequences."""
    return spec(
        TrainConfig,
        steps=43_200,
        batch_size=16,
        seed=1112,
        log_every=100,
        evaluate_every=3600,
        evaluation_batches=400,
    )
