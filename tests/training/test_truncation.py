"""Gradients through several windows are those of one long window."""

import dataclasses
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, TokenEncoder
from ssm_jax.recurrences import DLR
from ssm_jax.tasks import TextFolder, n_batches
from ssm_jax.training import Optimizer, TrainConfig, create, train_step
from ssm_jax.training.initial import StateInit, TBPTTWindow, zero_states
from tests.bad_inputs import refuses
from tests.tasks.raw_sets import novels

LENGTH, ROWS, K = 8, 2, 3


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Batches of an epoch and two more, and what training makes of them.

    Nothing is learned; in place of the optimizer's state stands the last gradient.
    """
    folder = tmp_path_factory.mktemp("text")
    novels(folder, 4)
    task = TextFolder(data_dir=str(folder), length=LENGTH)
    layer = RecurrentLayer(DLR(d_state=4, dt_max=0.1), ChannelMixing())
    encoder = TokenEncoder(d_model=4, vocabulary=257)
    model = SequenceModel(encoder, Block(layer, prenorm=True), 1, head=None)
    run, state = create(model, task, Optimizer(learning_rate=0.1), seed=0)
    epoch = n_batches(task, "train", ROWS)
    assert epoch is not None and epoch > K

    def keep(updates, state, params=None):
        return jax.tree.map(jnp.zeros_like, updates), updates

    transform = optax.GradientTransformation(lambda params: params, keep)
    run = dataclasses.replace(
        run, transform=transform, state_init=StateInit(epoch=epoch)
    )
    batches = [task.batch("train", i, ROWS, seed=0) for i in range(epoch + 2)]
    state = state.replace(
        opt_state=transform.init(state.params),
        carry=TBPTTWindow.before(batches[0], zero_states(model, ROWS), K),
    )
    step, found = jax.jit(partial(train_step, run)), []
    for batch in batches:
        state, sums = step(state, batch)
        found.append((sums["loss"].total / sums["loss"].count, state.opt_state))
    return run.model, state.params, batches, found


def long_window(model, params, batches, last):
    """Loss of the last of some batches, and its gradient through ``last`` of them."""
    inputs = np.concatenate([batch.inputs for batch in batches], 1)
    border = inputs.shape[1] - last * LENGTH

    @jax.jit
    @jax.value_and_grad
    def loss(params):
        state = None
        if border:
            _, state = model.apply({"params": params}, inputs[:, :border])
            state = jax.lax.stop_gradient(state)
        logits, _ = model.apply({"params": params}, inputs[:, border:], state)
        loss = optax.softmax_cross_entropy_with_integer_labels(
            logits[:, -LENGTH:], batches[-1].targets
        )
        return jnp.mean(loss)

    return loss(params)


def close(found, wanted):
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    chex.assert_trees_all_close(found[1], wanted[1], rtol=3e-5, atol=3e-6)


@pytest.mark.full
def test_gradient_of_several_windows_is_that_of_a_long_one(steps):
    model, params, batches, found = steps
    wanted = long_window(model, params, batches[: K + 1], K)
    close(found[K], wanted)
    # Through one window less the loss is the same, and its gradient is not.
    loss, shorter = long_window(model, params, batches[: K + 1], K - 1)
    np.testing.assert_allclose(loss, wanted[0], rtol=1e-5)
    missing = optax.tree.norm(optax.tree.sub(wanted[1], shorter))
    assert missing > 1e-3 * optax.tree.norm(wanted[1])


@pytest.mark.full
def test_no_gradient_flows_past_the_beginning_of_an_epoch(steps):
    model, params, batches, found = steps
    wanted = long_window(model, params, batches[:2], 2)
    for first in (0, len(batches) - 2):
        close(found[first + 1], wanted)


def test_windows_want_states_that_go_on():
    for kind in ("zero", "noise", "state_passing"):
        with refuses("gradient_windows", 2, rule="1"):
            TrainConfig(steps=1, batch_size=1, initial_state=kind, gradient_windows=2)
