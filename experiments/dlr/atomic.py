"""What the experiments on atomic tasks share: one model, one optimizer.

The setting of table 1 of Gupta, Mehta and Berant, arXiv 2212.00768, completed from the
authors' repository: 128 channels, 4,096 states of equal decay, post-norm by the scalar
norm, constant learning rate for all parameters, no weight decay, 43,200 steps of 16
fresh sequences.
"""

from ssm_jax.config import Config, nearest, spec
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
    """The paper's model: a DLR layer in a post-norm block, a prediction at each step.

    Args:
      d_output: Values predicted at a step; a number or a reference to a task's field.
      d_model: Channels.
      d_state: States of a channel.
      dt: Decay rate of all states at the start.
      n_layers: Blocks.

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
    """The paper's optimizer: AdamW without decay at a constant rate."""
    return spec(Optimizer, learning_rate=learning_rate)


def training() -> Config:
    """The paper's training: 12 epochs of 57,600 sequences."""
    return spec(
        TrainConfig,
        steps=43_200,
        batch_size=16,
        seed=1112,
        log_every=100,
        evaluate_every=3600,
        evaluation_batches=400,
    )


def unknown(variant: str, variants: list[str]) -> ValueError:
    """The error for a variant that an experiment does not have."""
    return ValueError(
        f"the variant must be one of {variants}, got {variant!r}; "
        f"{nearest(variant, variants)}"
    )
