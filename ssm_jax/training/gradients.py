"""Norms of gradients with respect to the initial state."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from ssm_jax.tasks.base import Batch, TaskSpec
from ssm_jax.training.losses import loss_sums
from ssm_jax.training.state import RunSpec
from ssm_jax.types import Array, Float, PyTree

NORMS = ("l1", "l2", "linf")
"""The norms, in the order in which they are returned."""

Measure = Callable[[PyTree, PyTree, Batch], Float[Array, "k 3"]]


def check_gradient_steps(spec: TaskSpec, steps: Sequence[int]) -> None:
    """Validates the steps at which gradients are measured.

    Args:
      spec: Spec of the task.
      steps: Step numbers, from 1.

    Raises:
      ValueError: A step has no target.
    """
    first = 1 if spec.l_output is None else spec.length - spec.l_output + 1
    for step in steps:
        if not first <= step <= spec.length:
            raise ValueError(
                f"`gradient_steps` must be from {first} to {spec.length}, the steps "
                f"that have a target, got {step}."
            )


def check_gradient_outputs(spec: TaskSpec, block: int | None) -> None:
    """Validates the number of outputs per block.

    Args:
      spec: Spec of the task.
      block: Number of outputs per block, or None.

    Raises:
      ValueError: ``block`` is not in ``[1, d_output]``, or the task is not a regression
        with one prediction per sequence.
    """
    if block is None:
        return
    if spec.targets != "regression" or spec.l_output is not None:
        raise ValueError(
            "`gradient_outputs` must be None unless the task is a regression with one "
            f"prediction a sequence, got {block}; `gradient_steps` measures others."
        )
    if not 1 <= block <= spec.d_output:
        raise ValueError(
            f"`gradient_outputs` must be from 1 to {spec.d_output}, the outputs of a "
            f"prediction, got {block}; the FRU's authors have 20."
        )


def state_gradients(run: RunSpec, steps: Sequence[int]) -> Measure:
    """Measures how much the state before the first step moves the loss at later ones.

    The loss at step ``t`` is that of the prediction made there: by a model of one
    prediction a sequence, of the one it makes of the first ``t`` steps alone.

    Args:
      run: The model and what it learns.
      steps: ``t``, ``k`` numbers from 1.

    Returns:
      A function of the parameters, the other variables and a batch: for each ``t`` the
      `NORMS` of the gradient of a sequence's loss by its initial state, the mean over
      the sequences, ``(k, 3)``. It raises a ValueError for a model without a state.

    Raises:
      ValueError: A step has no loss.

    References:
      Zhang, Lin, Song and Dhillon, `Learning Long Term Dependencies via Fourier
      Recurrent Units <https://arxiv.org/abs/1803.06585>`_, 2018, figure 5
    """
    spec = run.spec
    check_gradient_steps(spec, steps)
    places = jnp.arange(spec.length)

    @jax.jit
    def measured(params, model_state, batch):
        rows, mask = len(batch.inputs), jnp.asarray(batch.loss_mask)

        def loss(state, step):
            seen = jnp.broadcast_to(places < step, (rows, spec.length))
            seen = seen if batch.mask is None else seen & batch.mask
            counts = mask
            if spec.l_output is not None:
                counts = mask & (places[-spec.l_output :] == step - 1)
            predictions, _ = _apply(run, params, model_state, batch, state, seen)
            sums = loss_sums(spec.targets, predictions, batch.targets, counts)
            return rows * sums["loss"] / jnp.maximum(sums["n"], 1)

        state = _zero_state(run, params, model_state, batch, "gradient_steps", steps)
        return jax.lax.map(
            lambda step: jnp.mean(_norms(jax.grad(loss)(state, step), rows), 0),
            jnp.asarray(steps),
        )

    return measured


def output_gradients(run: RunSpec, block: int) -> Measure:
    """Measures how much the initial state moves parts of the last prediction's loss.

    The prediction of a whole curve after its last step is cut into blocks of outputs,
    and the loss of a block is the mean squared error of its outputs over the batch.

    Args:
      run: The model and what it learns.
      block: Outputs of a block; the last block has what is left.

    Returns:
      A function of the parameters, the other variables and a batch: for each of the
      ``k`` blocks the `NORMS` of the gradient by the initial states of all sequences as
      one vector, ``(k, 3)``. It raises a ValueError for a model without a state.

    Raises:
      ValueError: The task has no such blocks.

    Note:
      The authors' code computes figure 5 so. The mean over ``B`` sequences divides the
      gradient of each by ``B``: L1 is the mean over the sequences, L2 falls like ``1 /
      sqrt(B)`` and L-infinity like ``1 / B``. Curves of different batch sizes do not
      compare.

    References:
      Zhang, Lin, Song and Dhillon, `Learning Long Term Dependencies via Fourier
      Recurrent Units <https://arxiv.org/abs/1803.06585>`_, 2018, figure 5
    """
    spec = run.spec
    check_gradient_outputs(spec, block)
    outputs = jnp.arange(spec.d_output)

    @jax.jit
    def measured(params, model_state, batch):
        def predictions(state):
            return _apply(run, params, model_state, batch, state, batch.mask)[0]

        def loss(predictions, first):
            inside = (outputs >= first) & (outputs < first + block)
            counts = jnp.asarray(batch.loss_mask)[:, None] & inside
            error = jnp.where(counts, predictions - batch.targets, 0)
            return jnp.sum(jnp.square(error)) / jnp.maximum(jnp.sum(counts), 1)

        state = _zero_state(run, params, model_state, batch, "gradient_outputs", block)
        # One forward pass serves all blocks.
        found, pull_back = jax.vjp(predictions, state)
        return jax.lax.map(
            lambda first: _norms(pull_back(jax.grad(loss)(found, first)), 1)[0],
            jnp.arange(0, spec.d_output, block),
        )

    return measured


def _apply(run, params, model_state, batch, state, valid):
    variables = {"params": params, **model_state}
    flags = {"reset": batch.reset, "mask": valid}
    return run.model.apply(variables, batch.inputs, state, **flags)


def _zero_state(run, params, model_state, batch, name, value):
    """The state before the first step; ``name`` is the option that asks for it."""
    (_, state) = jax.eval_shape(
        lambda: _apply(run, params, model_state, batch, None, batch.mask)
    )
    if not jax.tree.leaves(state):
        raise ValueError(
            f"`{name}` must be left out for a model that runs in two directions, got "
            f"{value}; it has no initial state."
        )
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), state)


def _norms(tree, rows) -> Float[Array, "b 3"]:
    """The `NORMS` of all leaves together, in so many rows."""
    leaves = [jnp.abs(leaf).reshape(rows, -1) for leaf in jax.tree.leaves(tree)]
    x = jnp.concatenate(leaves, -1)
    l2 = jnp.sqrt(jnp.sum(jnp.square(x), -1))
    return jnp.stack([jnp.sum(x, -1), l2, jnp.max(x, -1)], -1)
