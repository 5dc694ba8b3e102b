"""Gradients of the loss at a step by the initial state, against the definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.config import build
from ssm_jax.models import LastHead, PairHead, RecurrentNetwork, StepHead
from ssm_jax.recurrences import GRU
from ssm_jax.tasks import ArrayTask, Mixture, Shift
from ssm_jax.training import Optimizer, create, train
from ssm_jax.training.measure import (
    NORMS,
    check_gradient_outputs,
    output_gradients,
    state_gradients,
)
from ssm_jax.training.workdir import WorkDir
from tests.bad_inputs import refuses
from tests.tiers import tiered
from tests.training import tiny

SGD = Optimizer(learning_rate=0.1, kind="sgd")


def measured(model, task, places, measure=state_gradients):
    run, state = create(model, task, SGD, seed=0)
    batch = task.batch("validation", 0, 3, seed=0)
    found = measure(run, places)(state.params, state.model_state, batch)
    return found, state.params, batch


def norms(x):
    """L1, L2 and L-infinity of the last axis."""
    return np.stack([np.linalg.norm(x, p, axis=-1) for p in (1, 2, np.inf)], -1)


@pytest.mark.full
@pytest.mark.parametrize("t", tiered([1, 4, 9], (4,)))
def test_one_prediction_is_that_of_the_steps_so_far(t):
    model = RecurrentNetwork(GRU(d_state=4), LastHead(d_output=8))
    (found,), params, batch = measured(model, Mixture(length=9), (t,))

    def loss(state, x, target):
        y, _ = model.apply({"params": params}, x[None, :t], state[None])
        return jnp.mean(jnp.square(y[0] - target))

    of_rows = jax.jit(jax.vmap(jax.grad(loss)))(
        jnp.zeros((3, 4)), batch.inputs, batch.targets
    )
    np.testing.assert_allclose(found, norms(of_rows).mean(0), rtol=1e-4)


@pytest.mark.parametrize("padded", [False, True])
def test_pair_is_that_of_the_steps_so_far_of_both_sequences(padded, tmp_path):
    arrays = {
        "inputs": np.random.default_rng(0).standard_normal((6, 2, 9, 3)),
        "targets": np.arange(6) % 2,
        "split": ["train", "validation"] * 3,
    }
    if padded:
        arrays["lengths"] = [[9, 7], [9, 7], [2, 9], [2, 9], [5, 5], [5, 5]]
    np.savez(tmp_path / "a.npz", **arrays)
    task = ArrayTask(
        file="a.npz",
        data_dir=str(tmp_path),
        length=9,
        inputs="vector",
        d_input=3,
        targets="classification",
        d_output=2,
        pair=True,
    )
    model = build(tiny.model(PairHead(d_output=2, d_hidden=5)))
    (found,), params, batch = measured(model, task, (4,))
    assert (batch.mask is not None) == padded
    mask = batch.mask if padded else np.ones((3, 2, 9), bool)

    @jax.jit
    @jax.grad
    def of_rows(state):
        x, valid = batch.inputs[:, :, :4], mask[:, :, :4]
        y, _ = model.apply({"params": params}, x, state, mask=valid)
        return -jnp.sum(jax.nn.log_softmax(y)[jnp.arange(3), batch.targets])

    state = of_rows(jax.tree.map(jnp.zeros_like, model.initial_state((3, 2))))
    (state,) = jax.tree.leaves(state)
    wanted = norms(np.abs(state).reshape(3, -1)).mean(0)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.full
def test_blocks_of_outputs_are_measured_as_the_authors_do():
    """Of the mean over the batch, by the states of all sequences as one vector."""
    model = RecurrentNetwork(GRU(d_state=4), LastHead(d_output=8))
    found, params, batch = measured(model, Mixture(length=9), 3, output_gradients)

    def losses(state):
        y, _ = model.apply({"params": params}, batch.inputs, state)
        squares = jnp.split(jnp.square(y - batch.targets), (3, 6), axis=1)
        return jnp.stack([jnp.mean(block) for block in squares])

    gradients = jax.jit(jax.jacobian(losses))(jnp.zeros((3, 4)))
    np.testing.assert_allclose(found, norms(gradients.reshape(3, -1)), rtol=1e-4)


@pytest.mark.full
def test_prediction_at_each_step_is_that_of_the_step():
    model = build(tiny.model(StepHead(d_output=2)))
    task = Shift(length=16, n_shifts=2)
    steps = (8 + 1, 16)
    found, params, batch = measured(model, task, steps)

    def losses(state, x, target):
        states = jax.tree.map(lambda leaf: leaf[None], state)
        y, _ = model.apply({"params": params}, x[None], states)
        return jnp.mean(jnp.square(y[0, -task.spec.l_output :] - target), -1)

    zero = jax.tree.map(lambda leaf: jnp.zeros_like(leaf), model.initial_state((3,)))
    for t, given in zip(steps, found, strict=True):
        place = t - 1 - (16 - task.spec.l_output)

        def loss(*row, place=place):
            return losses(*row)[place]

        (state,) = jax.vmap(jax.grad(loss))(zero, batch.inputs, batch.targets)
        of_rows = norms(np.abs(state).reshape(3, -1))
        np.testing.assert_allclose(given, of_rows.mean(0), rtol=1e-4)


@pytest.mark.full
def test_they_are_recorded_from_the_start_and_with_each_evaluation(tmp_path):
    config = tiny.shift(gradient_steps=(16,))
    train(config, str(tmp_path))
    lines = WorkDir(tmp_path).metrics()
    for norm in NORMS:
        name = f"gradient/{norm}/16"
        found = {line["step"]: line[name] for line in lines if name in line}
        assert list(found) == [0, 3, 6, 7]
        assert len(set(found.values())) == 4


@pytest.mark.parametrize("step", [0, 17])
def test_step_without_a_loss_is_an_error_before_there_is_a_folder(step, tmp_path):
    config = tiny.shift(gradient_steps=(step,))
    with refuses("gradient_steps", step, rule="1"):
        train(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("task", "block", "rule"),
    [
        (Mixture(length=9), 9, "from 1 to 8"),
        (Mixture(length=9, target="next"), 2, "None"),
    ],
)
def test_blocks_that_are_not_there_are_refused(task, block, rule):
    with refuses("gradient_outputs", block, rule=rule):
        check_gradient_outputs(task.spec, block)


@pytest.mark.full
def test_model_without_a_state_is_an_error(tmp_path):
    config = tiny.shift(gradient_steps=(9,))
    config.model.block.layer.recurrence.bidirectional = True
    with refuses("gradient_steps"):
        train(config, str(tmp_path))
