"""A run as shapes: its state and a batch without values, sharded over devices."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from ssm_jax.config import Config, build
from ssm_jax.tasks.base import Batch, Split, Task, TaskSpec
from ssm_jax.training import TrainConfig
from ssm_jax.training.parallel import (
    DataParallel,
    batch_specs,
    check_sharded_length,
    mesh_of,
    mesh_shape,
    row_axes,
)
from ssm_jax.training.setup import initialize_run
from ssm_jax.training.state import RunSpec, TrainState, abstract_state
from ssm_jax.training.workdir import check_parts
from ssm_jax.types import PyTree


class AbstractRun(NamedTuple):
    """A run before its first step; all arrays are `jax.ShapeDtypeStruct`.

    Attributes:
      run: The constant parts.
      training: The fields of the training loop.
      parallel: The map over the devices, `DataParallel` by ``jax.shard_map``.
      mesh: The devices.
      state: The state, replicated except for ``carry`` and, with ``model`` in
        ``training.mesh``, large arrays.
      batch: A training batch, sharded by its first axis and, with
        ``training.mesh``, by its steps.
      n_train: Number of examples of the train split. None: it is endless, or its data
        are not on this machine.
      has_data: Whether the batch is as the task makes it. Otherwise its data are not
        on this machine, and it is as the spec says; tokens other than of a text then
        have a mask.
    """

    run: RunSpec
    training: TrainConfig
    parallel: DataParallel
    mesh: Mesh
    state: TrainState
    batch: Batch
    n_train: int | None
    has_data: bool

    def sharded(self, tree: PyTree, *, rows: bool = True) -> PyTree:
        """Returns the shapes of arrays, sharded by rows or replicated."""
        return _sharded(self.mesh, tree, P(row_axes(self.mesh)) if rows else P())


def abstract_run(
    config: Config, devices: Sequence[Any], batch_size: int | None = None
) -> AbstractRun:
    """Builds the parts of a run for devices that need not be there.

    Nothing is initialized and nothing is placed on the devices. The step is mapped by
    ``jax.shard_map``, also where ``training.parallel`` is ``"pmap"``, which only takes
    devices that are attached; both compute the same step.

    Args:
      config: ``task``, ``model``, ``optimizer`` and ``training``, each a `spec`.
      devices: The devices, `jax.Device`, of a topology.
      batch_size: Number of examples per step. None means that of the config.

    Returns:
      The run.

    Raises:
      ValueError: A field is invalid, or the fields do not fit together.
    """
    check_parts(config, "config", "`get_config` of an experiment returns all of them")
    if batch_size is not None:
        config = config.copy_and_resolve_references()
        config.training.batch_size = batch_size
    training = build(config.training, "config.training")
    task = build(config.task, "config.task")
    model = build(config.model, "config.model")
    optimizer = build(config.optimizer, "config.optimizer")
    shape = mesh_shape(training.mesh, len(devices))
    check_sharded_length(task.spec, shape.pieces, training.gradient_windows)
    parallel = DataParallel("shard_map", devices, *shape)
    parallel.check(training.batch_size, training.accumulate)
    rows, has_data = _one_row(task, training.seed)
    n_train = _n_examples(task, 0) or None
    shapes: Any = _Zeros(task.spec, rows, _n_examples(task, training.batch_size))
    # Values do not count, so that the run of `init_from` is not read.
    run, state = abstract_state(
        partial(initialize_run, model, shapes, optimizer, training, new=False)
    )
    mesh = mesh_of(devices, *shape)
    carry = _sharded(mesh, state.carry, P(row_axes(mesh)))
    state = state.replace(carry=None)
    state = jax.tree.map(_onto, state, parallel.shardings(state)).replace(carry=carry)
    batch = shapes.batch("train", 0, training.batch_size, training.seed)
    specs = batch_specs(task.spec, mesh)
    batch = Batch(*map(partial(_sharded, mesh), batch, specs))
    return AbstractRun(run, training, parallel, mesh, state, batch, n_train, has_data)


class _Zeros:
    """Batches of zeros of the shapes of a task."""

    def __init__(self, spec: TaskSpec, rows: Batch, n_train: int | None):
        self.spec, self._rows, self._n_train = spec, rows, n_train

    def n_examples(self, split: Split) -> int | None:
        return self._n_train

    def batch(self, split: Split, index: int, batch_size: int, seed: int) -> Batch:
        def zeros(row):
            # Strides of 0: large batches take no memory.
            zero = np.zeros((), row.dtype)
            return np.broadcast_to(zero, (batch_size, *row.shape[1:]))

        return jax.tree.map(zeros, self._rows)


def _one_row(task: Task, seed: int) -> tuple[Batch, bool]:
    """A batch of one row, and whether it is one of the task."""
    try:
        return task.batch("train", 0, 1, seed), True
    except FileNotFoundError:
        return _row_of_spec(task.spec), False


def _row_of_spec(spec: TaskSpec) -> Batch:
    steps = (1, 2, spec.length) if spec.pair else (1, spec.length)
    predicted = (1,) if spec.l_output is None else (1, spec.l_output)
    is_token = spec.inputs == "token"
    inputs = np.zeros(
        steps if is_token else (*steps, spec.d_input),
        np.int32 if is_token else np.float32,
    )
    targets = np.zeros(predicted, np.int32)
    if spec.targets == "regression":
        targets = np.zeros((*predicted, spec.d_output), np.float32)
    flags = np.zeros(steps, bool)
    return Batch(
        inputs,
        targets,
        np.zeros(predicted, bool),
        mask=flags if is_token and not spec.language else None,
        reset=flags if spec.resets else None,
        dt=np.ones(steps, np.float32) if spec.irregular else None,
    )


def _n_examples(task: Task, batch_size: int) -> int | None:
    """Examples of the train split, at least a batch: only the epoch depends on it."""
    try:
        n = task.n_examples("train")
    except FileNotFoundError:
        n = batch_size
    return None if n is None else max(n, batch_size)


def _sharded(mesh, tree, spec) -> Any:
    sharding = NamedSharding(mesh, spec)
    return jax.tree.map(lambda leaf: _onto(leaf, sharding), tree)


def _onto(leaf, sharding):
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
