"""Trivial baselines against their definitions."""

import dataclasses
import math

import numpy as np

from ssm_jax import tasks
from ssm_jax.evaluation import baseline, trivial_baseline
from tests.bad_inputs import refuses


def whole(task, split):
    return task.batch(split, 0, task.n_examples(split), seed=0)


def baseline_of(task, split="test", batch_size=7, limit=None):
    return trivial_baseline(task, split, batch_size=batch_size, limit=limit, seed=0)


def test_classification_baseline_is_the_train_frequencies():
    task = tasks.ListOps(n_train=500, n_test=90, min_length=3, max_length=12)
    counts = np.bincount(whole(task, "train").targets, minlength=10)
    targets = whole(task, "test").targets
    result = baseline_of(task)
    assert result["name"] == "majority class"
    assert result["accuracy"] == np.mean(targets == counts.argmax())
    loss = -np.log((counts[targets] + 1) / (500 + 10)).mean()
    np.testing.assert_allclose(result["loss"], loss, rtol=1e-12)
    assert (result["n_train"], result["n_examples"]) == (500, 90)


def test_baseline_of_balanced_classes_predicts_the_background():
    """Its macro-F1 is that of class 0 over three, whose recall alone is 1."""
    task = tasks.PathfinderSegmentation(size=64, n_train=50, n_test=9, n_validation=1)
    background = np.mean(whole(task, "test").targets == 0)
    result = baseline_of(task)
    assert result["name"] == "majority class" and result["accuracy"] == background
    f1 = 2 * background / (1 + background) / 3
    np.testing.assert_allclose(result["macro_f1"], f1, rtol=1e-12)
    np.testing.assert_allclose(result["balanced_accuracy"], 1 / 3, rtol=1e-12)
    np.testing.assert_allclose(result["loss"], math.log(3), rtol=1e-12)


def test_regression_baseline_is_the_train_mean():
    task = tasks.Mixture(degree=3, length=6, n_train=50, n_test=40)
    mean = whole(task, "train").targets.mean(0)
    targets = whole(task, "test").targets
    result = baseline_of(task)
    loss = np.mean((targets - mean) ** 2)
    np.testing.assert_allclose(result["loss"], loss, rtol=1e-6)
    np.testing.assert_allclose(result["mae"], abs(targets - mean).mean(), rtol=1e-6)
    np.testing.assert_allclose(result["r2"], 1 - loss / targets.var(), rtol=1e-5)
    batch_r2 = [
        1 - np.mean((rows - mean) ** 2) / rows.var()
        for rows in (targets[start : start + 7] for start in range(0, 40, 7))
    ]
    np.testing.assert_allclose(result["r2_batch"], np.mean(batch_r2), rtol=1e-5)
    assert result["name"] == "mean" and "accuracy" not in result


def test_language_baseline_is_the_train_unigram(sets_dir):
    task = tasks.TextFolder(data_dir=f"{sets_dir}/novels", length=20)
    n = task.n_examples("train") * 20
    counts = np.bincount(task.text("train")[1 : n + 1], minlength=257)
    result = baseline_of(task, "validation")
    targets = task.text("validation")[1 : 20 * task.n_examples("validation") + 1]
    loss = -np.log((counts[targets] + 1) / (n + 257)).mean()
    np.testing.assert_allclose(result["perplexity"], math.exp(loss), rtol=1e-9)
    assert result["name"] == "unigram" and result["n_train"] == n


def test_baseline_evaluates_the_same_batches():
    task = tasks.Digits()
    targets = whole(task, "test").targets[:14]
    majority = np.bincount(whole(task, "train").targets).argmax()
    result = baseline_of(task, limit=2)
    assert result["n_examples"] == 14
    assert result["accuracy"] == np.mean(targets == majority)


def test_endless_split_needs_a_limit_and_has_r2_near_0():
    task = tasks.Shift(length=16, n_shifts=4)
    result = baseline_of(task, batch_size=64, limit=2)
    assert abs(result["r2"]) < 0.05 and result["n_examples"] == 128
    assert result["n_train"] == baseline.ENDLESS_EXAMPLES * 16
    with refuses("evaluation_batches", rule="number"):
        baseline_of(task)


def test_large_train_splits_are_read_in_part(monkeypatch):
    monkeypatch.setattr(baseline, "TRAIN_STEPS", 600)
    drawn = tasks.ListOps(n_train=5_000, n_test=20, min_length=3, max_length=12)
    assert baseline_of(drawn)["n_train"] == 50
    assert baseline_of(drawn) == baseline_of(dataclasses.replace(drawn, n_train=50))
    assert baseline_of(tasks.Digits())["n_train"] == 600 // 64  # 64 steps an image
