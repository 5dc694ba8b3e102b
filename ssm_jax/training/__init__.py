"""Training: state, losses, optimizers, the step and its maps, the loop, checkpoints."""

from ssm_jax.training.checkpoint import CheckpointError, Checkpoints
from ssm_jax.training.folder import RunFolder, circumstances
from ssm_jax.training.loop import Training, train
from ssm_jax.training.losses import loss_sums, metrics
from ssm_jax.training.optimizer import Optimizer
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import TrainState, create
from ssm_jax.training.step import evaluation_step, train_step

__all__ = [
    "CheckpointError",
    "Checkpoints",
    "DataParallel",
    "Optimizer",
    "RunFolder",
    "TrainState",
    "Training",
    "circumstances",
    "create",
    "evaluation_step",
    "loss_sums",
    "metrics",
    "train",
    "train_step",
]
