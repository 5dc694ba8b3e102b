"""Restoring of trained models from the work dirs of their runs."""

import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Mapping
from typing import Literal

import jax
import numpy as np
from flax import linen as nn
from flax.core import meta

from ssm_jax.config import build, check_packages
from ssm_jax.metrics import METRICS_COLLECTION
from ssm_jax.tasks.base import Task
from ssm_jax.tasks.fingerprint import fingerprint_of
from ssm_jax.tasks.text.folder import TextFolder
from ssm_jax.training.checkpointing import CheckpointError
from ssm_jax.training.config import TrainConfig
from ssm_jax.training.parallel import local_mesh
from ssm_jax.training.workdir import WorkDir
from ssm_jax.types import Array, PyTree


@dataclasses.dataclass(frozen=True)
class Restored:
    """A trained model.

    Attributes:
      model: The module; ``model.apply(variables, inputs)`` returns
        ``(predictions, state)``.
      variables: Parameters and other variables of the model, as numpy arrays, or with
        ``mesh`` of `restore` partly as sharded ones.
      task: The task that the model was trained on.
      training: The training configuration.
      step: The training step of the checkpoint.
      changed_data: Whether the data are others than at that step.
      widths: How wide the intervals around forecasts are; see
        `ssm_jax.evaluation.forecast.interval_widths`. None if that was not measured.
      mesh: How local devices share the parameters; see `restore`. None if they do not.
    """

    model: nn.Module
    variables: PyTree = dataclasses.field(repr=False)  # Long in a notebook.
    task: Task
    training: TrainConfig
    step: int
    changed_data: bool = False
    widths: Mapping[str, np.ndarray] | None = dataclasses.field(
        default=None, repr=False
    )
    mesh: str | None = None

    def apply(self, inputs: Array, **flags: Array | None) -> Array:
        """Returns the predictions of the model for a batch.

        Args:
          inputs: The inputs of a `Batch`.
          **flags: Its ``reset``, ``mask`` and ``dt``, where it may have them.

        Returns:
          The predictions, without the final states, which can cost more.
        """
        # Traced once, whether an array that is not there is named or not.
        flags = {name: flag for name, flag in flags.items() if flag is not None}
        return self._apply(self.variables, inputs, **flags)

    @functools.cached_property
    def _apply(self):
        if self.mesh is not None:
            return local_mesh(self.mesh).apply(self.model)

        # Variables are arguments: a program that has them as constants is compiled
        # again for each run.
        def apply(variables, inputs, **flags):
            return self.model.apply(variables, inputs, **flags)[0]

        return jax.jit(apply)

    @functools.cached_property
    def init(self) -> Callable[..., PyTree]:
        """The method ``init`` of the model, jitted; `restore` has traced it."""
        return jax.jit(self.model.init)

    @property
    def text(self) -> TextFolder:
        """The task of a language model.

        Raises:
          ValueError: The task is not a `TextFolder`.
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
    packages: Collection[str] = (),
    allow_changed_data: bool = False,
    mesh: str | None = None,
) -> Restored:
    """Restores a model from the work dir of its run, on any number of devices.

    Args:
      workdir: Work dir of the run; it is not modified.
      which: The checkpoint: ``"best"``, with the best validation metric (ties are
        broken by the lower loss, then by the later step), ``"latest"``, or a step.
      data_dir: Data directory of the task, if it has moved since the run.
      packages: Names of the packages beside ssm_jax whose classes the run may name.
        Their modules are imported, and so run; those of other packages are not.
      allow_changed_data: Whether data that changed since the run are a warning, and no
        error; see `ssm_jax.tasks.fingerprint`. Data that are not there are neither.
      mesh: ``"model=M"``, of all local devices, as ``training.mesh``: large
        parameters are sharded over ``M`` of them, each of which reads its shards.
        `Restored.apply` gathers them block by block; functions under `jax.jit` take
        them as they are. None: all are numpy arrays.

    Returns:
      The model, its variables and its task.

    Raises:
      FileNotFoundError: The work dir holds no run.
      CheckpointError: The checkpoint does not exist, is corrupt, or was saved with
        another config than that of the work dir.
      ValueError: ``which`` is not valid, the run names a class of a package that is not
        in ``packages``, its data changed, or it was written by a version of ssm_jax
        with other class names; the error names the version that reads it.
    """
    step = _step_number(which)
    work = WorkDir(workdir)
    config = work.config()
    check_packages(config, packages)
    runtime = {} if data_dir is None else {"data_dir": data_dir}
    task = work.with_statistics(build(config.task, "config.task", **runtime))
    model = build(config.model, "config.model")
    # Shapes and dtypes are enough to restore into; nothing is initialized.
    init = jax.jit(model.init)
    target = jax.eval_shape(lambda: _variables(init, task.spec))
    target = {"params": target.pop("params"), "model_state": target}
    if mesh is not None:
        target = local_mesh(mesh).abstract(target)
    training = build(config.training, "config.training")
    checkpoints = work.open_checkpoints(task.spec)
    if which == "best":
        step = checkpoints.best_step
        if step is None and checkpoints.latest_step is not None:
            raise CheckpointError(
                "`which` must be 'latest' or a step where no step has a finite metric "
                f"in validation, got 'best' of {work.path}."
            )
    step = checkpoints.usable_step() if step is None else step
    # An average of the parameters is what was evaluated in validation.
    params = "ema" if "ema" in checkpoints.keys(step) else "params"
    target[params] = target.pop("params")
    restored = checkpoints.restore(target, step=step)
    # The model of step 0, which may be the best one, has statistics of the data too.
    changed = work.check_data(
        _data_of(task), max(restored.step, 1), allow_changed=allow_changed_data
    )
    variables = {"params": restored.state[params], **restored.state["model_state"]}
    widths = work.widths(restored.step)
    run = Restored(
        model, variables, task, training, restored.step, changed, widths, mesh
    )
    # In place of the cached property, so that it is traced once.
    vars(run).update(init=init)
    return run


def _data_of(task):
    """The fingerprint of the data of a task; None if they are not there."""
    try:
        return fingerprint_of(task)
    except (OSError, ValueError):
        # A model may be used without its data; who reads them is told what is wrong.
        return None


def _step_number(which: object) -> int | None:
    """Validates ``which``; returns the step, or None for a name."""
    if isinstance(which, str) and which in ("best", "latest"):
        return None
    # `bool` is a subclass of `int`.
    if isinstance(which, int | np.integer) and not isinstance(which, bool):
        if which >= 0:
            return int(which)
    raise ValueError(
        "`which` must be 'best', 'latest' or the number of a step, got "
        f"{which!r}; leave it out for the best."
    )


def _variables(init, spec):
    """The initial variables by the method of a model, for one example of a task."""
    shape = (1, 2, spec.length) if spec.pair else (1, spec.length)
    if spec.inputs == "vector":
        shape = (*shape, spec.d_input)
    dtype = "float32" if spec.inputs == "vector" else "int32"
    inputs = jax.numpy.zeros(shape, dtype)
    # As in training, where a batch without resets and padding has these arguments, too.
    flags = {"reset": None, "mask": None}
    variables = dict(meta.unbox(init(jax.random.key(0), inputs, **flags)))
    variables.pop(METRICS_COLLECTION, None)
    return variables
