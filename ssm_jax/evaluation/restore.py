"""Trained models, from their work folders alone."""

import dataclasses
import os
from typing import Literal

import jax
import numpy as np
from flax import linen as nn
from flax.core import meta

from ssm_jax.config import build
from ssm_jax.tasks.base import Task
from ssm_jax.tasks.text.folder import TextFolder
from ssm_jax.training.checkpoint import CheckpointError
from ssm_jax.training.folder import RunFolder
from ssm_jax.training.loop import TrainConfig
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
    training: TrainConfig
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
      which: The checkpoint: that of the best validation metric (of equal ones that of
        the lower loss, then the later one), the latest, or the number of a step.
      data_dir: Where the task's data are, if no longer where the run found them.

    Returns:
      The model, its variables and its task.

    Raises:
      FileNotFoundError: There is no run in the folder.
      CheckpointError: It has no such checkpoint, or one that is not what was saved or
        of another config than the folder's.
      ValueError: ``which`` is something else.
    """
    step = _step_number(which)
    folder = RunFolder(workdir)
    config = folder.config()
    runtime = {} if data_dir is None else {"data_dir": data_dir}
    task = build(config.task, "config.task", **runtime)
    model = build(config.model, "config.model")
    target = jax.eval_shape(lambda: _variables(model, task.spec))
    target = {"params": target.pop("params"), "model_state": target}
    checkpoints = folder.open_checkpoints(task.spec.targets)
    if which == "best":
        step = checkpoints.best_step
        if step is None and checkpoints.latest_step is not None:
            raise CheckpointError(
                "`which` must be 'latest' or a step where no step has a finite metric "
                f"in validation, got 'best' of {folder.path}."
            )
    restored = checkpoints.restore(target, step=step)
    variables = {"params": restored.state["params"], **restored.state["model_state"]}
    training = build(config.training, "config.training")
    return Restored(model, variables, task, training, restored.step)


def _step_number(which: object) -> int | None:
    """Checks which checkpoint is asked for; returns the step if that is a number."""
    if isinstance(which, str) and which in ("best", "latest"):
        return None
    if isinstance(which, int | np.integer) and not isinstance(which, bool):
        if which >= 0:
            return int(which)
    raise ValueError(
        "`which` must be 'best', 'latest' or the number of a step, got "
        f"{which!r}; leave it out for the best."
    )


def _variables(model, spec):
    """The variables that a model starts with, for one example of a task."""
    shape = (1, 2, spec.length) if spec.pair else (1, spec.length)
    if spec.inputs == "vector":
        shape = (*shape, spec.d_input)
    dtype = "float32" if spec.inputs == "vector" else "int32"
    inputs = jax.numpy.zeros(shape, dtype)
    return meta.unbox(model.init(jax.random.key(0), inputs))
