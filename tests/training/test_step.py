"""One step on one device: what it goes along, carries on and leaves alone."""

import dataclasses
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ssm_jax.config import build
from ssm_jax.models import (
    LastHead,
    PooledHead,
    RecurrentNetwork,
    StepHead,
    TokenEncoder,
)
from ssm_jax.recurrences import RNN
from ssm_jax.tasks import Digits, GroupWords, Mixture, Shift
from ssm_jax.tasks.base import Batch
from ssm_jax.training import Optimizer, create, evaluation_step, loss_sums, train_step
from ssm_jax.training.losses import largest_modulus, metrics
from ssm_jax.training.parallel import DataParallel
from tests.bad_inputs import refuses
from tests.tiers import tiered
from tests.training import tiny

TASK = Shift(length=16, n_shifts=2)
SGD = Optimizer(learning_rate=0.1, kind="sgd")


@pytest.fixture(scope="module")
def start():
    """A run of plain SGD and its first state."""
    return create(build(tiny.model(StepHead(d_output=2))), TASK, SGD, seed=0)


@pytest.fixture(scope="module")
def step(start):
    return jax.jit(partial(train_step, start[0]))


@pytest.fixture(scope="module")
def noisy():
    """A run with dropout and BatchNorm, its step and its first state."""
    model = tiny.model(PooledHead(d_output=10), norm="batch", dropout=0.5)
    run, state = create(build(model), Digits(), SGD, seed=0)
    return run, jax.jit(partial(train_step, run)), state


@pytest.fixture(scope="module")
def batch():
    batch = TASK.batch("train", 0, 4, seed=0)
    mask = np.random.default_rng(0).random(batch.loss_mask.shape) < 0.6
    return batch._replace(loss_mask=mask)


@pytest.mark.full
def test_step_goes_along_the_gradient_of_the_mean_loss(start, step, batch):
    run, state = start

    @jax.jit
    @jax.value_and_grad
    def mean_loss(params):
        y, _ = run.model.apply({"params": params}, batch.inputs)
        return jnp.mean(jnp.square(y - batch.targets)[np.nonzero(batch.loss_mask)])

    loss, gradient = mean_loss(state.params)
    after, sums = step(state, batch)
    wanted = jax.tree.map(lambda p, g: p - 0.1 * g, state.params, gradient)
    chex.assert_trees_all_close(after.params, wanted, rtol=1e-5, atol=1e-6)
    assert sums["loss"].compute() == pytest.approx(float(loss), rel=1e-5)
    assert sums["loss"].count == 2 * batch.loss_mask.sum()
    assert (after.step, after.carry) == (1, None)


def test_batch_without_targets_changes_no_parameter(start, step, batch):
    _, state = start
    after, sums = step(state, batch._replace(loss_mask=np.zeros_like(batch.loss_mask)))
    chex.assert_trees_all_equal(after.params, state.params)
    assert sums["loss"].total == sums["loss"].count == 0


@pytest.mark.full
def test_halves_of_a_sequence_carry_on_as_the_whole(start, batch):
    run, state = start
    run = dataclasses.replace(run, transform=optax.set_to_zero())
    state = state.replace(
        opt_state=run.transform.init(state.params), carry=run.model.initial_state((4,))
    )
    variables = {"params": state.params}
    y, last = jax.jit(run.model.apply)(variables, batch.inputs)
    whole = loss_sums("regression", y, batch.targets, batch.loss_mask)

    step = jax.jit(partial(train_step, run))
    left, right = (
        Batch(batch.inputs[:, half], batch.targets[:, half], batch.loss_mask[:, half])
        for half in (slice(0, 8), slice(8, 16))
    )
    middle, first = step(state, left)
    end, second = step(middle, right)
    chex.assert_trees_all_close(end.carry, last, rtol=1e-5, atol=1e-6)
    both = {name: first[name].merge(second[name]) for name in whole}
    chex.assert_trees_all_close(both, whole, rtol=1e-5)
    _, fresh = step(state, right)
    carried = second["loss"].total
    assert abs(fresh["loss"].total - carried) > 1e-3 * carried


@pytest.mark.full
def test_dropout_is_a_function_of_seed_and_step(noisy):
    _, step, state = noisy
    batch = Digits().batch("train", 0, 8, seed=0)

    def loss(state):
        return float(step(state, batch)[1]["loss"].total)

    assert loss(state) == loss(state)
    assert loss(state) != loss(state.replace(step=state.step + 1))
    assert loss(state) != loss(state.replace(key=jax.random.key(5)))


@pytest.mark.full
def test_training_moves_the_running_moments_that_evaluation_uses(noisy):
    run, step, state = noisy
    batch = Digits().batch("train", 0, 8, seed=0)
    after, _ = step(state, batch)
    for before, moved in zip(
        jax.tree.leaves(state.model_state),
        jax.tree.leaves(after.model_state),
        strict=True,
    ):
        assert not np.array_equal(before, moved)
    evaluate = jax.jit(partial(evaluation_step, run, state.params))
    before, moved = (
        evaluate(s.model_state, batch)[0]["loss"].total for s in (state, after)
    )
    assert before != moved


@pytest.mark.full
def test_evaluation_is_the_model_without_dropout(noisy):
    run, _, state = noisy
    batch = Digits().batch("validation", 9, 16, seed=0)  # 6 of the 16 rows count
    variables = {"params": state.params, **state.model_state}
    logits, _ = jax.jit(run.model.apply)(variables, batch.inputs)
    wanted = loss_sums("classification", logits, batch.targets, batch.loss_mask)
    evaluate = jax.jit(partial(evaluation_step, run))
    sums, _ = evaluate(state.params, state.model_state, batch)
    found = {name: sums[name] for name in wanted}
    chex.assert_trees_all_close(found, wanted, rtol=1e-6)
    assert sums["loss"].count == 6


def test_seed_draws_the_parameters(start):
    _, state = start
    model = build(tiny.model(StepHead(d_output=2)))
    _, same = create(model, TASK, SGD, seed=0)
    _, other = create(model, TASK, SGD, seed=1)
    chex.assert_trees_all_equal(same.params, state.params)
    weights = (s.params["head"]["linear"]["dense"]["kernel"] for s in (state, other))
    assert not np.allclose(*weights)


@pytest.mark.parametrize(
    "head",
    tiered(
        {
            "width": StepHead(d_output=3),
            "length": StepHead(d_output=2, l_output=4),
            "pooled": PooledHead(d_output=2),
        }
    ),
)
def test_model_that_does_not_fit_the_task_is_refused(head):
    with refuses("model", rule="(1, 16, 2)"):
        create(build(tiny.model(head)), TASK, SGD, seed=0)


def test_encoder_with_fewer_tokens_than_the_task_is_refused():
    """It gives NaN for the others."""
    model = build(tiny.model(StepHead(d_output=60)))
    model = model.clone(encoder=TokenEncoder(d_model=4, vocabulary=3))
    with refuses("model.encoder.vocabulary", 3, rule="61"):
        create(model, GroupWords(group="A5"), SGD, seed=0)


@pytest.mark.full
@pytest.mark.parametrize(
    ("scale", "fallbacks"), [pytest.param(0.3, 0, marks=pytest.mark.nightly), (200, 1)]
)
def test_solver_iterations_and_fallbacks_are_among_the_metrics(scale, fallbacks):
    task = Mixture(length=96, n_train=8)
    model = RecurrentNetwork(RNN(d_state=4), LastHead(d_output=95), method="chunked")
    run, state = create(model, task, SGD, seed=0)
    params = jax.tree.map(lambda leaf: scale * leaf, state.params)
    _, sums = jax.jit(partial(train_step, run))(
        state.replace(params=params), task.batch("train", 0, 4, seed=0)
    )
    seen = metrics(sums)
    assert seen["solver_fallbacks"] == fallbacks
    # Where they do not converge, they end before the 50 that are allowed.
    assert 1 <= seen["solver_iterations"] < 50


@pytest.mark.full
def test_solver_statistics_are_reduced_over_devices():
    task = Mixture(length=96, n_train=8)
    model = RecurrentNetwork(RNN(d_state=4), LastHead(d_output=95), method="chunked")
    batch = task.batch("train", 0, 4, seed=0)
    seen = []
    for kind, n in (("pmap", 1), ("pmap", 2), ("shard_map", 2)):
        run, state = create(model, task, SGD, seed=0)
        parallel = DataParallel(kind, jax.local_devices()[:n])
        _, sums = parallel.train_step(run)(parallel.place(state), parallel.split(batch))
        seen.append(metrics(sums))
    chex.assert_trees_all_close(seen[0], seen[1], rtol=1e-4, atol=1.1)
    chex.assert_trees_all_close(seen[1], seen[2], rtol=1e-4)


@pytest.mark.full
def test_gradient_and_states_are_measured(start, batch):
    run, state = start
    state = state.replace(carry=run.model.initial_state((4,)))
    after, sums = jax.jit(partial(train_step, run))(state, batch)
    moved = jax.tree.map(lambda a, b: (a - b) / 0.1, state.params, after.params)
    seen = metrics(jax.tree.map(lambda a: 2 * a, sums))  # of two such steps
    np.testing.assert_allclose(seen["gradient_norm"], optax.tree.norm(moved), 1e-4)
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(after.carry))
    np.testing.assert_allclose(seen["largest_state"], largest, 1e-6)
    decays = state.params["block_0"]["layer"]["recurrent"]["recurrence"]["sqrt_decay"]
    modulus = np.exp(-np.min(np.square(decays)))
    found = largest_modulus(run.model, state.params)
    np.testing.assert_allclose(found, modulus, 1e-6)


@pytest.mark.full
@pytest.mark.parametrize("n_devices", tiered([2, 1], full=1))
def test_penalty_adds_the_mean_square_of_the_states(start, batch, n_devices):
    run, state = start
    penalized = dataclasses.replace(run, state_penalty=0.3)
    parallel = DataParallel("pmap", jax.local_devices()[:n_devices])
    taken = parallel.train_step(penalized)(parallel.place(state), parallel.split(batch))

    @jax.jit
    @jax.grad
    def loss(params):
        y, after = run.model.apply({"params": params}, batch.inputs)
        errors = jnp.square(y - batch.targets)[np.nonzero(batch.loss_mask)]
        states = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(after)])
        return jnp.mean(errors) + 0.3 * jnp.mean(jnp.square(jnp.abs(states)))

    wanted = jax.tree.map(lambda p, g: p - 0.1 * g, state.params, loss(state.params))
    chex.assert_trees_all_close(taken[0].params, wanted, rtol=1e-4, atol=1e-6)
    shown = metrics(taken[1])["loss"]
    plain = parallel.train_step(run)(parallel.place(state), parallel.split(batch))
    np.testing.assert_allclose(shown, metrics(plain[1])["loss"], rtol=1e-6)
