"""Evaluation of a run: metrics on a split, and a look at what was learned."""

import os
from typing import Any, Literal

import jax
import optax

from ssm_jax.evaluation.inspect import inspect
from ssm_jax.evaluation.restore import restore
from ssm_jax.tasks.base import Split
from ssm_jax.training.folder import RunFolder
from ssm_jax.training.loop import carried_in_evaluation, evaluate
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import Run


def evaluate_run(
    workdir: str | os.PathLike[str],
    *,
    which: Literal["best", "latest"] | int = "best",
    split: Split = "test",
    data_dir: str | None = None,
) -> dict[str, Any]:
    """Measures the model of a run on a split and looks into it.

    Writes the metrics to ``evaluation.json`` in the work folder, and what pictures are
    drawn from to ``inspection.npz``; changes nothing else.

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
        carry=carried_in_evaluation(restored.model, training),
    )
    result = {"split": split, "step": restored.step, **measured}
    folder = RunFolder(workdir)
    inspect(restored, folder.path / "inspection.npz")
    folder.write("evaluation.json", result)
    return result
