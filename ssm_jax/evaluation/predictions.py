"""Predictions of a model for every example of a split."""

import jax
import numpy as np
import optax

from ssm_jax.evaluation.restore import Restored
from ssm_jax.tasks.arrays.file import ArrayTask
from ssm_jax.tasks.arrays.long_table import LongTable
from ssm_jax.tasks.base import Split, Task, rows_of_batch
from ssm_jax.tasks.order import contiguous_indices, shuffled_indices
from ssm_jax.tasks.series.windows import SeriesTask
from ssm_jax.tasks.text.folder import TextFolder
from ssm_jax.training.measure import carried_in_evaluation, n_evaluated
from ssm_jax.training.parallel import DataParallel, local_mesh
from ssm_jax.training.state import RunSpec


def predictions(
    restored: Restored,
    split: Split,
    *,
    parallel: DataParallel | None = None,
    limit: int | None = None,
) -> dict[str, np.ndarray]:
    """Predicts every example of a split, in the batches that `evaluate` reads.

    Args:
      restored: The model.
      split: ``"validation"`` or ``"test"``.
      parallel: The map over devices. None means that of the ``mesh`` of `restore`, or
        one device.
      limit: Maximum number of batches, for a task with endless data. None means the
        whole split.

    Returns:
      Arrays of ``n`` examples in the order of ``id``:

      - ``id``: int64, ``(n,)``, the index of the example in the split;
      - ``target``: values or classes, as the targets of a `Batch`;
      - ``prediction``: values, or the most likely class, int32;
      - ``logits``: for classes, float32, the shape of ``target`` and an axis of
        classes; for a language model instead ``log_p``, the log-probability of each
        target in nats;
      - ``step``: if an example has several predictions, the steps of the sequence that
        they belong to, ``(l_output,)``, and ``loss_mask``, bool, ``(n, l_output)``,
        true where a target counts in the loss;
      - ``mask``: if sequences are padded, the mask of a `Batch`;
      - ``target_in_units``, ``prediction_in_units``: of a regression on a `SeriesTask`,
        a `LongTable`, or an `ArrayTask` with ``standardize``, in the units of its file.

    Raises:
      ValueError: The split is ``"train"``, or is endless and ``limit`` is None.
    """
    task, training = restored.task, restored.training
    if split == "train":
        raise ValueError(
            "`split` must be validation or test for predictions, got train; its "
            "batches are shuffled and leave out the examples that do not fill one."
        )
    if parallel is None and restored.mesh is not None:
        parallel = local_mesh(restored.mesh)
    parallel = parallel or DataParallel(training.parallel, jax.local_devices()[:1])
    # No training step is taken, so that any transformation will do.
    run = RunSpec(restored.model, task.spec, transform=optax.identity(), summary=())
    step, size = parallel.prediction_step(run), training.batch_size
    variables = dict(restored.variables)
    params = variables.pop("params")
    carry = parallel.place_carry(carried_in_evaluation(restored.model, training))
    parts = []
    for index in range(n_evaluated(task, split, size, limit)):
        batch = rows_of_batch(task, split, index, size, training.seed)
        outputs, carry = step(
            params, variables, parallel.split(batch, task.spec), carry
        )
        outputs = jax.device_get(parallel.merge(outputs))
        request = split, index, size, training.seed
        ids, is_example = example_ids(task, split, index, size)
        arrays = {"id": ids, **_arrays(task, batch, outputs, request)}
        parts.append({name: array[is_example] for name, array in arrays.items()})
    merged = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    order = np.argsort(merged["id"])
    merged = {name: array[order] for name, array in merged.items()}
    if (n_steps := task.spec.l_output) is not None:
        merged["step"] = np.arange(task.spec.length - n_steps, task.spec.length)
    return merged


def example_ids(
    task: Task, split: Split, index: int, batch_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices in a split of the examples of a batch.

    Args:
      task: The task.
      split: ``"validation"`` or ``"test"``, which are read in order.
      index: Position in the split, in batches.
      batch_size: Number of rows of the batch, ``b``.

    Returns:
      ``(ids, is_example)``: int64, and a bool that is false for the rows that pad the
      last batch, both ``(b,)``.

    Example:
      >>> from ssm_jax.tasks import Digits
      >>> ids, is_example = example_ids(Digits(), "test", 4, 64)
      >>> ids[is_example][[0, -1]].tolist(), int(is_example.sum())
      ([256, 299], 44)
    """
    n = task.n_examples(split)
    if n is None:
        return index * batch_size + np.arange(batch_size), np.ones(batch_size, bool)
    # Each row of a stream continues from batch to batch.
    stream = isinstance(task, TextFolder) and task.layout == "stream"
    indices = contiguous_indices if stream else shuffled_indices
    return indices(n, split, index, batch_size, seed=0)


def _has_units(task):
    """Whether the targets of a regression are in other units than in the file."""
    return isinstance(task, SeriesTask | LongTable) or (
        isinstance(task, ArrayTask) and task.standardize
    )


def _arrays(task, batch, outputs, request):
    """The arrays of a batch by their names in the file."""
    spec, arrays = task.spec, {"target": batch.targets}
    if spec.language:
        arrays["log_p"], arrays["prediction"] = outputs
    elif spec.targets == "classification":
        arrays |= {"prediction": outputs.argmax(-1).astype(np.int32), "logits": outputs}
    else:
        arrays["prediction"] = outputs
    if spec.l_output is not None:
        arrays["loss_mask"] = batch.loss_mask
    if batch.mask is not None:
        arrays["mask"] = batch.mask
    if spec.targets == "regression" and _has_units(task):
        for name in ("target", "prediction"):
            arrays[f"{name}_in_units"] = task.in_units(arrays[name], *request)
    return arrays
