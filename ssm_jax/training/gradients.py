"""How far gradients reach: those of the loss at a step, by the state at the start."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from ssm_jax.tasks.base import Batch, TaskSpec
from ssm_jax.training.losses import loss_sums
from ssm_jax.training.state import Run
from ssm_jax.types import Array, Float, PyTree


def check_gradient_steps(spec: TaskSpec, steps: Sequence[int]) -> None:
    """Checks that there is a loss at each of some steps.

    Args:
      spec: The task.
      steps: Numbers of steps, from 1.

    Raises:
      ValueError: A number is beyond the sequence or before its first target.
    """
    first = 1 if spec.l_output is None else spec.length - spec.l_output + 1
    for step in steps:
        if not first <= step <= spec.length:
            raise ValueError(
                f"`gradient_steps` must be from {first} to {spec.length}, the steps "
                f"that have a target, got {step}."
            )


def state_gradients(
    run: Run, steps: Sequence[int]
) -> Callable[[PyTree, PyTree, Batch], Float[Array, " k"]]:
    """Says how much the state before the first step moves the loss at later ones.

    The loss at step ``t`` is that of the prediction made there: by a model of one
    prediction a sequence, of the one it makes of the first ``t`` steps alone.

    Args:
      run: The model and what it learns.
      steps: ``t``, ``k`` numbers from 1.

    Returns:
      A function of the parameters, the other variables and a batch: for each ``t`` the
      Euclidean norm of the gradient of a sequence's loss by its initial state, the mean
      over the sequences, ``(k,)``. It raises a ValueError for a model without a state.

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
        rows, mask = len(batch.inputs), jnp.asarray(batch.mask)

        def apply(state, valid):
            variables = {"params": params, **model_state}
            flags = {"reset": batch.reset, "mask": valid}
            return run.model.apply(variables, batch.inputs, state, **flags)

        def loss(state, step):
            seen = jnp.broadcast_to(places < step, (rows, spec.length))
            seen = seen if batch.valid is None else seen & batch.valid
            counts = mask
            if spec.l_output is not None:
                counts = mask & (places[-spec.l_output :] == step - 1)
            predictions, _ = apply(state, seen)
            sums = loss_sums(spec.targets, predictions, batch.targets, counts)
            return rows * sums["loss"] / jnp.maximum(sums["n"], 1)

        state = jax.eval_shape(apply, None, batch.valid)[1]
        if not jax.tree.leaves(state):
            raise ValueError(
                "`gradient_steps` must be left out for a model that runs in two "
                f"directions, got {tuple(steps)}; it has no initial state."
            )
        state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), state)
        return jax.lax.map(
            lambda step: jnp.mean(_row_norms(jax.grad(loss)(state, step))),
            jnp.asarray(steps),
        )

    return measured


def _row_norms(tree) -> Float[Array, " b"]:
    """Euclidean norm of each row of all leaves together."""
    squares = [
        jnp.sum(jnp.square(jnp.abs(leaf)).reshape(leaf.shape[0], -1), -1)
        for leaf in jax.tree.leaves(tree)
    ]
    return jnp.sqrt(sum(squares[1:], squares[0]))
