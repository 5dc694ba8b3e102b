"""Trained models, from their work folders alone."""

import dataclasses
import os
from typing import Literal

import jax
from flax import linen as nn
from flax.core import meta

from ssm_jax.config import build
from ssm_jax.tasks.base import Task
from ssm_jax.tasks.text import TextFolder
from ssm_jax.training.checkpoint import Checkpoints
from ssm_jax.training.folder import RunFolder
from ssm_jax.training.loop import Training
from ssm_jax.training.losses import main_metric
from ssm_jax.types import PyTree


@dataclasses.dataclass(frozen=True)
class Restored:
    """A trained model.

    Attributes:
      model: The module; ``model.apply(variables, inputs)`` gives
        ``(predictions, state)``.
      variables: Its parameters and other variables, as numpy arrays.
      task: The task it was trained for.
      training: How it was trained.
      step: The step its variables are of.
    """

    model: nn.Module
    variables: PyTree
    task: Task
    training: Training
    step: int

    @property
    def text(self) -> TextFolder:
        """The task of a language model.

        Raises:
          ValueError: It is no such model.
        """
        if isinstance(self.task, TextFolder):
            return self.task
        raise ValueError(
            "`workdir` must be of a run on a `TextFolder`, got one on "
            f"{type(self.task).__name__}; only a language model reads and writes text."
        )


def restore(
    workdir: str | os.PathLike[str],
    which: Literal["best", "latest"] | int = "best",
    *,
    data_dir: str | None = None,
) -> Restored:
    """Restores a model from the folder of its run, on any number of devices.

    Args:
      workdir: The folder of the run; nothing in it is changed.
      which: The checkpoint: that of the best validation metric, the latest, or a step.
      data_dir: Where the task's data are, if no longer where the run found them.

    Returns:
      The model, its variables and its task.

    Raises:
      FileNotFoundError: There is no run in the folder.
      CheckpointError: It has no such checkpoint, or one that is not what was saved.
    """
    folder = RunFolder(workdir)
    config = folder.config()
    runtime = {} if data_dir is None else {"data_dir": data_dir}
    task = build(config.task, "config.task", **runtime)
    model = build(config.model, "config.model")
    target = jax.eval_shape(lambda: _variables(model, task.spec))
    target = {"params": target.pop("params"), "model_state": target}
    best = f"validation/{main_metric(task.spec.targets)}"
    checkpoints = Checkpoints(folder.checkpoints, best_metric=best)
    step = which if isinstance(which, int) else None
    if which == "best":
        step = checkpoints.best_step
    restored = checkpoints.restore(target, step=step)
    variables = {"params": restored.state["params"], **restored.state["model_state"]}
    training = build(config.training, "config.training")
    return Restored(model, variables, task, training, restored.step)


def _variables(model, spec):
    """The variables that a model starts with, for one example of a task."""
    shape = (1, 2, spec.length) if spec.pair else (1, spec.length)
    if spec.inputs == "vector":
        shape = (*shape, spec.d_input)
    dtype = "float32" if spec.inputs == "vector" else "int32"
    inputs = jax.numpy.zeros(shape, dtype)
    return meta.unbox(model.init(jax.random.key(0), inputs))
