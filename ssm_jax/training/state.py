"""`TrainState` and `RunSpec`: the changing and the constant parts of a run."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn, struct
from flax.core import meta
from jax.core import Tracer

from ssm_jax.fields import Seed, check_value
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.layers.recurrent import recurrences_of
from ssm_jax.layers.step_sizes import takes_dt
from ssm_jax.metrics import METRICS_COLLECTION
from ssm_jax.sharding.parameters import bytes_of_device
from ssm_jax.tasks.base import Batch, Task, TaskSpec, rows_of_batch
from ssm_jax.training.groups import (
    describe,
    groups_of,
    with_rates,
    without_vector_decay,
)
from ssm_jax.training.initial import StateInit, strongly_typed
from ssm_jax.training.optimizer import OPTIMIZERS, Optimizer, SupportsTransform
from ssm_jax.training.transforms import averaged_params
from ssm_jax.types import PRNGKey, PyTree

# Initialization runs once. With fewer optimizations of LLVM it compiles in two thirds
# of the time, and draws the same numbers.
_INIT_OPTIONS = {"cpu": {"xla_backend_optimization_level": 1}}


class TrainState(struct.PyTreeNode):
    """Everything that changes while a model is trained.

    Attributes:
      step: Number of steps taken, which is also the position in the data, ``()``,
        int32.
      params: Parameters of the model.
      model_state: Other variables of the model (running moments of BatchNorm).
      opt_state: State of the optimizer.
      key: PRNG key of dropout and noise, ``()``; the step and the index of the row in
        the global batch are folded in.
      carry: Final states of the recurrences after the last batch, ``(b, ...)`` leaves,
        if `RunSpec.state_init` uses them; a `TBPTTWindow` if gradients flow through
        several batches. None means that states are not carried.
      ema: Exponential moving average of the parameters, if `RunSpec.ema` is set.
    """

    # A leaf may also be a shape or a sharding, so none is annotated as an array.
    step: PyTree
    params: PyTree
    model_state: PyTree
    opt_state: PyTree
    key: PyTree
    carry: PyTree = None
    ema: PyTree = None

    @property
    def evaluated_params(self) -> PyTree:
        """The parameters that are evaluated: an average, if there is one.

        It is `ema`, or computed from the state of a schedule-free optimizer.
        """
        if self.ema is not None:
            return self.ema
        return averaged_params(self.opt_state, self.params)


@dataclass(frozen=True)
class RunSpec:
    """The constant parts of a run: model, task and optimizer.

    Attributes:
      model: The model.
      spec: Spec of the task.
      transform: Gradient transformation for the parameter groups of the model.
      summary: Lines that describe the parameters.
      state_init: Computes initial states from carried states.
      state_penalty: Factor of the mean square of the final states in the loss.
      accumulate: Number of parts that a device computes the gradient of its rows in.
      ema: Decay of the moving average of the parameters. None means no average.
    """

    model: nn.Module
    spec: TaskSpec
    transform: optax.GradientTransformation
    summary: tuple[str, ...]
    state_init: StateInit = StateInit()
    state_penalty: float = 0.0
    accumulate: int = 1
    ema: float | None = None


def create(
    model: nn.Module,
    task: Task,
    optimizer: SupportsTransform,
    *,
    seed: int,
    sharding_of: Callable[[PyTree], PyTree] | None = None,
) -> tuple[RunSpec, TrainState]:
    """Initializes the parameters of a model and the state of its optimizer.

    Args:
      model: Module with the signature ``(inputs, state, *, reset, mask, train)``, and
        for an irregular task ``dt``, and an attribute ``takes_dt``, which is true.
      task: The task; its first training batch determines the shapes.
      optimizer: The optimizer.
      seed: Seed of parameters and dropout.
      sharding_of: Returns the shardings of a tree of shapes, with which parameters and
        the state of the optimizer are initialized, so that no device ever has all of
        them. None means on one device.

    Returns:
      The run and its state before the first step.

    Raises:
      ValueError: The shape of the predictions does not fit the targets of the task, the
        encoder has fewer tokens than the task, the task is irregular and no layer of
        the model takes the sizes of its steps, the parameters do not fit into the
        memory of a device, or ``seed`` is not in [0, 2**32).
    """
    check_value("seed", seed, Seed)
    # One example is enough: the shapes of parameters do not depend on the batch size.
    batch = rows_of_batch(task, "train", 0, 1, seed)
    _check_dt(model, batch)
    _check_vocabulary(model, task.spec)
    key_params, key = jax.random.split(jax.random.key(seed))
    init = jax.jit(model.init)  # It is traced once.
    shapes = init.eval_shape(key_params, batch.inputs, **batch.flags)
    if not isinstance(key, Tracer):  # Otherwise only shapes are wanted.
        _check_memory(meta.unbox(shapes), sharding_of)
    _check_predictions(model, shapes, batch, task.spec)
    # The boxes hold the groups, so that they are read before unboxing.
    groups = groups_of(shapes["params"])
    if isinstance(optimizer, Optimizer):
        groups = with_rates(groups, optimizer.rates)
        if not optimizer.decay_vectors:
            groups = without_vector_decay(groups)
    transform = optimizer.transform(groups)
    _check_update(optimizer, transform, meta.unbox(shapes["params"]))

    params, model_state = initialize(init, key_params, batch, sharding_of)
    opt_state = init_optimizer(transform, params, sharding_of)
    state = TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        model_state=model_state,
        opt_state=opt_state,
        key=key,
    )
    summary = (_sizes(params), *describe(groups, params))
    return RunSpec(model, task.spec, transform, summary), state


def init_optimizer(
    transform: optax.GradientTransformation,
    params: PyTree,
    sharding_of: Callable[[PyTree], PyTree] | None = None,
) -> PyTree:
    """Initializes the state of an optimizer, by one program.

    Args:
      transform: The optimizer.
      params: The parameters.
      sharding_of: As for `create`.
    """

    def start(params):
        return strongly_typed(transform.init(params))

    # Zeros depend on no input: without their shardings all would lie on one device.
    return _jit_onto(sharding_of, start, params)


def _jit_onto(sharding_of, function, *arguments, **options):
    """Calls a function by one program, whose results have shardings."""
    if sharding_of is not None:
        shapes = jax.eval_shape(function, *arguments)
        options["out_shardings"] = sharding_of(shapes)
    return jax.jit(function, **options)(*arguments)


def initialize(
    init: Callable[..., PyTree],
    key: PRNGKey,
    batch: Batch,
    sharding_of: Callable[[PyTree], PyTree] | None = None,
) -> tuple[PyTree, PyTree]:
    """Initializes the variables of a model, by one program.

    Args:
      init: The method of the model, jitted.
      key: The first of the two keys that the seed of a run is split into.
      batch: One example of the task, for its shapes.
      sharding_of: As for `create`.

    Returns:
      The parameters and the other variables, without boxes.
    """

    def start(key, inputs, flags):
        variables = dict(meta.unbox(init(key, inputs, **flags)))
        params = variables.pop("params")
        # Sown metrics are outputs of a step; here they would become part of
        # checkpoints.
        variables.pop(METRICS_COLLECTION, None)
        return strongly_typed((params, variables))

    options = _INIT_OPTIONS.get(target_platform())
    if isinstance(key, Tracer):
        options = None  # Only shapes are wanted; JAX takes no options within a trace.
    arguments = key, batch.inputs, batch.flags
    return _jit_onto(sharding_of, start, *arguments, compiler_options=options)


def abstract_state(
    created: Callable[[], tuple[RunSpec, TrainState]],
) -> tuple[RunSpec, TrainState]:
    """Returns what a function like `create` returns, without computing the state.

    Args:
      created: Returns a run and its state.

    Returns:
      The run and its state, whose arrays are `jax.ShapeDtypeStruct`.
    """
    runs = []  # A run is no array, so that `jax.eval_shape` would not return it.

    def state_of():
        run, state = created()
        runs.append(run)
        return state

    state = jax.eval_shape(state_of)
    return runs[0], state


def _check_update(optimizer, transform, params):
    """Checks that an optimizer can take a step; its update is traced only."""
    name = type(optimizer).__name__
    if isinstance(optimizer, Optimizer):
        name = optimizer.kind
        if name in OPTIMIZERS:
            return  # They need nothing but gradients and parameters.

    def update(params):
        state = transform.init(params)
        update = optax.with_extra_args_support(transform).update
        return update(params, state, params, value=jnp.zeros(()))

    try:
        jax.eval_shape(update, params)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            "`optimizer` must compute its updates from gradients, parameters and the "
            f"loss, as `value`, got an error of {name}: {error}; adamw does."
        ) from error


def _sizes(params):
    """Describes the number of parameters, with and without the recurrences."""
    total = sum(leaf.size for leaf in jax.tree.leaves(params))
    leaves = jax.tree.leaves(list(recurrences_of(params)))
    n = sum(leaf.size for leaf in leaves)
    return f"{total:,} parameters, {total - n:,} but for the recurrences' {n:,}"


def _check_memory(variables, sharding_of):
    """Checks that the parameters fit into memory, before they are allocated."""
    # `math.prod` computes in Python integers; those of NumPy would overflow.
    n = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(variables))
    alone = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    shardings = jax.tree.map(lambda _: alone, variables)
    if sharding_of is not None:
        shardings = sharding_of(variables)
    n_bytes = bytes_of_device(variables, shardings)
    # CPU devices report no statistics; their memory is that of the host.
    stats = jax.local_devices()[0].memory_stats() or {}
    there = stats.get(
        "bytes_limit", os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    )
    if 2 * n_bytes > there:  # parameters and at least their gradient
        raise ValueError(
            f"`model` must fit into the memory of a device, {there / 1e9:.0f} GB, with "
            f"its gradient, got {n:,} parameters of {n_bytes / 1e9:,.0f} GB on each; "
            "make it narrower or of fewer layers, or shard it: "
            "--config.training.mesh=data=N,model=M."
        )


def _check_dt(model, batch):
    """Checks that a model takes the sizes of the steps of a batch, if it has them."""
    if batch.dt is None or takes_dt(model):
        return
    recurrence = getattr(model, "recurrence", None)
    of_recurrence = "" if recurrence is None else f" of {type(recurrence).__name__}"
    raise ValueError(
        "`model` must have a layer that takes the step sizes of an irregular task, got "
        f"{type(model).__name__}{of_recurrence}; S5, S4D and SelectiveSSM take them, "
        "and a task of equal steps has none."
    )


def _check_vocabulary(model, spec):
    """Checks that the encoder of a model has all tokens: of others it gives NaN."""
    vocabulary = getattr(getattr(model, "encoder", None), "vocabulary", None)
    if isinstance(vocabulary, int) and vocabulary < spec.d_input:
        raise ValueError(
            f"`model.encoder.vocabulary` must be at least {spec.d_input}, the tokens "
            f"of the task, got {vocabulary}; --config.model.encoder.vocabulary="
            f"{spec.d_input} sets it."
        )


def _check_predictions(model, variables, batch, spec):
    # Traced only: the check takes no memory and does not compile the model.
    predictions, _ = jax.eval_shape(
        lambda v: model.apply(v, batch.inputs, **batch.flags), variables
    )
    shape = (*batch.loss_mask.shape, spec.d_output)
    if predictions.shape != shape:
        raise ValueError(
            f"`model` must predict {shape} for one example of the task, got "
            f"{predictions.shape}; set `d_output` and `l_output` of its head."
        )
