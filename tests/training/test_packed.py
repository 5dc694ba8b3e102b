"""Documents packed into one sequence are as if each stood alone."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import (
    Block,
    RecurrentNetwork,
    SequenceModel,
    StepHead,
    TokenEncoder,
)
from ssm_jax.recurrences import DLR, GRU
from ssm_jax.tasks import TextFolder
from ssm_jax.tasks.base import Batch
from ssm_jax.training import Optimizer, create, evaluation_step, train_step
from ssm_jax.training.measure import state_gradients
from tests.tiers import tiered

LENGTH, VOCABULARY = 24, 257
SGD = Optimizer(learning_rate=0.1, kind="sgd")


def dlr(encoder):
    layer = RecurrentLayer(DLR(d_state=4), ChannelMixing())
    return SequenceModel(encoder, Block(layer), 1, StepHead(VOCABULARY))


def gru(encoder):
    return RecurrentNetwork(GRU(d_state=4), StepHead(VOCABULARY), encoder)


each_model = pytest.mark.parametrize("make", tiered([gru, dlr], 0, full=1))


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for i in range(21):
        (folder / f"{i:02}.txt").write_text("abcdefghijklmnopqrstu"[i] * (5 + i % 5))
    return TextFolder(data_dir=str(folder), length=LENGTH, layout="packed")


@pytest.fixture(scope="module")
def batch(task) -> Batch:
    batch = task.batch("train", 0, 2, seed=0)
    assert batch.reset.sum() >= 3
    return batch


def alone(batch):
    """Each document as a row of its own, padded, and which targets are its own."""
    rows = []
    for inputs, targets, reset in zip(*batch[:2], batch.reset, strict=True):
        borders = [0, *np.flatnonzero(reset[1:]) + 1, LENGTH]
        for a, b in zip(borders[:-1], borders[1:], strict=True):
            padded = (np.pad(v[a:b], (0, LENGTH - b + a)) for v in (inputs, targets))
            rows.append((*padded, np.arange(LENGTH) < b - a))
    return Batch(*map(np.stack, zip(*rows, strict=True)))


@each_model
def test_steps_see_each_document_alone(make, task, batch):
    model = make(TokenEncoder(d_model=4, vocabulary=VOCABULARY))
    run, state = create(model, task, SGD, seed=0)
    evaluate = jax.jit(partial(evaluation_step, run, state.params, {}))
    wanted = evaluate(alone(batch))[0]["loss"].total
    _, trained = jax.jit(partial(train_step, run))(state, batch)
    for sums in (trained, evaluate(batch)[0]):
        np.testing.assert_allclose(sums["loss"].total, wanted, rtol=1e-5)
    careless = evaluate(batch._replace(reset=None))[0]["loss"].total
    assert abs(careless - wanted) > 1e-4 * wanted


@pytest.mark.full
def test_initial_state_moves_only_the_document_that_it_enters(task):
    run, state = create(gru(TokenEncoder(4, VOCABULARY)), task, SGD, seed=0)
    batch = task.batch("train", 0, 1, seed=0)
    reset = np.arange(LENGTH)[None] == 16
    found = state_gradients(run, (16, 17))(
        state.params, {}, batch._replace(reset=jnp.asarray(reset))
    )
    assert np.all(found[0] > 0)
    assert not np.any(found[1])
