"""One step of training or evaluation, as one device of several takes it."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import optax

from ssm_jax.layers.dropout import rows_from
from ssm_jax.metrics import METRICS_COLLECTION, Mean, is_reduction, sown_metrics
from ssm_jax.tasks.base import Batch
from ssm_jax.training.initial import first_row_of
from ssm_jax.training.losses import Sums, largest_number, loss_sums, mean_square
from ssm_jax.training.state import RunSpec, TrainState
from ssm_jax.training.truncation import TBPTTWindow, Window
from ssm_jax.types import PyTree


def train_step(
    run: RunSpec, state: TrainState, batch: Batch, *, axes: Sequence[str] = ()
) -> tuple[TrainState, Sums]:
    """Takes a step along the gradient of the mean loss over all devices' targets.

    ``n`` devices that share a batch take the step that one device takes with all of it:
    all of them draw from the same key, by the number of a row in the whole batch, and
    the moments of BatchNorm are those of the whole batch if the model's ``axis_name``
    is one of ``axes``. What a model drops by `flax.linen.Dropout` in the place of
    `RowDropout` depends on the number of devices.
    If ``state.carry`` is a `TBPTTWindow`, the gradient also flows through its windows.

    Args:
      run: The model and the optimizer.
      state: The state, the same on all devices but for ``carry``.
      batch: This device's share of the batch.
      axes: The mapped axes that the batch is spread over.

    Returns:
      The next state, and the sums of loss and metrics over all devices.
    """
    # Not by device: what is drawn for a row depends on its number in the whole batch.
    sample = jax.random.fold_in(state.key, state.step)
    first_row = first_row_of(len(batch.inputs), axes)

    # A stream of its own: what dropout draws is the same whatever a batch starts from.
    key = jax.random.fold_in(sample, 1)

    def start(states, step):
        return run.state_init(states, step=step, key=key, axes=axes)

    def apply(params, window, before, key):
        with rows_from(first_row):
            return run.model.apply(
                {"params": params, **state.model_state},
                window.inputs,
                before,
                reset=window.reset,
                mask=window.mask,
                train=True,
                mutable=[*state.model_state, METRICS_COLLECTION],
                rngs={"dropout": key},
            )

    def loss(params):
        if isinstance(state.carry, TBPTTWindow):
            before, past = state.carry.read(
                batch, state.step, start, lambda *of: apply(params, *of)[0][1], key
            )
        else:
            before, past = start(state.carry, state.step), None
        (predictions, after), model_state = apply(
            params, Window.of(batch), before, sample
        )
        sums = loss_sums(run.spec.targets, predictions, batch.targets, batch.loss_mask)
        model_state = dict(model_state)
        sown = sown_metrics(model_state.pop(METRICS_COLLECTION, {}))
        if taken := sums.keys() & sown.keys():
            raise ValueError(
                f"`{min(taken)}` must not be sown, got it from a layer; the loss has "
                "this name, give it another."
            )
        total: Sums = _sum_over({**sums, **sown}, axes)
        n = jnp.maximum(total["n"], 1)  # of a batch without targets the loss is zero
        value = sums["loss"] / n
        if run.state_penalty:
            n_devices = jax.lax.axis_size(tuple(axes)) if axes else 1
            value += run.state_penalty * mean_square(after) / n_devices
        return value, (total, after, past, model_state)

    params = _as_varying(state.params, axes)
    gradient, aux = jax.grad(loss, has_aux=True)(params)
    sums, after, past, model_state = aux
    gradient = _sum_over(gradient, axes)
    sums["gradient_norm"] = Mean(optax.tree.norm(gradient), jnp.float32(1))
    if state.carry is not None:
        largest = largest_number(after)
        largest = jax.lax.pmax(largest, axes) if axes else largest
        sums["largest_state"] = Mean(largest, jnp.float32(1))
    updates, opt_state = run.transform.update(gradient, state.opt_state, state.params)
    return (
        state.replace(
            step=state.step + 1,
            params=optax.apply_updates(state.params, updates),
            model_state=jax.lax.pmean(model_state, axes) if axes else model_state,
            opt_state=opt_state,
            carry=None if state.carry is None else past or after,
        ),
        sums,
    )


def evaluation_step(
    run: RunSpec,
    params: PyTree,
    model_state: PyTree,
    batch: Batch,
    carry: PyTree = None,
    *,
    axes: Sequence[str] = (),
) -> tuple[Sums, PyTree]:
    """Sums loss and metrics over a batch that all devices share.

    Args:
      run: The model.
      params: Its parameters.
      model_state: Its other variables.
      batch: This device's share of the batch.
      carry: States to start from, ``(b, ...)`` leaves. None: those of a fresh start.
      axes: The mapped axes that the batch is spread over.

    Returns:
      The sums over all devices, and the states after the batch; None in their place
      where ``carry`` is.
    """
    predictions, after = run.model.apply(
        {"params": params, **model_state},
        batch.inputs,
        carry,
        reset=batch.reset,
        mask=batch.mask,
    )
    sums = loss_sums(run.spec.targets, predictions, batch.targets, batch.loss_mask)
    return _sum_over(sums, axes), None if carry is None else after


def _sum_over(tree, axes):
    if not axes:
        return tree

    def over_devices(node):
        if is_reduction(node):
            return node.over_devices(axes)
        return jax.lax.psum(node, axes)

    return jax.tree.map(over_devices, tree, is_leaf=is_reduction)


def _as_varying(tree, axes):
    """The same values, marked as this device's own.

    Without the mark `shard_map` sums the gradient over the devices by itself, and the
    sum over devices here would count it once more for each of them.
    """

    def mark(leaf):
        missing = set(axes) - jax.typeof(leaf).manual_axis_type.varying
        return jax.lax.pcast(leaf, tuple(missing), to="varying") if missing else leaf

    return jax.tree.map(mark, tree)
