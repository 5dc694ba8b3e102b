"""What a run would be: its parameters, the cost of a step and a batch of its data."""

import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from ssm_jax import plots
from ssm_jax.cli.tables import markdown
from ssm_jax.config import Config
from ssm_jax.tasks.base import Batch, rows_of_batch
from ssm_jax.training.checkpointing.leaves import named_leaves
from ssm_jax.training.hosts import check_one_process
from ssm_jax.training.setup import build_parts, initialize_run

_SHOWN = 8  # first values of an array


def dry_run(config: Config, picture: str | None = None) -> str:
    """Initializes a run and compiles its training step, without taking it.

    Nothing but the picture is written. Memory and operations are those of the compiled
    program on each device, where the body of a loop (``lax.scan``, as of a recurrence
    that is evaluated step by step, or of ``training.accumulate``) counts once.

    Args:
      config: ``task``, ``model``, ``optimizer`` and ``training``, each a `spec`.
      picture: File to draw the first training batch to. None means none.

    Returns:
      A text with a table of parameters, the cost of a step and the first training
      batch.

    Raises:
      ValueError: As for `ssm_jax.training.train`, or the task has no picture.
    """
    check_one_process()
    task, model, optimizer, training, parallel = build_parts(config)
    if picture and (task.spec.inputs == "token" or task.spec.pair):
        raise ValueError(
            "`--picture` must be left out for a task of tokens or pairs, got "
            f"{picture} for {type(task).__name__}; only vectors have a picture."
        )
    run, state = initialize_run(model, task, optimizer, training, new=True)
    batch = rows_of_batch(task, "train", 0, training.batch_size, training.seed)
    parameters = _parameters(state.params)
    placed = parallel.place(state)
    began = time.perf_counter()
    compiled = parallel.compiled_train_step(
        run, placed, parallel.split(batch, task.spec)
    )
    seconds = time.perf_counter() - began
    lines = [
        parameters,
        *run.summary,
        f"{_bytes(state.model_state)} of other variables of the model, "
        f"{_bytes(state.opt_state)} of the optimizer's state",
        "",
        f"one step, on each of {parallel.n_devices} x "
        f"{jax.local_devices()[0].device_kind}, compiled in {seconds:.1f} s:",
        *_cost(compiled),
        "",
        f"the first of {training.steps:,} batches:",
        _arrays(batch),
    ]
    if picture:
        shown = batch.inputs, batch.targets, batch.mask
        plots.save(plots.batch(*shown, title=type(task).__name__), Path(picture))
    return "\n".join(lines)


def _parameters(params):
    leaves = named_leaves(params)
    rows = [
        (name, str(tuple(leaf.shape)), str(leaf.dtype), f"{leaf.size:,}")
        for name, leaf in leaves.items()
    ]
    total = f"{sum(leaf.size for leaf in leaves.values()):,}"
    head = ("parameter", "shape", "dtype", "count")
    return markdown([head, *rows, ("total", "", _bytes(params), total)])


def _cost(compiled: jax.stages.Compiled) -> Iterator[str]:
    """Lines on the memory and the operations of a step, where the platform says."""
    memory = compiled.memory_analysis()
    if memory is not None:
        arguments = memory.argument_size_in_bytes
        results = memory.output_size_in_bytes
        shared, temporary = memory.alias_size_in_bytes, memory.temp_size_in_bytes
        # The new state takes the place of the old one.
        yield f"{_mib(arguments + results - shared + temporary)} of memory in all:"
        yield f"  {_mib(arguments)} of state and batch"
        yield f"  {_mib(temporary)} of activations and other intermediate values"
        yield f"  {_mib(results - shared)} of results beside the state"
    costs = compiled.cost_analysis() or {}
    for key, unit in (("flops", "operations"), ("bytes accessed", "bytes")):
        if key in costs:
            what = "floating-point " if key == "flops" else "accessed "
            yield f"{costs[key]:.3g} {what}{unit}, with the body of a loop once"


def _arrays(batch: Batch) -> str:
    rows = [("array", "shape", "dtype", "first values of the first row")]
    for name, array in batch._asdict().items():
        if array is None:
            rows.append((name, "", "", "none"))
            continue
        values = np.ravel(array[0])[:_SHOWN]
        text = " ".join(f"{value:.4g}" for value in values.astype(float))
        rows.append((name, str(array.shape), str(array.dtype), text))
    return markdown(rows)


def _bytes(tree):
    return _mib(sum(leaf.nbytes for leaf in jax.tree.leaves(tree)))


def _mib(n):
    return f"{n / 2**20:,.3f} MiB"
