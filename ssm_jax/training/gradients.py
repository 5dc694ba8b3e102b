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
    """Measures the gradient of the loss at given steps by the initial state.

    The loss at step ``t`` is that of the prediction at ``t``. A model with one
    prediction per sequence, or per pair, is evaluated on the first ``t`` steps only, of
    both sequences. Classes are not weighted.

    Args:
      run: The model and its task.
      steps: Step numbers ``t``, ``k`` integers from 1.

    Returns:
      A function of the parameters, the other variables and a batch that returns
      ``(k, 3)``: for each ``t`` the `NORMS` of the gradient of the loss of a sequence
      with respect to its initial state, averaged over the sequences. It raises a
      ValueError for a model without a state.

    Raises:
      ValueError: A step has no target.

    References:
      Zhang, Lin, Song and Dhillon, `Learning Long Term Dependencies via Fourier
      Recurrent Units <https://arxiv.org/abs/1803.06585>`_, 2018, figure 5
    """
    spec = run.spec
    check_gradient_steps(spec, steps)
    places = jnp.arange(spec.length)

    @jax.jit
    def state_gradient_norms(params, model_state, batch):
        rows, mask = len(batch.inputs), jnp.asarray(batch.loss_mask)
        # Of pairs, with an axis for the two sequences.
        shape = batch.inputs.shape[: 3 if spec.pair else 2]

        def loss(state, step):
            # Later steps are masked instead of sliced off: shapes stay static, so that
            # all `t` share one compilation.
            seen = jnp.broadcast_to(places < step, shape)
            seen = seen if batch.mask is None else seen & batch.mask
            counts = mask
            if spec.l_output is not None:
                counts = mask & (places[-spec.l_output :] == step - 1)
            predictions, _ = _apply(run, params, model_state, batch, state, seen)
            found = loss_sums(spec.targets, predictions, batch.targets, counts)["loss"]
            # `rows` times the mean is the sum over rows. Rows are independent, so the
            # gradient by the state of a row is that of its own loss.
            return rows * found.part_of(found)

        state = _zero_state(run, params, model_state, batch, "gradient_steps", steps)
        return jax.lax.map(
            # `map` instead of `vmap`: one backward pass at a time is held in memory.
            lambda step: jnp.mean(_norms(jax.grad(loss)(state, step), rows), 0),
            jnp.asarray(steps),
        )

    return state_gradient_norms


def output_gradients(run: RunSpec, block: int) -> Measure:
    """Measures the gradient of blocks of the last prediction by the initial state.

    The outputs of the prediction after the last step are divided into blocks. The loss
    of a block is the mean squared error of its outputs over the batch.

    Args:
      run: The model and its task.
      block: Number of outputs per block; the last block may be smaller.

    Returns:
      A function of the parameters, the other variables and a batch that returns
      ``(k, 3)``: for each of the ``k`` blocks the `NORMS` of the gradient with respect
      to the initial states of all sequences, taken as one vector. It raises a
      ValueError for a model without a state.

    Raises:
      ValueError: The task has no such blocks.

    Note:
      The authors' code computes figure 5 in this way. The mean over ``B`` sequences
      divides the gradient of each by ``B``: L1 is the mean over the sequences, L2
      decreases like ``1 / sqrt(B)`` and L-infinity like ``1 / B``. Curves measured with
      different batch sizes are therefore not comparable.

    References:
      Zhang, Lin, Song and Dhillon, `Learning Long Term Dependencies via Fourier
      Recurrent Units <https://arxiv.org/abs/1803.06585>`_, 2018, figure 5
    """
    spec = run.spec
    check_gradient_outputs(spec, block)
    outputs = jnp.arange(spec.d_output)

    @jax.jit
    def output_gradient_norms(params, model_state, batch):
        def predictions(state):
            return _apply(run, params, model_state, batch, state, batch.mask)[0]

        def loss(predictions, first):
            inside = (outputs >= first) & (outputs < first + block)
            counts = jnp.asarray(batch.loss_mask)[:, None] & inside
            # `where` instead of a product with the mask: NaN * 0 is NaN.
            error = jnp.where(counts, predictions - batch.targets, 0)
            return jnp.sum(jnp.square(error)) / jnp.maximum(jnp.sum(counts), 1)

        state = _zero_state(run, params, model_state, batch, "gradient_outputs", block)
        # One forward pass serves all blocks.
        found, pull_back = jax.vjp(predictions, state)
        return jax.lax.map(
            # One block at a time: memory does not grow with the number of blocks.
            lambda first: _norms(pull_back(jax.grad(loss)(found, first)), 1)[0],
            jnp.arange(0, spec.d_output, block),
        )

    return output_gradient_norms


def _apply(run, params, model_state, batch, state, valid):
    variables = {"params": params, **model_state}
    flags = {"reset": batch.reset, "mask": valid}
    return run.model.apply(variables, batch.inputs, state, **flags)


def _zero_state(run, params, model_state, batch, name, value):
    """Returns zero states; ``name`` and ``value`` are the option for the error."""
    # Only shapes are needed, so the model is traced and not run.
    (_, state) = jax.eval_shape(
        lambda: _apply(run, params, model_state, batch, None, batch.mask)
    )
    if not jax.tree.leaves(state):
        raise ValueError(
            f"`{name}` must be left out for a bidirectional model, got "
            f"{value}; it has no initial state."
        )
    # Explicit zeros: None, the default, has no leaves to differentiate with respect to.
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), state)


def _norms(tree, rows) -> Float[Array, "b 3"]:
    """The `NORMS` of all leaves together, for each of ``rows`` rows."""
    # The modulus is the same for the gradient and its conjugate, which JAX returns for
    # complex states.
    leaves = [jnp.abs(leaf).reshape(rows, -1) for leaf in jax.tree.leaves(tree)]
    x = jnp.concatenate(leaves, -1)
    l2 = jnp.sqrt(jnp.sum(jnp.square(x), -1))
    return jnp.stack([jnp.sum(x, -1), l2, jnp.max(x, -1)], -1)
