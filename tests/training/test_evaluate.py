"""Metrics of a split on one and on several devices, and those that are not defined."""

import json
import math

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from absl import logging
from flax import linen as nn

from ssm_jax import plots
from ssm_jax.cli import report
from ssm_jax.evaluation import evaluate_run, trivial_baseline
from ssm_jax.training import WorkDir, train
from ssm_jax.training.checkpointing import integrity
from ssm_jax.training.measure import evaluate
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import RunSpec
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


def measured(task, parallel, **options):
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
    found = measured(task, DataParallel(**how))
    whole = task.batch("validation", 0, 100, 0)
    scores = 0.01 * whole.inputs[..., 0] - 4.6
    scores = scores if task.per_step else scores.max(1)
    wanted = auc(scores.astype(np.float32).ravel(), whole.targets.ravel())
    assert 0.6 < found["auc"] == pytest.approx(wanted, abs=1e-4)


def test_evaluation_of_nan_is_refused_by_metric_and_count():
    task = tiny.Noise(n_nan=3, per_step=True)
    parallel = DataParallel("jit")
    with refuses("loss", error=FloatingPointError) as refusal:
        measured(task, parallel, split="test")
    for part in ("`accuracy`, `auc`", "24 of 400 targets", "test split"):
        assert part in str(refusal.value)
    found = measured(task, parallel, split="test", allow_nan=True)
    assert all(map(math.isnan, found.values())), found


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
    found = evaluate_run(tmp_path, packages=["tests"])
    assert found["auc"] is None and found["baseline"]["auc"] is None
    assert json.loads((tmp_path / "evaluation.json").read_text())["auc"] is None
    assert report.row_of(WorkDir(tmp_path))["value"] == found["accuracy"]
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
