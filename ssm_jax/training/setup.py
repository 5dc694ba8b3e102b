"""What a run starts from: its constant parts, its first state, other runs' weights."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from absl import logging
from flax import linen as nn, traverse_util

from ssm_jax.config import Config, build
from ssm_jax.models.pretrained import is_hugging_face, load_pretrained
from ssm_jax.tasks.base import Task, n_batches, rows_of_batch
from ssm_jax.training.checkpointing import Checkpoints
from ssm_jax.training.checkpointing.integrity import Json, read_record, records
from ssm_jax.training.checkpointing.leaves import abstract, named_leaves
from ssm_jax.training.config import TrainConfig
from ssm_jax.training.initial import StateInit, TBPTTWindow, zero_states
from ssm_jax.training.measure import (
    check_gradient_outputs,
    check_gradient_steps,
    n_evaluated,
)
from ssm_jax.training.optimizer import DECAYS, Optimizer, SupportsTransform
from ssm_jax.training.parallel import (
    DataParallel,
    check_sharded_length,
    is_debugging,
    mesh_shape,
    put_on,
)
from ssm_jax.training.state import RunSpec, TrainState, create, init_optimizer
from ssm_jax.training.stopping import best_step
from ssm_jax.training.transforms import is_averaged
from ssm_jax.training.workdir import WorkDir, check_parts
from ssm_jax.types import PyTree


class Parts(NamedTuple):
    """What a config describes, and the map over all local devices."""

    task: Task
    model: nn.Module
    optimizer: Optimizer
    training: TrainConfig
    parallel: DataParallel


def build_parts(config: Config) -> Parts:
    """Builds the parts of a run and checks that they fit together.

    Args:
      config: ``task``, ``model``, ``optimizer`` and ``training``, each a `spec`.

    Returns:
      The parts; no parameter is initialized and nothing is written.

    Raises:
      ValueError: A field is invalid, or the fields do not fit together.
    """
    check_parts(config, "config", "`get_config` of an experiment returns all of them")
    training = build(config.training, "config.training")
    task = build(config.task, "config.task")
    model = build(config.model, "config.model")
    optimizer = build(config.optimizer, "config.optimizer")
    shape = mesh_shape(training.mesh, jax.device_count())
    check_sharded_length(task.spec, shape.pieces, training.gradient_windows)
    parallel = DataParallel(training.parallel, **shape._asdict())
    if is_debugging():
        parallel = DataParallel("jit")  # On one device, whatever the mesh.
    parallel.check(training.batch_size, training.accumulate)
    n_evaluated(task, "validation", training.batch_size, training.evaluation_batches)
    check_gradient_steps(task.spec, training.gradient_steps)
    check_gradient_outputs(task.spec, training.gradient_outputs)
    return Parts(task, model, optimizer, training, parallel)


def initialize_run(
    model: nn.Module,
    task: Task,
    optimizer: SupportsTransform,
    training: TrainConfig,
    *,
    new: bool,
    sharding_of: Callable[[PyTree], PyTree] | None = None,
) -> tuple[RunSpec, TrainState]:
    """Returns the constant parts of a run and its state before the first step.

    Args:
      model: The model.
      task: The task.
      optimizer: The optimizer.
      training: The fields of the training loop.
      new: Whether the run has no checkpoint yet. Otherwise the values of the state do
        not count, and ``init_from`` is not read.
      sharding_of: As for `create`.

    Returns:
      The run and the state.

    Raises:
      ValueError: The fields do not fit together; see `create` and `warm_start`.
    """
    run, state = create(
        model, task, optimizer, seed=training.seed, sharding_of=sharding_of
    )
    epoch = n_batches(task, "train", training.batch_size)
    run = dataclasses.replace(
        run,
        state_init=StateInit(training.initial_state, training.initial_noise, epoch),
        state_penalty=training.state_penalty,
        accumulate=training.accumulate,
        ema=training.ema,
    )
    if training.init_from is not None and new:
        state = _from_run(run, state, training.init_from, sharding_of)
    if training.ema is not None:
        if is_averaged(state.opt_state):
            raise ValueError(
                "`ema` must be None for an optimizer that averages the iterates "
                f"itself, got {training.ema}; its average is evaluated."
            )
        state = state.replace(ema=state.params)
    if training.initial_state != "zero":
        carry = zero_states(model, training.batch_size)
        if (k := training.gradient_windows) > 1:
            first = rows_of_batch(task, "train", 0, training.batch_size, training.seed)
            carry = TBPTTWindow.before(first, carry, k)
        state = state.replace(carry=carry)
    # Of an optimizer of another package the schedule is not known.
    end = None
    if isinstance(optimizer, Optimizer) and optimizer.schedule in DECAYS:
        end = optimizer.schedule_steps
    if end is not None and training.steps > end:
        logging.warning(
            "the learning rate is 0 from step %d to step %d; the schedule ends at "
            "--config.optimizer.schedule_steps",
            *(end, training.steps),
        )
    return run, state


def steps_reached(work: WorkDir, training: TrainConfig) -> int | None:
    """Returns the step of the latest checkpoint of a run, or None.

    Raises:
      ValueError: It is greater than ``training.steps``.
    """
    reached = Checkpoints(work.path / "checkpoints").latest_step
    if reached is not None and reached > training.steps:
        raise ValueError(
            f"`steps` must be at least {reached}, which the run in {work.path} has "
            f"taken, got {training.steps}; `ssm-jax evaluate` reads its checkpoints."
        )
    return reached


def _from_run(run, state, workdir, sharding_of):
    """Replaces initial variables by those of another run."""
    start = warm_start(workdir, state.params, state.model_state)
    logging.info("from step %d of %s:", start.step, workdir)
    for line in start.lines():
        logging.info("%s", line)
    params, model_state = start.params, start.model_state
    if sharding_of is not None:
        loaded = params, model_state
        params, model_state = jax.tree.map(put_on, loaded, sharding_of(loaded))
    # Some optimizers copy the parameters into their state.
    return state.replace(
        params=params,
        model_state=model_state,
        opt_state=init_optimizer(run.transform, params, sharding_of),
    )


class WarmStart(NamedTuple):
    """Variables of a model, some of them from another run.

    Attributes:
      params: Parameters.
      model_state: Other variables.
      step: The step of the other run.
      loaded: Paths of what is from the other run, such as
        ``params/encoder/linear/dense/kernel``.
      skipped: What the other run has besides, with its shape.
      initialized: What the other run lacks, with its shape; the values are unchanged.
    """

    params: PyTree
    model_state: PyTree
    step: int
    loaded: tuple[str, ...]
    skipped: tuple[str, ...]
    initialized: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yields lines for the log."""
        for what in ("loaded", "skipped", "initialized"):
            names = getattr(self, what)
            yield f"{what}, {len(names)} arrays: {', '.join(names) or 'none'}"


def warm_start(
    workdir: str | os.PathLike[str], params: PyTree, model_state: PyTree
) -> WarmStart:
    """Loads what has the same path and shape from the best checkpoint of a run.

    The classes of that run are not needed: its checkpoint alone is read. If it averaged
    its parameters (``training.ema``), the averages are loaded.

    Args:
      workdir: Work dir of the other run, or a folder of Hugging Face as
        `ssm_jax.interop.load_pretrained` reads it; it is not modified.
      params: Initialized parameters of the model, without boxes. What is sharded is
        read onto its devices.
      model_state: Its other variables.

    Returns:
      The variables, in the dtypes of those given, and what came from where.

    Raises:
      ValueError: The run has no checkpoint, or no parameter of that path and shape.
      CheckpointError: The checkpoint is damaged.
    """
    ours = named_leaves({"params": params, "model_state": model_state})
    if is_hugging_face(workdir):
        step, (_, saved) = 0, load_pretrained(workdir)
    else:
        step, saved = _best_of_run(workdir, ours)
    theirs = named_leaves(saved)
    loaded = {
        name: _of_dtype(theirs[name], leaf.dtype)
        for name, leaf in ours.items()
        if name in theirs and theirs[name].shape == leaf.shape
    }
    if not any(name.startswith("params/") for name in loaded):
        raise ValueError(
            "`init_from` must be a run with a parameter of the path and shape of one "
            f"of this model, got {workdir} with {_shown(theirs)[0]} where this model "
            f"has {_shown(ours)[0]}; leave it out, or use the model of that run."
        )
    tree = {"params": params, "model_state": model_state}
    leaves = [loaded.get(name, leaf) for name, leaf in ours.items()]
    tree = jax.tree.unflatten(jax.tree.structure(tree), leaves)
    return WarmStart(
        **tree,
        step=step,
        loaded=tuple(loaded),
        skipped=_shown({n: leaf for n, leaf in theirs.items() if n not in loaded}),
        initialized=_shown({n: leaf for n, leaf in ours.items() if n not in loaded}),
    )


def _of_dtype(values, dtype):
    if isinstance(values, jax.Array):  # sharded
        return values.astype(dtype)
    return np.asarray(values, dtype)


def _best_of_run(workdir, ours):
    """The step and the variables of the best checkpoint of a run.

    Args:
      workdir: Work dir of the run.
      ours: Variables of the model by name, as whose shards theirs are read.
    """
    directory = Path(workdir, "checkpoints").absolute()
    record = _best_record(directory)
    leaves = record["leaves"]
    layout = abstract(leaves, "ema") or abstract(leaves, "params")
    layout |= abstract(leaves, "model_state")
    for name, leaf in layout.items():
        mine = ours.get(f"params/{name.removeprefix('ema/').removeprefix('params/')}")
        sharding = getattr(mine, "sharding", None)
        if sharding is None or mine.shape != leaf.shape:
            continue
        if not sharding.is_fully_replicated:
            layout[name] = jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=sharding
            )
    target = traverse_util.unflatten_dict(layout, sep="/")
    restored = Checkpoints(directory).restore(target, step=record["step"]).state
    if "ema" in restored:
        restored["params"] = restored.pop("ema")
    return record["step"], restored


def _best_record(directory: Path) -> Json:
    """The record of the best step by the metric that the run was ranked by."""
    latest = Checkpoints(directory).latest_step
    if latest is None:
        raise ValueError(
            "`init_from` must be the work dir of a run with a checkpoint, or the "
            f"folder of a Mamba, got {directory.parent}; train that run first."
        )
    # Of all checkpoints: the latest may have been saved between two evaluations.
    metrics = [
        {**record["metrics"], "step": record["step"]} for record in records(directory)
    ]
    best = best_step(metrics)
    return read_record(directory / str(latest if best is None else best))


def _shown(leaves: dict) -> tuple[str, ...]:
    return tuple(f"{name} {leaf.shape}" for name, leaf in leaves.items())
