"""What the experiments on generated tokens share."""

from typing import Any

from ml_collections import ConfigDict

from ssm_jax.config import Config, spec
from ssm_jax.layers import ShortConvolution
from ssm_jax.models import Block, SequenceModel, StepHead, TokenEncoder
from ssm_jax.tasks import TaskSpec
from ssm_jax.training import Optimizer, TrainConfig


def experiment(
    names: dict[str, Any],
    task: Config,
    task_spec: TaskSpec,
    block: Block,
    *,
    d_model: int,
    n_blocks: int,
    is_convolved: bool,
    l_output: int | None,
    steps: int,
    batch_size: int,
    log_every: int,
    warmup_steps: int,
    weight_decay: float,
) -> Config:
    """Returns the config of a model of tokens, trained by AdamW with a cosine.

    Args:
      names: The fields ``experiment`` and ``variant``.
      task: The task.
      task_spec: Its spec.
      block: The block of the model.
      d_model: Its width.
      n_blocks: Number of these blocks.
      is_convolved: Whether a block with a convolution of 4 steps is before each.
      l_output: Number of last steps that are predicted. None: all steps.
      steps: Number of training steps; the one evaluation is after the last.
      batch_size: Rows of a batch.
      log_every: Steps between two lines of metrics.
      warmup_steps: Steps of the warmup.
      weight_decay: Weight decay.
    """
    convolution = Block(ShortConvolution(), norm="rms", prenorm=True)
    training = spec(
        TrainConfig,
        steps=steps,
        batch_size=batch_size,
        log_every=log_every,
        evaluate_every=steps,
        evaluation_batches=4,
    )
    return ConfigDict(
        {
            **names,
            "paper": None,
            "task": task,
            "model": spec(
                SequenceModel,
                encoder=TokenEncoder(d_model=d_model, vocabulary=task_spec.d_input),
                block=(convolution, block) if is_convolved else block,
                n_layers=n_blocks * (1 + is_convolved),
                head=StepHead(d_output=task_spec.d_output, l_output=l_output),
            ),
            "optimizer": spec(
                Optimizer,
                learning_rate=3e-3,
                schedule="cosine",
                warmup_steps=warmup_steps,
                schedule_steps=training.get_ref("steps"),
                weight_decay=weight_decay,
                clip_norm=1.0,
            ),
            "training": training,
        }
    )
