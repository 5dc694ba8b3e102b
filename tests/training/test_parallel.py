"""Eight devices take the step that one device takes, under either map."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import numpy as np
import pytest

from ssm_jax.config import build
from ssm_jax.models import StepHead
from ssm_jax.tasks import Shift
from ssm_jax.training import (
    DataParallel,
    Optimizer,
    create,
    evaluation_step,
    train_step,
)
from ssm_jax.training.initial import StateInit, TBPTTWindow
from tests.bad_inputs import refuses
from tests.tiers import tiered
from tests.training import tiny

TASK = Shift(length=16, n_shifts=2)
SGD = Optimizer(learning_rate=0.1, kind="sgd")
BATCH_SIZE, STEPS = 16, 3

each_kind = pytest.mark.parametrize("kind", tiered(["shard_map", "pmap"], full=1))


class Row(NamedTuple):
    """What is trained: its options, and the largest difference of two parameters."""

    optimizer: Optimizer
    norm: str = "layer"
    padded: bool = False
    carried: bool = False
    start: StateInit = StateInit()
    windows: int = 1
    atol: float = 1e-6


ROWS = {
    "padded": Row(SGD, padded=True),
    "carried": Row(SGD, carried=True, norm="scalar", windows=2),
    "state_passing": Row(
        SGD, carried=True, norm="scalar", start=StateInit("state_passing")
    ),
    "batch norm": Row(SGD, norm="batch"),
    # Adam divides by the gradient's own size, so rounding weighs more.
    "adam": Row(Optimizer(learning_rate=1e-3, clip_norm=0.5), atol=1e-5),
}


def batches(padded: bool) -> list[Any]:
    """Batches whose targets are unevenly spread; the last rows have none at all."""
    rng = np.random.default_rng(0)
    share = np.linspace(1, 0, BATCH_SIZE)[:, None]
    lengths = rng.integers(4, 17, (BATCH_SIZE, 1))
    valid = np.arange(16) < lengths if padded else None
    return [
        TASK.batch("train", index, BATCH_SIZE, seed=0)._replace(
            loss_mask=rng.random((BATCH_SIZE, 16)) < share, mask=valid
        )
        for index in range(STEPS)
    ]


@pytest.fixture(scope="module", params=tiered(ROWS, 0, full=("carried",)))
def case(request):
    """A row, its run and first state, and what one device makes of it, unmapped."""
    row = request.param
    model = build(tiny.model(StepHead(d_output=2), norm=row.norm))
    run, start = create(model, TASK, row.optimizer, seed=0)
    run = dataclasses.replace(run, state_init=row.start)
    if row.carried:
        carry = model.initial_state((BATCH_SIZE,))
        if row.windows > 1:
            carry = TBPTTWindow.before(batches(row.padded)[0], carry, row.windows)
        start = start.replace(carry=carry)
    step = jax.jit(partial(train_step, run))
    state, sums = start, []
    for batch in batches(row.padded):
        state, found = step(state, batch)
        sums.append(found)
    return row, run, start, state, sums


@pytest.mark.full
@each_kind
def test_eight_devices_take_the_step_of_one(case, kind):
    row, run, start, wanted, wanted_sums = case
    parallel = DataParallel(kind)
    assert parallel.n_devices == 8
    step = parallel.train_step(run)
    state, sums = parallel.place(start), []
    for batch in batches(row.padded):
        state, found = step(state, parallel.split(batch))
        sums.append(found)
    state = parallel.gather(state)
    chex.assert_trees_all_close(state.params, wanted.params, rtol=0, atol=row.atol)
    chex.assert_trees_all_close(state.model_state, wanted.model_state, rtol=1e-5)
    # States are sums over 48 steps, here up to 17.
    chex.assert_trees_all_close(state.carry, wanted.carry, rtol=0, atol=5e-5)
    chex.assert_trees_all_close(sums, wanted_sums, rtol=1e-5)
    assert state.step == wanted.step
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), start.params, wanted.params)
    assert max(jax.tree.leaves(moved)) > 100 * row.atol


@pytest.fixture(scope="module")
def start():
    run, state = create(build(tiny.model(StepHead(d_output=2))), TASK, SGD, seed=0)
    return run, state.replace(carry=run.model.initial_state((BATCH_SIZE,)))


@pytest.mark.full
@each_kind
@pytest.mark.parametrize("n", tiered([8, 1], full=1))
def test_caller_keeps_the_state_that_he_placed(start, kind, n):
    """Though the step donates what it is given."""
    run, state = start
    before = jax.tree.map(np.array, (state.params, state.opt_state, state.carry))
    parallel = DataParallel(kind, jax.devices()[:n])
    placed = parallel.place(state)
    parallel.train_step(run)(placed, parallel.split(batches(False)[0]))
    assert placed.params["encoder"]["linear"]["dense"]["kernel"].is_deleted()
    chex.assert_trees_all_equal((state.params, state.opt_state, state.carry), before)
    assert jax.random.key_data(state.key).shape == (2,)


@pytest.mark.full
@each_kind
@pytest.mark.parametrize("n", tiered([8, 1], full=1))
def test_gather_undoes_place(start, kind, n):
    _, state = start
    rng = np.random.default_rng(0)
    carry = jax.tree.map(
        lambda leaf: rng.standard_normal(leaf.shape).astype(leaf.dtype), state.carry
    )
    state = state.replace(carry=carry)
    parallel = DataParallel(kind, jax.devices()[:n])
    chex.assert_trees_all_equal(parallel.gather(parallel.place(state)), state)


@pytest.mark.full
@each_kind
def test_evaluation_on_eight_devices_is_that_on_one(start, kind):
    run, state = start
    batch = batches(padded=True)[0]
    wanted, after = jax.jit(partial(evaluation_step, run))(
        state.params, {}, batch, state.carry
    )
    parallel = DataParallel(kind)
    evaluate = parallel.evaluation_step(run)
    carry = parallel.split(state.carry)
    sums, carry = evaluate(state.params, {}, parallel.split(batch), carry)
    chex.assert_trees_all_close(sums, wanted, rtol=1e-6)
    assert sums["loss"].count == 2 * batch.loss_mask.sum()
    after = parallel.split(after)
    chex.assert_trees_all_close(carry, after, rtol=0, atol=5e-5)


@pytest.mark.full
@each_kind
def test_devices_drop_different_channels(kind):
    model = tiny.model(StepHead(d_output=2), dropout=0.5)
    run, state = create(build(model), TASK, SGD, seed=0)
    row = TASK.batch("train", 0, 1, seed=0)
    rows = type(row)(*(v if v is None else np.repeat(v, 8, axis=0) for v in row))

    def loss(batch, devices):
        parallel = DataParallel(kind, devices)
        step = parallel.train_step(run)
        _, sums = step(parallel.place(state), parallel.split(batch))
        return float(sums["loss"].total)

    alone, together = loss(row, jax.devices()[:1]), loss(rows, jax.devices())
    assert abs(together - 8 * alone) > 1e-3 * together


@pytest.mark.full
@each_kind
def test_batch_that_does_not_divide_is_refused(kind):
    parallel = DataParallel(kind)
    with refuses("batch_size", 12, rule="multiple of 8") as refusal:
        parallel.check(12)
    assert "take 8 or 16" in str(refusal.value)
    with refuses("batch_size", 12, rule="multiple of 8"):
        parallel.split(TASK.batch("train", 0, 12, seed=0))
    with refuses("batch_size", 4, rule="multiple of 8") as refusal:
        parallel.check(4, accumulate=2)
    assert "take 16" in str(refusal.value)
    parallel.check(16)
