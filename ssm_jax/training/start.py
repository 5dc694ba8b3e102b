"""What a run starts from: its constant parts and its state before the first step."""

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import jax
from absl import logging
from flax import linen as nn

from ssm_jax.config import Config, build
from ssm_jax.tasks.base import Task, n_batches, rows_of_batch
from ssm_jax.training.checkpointing import Checkpoints
from ssm_jax.training.evaluate import n_evaluated
from ssm_jax.training.gradients import check_gradient_outputs, check_gradient_steps
from ssm_jax.training.initial import StateInit, zero_states
from ssm_jax.training.mesh import check_sharded_length, pieces_of
from ssm_jax.training.nans import is_debugging
from ssm_jax.training.optimizer import DECAYS, Optimizer
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import RunSpec, TrainState, create
from ssm_jax.training.transforms import is_averaged
from ssm_jax.training.truncation import TBPTTWindow
from ssm_jax.training.warm_start import warm_start
from ssm_jax.training.workdir import WorkDir, check_parts

if TYPE_CHECKING:
    # Configs of runs name `ssm_jax.training.loop:TrainConfig`, and that module imports
    # this one.
    from ssm_jax.training.loop import TrainConfig


class Parts(NamedTuple):
    """What a config describes, and the map over all local devices."""

    task: Task
    model: nn.Module
    optimizer: Optimizer
    training: "TrainConfig"
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
    pieces = pieces_of(training.mesh, jax.device_count())
    check_sharded_length(task.spec, pieces, training.gradient_windows)
    kind = "jit" if is_debugging() else training.parallel
    parallel = DataParallel(kind, pieces=pieces)
    parallel.check(training.batch_size, training.accumulate)
    n_evaluated(task, "validation", training.batch_size, training.evaluation_batches)
    check_gradient_steps(task.spec, training.gradient_steps)
    check_gradient_outputs(task.spec, training.gradient_outputs)
    return Parts(task, model, optimizer, training, parallel)


def first_state(
    model: nn.Module,
    task: Task,
    optimizer: Optimizer,
    training: "TrainConfig",
    *,
    new: bool,
) -> tuple[RunSpec, TrainState]:
    """Returns the constant parts of a run and its state before the first step.

    Args:
      model: The model.
      task: The task.
      optimizer: The optimizer.
      training: The fields of the training loop.
      new: Whether the run has no checkpoint yet. Otherwise the values of the state do
        not count, and ``init_from`` is not read.

    Returns:
      The run and the state.

    Raises:
      ValueError: The fields do not fit together; see `create` and `warm_start`.
    """
    run, state = create(model, task, optimizer, seed=training.seed)
    epoch = n_batches(task, "train", training.batch_size)
    run = dataclasses.replace(
        run,
        state_init=StateInit(training.initial_state, training.initial_noise, epoch),
        state_penalty=training.state_penalty,
        accumulate=training.accumulate,
        ema=training.ema,
    )
    if training.init_from is not None and new:
        state = _from_run(run, state, training.init_from)
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
    # An optimizer of another package has a `transform`, but need not have a schedule.
    decays = getattr(optimizer, "schedule", None) in DECAYS
    end = getattr(optimizer, "schedule_steps", None) if decays else None
    if end is not None and training.steps > end:
        logging.warning(
            "the learning rate is 0 from step %d to step %d; the schedule ends at "
            "--config.optimizer.schedule_steps",
            *(end, training.steps),
        )
    return run, state


def steps_reached(work: WorkDir, training: "TrainConfig") -> int | None:
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


def _from_run(run, state, workdir):
    """Replaces initial variables by those of another run."""
    found = warm_start(workdir, state.params, state.model_state)
    logging.info("from step %d of %s:", found.step, workdir)
    for line in found.lines():
        logging.info("%s", line)
    # Some optimizers copy the parameters into their state.
    return state.replace(
        params=found.params,
        model_state=found.model_state,
        opt_state=run.transform.init(found.params),
    )
