"""Averages, early stopping, weights of another run, and longer training."""

import dataclasses
import json
import logging
import math
from functools import partial

import chex
import jax
import numpy as np
import optax
import pytest

from ssm_jax.config import build
from ssm_jax.evaluation import restore
from ssm_jax.models import StepHead
from ssm_jax.tasks import Shift
from ssm_jax.training import Optimizer, TrainConfig, create, train, train_step
from ssm_jax.training.checkpointing import Checkpoints
from ssm_jax.training.setup import warm_start
from ssm_jax.training.stopping import evaluations_since_best
from tests.bad_inputs import refuses
from tests.compilation import compilations
from tests.tiers import tiered
from tests.training import tiny
from tests.training.test_loop import Stopping, arrays, lines


@pytest.fixture(scope="module")
def donor(tmp_path_factory):
    """A finished run, whose averages were evaluated."""
    run = tmp_path_factory.mktemp("donor")
    train(tiny.shift(ema=0.9), str(run))
    return run


@pytest.mark.nightly
def test_average_is_that_of_optax():
    task = Shift(length=16, n_shifts=2)
    sgd = Optimizer(learning_rate=0.1, kind="sgd")
    run, state = create(build(tiny.model(StepHead(d_output=2))), task, sgd, seed=0)
    run = dataclasses.replace(run, ema=0.9)
    state = state.replace(ema=state.params)
    theirs = optax.ema(0.9, debias=True)
    of_theirs = theirs.init(state.params)
    step = jax.jit(partial(train_step, run))
    for index in range(3):
        state, _ = step(state, task.batch("train", index, 4, seed=0))
        wanted, of_theirs = theirs.update(state.params, of_theirs)
        chex.assert_trees_all_close(state.ema, wanted, rtol=1e-6, atol=1e-7)


def schedule_free(**training):
    """A run whose optimizer averages its iterates, of parameters in two groups."""
    config = tiny.shift(**training)
    config.optimizer.kind = "optax.contrib:schedule_free_adamw"
    config.optimizer.warmup_steps = 2
    return config


@pytest.mark.parametrize("averaged", tiered(["ema", "schedule_free"], 0, full=1))
def test_average_is_evaluated_and_restored(donor, averaged, tmp_path):
    """The last line of the log is the evaluation of what `restore` returns."""
    if averaged == "schedule_free":
        donor = tmp_path
        with compilations() as counts:
            train(schedule_free(), str(donor))
        assert set(counts.values()) == {1}
    found = restore(donor, "latest")
    saved = arrays(donor, 7)
    kernel = found.variables["params"]["head"]["linear"]["dense"]["kernel"]
    assert kernel.tobytes() == saved["ema/head/linear/dense/kernel"]
    assert kernel.tobytes() != saved["params/head/linear/dense/kernel"]
    errors = []
    apply = jax.jit(found.model.apply)
    for index in range(2):
        batch = found.task.batch("validation", index, 16, found.training.seed)
        predictions, _ = apply(found.variables, batch.inputs)
        errors.append(np.mean(np.square(predictions - batch.targets)[batch.loss_mask]))
    logged = lines(donor)[-1]["validation/loss"]
    assert np.mean(errors) == pytest.approx(logged, rel=1e-5)
    started = warm_start(donor, {"head": found.variables["params"]["head"]}, {})
    best = restore(donor).variables["params"]["head"]
    chex.assert_trees_all_equal(started.params["head"], best)


def test_two_averages_are_refused(tmp_path):
    with refuses("ema", 0.5):
        train(schedule_free(ema=0.5), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


LOSSES = {
    "falls": ([3.0, 2.0, 1.0], 0),
    "rises": ([1.0, 2.0, 3.0], 2),
    "equal is not better": ([1.0, 1.0, 1.0], 2),
    "none": ([], 0),
}


@pytest.mark.parametrize(("losses", "count"), LOSSES.values(), ids=LOSSES.keys())
def test_evaluations_are_counted_after_the_best(losses, count):
    spec = Shift(length=16, n_shifts=2).spec
    found = [{"step": 1, "train/loss": 0.0}]
    for step, loss in enumerate(losses, 1):
        measured = {"validation/r2": -loss, "validation/loss": loss}
        found.append({"step": step, **measured})
    assert evaluations_since_best(found, spec) == count


def still(**training):
    """A run whose parameters do not move: no evaluation is better than the first."""
    config = tiny.shift(evaluate_every=1, log_every=1, **training)
    config.optimizer.update(kind="sgd", learning_rate=1e-30)
    return config


@pytest.mark.nightly
def test_patience_ends_a_run_and_more_of_it_continues(tmp_path):
    run = tmp_path / "run"
    last = train(still(patience=2), str(run))
    assert last["step"] == 3
    assert train(still(patience=2), str(run)) == last
    assert restore(run, "latest").step == 3
    assert train(still(patience=7), str(run))["step"] == 7


@pytest.mark.full
def test_weights_of_the_same_path_and_shape_are_loaded(donor, tmp_path, caplog):
    config = tiny.shift(init_from=str(donor), steps=1, evaluate_every=1)
    config.optimizer.update(kind="sgd", learning_rate=1e-30)
    config.task.n_shifts = config.model.head.d_output = 3
    with caplog.at_level(logging.INFO, "absl"):
        train(config, str(tmp_path))
    theirs, ours = restore(donor).variables, restore(tmp_path, "latest").variables
    head = "head/linear/dense/kernel"
    log = caplog.text
    assert (
        f"skipped, 2 arrays: params/head/linear/dense/bias (2,), params/{head}" in log
    )
    assert f"params/{head} (4, 3)" in log.split("initialized, 2 arrays")[1]
    assert "params/encoder/linear/dense/kernel" in log.split("skipped")[0]
    for tree in (theirs, ours):
        del tree["params"]["head"]
    chex.assert_trees_all_equal(ours, theirs)


def test_run_without_such_weights_or_checkpoints_is_refused(tmp_path):
    with refuses("init_from", rule="checkpoint"):
        train(tiny.shift(init_from=str(tmp_path / "none")), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_the_best_checkpoint_is_loaded_though_the_latest_was_not_evaluated(tmp_path):
    """As after a signal; the better of the evaluated ones is not the later."""
    metrics = ({"validation/r2": 0.5}, {"validation/r2": 0.25}, {"elapsed_s": 1.0})
    with Checkpoints(tmp_path / "checkpoints", best_metric="validation/r2") as saved:
        for step, measured in enumerate(metrics, 1):
            saved.save(step, {"params": {"w": np.full(2, step)}}, measured)
    found = warm_start(tmp_path, {"w": np.zeros(2)}, {})
    assert found.step == 1
    np.testing.assert_array_equal(found.params["w"], [1, 1])


@pytest.mark.nightly
def test_run_of_another_model_is_refused(donor):
    with refuses("init_from", rule="path and shape"):
        warm_start(donor, {"other": np.zeros(3)}, {})


# What is trained, the task that is interrupted, and the batches before which it is.
RUNS = {
    "ema": lambda donor: tiny.shift(ema=0.9, accumulate=2),
    "patience": lambda donor: still(patience=4),
    "init_from": lambda donor: tiny.shift(init_from=str(donor), ema=0.5),
    "schedule_free": lambda donor: schedule_free(),
}


@pytest.mark.parametrize("name", tiered(RUNS, fast=(), full=()))
def test_stopped_run_gives_the_numbers_of_one_that_never_was(
    tmp_path, monkeypatch, donor, name
):
    config = name(donor)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    last = train(config, str(whole))["step"]
    stop = Stopping(monkeypatch, Shift)
    for index in (1, last - 1):
        stop(config, parts, index)
    train(config, str(parts))
    assert lines(parts) == lines(whole)
    assert arrays(parts, last) == arrays(whole, last)


@pytest.mark.nightly
def test_more_steps_continue_a_finished_run(donor, tmp_path):
    """To the state of a run that had as many from the start."""
    train(tiny.shift(ema=0.9, steps=3), str(tmp_path))
    train(tiny.shift(ema=0.9), str(tmp_path))
    assert arrays(tmp_path, 7) == arrays(donor, 7)
    assert json.loads((tmp_path / "config.json").read_text())["training"]["steps"] == 7
    with refuses("steps", 6, rule="at least 7"):
        train(tiny.shift(ema=0.9, steps=6), str(tmp_path))


@pytest.mark.parametrize(
    ("name", "value"),
    [("ema", 0.0), ("ema", 1.0), ("ema", math.nan), ("patience", 0)],
)
def test_number_out_of_range_is_refused(name, value):
    with refuses(name, value):
        TrainConfig(steps=1, batch_size=1, **{name: value})
