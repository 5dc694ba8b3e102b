"""Trivial baselines against their definitions."""

import dataclasses
import math

import numpy as np

from ssm_jax import tasks
from ssm_jax.evaluation import baseline, trivial_baseline
from tests.bad_inputs import refuses


def whole(task, split):
    return task.batch(split, 0, task.n_examples(split), seed=0)


def of(task, split="test", batch_size=7, limit=None):
    return trivial_baseline(task, split, batch_size=batch_size, limit=limit, seed=0)


def test_classification_baseline_is_the_train_frequencies():
    task = tasks.ListOps(n_train=500, n_test=90, min_length=3, max_length=12)
    counts = np.bincount(whole(task, "train").targets, minlength=10)
    targets = whole(task, "test").targets
    found = of(task)
    assert found["name"] == "majority class"
    assert found["accuracy"] == np.mean(targets == counts.argmax())
    loss = -np.log((counts[targets] + 1) / (500 + 10)).mean()
    np.testing.assert_allclose(found["loss"], loss, rtol=1e-12)
    assert (found["n_train"], found["n_examples"]) == (500, 90)


def test_baseline_of_balanced_classes_predicts_the_background():
    """Its macro-F1 is that of class 0 over three, whose recall alone is 1."""
    task = tasks.PathfinderSegmentation(size=64, n_train=50, n_test=9, n_validation=1)
    background = np.mean(whole(task, "test").targets == 0)
    found = of(task)
    assert found["name"] == "majority class" and found["accuracy"] == background
    f1 = 2 * background / (1 + background) / 3
    np.testing.assert_allclose(found["macro_f1"], f1, rtol=1e-12)
    np.testing.assert_allclose(found["balanced_accuracy"], 1 / 3, rtol=1e-12)
    np.testing.assert_allclose(found["loss"], math.log(3), rtol=1e-12)


def test_regression_baseline_is_the_train_mean():
    task = tasks.Mixture(degree=3, length=6, n_train=50, n_test=40)
    mean = whole(task, "train").targets.mean(0)
    targets = whole(task, "test").targets
    found = of(task)
    loss = np.mean((targets - mean) ** 2)
    np.testing.assert_allclose(found["loss"], loss, rtol=1e-6)
    np.testing.assert_allclose(found["mae"], abs(targets - mean).mean(), rtol=1e-6)
    np.testing.assert_allclose(found["r2"], 1 - loss / targets.var(), rtol=1e-5)
    of_batches = [
        1 - np.mean((rows - mean) ** 2) / rows.var()
        for rows in (targets[start : start + 7] for start in range(0, 40, 7))
    ]
    np.testing.assert_allclose(found["r2_batch"], np.mean(of_batches), rtol=1e-5)
    assert found["name"] == "mean" and "accuracy" not in found


def test_language_baseline_is_the_train_unigram(sets_dir):
    task = tasks.TextFolder(data_dir=f"{sets_dir}/novels", length=20)
    n = task.n_examples("train") * 20
    counts = np.bincount(task.text("train")[1 : n + 1], minlength=257)
    found = of(task, "validation")
    targets = task.text("validation")[1 : 20 * task.n_examples("validation") + 1]
    loss = -np.log((counts[targets] + 1) / (n + 257)).mean()
    np.testing.assert_allclose(found["perplexity"], math.exp(loss), rtol=1e-9)
    assert found["name"] == "unigram" and found["n_train"] == n


def test_baseline_evaluates_the_same_batches():
    task = tasks.Digits()
    targets = whole(task, "test").targets[:14]
    majority = np.bincount(whole(task, "train").targets).argmax()
    found = of(task, limit=2)
    assert found["n_examples"] == 14
    assert found["accuracy"] == np.mean(targets == majority)


def test_endless_split_needs_a_limit_and_has_r2_near_0():
    task = tasks.Shift(length=16, n_shifts=4)
    found = of(task, batch_size=64, limit=2)
    assert abs(found["r2"]) < 0.05 and found["n_examples"] == 128
    assert found["n_train"] == baseline.ENDLESS_EXAMPLES * 16
    with refuses("evaluation_batches", rule="number"):
        of(task)


def test_large_train_splits_are_read_in_part(monkeypatch):
    monkeypatch.setattr(baseline, "TRAIN_STEPS", 600)
    drawn = tasks.ListOps(n_train=5_000, n_test=20, min_length=3, max_length=12)
    assert of(drawn)["n_train"] == 50
    assert of(drawn) == of(dataclasses.replace(drawn, n_train=50))
    assert of(tasks.Digits())["n_train"] == 600 // 64  # 64 steps an image
