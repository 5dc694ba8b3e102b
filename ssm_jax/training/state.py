"""What a run is made of: all that the next step, or a resumed run, needs."""

import math
import os
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct
from flax.core import meta

from ssm_jax.fields import Seed, check_value
from ssm_jax.layers.recurrent import recurrences_of
from ssm_jax.metrics import METRICS_COLLECTION
from ssm_jax.tasks.base import Task, TaskSpec
from ssm_jax.training.initial import StateInit
from ssm_jax.training.optimizer import Optimizer, describe, groups_of
from ssm_jax.types import PyTree


class TrainState(struct.PyTreeNode):
    """Everything that changes while a model is trained.

    Attributes:
      step: Steps taken; also the position in the data, ``()``, int32.
      params: The model's parameters.
      model_state: The model's other variables (BatchNorm's running moments).
      opt_state: The optimizer's state.
      key: What dropout and noise are drawn from, by the step and by the number of a
        row in the whole batch, ``()``.
      carry: States of the recurrences after the last batch, ``(b, ...)`` leaves, where
        the next one starts from them (see `RunSpec.state_init`); a `TBPTTWindow`, where
        gradients flow through several batches. None: states are not carried.
    """

    # A leaf may also be a shape or a sharding, so none is annotated as an array.
    step: PyTree
    params: PyTree
    model_state: PyTree
    opt_state: PyTree
    key: PyTree
    carry: PyTree = None


@dataclass(frozen=True)
class RunSpec:
    """A model, what it learns and how: the parts of a run that do not change.

    Attributes:
      model: The model.
      spec: What the task is.
      transform: The optimizer over the model's groups of parameters.
      summary: What there is to say of the parameters, a line an entry.
      state_init: What becomes of the states after a batch, where they are carried on.
      state_penalty: Factor on their mean square in the loss.
    """

    model: nn.Module
    spec: TaskSpec
    transform: optax.GradientTransformation
    summary: tuple[str, ...]
    state_init: StateInit = StateInit()
    state_penalty: float = 0.0


def create(
    model: nn.Module, task: Task, optimizer: Optimizer, *, seed: int
) -> tuple[RunSpec, TrainState]:
    """Draws the parameters of a model for a task and fits an optimizer to them.

    Args:
      model: A module of the call ``(inputs, state, *, reset, mask, train)``.
      task: Its first training batch gives the shapes.
      optimizer: The optimizer.
      seed: Of parameters and dropout.

    Returns:
      The run and its state before the first step.

    Raises:
      ValueError: What the model predicts does not fit what the task expects, its
        parameters do not fit into the memory of a device, or ``seed`` is not in
        [0, 2**32).
    """
    check_value("seed", seed, Seed)
    batch = task.batch("train", 0, 1, seed)
    key_params, key = jax.random.split(jax.random.key(seed))
    flags = {"reset": batch.reset, "mask": batch.mask}
    init = jax.jit(model.init)
    _check_memory(init.eval_shape(key_params, batch.inputs, **flags))
    boxed = init(key_params, batch.inputs, **flags)
    _check_predictions(model, boxed, batch, task.spec)
    groups = groups_of(boxed["params"])
    variables = dict(meta.unbox(boxed))
    params = variables.pop("params")
    variables.pop(METRICS_COLLECTION, None)
    transform = optimizer.transform(groups)
    state = TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        model_state=variables,
        opt_state=transform.init(params),
        key=key,
    )
    summary = (_sizes(params), *describe(groups, params))
    return RunSpec(model, task.spec, transform, summary), state


def _sizes(params):
    """How large the model is, with its recurrences and without."""
    total = sum(leaf.size for leaf in jax.tree.leaves(params))
    own = jax.tree.leaves(list(recurrences_of(params)))
    own = sum(leaf.size for leaf in own)
    return f"{total:,} parameters, {total - own:,} but for the recurrences' {own:,}"


def _check_memory(variables):
    """Refuses parameters that no device can hold, before they are drawn."""
    leaves = jax.tree.leaves(variables)
    # With Python's integers: those of NumPy would overflow.
    n = sum(math.prod(leaf.shape) for leaf in leaves)
    n_bytes = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
    stats = jax.local_devices()[0].memory_stats() or {}
    there = stats.get(
        "bytes_limit", os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    )
    if 2 * n_bytes > there:  # beside the parameters, at least their gradient
        raise ValueError(
            f"`model` must fit into the memory of a device, {there / 1e9:.0f} GB, with "
            f"its gradient, got {n:,} parameters of {n_bytes / 1e9:,.0f} GB; make it "
            "narrower or of fewer layers."
        )


def _check_predictions(model, variables, batch, spec):
    flags = {"reset": batch.reset, "mask": batch.mask}
    predictions, _ = jax.eval_shape(
        lambda v: model.apply(v, batch.inputs, **flags), variables
    )
    wanted = (*batch.loss_mask.shape, spec.d_output)
    if predictions.shape != wanted:
        raise ValueError(
            f"`model` must predict {wanted} for one example of the task, got "
            f"{predictions.shape}; set `d_output` and `l_output` of its head."
        )
