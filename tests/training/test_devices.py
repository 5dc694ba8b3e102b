"""Dropout, BatchNorm and padding: eight devices take the step of one all the same."""

import dataclasses
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import optax
import pytest
from flax import linen as nn

from ssm_jax.layers import ETSMLP, MLP, Attention, ChannelMixing, RecurrentLayer
from ssm_jax.models import (
    Block,
    PairHead,
    PooledHead,
    SequenceModel,
    StepHead,
    VectorEncoder,
)
from ssm_jax.recurrences import CES, DLR, S5
from ssm_jax.sharding import parameters
from ssm_jax.tasks.base import Batch, TaskSpec
from ssm_jax.training import DataParallel, Optimizer, create, train_step
from ssm_jax.training.initial import StateInit, TBPTTWindow, zero_states
from tests.tiers import tiered

pytestmark = pytest.mark.full  # Eight devices.

ROWS, LENGTH, WIDTH, STEPS = 16, 12, 4, 20
SGD = optax.sgd(0.05, momentum=0.9)
ADAM = optax.adam(1e-3)
DROP = 0.3


class Case(NamedTuple):
    """A model with dropout and BatchNorm, and how it is trained on padded batches."""

    model: nn.Module
    transform: optax.GradientTransformation = SGD
    start: StateInit = StateInit()
    windows: int = 1
    class_weight: Literal["balanced"] | None = None


def model(layer, head, **options):
    around = {"dropout": DROP, "norm": "batch", "prenorm": True, **options}
    return SequenceModel(
        VectorEncoder(WIDTH),
        Block(layer, **around),
        1,
        head,
        normed_encoder=True,
        encoder_dropout=DROP,
    )


CAUSAL = model(
    RecurrentLayer(DLR(d_state=3, eigenvalues="real"), ChannelMixing("glu", DROP)),
    StepHead(2),
)
ATTENTION = model(
    Attention(2, bidirectional=True, dropout=DROP),
    PooledHead(2, d_hidden=4, dropout=DROP),
    feedforward=MLP(4, dropout=DROP),
)
PAIR = model(
    ETSMLP(CES(bidirectional=True), 4, kernel_init="xavier", dropout=DROP),
    PairHead(2, d_hidden=4, dropout=DROP),
    prenorm=False,
)
IRREGULAR = model(
    RecurrentLayer(S5(d_state=4, blocks=1), ChannelMixing("glu", DROP)), StepHead(2)
)
CASES = {
    "carry": Case(CAUSAL, start=StateInit("carry", epoch=8), windows=2),
    "irregular": Case(IRREGULAR, start=StateInit("carry", epoch=8), windows=2),
    "attention": Case(ATTENTION),
    "pair": Case(PAIR),
    "balanced": Case(
        model(RecurrentLayer(DLR(d_state=3), ChannelMixing("glu")), StepHead(3)),
        class_weight="balanced",
    ),
    "adam": Case(model(Attention(2, dropout=DROP), PooledHead(2)), ADAM),
}


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Random sequences of falling lengths: the last rows are padding alone."""

    spec: TaskSpec

    def n_examples(self, split):
        del split

    def batch(self, split, index, batch_size, seed):
        del split
        rng = np.random.default_rng((seed, index))
        lengths = np.linspace(LENGTH, -4, batch_size).round()[:, None]
        valid = np.arange(LENGTH) < lengths
        counts = valid if self.spec.l_output else valid.any(-1)
        targets = rng.normal(size=(*counts.shape, 2)).astype(np.float32)
        if self.spec.targets == "classification":
            # Class 2 is rare: most of eight devices have none of it.
            targets = np.floor(3 * rng.random(counts.shape) ** 8).astype(np.int32)
        if self.spec.pair:
            valid = np.stack([valid, valid & (np.arange(LENGTH) % 3 > 0)], 1)
        inputs = rng.normal(1.0, 2.0, size=(*valid.shape, 3))
        mask = counts & (rng.random(counts.shape) < 0.8)
        dt = None
        if self.spec.irregular:
            dt = rng.uniform(0.2, 3, size=valid.shape).astype(np.float32)
        return Batch(inputs.astype(np.float32), targets, mask, valid, dt=dt)


def task(case):
    model = case.model
    return Ragged(
        TaskSpec(
            length=LENGTH,
            inputs="vector",
            d_input=3,
            targets="classification" if case.class_weight else "regression",
            d_output=model.head.d_output,
            l_output=LENGTH if isinstance(model.head, StepHead) else None,
            pair=isinstance(model.head, PairHead),
            class_weight=case.class_weight,
            irregular=model is IRREGULAR,
        )
    )


def distance(given, wanted):
    """Norm of the difference of two trees, as a part of the norm of the second."""
    given, wanted = (jax.tree.map(np.asarray, tree) for tree in (given, wanted))
    difference = optax.tree.norm(optax.tree.sub(given, wanted))
    return float(difference / optax.tree.norm(wanted))


class Trained(NamedTuple):
    """What is compared; all but the losses by the norms of trees."""

    gradient: Any
    losses: np.ndarray
    params: Any
    moments: Any
    carry: Any


def trained(step, state, batches, gather=lambda state: state):
    losses, first = [], None
    for batch in batches:
        state, sums = step(state, batch)
        losses.append(sums["loss"].compute())
        if first is None:
            # The first moment of either optimizer is a multiple of the gradient.
            first = jax.device_get(state.opt_state[0])
            first = getattr(first, "trace", None) or first.mu
    state = jax.device_get(gather(state))
    carry = state.carry.states if isinstance(state.carry, TBPTTWindow) else state.carry
    return Trained(first, np.array(losses), state.params, state.model_state, carry)


@pytest.fixture(scope="module", params=tiered(CASES, 0, full=("pair", "irregular")))
def case(request):
    """A run, its first state, its batches, and what one device makes of them."""
    case = request.param
    source = task(case)
    run, state = create(case.model, source, Optimizer(learning_rate=1.0), seed=0)
    run = dataclasses.replace(run, transform=case.transform, state_init=case.start)
    batches = [source.batch("train", index, ROWS, seed=0) for index in range(STEPS)]
    carry = None
    if case.model in (CAUSAL, IRREGULAR):
        carry = zero_states(case.model, ROWS)
        if case.windows > 1:
            carry = TBPTTWindow.before(batches[0], carry, case.windows)
    state = state.replace(carry=carry, opt_state=run.transform.init(state.params))
    return (
        run,
        state,
        batches,
        trained(jax.jit(partial(train_step, run)), state, batches),
    )


MAPS = {
    "shard_map": {"kind": "shard_map"},
    "pmap": {"kind": "pmap"},
    "model 2": {"kind": "shard_map", "shards": 2},
    "model 4": {"kind": "shard_map", "shards": 4},
    "model 8": {"kind": "shard_map", "shards": 8},
}


@pytest.mark.parametrize("how", tiered(MAPS, 0, full=("pmap", "model 4")))
def test_eight_devices_take_the_steps_of_one_with_dropout(case, how, monkeypatch):
    run, start, batches, wanted = case
    # Of these models all arrays are small.
    monkeypatch.setattr(parameters, "SMALLEST", 64)
    parallel = DataParallel(**how)
    given = trained(
        parallel.train_step(run),
        parallel.place(start),
        [parallel.split(batch) for batch in batches],
        parallel.gather,
    )
    assert parallel.n_devices == 8
    shardings = jax.tree.leaves(parallel.shardings(start.params))
    n_sharded = sum(not sharding.is_fully_replicated for sharding in shardings)
    # Eight devices divide no axis of some of these models.
    assert n_sharded > 0 or how.get("shards", 1) in (1, 8)
    assert distance(given.gradient, wanted.gradient) < 1e-6
    np.testing.assert_allclose(given.losses[0], wanted.losses[0], rtol=1e-6)
    np.testing.assert_allclose(given.losses, wanted.losses, rtol=1e-4)
    if run.transform is ADAM:  # It divides by the root of what may be rounding alone.
        return
    assert distance(given.params, wanted.params) < 1e-5
    assert distance(given.moments, wanted.moments) < 1e-5
    if start.carry is not None:
        assert distance(given.carry, wanted.carry) < 1e-5
    assert distance(start.params, wanted.params) > 1e-2
