"""Training: state, losses, optimizers, the step and its maps, the loop, checkpoints."""

from ssm_jax.training.checkpoint import CheckpointError as CheckpointError
from ssm_jax.training.checkpoint import Checkpoints as Checkpoints
from ssm_jax.training.folder import RunFolder as RunFolder
from ssm_jax.training.folder import environment as environment
from ssm_jax.training.loop import TrainConfig as TrainConfig
from ssm_jax.training.loop import train as train
from ssm_jax.training.losses import loss_sums as loss_sums
from ssm_jax.training.losses import metrics as metrics
from ssm_jax.training.optimizer import Optimizer as Optimizer
from ssm_jax.training.parallel import DataParallel as DataParallel
from ssm_jax.training.state import TrainState as TrainState
from ssm_jax.training.state import create as create
from ssm_jax.training.step import evaluation_step as evaluation_step
from ssm_jax.training.step import train_step as train_step
