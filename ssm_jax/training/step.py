"""One training or evaluation step, as computed by each device."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from ssm_jax.kernels.axes import mark_varying
from ssm_jax.layers.dropout import rows_from
from ssm_jax.metrics import METRICS_COLLECTION, Mean, sown_metrics
from ssm_jax.models import SequenceModel
from ssm_jax.sharding import sharded_length
from ssm_jax.sharding.parameters import gather, sum_gradients
from ssm_jax.tasks.base import Batch
from ssm_jax.training.initial import TBPTTWindow, Window, first_row_of
from ssm_jax.training.losses import (
    Reductions,
    cross_entropy,
    largest_number,
    loss_sums,
    mean_square,
)
from ssm_jax.training.state import RunSpec, TrainState
from ssm_jax.types import Array, Float, PyTree


class Gradients(NamedTuple):
    """What a step computes on a batch, before the optimizer.

    Attributes:
      gradient: Gradient of the mean loss over the global batch.
      value: The loss that is minimized, ``()``.
      model_state: The other variables of the model after the batch.
      carry: The states that the next batch starts from, or None.
      sums: Loss and metrics, reduced over all devices.
    """

    gradient: PyTree
    value: Float[Array, ""]
    model_state: PyTree
    carry: PyTree
    sums: Reductions


def train_step(
    run: RunSpec,
    state: TrainState,
    batch: Batch,
    *,
    axes: Sequence[str] = (),
    length_axis: str | None = None,
) -> tuple[TrainState, Reductions]:
    """Updates the parameters by the gradient of the mean loss over the global batch.

    It is `gradients`, and then `update`.

    Args:
      run: The model and the optimizer.
      state: The state, replicated over devices except for ``carry``.
      batch: This device's shard of the batch.
      axes: Names of the mapped axes that the rows are sharded over.
      length_axis: As for `gradients`.

    Returns:
      The next state, and loss and metrics, reduced over all devices.

    Raises:
      ValueError: A layer sows a metric under the name of one of the loss.
    """
    result = gradients(run, state, batch, axes=axes, length_axis=length_axis)
    return update(run, state, result)


def gradients(
    run: RunSpec,
    state: TrainState,
    batch: Batch,
    *,
    axes: Sequence[str] = (),
    length_axis: str | None = None,
) -> Gradients:
    """Computes the gradient of the mean loss over the global batch.

    ``n`` devices that share a batch compute the gradient that one device computes on
    the whole batch: dropout keys are those of rows of the global batch, and BatchNorm
    uses the moments of the global batch if the model's ``axis_name`` is one of
    ``axes``. The masks of `flax.linen.Dropout`, unlike those of `RowDropout`, depend on
    the number of devices.
    If ``state.carry`` is a `TBPTTWindow`, the gradient also flows through its windows.
    With ``run.accumulate`` the gradient is the sum of those of parts of the rows.

    Args:
      run: The model.
      state: The state, replicated over devices except for ``carry``. Of parameters
        that are sharded it has a `Shard`, as the gradient then does.
      batch: This device's shard of the batch.
      axes: Names of the mapped axes that the rows are sharded over.
      length_axis: Name of the mapped axis that the length of each sequence is sharded
        over; see `sharded_length`. None means that sequences are whole.

    Returns:
      The gradient and what comes with it.

    Raises:
      ValueError: A layer sows a metric under the name of one of the loss.
    """
    row_axes, axes = axes, _all_axes(axes, length_axis)
    # The key is the same on all devices: dropout folds in the row of the global batch.
    sample = jax.random.fold_in(state.key, state.step)
    first_row = first_row_of(len(batch.inputs), row_axes)

    # A separate stream, so that dropout masks do not depend on the initial states.
    key = jax.random.fold_in(sample, 1)

    def start(states, step):
        return run.state_init(states, step=step, key=key, axes=row_axes)

    windowed = isinstance(state.carry, TBPTTWindow)
    # States may come from rows of another part or device, so all are computed here.
    carry = state.carry if windowed else start(state.carry, state.step)
    whole = _over_devices(_without_predictions(run.spec, batch), axes)["loss"]
    n_parts = run.accumulate * (jax.lax.axis_size(tuple(axes)) if axes else 1)

    def loss(params, model_state, rows, offset):
        batch, carry = rows

        def apply(window, before, key):
            with rows_from(first_row + offset), sharded_length(length_axis):
                return run.model.apply(
                    {"params": gather_outside_blocks(run.model, params), **model_state},
                    window.inputs,
                    before,
                    **window.flags,
                    train=True,
                    mutable=[*model_state, METRICS_COLLECTION],
                    rngs={"dropout": key},
                )

        before, past = carry, None
        if windowed:
            before, past = carry.read(
                batch, state.step, start, lambda *of: apply(*of)[0][1], key
            )
        (predictions, after), changed = apply(Window.of(batch), before, sample)
        sums = _loss_sums(run.spec, predictions, batch)
        changed = dict(changed)
        # Sown metrics are not part of the state, which is carried and checkpointed.
        sown = changed.pop(METRICS_COLLECTION, {})
        value = sums["loss"].part_of(whole)
        if run.state_penalty:
            # Gradients are summed over parts and devices; the penalty is a mean.
            value += run.state_penalty * mean_square(after) / n_parts
        return value, (value, _with_sown(sums, sown), after, past, changed)

    # Otherwise `shard_map` would sum the gradient over devices by itself, and the sum
    # below would count it once more per device.
    params, model_state = mark_varying((state.params, state.model_state), axes)
    gradient, (value, sums, after, past, model_state) = _accumulate(
        run.accumulate,
        jax.grad(loss, has_aux=True),
        params,
        model_state,
        (batch, carry),
    )
    sums = _over_devices(sums, axes)
    if state.carry is not None:
        largest = largest_number(mark_varying(after, axes))
        largest = jax.lax.pmax(largest, axes) if axes else largest
        # Equal on all devices already; a count of 1 gives each step the same weight.
        sums["largest_state"] = Mean(largest, jnp.float32(1))
    return Gradients(
        # Losses are divided by the global count, so that gradients simply add up.
        gradient=sum_gradients(gradient, axes),
        value=jax.lax.psum(value, axes) if axes else value,
        # The new state must be the same on all devices, also for a model whose
        # statistics are those of a shard.
        model_state=jax.lax.pmean(model_state, axes) if axes else model_state,
        carry=None if state.carry is None else past or after,
        sums=sums,
    )


def update(
    run: RunSpec, state: TrainState, result: Gradients
) -> tuple[TrainState, Reductions]:
    """Takes the step of the optimizer.

    Args:
      run: The optimizer.
      state: The state, which may be sharded in any way.
      result: The result of `gradients`, with whole arrays.

    Returns:
      The next state, and loss and metrics.
    """
    # The norm before clipping, so that the log shows whether clipping is active.
    norm = Mean(optax.tree.norm(result.gradient), jnp.float32(1))
    # Some optimizers choose their step size by the loss that is minimized.
    updates, opt_state = optax.with_extra_args_support(run.transform).update(
        result.gradient, state.opt_state, state.params, value=result.value
    )
    params = optax.apply_updates(state.params, updates)
    state = state.replace(
        step=state.step + 1,
        params=params,
        model_state=result.model_state,
        opt_state=opt_state,
        carry=result.carry,
        ema=_averaged(run.ema, params, state),
    )
    return state, result.sums | {"gradient_norm": norm}


def gather_outside_blocks(model: nn.Module, params: PyTree) -> PyTree:
    """Gathers sharded parameters, but those that the blocks of a stack gather."""
    stack = isinstance(model, SequenceModel)
    return gather(params, leave=model.block_names if stack else ())


def prediction_step(
    run: RunSpec,
    params: PyTree,
    model_state: PyTree,
    batch: Batch,
    carry: PyTree = None,
    *,
    length_axis: str | None = None,
) -> tuple[PyTree, PyTree]:
    """Predicts the targets of a batch.

    Args:
      run: The model.
      params: Parameters of the model.
      model_state: Other variables of the model.
      batch: This device's shard of the batch.
      carry: Initial states, ``(b, ...)`` leaves. None means zero states.
      length_axis: As for `train_step`.

    Returns:
      The predictions that `evaluation_step` reduces: values, or logits of classes. For
      language ``(log_p, token)``: the log-probability of each target and the most
      likely token, because logits of a vocabulary at every step would fill the memory.
      Then the states after the batch, or None if ``carry`` is None.
    """
    with sharded_length(length_axis):
        predictions, after = run.model.apply(
            {"params": gather_outside_blocks(run.model, params), **model_state},
            batch.inputs,
            carry,
            **batch.flags,
        )
    if run.spec.language:
        log_p = -cross_entropy(predictions, batch.targets)
        predictions = log_p, jnp.argmax(predictions, -1)
    return predictions, None if carry is None else after


def evaluation_step(
    run: RunSpec,
    params: PyTree,
    model_state: PyTree,
    batch: Batch,
    carry: PyTree = None,
    *,
    axes: Sequence[str] = (),
    length_axis: str | None = None,
) -> tuple[Reductions, PyTree]:
    """Reduces loss and metrics over a batch that is sharded over devices.

    Args:
      run: The model.
      params: Parameters of the model.
      model_state: Other variables of the model.
      batch: This device's shard of the batch.
      carry: Initial states, ``(b, ...)`` leaves. None means zero states.
      axes: Names of the mapped axes that the rows are sharded over.
      length_axis: Name of the mapped axis that the length of each sequence is sharded
        over; see `sharded_length`. None means that sequences are whole.

    Returns:
      The reductions over all devices, and the states after the batch, or None if
      ``carry`` is None.

    Raises:
      ValueError: A layer sows a metric under the name of one of the loss.
    """
    axes = _all_axes(axes, length_axis)
    with sharded_length(length_axis):
        (predictions, after), sown = run.model.apply(
            {"params": gather_outside_blocks(run.model, params), **model_state},
            batch.inputs,
            carry,
            **batch.flags,
            # Only metrics: evaluation does not change BatchNorm's running moments.
            mutable=[METRICS_COLLECTION],
        )
    sums = _loss_sums(run.spec, predictions, batch)
    sums = _with_sown(sums, sown.get(METRICS_COLLECTION, {}))
    return _over_devices(sums, axes), None if carry is None else after


def _averaged(decay, params, state):
    """The moving average after a step, corrected for its start from zeros."""
    if decay is None:
        return None
    # The weight of the first step is 1: initial parameters are not part of the average.
    # `expm1`, because the power of a decay near 1 is close to 1.
    weight = (1 - decay) / -jnp.expm1((state.step + 1) * math.log(decay))
    return optax.incremental_update(params, state.ema, weight)


def _accumulate(n, gradient, params, model_state, rows):
    """Adds the gradients of ``n`` parts of the rows, computed one after the other."""
    if n == 1:
        return gradient(params, model_state, rows, 0)
    parts = jax.tree.map(lambda x: x.reshape(n, -1, *x.shape[1:]), rows)
    offsets = jnp.arange(n) * (len(rows[0].inputs) // n)

    def add(before, part):
        so_far, model_state = before
        added, (*found, model_state) = gradient(params, model_state, *part)
        return (optax.tree.add(so_far, added), model_state), tuple(found)

    first = optax.tree.zeros_like(params), model_state
    (total, model_state), found = jax.lax.scan(add, first, (parts, offsets))
    values, sums, *states = found
    sums = {name: reduction.combined() for name, reduction in sums.items()}
    after, past = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tuple(states))
    return total, (jnp.sum(values), sums, after, past, model_state)


def _without_predictions(spec, batch) -> Reductions:
    """The reductions of zero predictions, for the number of targets."""
    predictions = jnp.zeros((*batch.loss_mask.shape, spec.d_output))
    return _loss_sums(spec, predictions, batch)


def _loss_sums(spec, predictions, batch) -> Reductions:
    return loss_sums(
        spec.targets,
        predictions,
        batch.targets,
        batch.loss_mask,
        spec.class_weight,
        spec.loss,
    )


def _with_sown(sums, collection) -> Reductions:
    """Adds the metrics that layers sowed to those of the loss."""
    sown = sown_metrics(collection)
    # `r2_batch` is added to `r2` where batches are merged.
    if taken := {*sums, "r2_batch"} & sown.keys():
        raise ValueError(
            f"`{min(taken)}` must not be sown, got it from a layer; it is a metric of "
            "the loss, sow it under another name."
        )
    return {**sums, **sown}


def _all_axes(axes, length_axis) -> tuple[str, ...]:
    return (*axes,) if length_axis is None else (*axes, length_axis)


def _over_devices(reductions, axes) -> Reductions:
    if not axes:
        return reductions
    # Predictions of whole sequences are the same on the devices that share them, so
    # that sums and counts are both too large by the same factor.
    reductions = mark_varying(reductions, axes)
    return {
        name: reduction.over_devices(axes) for name, reduction in reductions.items()
    }
