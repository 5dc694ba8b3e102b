"""Gradients of parts of a batch add up to the step of the whole batch."""

import dataclasses
from functools import partial

import chex
import jax
import numpy as np
import pytest

from ssm_jax.config import build
from ssm_jax.models import PooledHead, StepHead
from ssm_jax.sharding import parameters
from ssm_jax.tasks import Digits, Shift
from ssm_jax.training import DataParallel, Optimizer, TrainConfig, create, train_step
from ssm_jax.training.initial import StateInit, TBPTTWindow
from ssm_jax.training.losses import metrics
from tests.bad_inputs import refuses
from tests.tiers import tiered
from tests.training import tiny

TASK = Shift(length=16, n_shifts=2)
SGD = Optimizer(learning_rate=0.1, kind="sgd")


def batches():
    """Two batches whose targets are unevenly spread; the last row has none."""
    rng = np.random.default_rng(0)
    share = np.linspace(1, 0, 8)[:, None]
    return [
        TASK.batch("train", index, 8, seed=0)._replace(
            loss_mask=rng.random((8, 16)) < share
        )
        for index in range(2)
    ]


def start(kind="zero", windows=1, **fields):
    """A run with dropout and its first state."""
    model = build(tiny.model(StepHead(d_output=2), dropout=0.3))
    run, state = create(model, TASK, SGD, seed=0)
    run = dataclasses.replace(run, state_init=StateInit(kind), **fields)
    if kind != "zero":
        carry = model.initial_state((8,))
        if windows > 1:
            carry = TBPTTWindow.before(batches()[0], carry, windows)
        state = state.replace(carry=carry)
    return run, state


CASES = {
    "dropout": start,
    "penalty": partial(start, "state_passing", state_penalty=0.3),
    "windows": partial(start, "carry", windows=2),
    "noise": partial(start, "noise"),
}


@pytest.mark.parametrize("begin", tiered(CASES, fast=(), full=("dropout",)))
def test_four_parts_take_the_step_of_the_whole(begin):
    run, state = begin()
    whole, parts = (
        jax.jit(partial(train_step, dataclasses.replace(run, accumulate=k)))
        for k in (1, 4)
    )
    wanted, found = state, state
    for batch in batches():
        wanted, wanted_sums = whole(wanted, batch)
        found, sums = parts(found, batch)
        chex.assert_trees_all_close(found.params, wanted.params, rtol=0, atol=1e-6)
        chex.assert_trees_all_close(found.carry, wanted.carry, rtol=1e-5, atol=1e-5)
        chex.assert_trees_all_close(metrics(sums), metrics(wanted_sums), rtol=1e-5)
    assert sums["loss"].count == 2 * batch.loss_mask.sum()


@pytest.mark.nightly
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("kind", ["shard_map", "pmap"])
def test_parts_of_two_devices_take_the_step_of_one(kind, shards, monkeypatch):
    if kind == "pmap" and shards > 1:
        pytest.skip("`pmap` shards no parameters.")
    monkeypatch.setattr(parameters, "SMALLEST", 64)
    run, state = start("state_passing")
    batch = batches()[0]
    wanted, wanted_sums = jax.jit(partial(train_step, run))(state, batch)
    parallel = DataParallel(kind, jax.local_devices()[:2], shards=shards)
    step = parallel.train_step(dataclasses.replace(run, accumulate=2))
    found, sums = step(parallel.place(state), parallel.split(batch))
    found = parallel.gather(found)
    chex.assert_trees_all_close(found.params, wanted.params, rtol=0, atol=1e-6)
    chex.assert_trees_all_close(found.carry, wanted.carry, rtol=1e-5, atol=1e-5)
    chex.assert_trees_all_close(metrics(sums), metrics(wanted_sums), rtol=1e-5)


@pytest.mark.nightly
def test_batch_norm_takes_the_moments_of_each_part():
    """Its running moments are those after two steps on the two halves."""
    model = build(tiny.model(PooledHead(d_output=10), norm="batch"))
    run, state = create(model, Digits(), SGD, seed=0)
    batch = Digits().batch("train", 0, 8, seed=0)
    split = dataclasses.replace(run, accumulate=2)
    after, _ = jax.jit(partial(train_step, split))(state, batch)
    step, wanted = jax.jit(partial(train_step, run)), state
    for half in (slice(0, 4), slice(4, 8)):
        part = jax.tree.map(lambda x, half=half: x[half], batch)
        moved, _ = step(wanted.replace(params=state.params), part)
        wanted = wanted.replace(model_state=moved.model_state)
    chex.assert_trees_all_close(after.model_state, wanted.model_state, rtol=1e-5)


@pytest.mark.nightly
def test_parts_take_less_memory():
    run, state = create(build(tiny.model(StepHead(d_output=2))), TASK, SGD, seed=0)
    batch = TASK.batch("train", 0, 64, seed=0)

    def temporary(k):
        step = jax.jit(partial(train_step, dataclasses.replace(run, accumulate=k)))
        compiled = step.lower(state, batch).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary(8) < 0.5 * temporary(1)


def test_number_that_does_not_divide_the_rows_is_refused():
    with refuses("accumulate", 3, rule="divide 16"):
        DataParallel("pmap", jax.local_devices()[:1]).check(16, 3)
    with refuses("accumulate", 0):
        TrainConfig(steps=1, batch_size=1, accumulate=0)
