"""Evaluation of a trained model from its work folder alone."""

import dataclasses
import os
from typing import Any, Literal

import jax
import optax
from flax import linen as nn
from flax.core import meta

from ssm_jax.config import build
from ssm_jax.tasks.base import Split, Task
from ssm_jax.training.checkpoint import Checkpoints
from ssm_jax.training.folder import RunFolder
from ssm_jax.training.loop import Training, evaluate
from ssm_jax.training.losses import main_metric
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import Run
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


def evaluate_run(
    workdir: str | os.PathLike[str],
    *,
    which: Literal["best", "latest"] | int = "best",
    split: Split = "test",
    data_dir: str | None = None,
) -> dict[str, Any]:
    """Measures the model of a run on a split, and writes that to ``evaluation.json``.

    Args:
      workdir: The folder of the run.
      which: The checkpoint, as `restore` takes it.
      split: Which part of the data.
      data_dir: Where the task's data are, if no longer where the run found them.

    Returns:
      What was measured, with ``step`` and ``split``.

    Raises:
      FileNotFoundError: There is no run in the folder, or no data.
      CheckpointError: It has no such checkpoint, or one that is not what was saved.
    """
    restored = restore(workdir, which, data_dir=data_dir)
    training = restored.training
    n = jax.local_device_count()
    devices = jax.local_devices()[: n if training.batch_size % n == 0 else 1]
    parallel = DataParallel(training.parallel, devices)
    variables = dict(restored.variables)
    params = variables.pop("params")
    run = Run(
        restored.model, restored.task.spec, transform=optax.identity(), summary=()
    )
    measured = evaluate(
        parallel.evaluation_step(run),
        parallel,
        restored.task,
        params,
        variables,
        split=split,
        batch_size=training.batch_size,
        limit=training.evaluation_batches,
        seed=training.seed,
    )
    result = {"split": split, "step": restored.step, **measured}
    RunFolder(workdir).write("evaluation.json", result)
    return result


def _variables(model, spec):
    """The variables that a model starts with, for one sequence of a task."""
    shape = (
        (1, spec.length, spec.d_input) if spec.inputs == "vector" else (1, spec.length)
    )
    dtype = "float32" if spec.inputs == "vector" else "int32"
    inputs = jax.numpy.zeros(shape, dtype)
    return meta.unbox(model.init(jax.random.key(0), inputs))
