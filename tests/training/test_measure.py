"""Metrics of a split, sown metrics, gradient norms and averages over steps."""

import dataclasses
import json
import math
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from absl import logging
from flax import linen as nn

from ssm_jax import plots
from ssm_jax.cli import report
from ssm_jax.config import build
from ssm_jax.evaluation import evaluate_run, trivial_baseline
from ssm_jax.metrics import METRICS_COLLECTION, R2, Max, Mean, Skill, sown_metrics
from ssm_jax.models import LastHead, PairHead, RecurrentNetwork, StepHead, VectorEncoder
from ssm_jax.recurrences import GRU
from ssm_jax.tasks import ArrayTask, Mixture, Shift
from ssm_jax.training import Optimizer, WorkDir, create, loop, setup, train
from ssm_jax.training.checkpointing import integrity
from ssm_jax.training.checkpointing.leaves import named_leaves
from ssm_jax.training.measure import (
    NORMS,
    check_gradient_outputs,
    evaluate,
    output_gradients,
    stack_steps,
    state_gradients,
    total,
    unstack_steps,
)
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import RunSpec
from ssm_jax.training.step import _with_sown
from ssm_jax.training.stopping import best_step, evaluations_since_best
from tests.bad_inputs import refuses
from tests.metrics.references import auc
from tests.tiers import tiered
from tests.training import tiny


class Scores(nn.Module):
    """Each input, or the largest, as the logit of class 1, shifted and scaled."""

    per_step: bool

    @nn.compact
    def __call__(self, inputs, state=None, **_):
        scores = np.float32(0.01) * inputs[..., 0] - np.float32(4.6)
        scores = scores if self.per_step else jnp.max(scores, axis=1)
        return jnp.stack([0 * scores, scores], -1), state


def evaluate_in_batches(task, parallel, **options):
    """The metrics of the validation split in padded batches of 16."""
    model = Scores(per_step=task.per_step)
    run = RunSpec(model, task.spec, transform=optax.identity(), summary=())
    options = {"split": "validation", **options}
    size = {"batch_size": 16, "limit": None, "seed": 0}
    step = parallel.evaluation_step(run)
    return evaluate(step, parallel, task, {}, {}, **size, **options)


PARALLEL = {
    "one device": {"kind": "jit"},
    "pmap": {"kind": "pmap"},
    "shard_map": {"kind": "shard_map"},
    # Each step has a target.
    "length": {"kind": "shard_map", "pieces": 2},
}


@pytest.mark.parametrize("how", tiered(PARALLEL))
def test_auc_of_a_split_is_that_of_all_pairs(how):
    task = tiny.Noise(n=100, per_step="pieces" in how)
    result = evaluate_in_batches(task, DataParallel(**how))
    whole = task.batch("validation", 0, 100, 0)
    scores = 0.01 * whole.inputs[..., 0] - 4.6
    scores = scores if task.per_step else scores.max(1)
    expected = auc(scores.astype(np.float32).ravel(), whole.targets.ravel())
    assert 0.6 < result["auc"] == pytest.approx(expected, abs=1e-4)


def test_evaluation_of_nan_is_refused_by_metric_and_count():
    task = tiny.Noise(n_nan=3, per_step=True)
    parallel = DataParallel("jit")
    with refuses("loss", error=FloatingPointError) as refusal:
        evaluate_in_batches(task, parallel, split="test")
    for part in ("`accuracy`, `auc`", "24 of 400 targets", "test split"):
        assert part in str(refusal.value)
    result = evaluate_in_batches(task, parallel, split="test", allow_nan=True)
    assert all(map(math.isnan, result.values())), result


def test_target_that_is_no_class_is_refused_before_it_is_on_a_device():
    task = tiny.Noise(classes=(0, 2))
    with refuses("targets", "got 2 at [", rule="from 0 to 1"):
        DataParallel("jit").batch(task, "train", 0, 8, 0)


@pytest.mark.full
def test_metric_that_is_not_defined_is_null(tmp_path, monkeypatch):
    """In the log, in the checkpoint, after a restart, in evaluation and figures."""
    warned = []
    monkeypatch.setattr(logging, "warning", lambda text, *of: warned.append(text % of))
    config = tiny.noise({"classes": (1,)}, steps=4, log_every=1, evaluate_every=2)
    train(config, str(tmp_path), writers=["tensorboard"])
    lines = WorkDir(tmp_path).metrics()
    assert '"train/auc": null' in (tmp_path / "metrics.jsonl").read_text()
    assert [line["train/auc"] for line in lines] == [None] * 4
    validation = [line for line in lines if "validation/loss" in line]
    assert [line["validation/auc"] for line in validation] == [None] * 2
    record = integrity.read_record(tmp_path / "checkpoints" / "4")
    assert record["metrics"]["validation/auc"] is None
    # Each name once; the log warns of other things, too.
    assert sorted(x.split(",")[0] for x in warned if "null" in x) == [
        "`train/auc` is null",
        "`validation/auc` is null",
    ]
    config.training.steps = 6
    train(config, str(tmp_path))
    lines = WorkDir(tmp_path).metrics()
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    result = evaluate_run(tmp_path, packages=["tests"])
    assert result["auc"] is None and result["baseline"]["auc"] is None
    assert json.loads((tmp_path / "evaluation.json").read_text())["auc"] is None
    assert report.row_of(WorkDir(tmp_path))["value"] == result["accuracy"]
    assert plots.curves(lines, "auc", "noise").axes


@pytest.mark.full
def test_evaluation_of_a_run_with_nan_predictions_is_refused(tmp_path):
    config = tiny.noise({"n_nan": 2}, steps=1)
    train(config, str(tmp_path))
    assert evaluate_run(tmp_path, split="validation", packages=["tests"])["auc"] > 0
    with refuses("loss", error=FloatingPointError) as refusal:
        evaluate_run(tmp_path, packages=["tests"])
    assert "`auc`" in str(refusal.value) and "2 of 50 targets" in str(refusal.value)


def test_baseline_of_both_classes_has_the_auc_of_equal_scores():
    options = {"batch_size": 16, "limit": None, "seed": 0}
    assert trivial_baseline(tiny.Noise(), "test", **options)["auc"] == 0.5


def test_null_is_no_better_than_any_other_evaluation():
    name = "validation/accuracy"
    values = [None, 0.25, None, 0.25]
    lines = [{"step": i, name: value} for i, value in enumerate(values)]
    assert best_step(lines) == 3
    assert evaluations_since_best(lines, tiny.Noise().spec) == 2
    assert best_step(lines[:1]) is None


def test_initial_state_is_the_best_unless_another_is_much_better():
    name = "validation/skill_low"
    lines = [{"step": i, name: value} for i, value in enumerate([0.0, 0.015, 0.018])]
    spec = dataclasses.replace(Shift(length=8, n_shifts=2).spec, loss="absolute")
    assert best_step(lines) == 0 and evaluations_since_best(lines, spec) == 2
    lines.append({"step": 3, name: 0.021})
    assert best_step(lines) == 3 and evaluations_since_best(lines, spec) == 0


def test_low_skill_is_less_by_two_standard_errors_over_batches():
    errors, references = [1.0, 2.0, 1.5], [2.0, 2.5, 4.0]
    pairs = zip(errors, references, strict=True)
    batches = [{"skill": Skill(*pair)} for pair in pairs]
    gains = np.array(references) - errors
    low = (gains.sum() - 2 * np.sqrt(3) * gains.std(ddof=1)) / 8.5
    assert total(batches)["skill_low"].compute() == pytest.approx(low)
    # Of one batch there is no standard error.
    assert total(batches[:1])["skill_low"].compute() == 0.0
    assert total([{"skill": Skill(3.0, 2.0)}])["skill_low"].compute() == -0.5
    assert total([{"skill": Skill(0.0, 0.0)}])["skill_low"].compute() == 0.0


SGD = Optimizer(learning_rate=0.1, kind="sgd")


def norms_of_model(model, task, places, measure=state_gradients):
    run, state = create(model, task, SGD, seed=0)
    batch = task.batch("validation", 0, 3, seed=0)
    result = measure(run, places)(state.params, state.model_state, batch)
    return result, state.params, batch


def norms(x):
    """L1, L2 and L-infinity of the last axis."""
    return np.stack([np.linalg.norm(x, p, axis=-1) for p in (1, 2, np.inf)], -1)


@pytest.mark.full
@pytest.mark.parametrize("t", tiered([1, 4, 9], (4,), full=(4,)))
def test_one_prediction_is_that_of_the_steps_so_far(t):
    model = RecurrentNetwork(GRU(d_state=4), LastHead(d_output=8))
    (result,), params, batch = norms_of_model(model, Mixture(length=9), (t,))

    def loss(state, x, target):
        y, _ = model.apply({"params": params}, x[None, :t], state[None])
        return jnp.mean(jnp.square(y[0] - target))

    gradients = jax.jit(jax.vmap(jax.grad(loss)))(
        jnp.zeros((3, 4)), batch.inputs, batch.targets
    )
    np.testing.assert_allclose(result, norms(gradients).mean(0), rtol=1e-4)


@pytest.mark.parametrize("padded", tiered([False, True], 0, full=(True,)))
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
    (result,), params, batch = norms_of_model(model, task, (4,))
    assert (batch.mask is not None) == padded
    mask = batch.mask if padded else np.ones((3, 2, 9), bool)

    @jax.jit
    @jax.grad
    def loss_gradient(state):
        x, valid = batch.inputs[:, :, :4], mask[:, :, :4]
        y, _ = model.apply({"params": params}, x, state, mask=valid)
        return -jnp.sum(jax.nn.log_softmax(y)[jnp.arange(3), batch.targets])

    state = loss_gradient(jax.tree.map(jnp.zeros_like, model.initial_state((3, 2))))
    (state,) = jax.tree.leaves(state)
    expected = norms(np.abs(state).reshape(3, -1)).mean(0)
    np.testing.assert_allclose(result, expected, rtol=1e-4)


@pytest.mark.full
def test_blocks_of_outputs_are_measured_as_the_authors_do():
    """Of the mean over the batch, by the states of all sequences as one vector."""
    model = RecurrentNetwork(GRU(d_state=4), LastHead(d_output=8))
    result, params, batch = norms_of_model(
        model, Mixture(length=9), 3, output_gradients
    )

    def losses(state):
        y, _ = model.apply({"params": params}, batch.inputs, state)
        squares = jnp.split(jnp.square(y - batch.targets), (3, 6), axis=1)
        return jnp.stack([jnp.mean(block) for block in squares])

    gradients = jax.jit(jax.jacobian(losses))(jnp.zeros((3, 4)))
    np.testing.assert_allclose(result, norms(gradients.reshape(3, -1)), rtol=1e-4)


@pytest.mark.full
def test_prediction_at_each_step_is_that_of_the_step():
    model = build(tiny.model(StepHead(d_output=2)))
    task = Shift(length=16, n_shifts=2)
    steps = (8 + 1, 16)
    results, params, batch = norms_of_model(model, task, steps)

    def losses(state, x, target):
        states = jax.tree.map(lambda leaf: leaf[None], state)
        y, _ = model.apply({"params": params}, x[None], states)
        return jnp.mean(jnp.square(y[0, -task.spec.l_output :] - target), -1)

    zero = jax.tree.map(lambda leaf: jnp.zeros_like(leaf), model.initial_state((3,)))
    for t, result in zip(steps, results, strict=True):
        place = t - 1 - (16 - task.spec.l_output)

        def loss(*row, place=place):
            return losses(*row)[place]

        (state,) = jax.vmap(jax.grad(loss))(zero, batch.inputs, batch.targets)
        row_norms = norms(np.abs(state).reshape(3, -1))
        np.testing.assert_allclose(result, row_norms.mean(0), rtol=1e-4)


@pytest.mark.full
def test_they_are_recorded_from_the_start_and_with_each_evaluation(tmp_path):
    config = tiny.shift(gradient_steps=(16,))
    train(config, str(tmp_path))
    lines = WorkDir(tmp_path).metrics()
    for norm in NORMS:
        name = f"gradient/{norm}/16"
        by_step = {line["step"]: line[name] for line in lines if name in line}
        assert list(by_step) == [0, 3, 6, 7]
        assert len(set(by_step.values())) == 4


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


class Sowing(VectorEncoder):
    """An encoder that measures its input, one line for each number."""

    def __call__(self, inputs, *args, **kwargs):
        self.sow(METRICS_COLLECTION, "input_mean", Mean(jnp.sum(inputs), inputs.size))
        self.sow(METRICS_COLLECTION, "input_max", Max(inputs))
        return super().__call__(inputs, *args, **kwargs)


@pytest.mark.parametrize("n_devices", tiered([1, 8], 0, full=(8,)))
def test_sown_numbers_reach_the_log(tmp_path, monkeypatch, n_devices):
    def with_sowing(config, path, **runtime):
        built = build(config, path, **runtime)
        return built.clone(encoder=Sowing(d_model=4)) if "model" in path else built

    parallel = partial(DataParallel, devices=jax.devices()[:n_devices])
    monkeypatch.setattr(setup, "build", with_sowing)
    monkeypatch.setattr(setup, "DataParallel", parallel)
    config = tiny.shift(steps=2, log_every=2)
    loop.train(config, str(tmp_path))
    (line,) = WorkDir(tmp_path).metrics()
    task = build(config.task, "config.task")
    inputs = np.stack([task.batch("train", i, 16, 0).inputs for i in range(2)])
    np.testing.assert_allclose(line["train/input_mean"], inputs.mean(), atol=1e-6)
    assert line["train/input_max"] == inputs.max()
    validation = [task.batch("validation", i, 16, 0).inputs for i in range(2)]
    assert line["validation/input_max"] == np.max(validation)


class Layers(nn.Module):
    """Two layers that sow under one name, and a plain number."""

    def setup(self):
        self.layers = [Sowing(d_model=2), Sowing(d_model=2)]

    def __call__(self, x):
        for scale, layer in zip((1, 3), self.layers, strict=True):
            layer(scale * x)
        self.sow(METRICS_COLLECTION, "plain", 5.0)


def test_numbers_of_several_layers_are_reduced():
    x = jnp.arange(6.0).reshape(1, 3, 2)
    _, sown = Layers().init_with_output(jax.random.key(0), x)
    reductions = sown_metrics(sown[METRICS_COLLECTION])
    values = {name: reduction.compute() for name, reduction in reductions.items()}
    assert values == {"input_mean": 5.0, "input_max": 15.0, "plain": 5.0}


def test_a_name_with_two_reductions_is_refused():
    sown = {"a": {"x": (Mean(1.0),)}, "b": {"x": (Max(1.0),)}}
    with pytest.raises(ValueError, match="`x` must be sown as one reduction"):
        sown_metrics(sown)


@pytest.mark.parametrize("name", ["loss", "r2", "r2_batch"])
def test_name_of_a_metric_of_the_loss_may_not_be_sown(name):
    sums = {"loss": Mean(1.0), "r2": R2(1.0, 1.0, 1.0, 1.0)}
    with refuses(name, rule="sown"):
        _with_sown(sums, {"layer": {name: (1.0,)}})


STEPS = [
    {"loss": Mean(1.0, 2.0), "r2": R2(1.0, 2.0, 3.0, 4.0)},
    {"loss": Mean(5.0, 6.0), "r2": R2(5.0, 6.0, 7.0, 8.0)},
]


def test_reductions_of_each_step_are_found_again():
    arrays = named_leaves(stack_steps(STEPS))
    result = unstack_steps(arrays, STEPS[0])
    chex.assert_trees_all_equal(result, jax.tree.map(np.asarray, STEPS))
    assert unstack_steps({}, STEPS[0]) == []


def test_reductions_with_other_fields_are_left_out():
    arrays = named_leaves(stack_steps(STEPS))
    (name,) = (name for name in arrays if name.endswith("mean") and "r2" in name)
    arrays["r2/total"] = arrays.pop(name)
    assert unstack_steps(arrays, STEPS[0]) == []
