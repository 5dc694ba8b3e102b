"""Training: state, losses, optimizers, the step and its maps, the loop, checkpoints."""

from ssm_jax.training.checkpointing import CheckpointError, Checkpoints
from ssm_jax.training.config import TrainConfig
from ssm_jax.training.loop import train
from ssm_jax.training.losses import loss_sums, metrics
from ssm_jax.training.optimizer import Optimizer
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import TrainState, create
from ssm_jax.training.step import evaluation_step, train_step
from ssm_jax.training.workdir import WorkDir, environment

__all__ = [
    "CheckpointError",
    "Checkpoints",
    "DataParallel",
    "Optimizer",
    "TrainConfig",
    "TrainState",
    "WorkDir",
    "create",
    "environment",
    "evaluation_step",
    "loss_sums",
    "metrics",
    "train",
    "train_step",
]
