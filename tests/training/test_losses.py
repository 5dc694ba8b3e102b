"""Sums of losses against numpy, and the metrics that they come to."""

import functools
import math
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError
from sklearn.metrics import balanced_accuracy_score, f1_score

from ssm_jax.metrics import Mean
from ssm_jax.tasks import Digits, PathfinderSegmentation, Shift, TaskSpec
from ssm_jax.training.losses import loss_sums, main_metric, metrics
from ssm_jax.training.measure import total
from tests.bad_inputs import refuses
from tests.compilation import assert_allowed_by_strict_promotion
from tests.metrics.references import REFERENCES
from tests.tiers import tiered

NO_NAN = {"nan_targets": Mean(0.0, 4.0)}

RNG = np.random.default_rng(0)
MASK = np.array([[True, False, True], [True, True, False]])


def regression(shape=(2, 3), d_output=4):
    predictions, expected = RNG.standard_normal((2, *shape, d_output))
    return predictions.astype(np.float32), expected.astype(np.float32)


def classification(shape=(2, 3), n_classes=5):
    logits = RNG.standard_normal((*shape, n_classes)).astype(np.float32)
    return logits, RNG.integers(0, n_classes, shape).astype(np.int32)


def test_regression_sums_squared_errors_of_the_targets_that_count():
    predictions, expected = regression()
    sums = loss_sums("regression", predictions, expected, MASK)
    y = expected[MASK].astype(np.float64)
    error, n = np.sum((predictions[MASK] - y) ** 2), 4.0 * 4
    wanted = {
        "loss": Mean(error, n),
        "mae": Mean(np.sum(np.abs(predictions[MASK] - y)), n),
        **NO_NAN,
    }
    assert sums.pop("r2").compute() == pytest.approx(1 - error / n / y.var(), abs=1e-6)
    chex.assert_trees_all_close(sums, wanted, rtol=1e-6)


def test_absolute_loss_and_its_skill_are_those_of_absolute_errors():
    predictions, expected = regression()
    sums = loss_sums("regression", predictions, expected, MASK, loss="absolute")
    error = np.abs(predictions[MASK] - expected[MASK]).sum()
    assert sums["loss"].compute() == pytest.approx(error / 16, rel=1e-6)
    skill = 1 - error / np.abs(expected[MASK]).sum()
    assert sums["skill"].compute() == pytest.approx(skill, rel=1e-6)
    parts = [
        loss_sums("regression", predictions[i], expected[i], MASK[i], loss="absolute")
        for i in range(2)
    ]
    merged = parts[0]["skill"].merge(parts[1]["skill"])
    assert merged.compute() == pytest.approx(skill, rel=1e-6)
    nothing = loss_sums("regression", 0 * expected, 0 * expected, MASK, loss="absolute")
    assert nothing["skill"].compute() == 0.0
    assert main_metric(TaskSpec(**FORECAST, loss="absolute")) == "skill_low"
    with refuses("loss", "absolute"):
        TaskSpec(**FORECAST | {"targets": "classification"}, loss="absolute")


FORECAST: dict[str, Any] = {
    "length": 4,
    "inputs": "vector",
    "d_input": 1,
    "targets": "regression",
    "d_output": 4,
    "l_output": None,
}


def test_classification_sums_cross_entropy_in_nats_and_hits():
    logits, classes = classification()
    sums = loss_sums("classification", logits, classes, MASK)
    x = logits.astype(np.float64)
    log_p = x - np.log(np.exp(x).sum(-1, keepdims=True))
    nats = -np.take_along_axis(log_p, classes[..., None], -1)[..., 0]
    hits = (logits.argmax(-1) == classes)[MASK].sum()
    wanted = {"loss": Mean(nats[MASK].sum(), 4.0), "accuracy": Mean(hits, 4.0)}
    wanted |= NO_NAN
    chex.assert_trees_all_close(sums, wanted, rtol=1e-6)
    assert metrics(sums)["accuracy"] == pytest.approx(hits / 4)


def test_accuracy_is_that_of_the_greatest_logit():
    logits = np.array([[0.1, 3.0, 2.9], [5.0, -1.0, 4.9], [0.0, 0.0, 1.0]], np.float32)
    classes, mask = np.array([1, 2, 2], np.int32), np.ones(3, bool)
    sums = loss_sums("classification", logits, classes, mask)
    assert metrics(sums)["accuracy"] == pytest.approx(2 / 3)


each_kind = pytest.mark.parametrize(
    ("targets", "class_weight"),
    [("regression", None), ("classification", None), ("classification", "balanced")],
)


@each_kind
def test_masked_targets_count_neither_in_sums_nor_in_gradients(targets, class_weight):
    predictions, expected = {
        "regression": regression,
        "classification": classification,
    }[targets]()
    spoilt, wrong = predictions.copy(), expected.copy()
    spoilt[~MASK] = np.nan
    # -100 is a class of no target in many data sets.
    wrong[~MASK] = -100 if targets == "classification" else np.inf

    def sums(predictions, expected):
        return loss_sums(targets, predictions, expected, MASK, class_weight)

    def loss(predictions, expected):
        mean = sums(predictions, expected)["loss"]
        return mean.part_of(mean)

    chex.assert_trees_all_equal(sums(predictions, expected), sums(spoilt, wrong))
    gradient = jax.grad(loss)(predictions, wrong)
    assert not gradient[~MASK].any()
    chex.assert_trees_all_equal(gradient, jax.grad(loss)(predictions, expected))


def test_mean_over_unequal_batches_is_that_over_all_of_their_targets():
    """Both forms of R2: over all of the data, and the mean of the batches' own."""
    predictions, expected = regression(shape=(5, 3), d_output=2)
    expected += np.arange(5, dtype=np.float32)[:, None, None]  # batches that differ
    mask = np.ones((5, 3), bool)
    mask[1:3, 1:] = False
    parts = [
        loss_sums("regression", predictions[rows], expected[rows], mask[rows])
        for rows in (slice(0, 1), slice(1, 5))
    ]
    measured = metrics(total(parts))
    y, error = expected[mask], (expected - predictions)[mask]
    mse = np.mean(error**2)
    assert measured["loss"] == pytest.approx(mse, rel=1e-5)
    assert measured["r2"] == pytest.approx(1 - mse / np.var(y), rel=1e-5)
    of_batches = [
        1 - np.mean((expected - predictions)[of] ** 2) / np.var(expected[of])
        for of in (
            mask & (np.arange(5)[:, None] < 1),
            mask & (np.arange(5)[:, None] > 0),
        )
    ]
    assert measured["r2_batch"] == pytest.approx(np.mean(of_batches), rel=1e-5)
    assert abs(measured["r2"] - measured["r2_batch"]) > 0.1


def test_batch_without_targets_has_no_part_in_the_mean_of_r2():
    predictions, expected = regression()
    parts = [
        loss_sums("regression", predictions, expected, mask)
        for mask in (MASK, np.zeros_like(MASK))
    ]
    found = metrics(total(parts))
    assert found["r2_batch"] == found["r2"] == metrics(parts[0])["r2"]


def test_r2_of_a_batch_on_several_devices_is_that_of_the_whole_batch():
    predictions, expected = regression(shape=(4, 3))
    mask = np.ones((4, 3), bool)

    def of_shard(*shard):
        sums = loss_sums("regression", *shard)
        return {name: each.over_devices(("data",)) for name, each in sums.items()}

    shards = [x.reshape(2, 2, *x.shape[1:]) for x in (predictions, expected, mask)]
    each = jax.vmap(of_shard, axis_name="data")(*shards)
    found = metrics(total([jax.tree.map(lambda x: x[0], each)]))
    whole = 1 - np.mean((predictions - expected) ** 2) / np.var(expected)
    assert found["r2_batch"] == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("over", ["batches", "devices", "accumulated parts"])
@pytest.mark.parametrize("offset", [0, 1e4, -1e4])
def test_r2_of_targets_far_from_zero_is_that_of_float64(over, offset):
    expected = RNG.standard_normal((4, 5_000, 2)) + np.arange(4)[:, None, None]
    expected = (offset + expected).astype(np.float32)
    predictions = expected + 0.5 * RNG.standard_normal(expected.shape)
    arrays = predictions.astype(np.float32), expected
    masks = RNG.random(expected.shape[:2]) < [[0.9], [0.1], [0.5], [0]]

    def of_part(predictions, expected, mask):
        return loss_sums("regression", predictions, expected, mask)["r2"]

    def of_device(*part):
        return of_part(*part).over_devices(("data",))

    if over == "batches":
        first, *others = (of_part(*part) for part in zip(*arrays, masks, strict=True))
        found = first.merge(*others)
    elif over == "devices":
        of_all = jax.vmap(of_device, axis_name="data")(*arrays, masks)
        found = jax.tree.map(lambda x: x[0], of_all)
    else:
        found = jax.vmap(of_part)(*arrays, masks).combined()
    x, y = (array[masks].astype(np.float64) for array in arrays)
    wanted = 1 - np.mean((x - y) ** 2) / np.var(y)
    assert found.compute() == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(("scale", "wanted"), [(1e-3, 1 - 1e-6 / 1e-5), (1.0, 0.0)])
def test_r2_takes_the_variance_as_at_least_1e_5(scale, wanted):
    expected = scale * np.array([[[-1.0], [1.0]]], np.float32)
    sums = loss_sums("regression", 0 * expected, expected, np.ones((1, 2), bool))
    assert metrics(sums)["r2"] == pytest.approx(wanted, abs=1e-6)


def test_perfect_prediction_has_no_loss_and_r2_of_one():
    _, expected = regression()
    measured = metrics(loss_sums("regression", expected, expected, MASK))
    assert measured == {"loss": 0.0, "mae": 0.0, "r2": 1.0}


def test_batch_without_targets_has_loss_zero():
    logits, classes = classification()
    sums = loss_sums("classification", logits, classes, np.zeros_like(MASK))
    assert metrics(sums) == {"loss": 0.0, "accuracy": 0.0}


@pytest.mark.parametrize("wrong", [-1, 5, -5, 7])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_class_out_of_range_is_nan_and_never_another_class(wrong, class_weight):
    logits, classes = classification(n_classes=5)
    of = functools.partial(loss_sums, "classification", class_weight=class_weight)
    for mask in (MASK, MASK & (np.arange(6) == 0).reshape(2, 3)):
        spoilt = classes.copy()
        spoilt[0, 0] = wrong
        sums = jax.jit(of)(logits, expected=spoilt, mask=mask)
        found = metrics(sums)
        assert math.isnan(found["loss"])
        assert math.isnan(found["accuracy"])
        assert math.isnan(sums["loss"].part_of(sums["loss"]))


def test_loss_that_is_not_finite_stays_so():
    found = metrics({"loss": Mean(math.nan, 1.0)}, language=True)
    names = ("loss", "perplexity", "bits_per_token")
    assert all(math.isnan(found[name]) for name in names)


def test_perplexity_is_the_number_of_tokens_that_a_guess_is_among():
    logits = np.zeros((2, 3, 5), np.float32)
    classes = np.zeros((2, 3), np.int32)
    sums = loss_sums("classification", logits, classes, MASK)
    found = metrics(sums, language=True)
    assert found["perplexity"] == pytest.approx(5, rel=1e-6)
    assert found["bits_per_token"] == pytest.approx(math.log2(5), rel=1e-6)
    # No number of float64: a finite one would be wrong.
    assert metrics({"loss": Mean(1e9, 1)}, language=True)["perplexity"] == math.inf
    assert metrics(sums).keys() == {"loss", "accuracy"}


# Kind of the targets, weight of the classes, and number of classes or values.
PROBLEMS = {
    "two classes": ("classification", None, 2),
    "balanced": ("classification", "balanced", 3),
    "regression": ("regression", None, 2),
}
# Predictions, or the logits less that of class 0, from noise.
SCORES = {
    "noise": lambda x: x,
    "shifted": lambda x: 0.01 * x - 4.6,
    "small": lambda x: 1e-8 * x,
    "large": lambda x: 1e5 * x,
    "tied": np.round,
    "constant": lambda x: 0 * x + 3,
}


def problem(kind, change):
    """Predictions, targets and mask of 60 rows of 5 steps, and the arguments."""
    targets, weight, n = PROBLEMS[kind]
    scores = RNG.standard_normal((60, 5, n))
    if targets == "regression":
        predictions = change(scores).astype(np.float32)
        expected = predictions + RNG.standard_normal(scores.shape).astype(np.float32)
    else:
        expected = RNG.integers(0, n, (60, 5))
        scores += 2 * (expected[..., None] == np.arange(n))
        predictions = change(scores - scores[..., :1]).astype(np.float32)
        predictions[..., 0] = 0
    mask = RNG.random((60, 5)) < 0.8
    predictions[~mask] = np.nan
    return predictions, expected, mask, (targets, weight)


def of_batches(predictions, expected, mask, targets, weight):
    """The metrics of batches of 1, 9 and 50 rows, merged."""
    parts = [
        loss_sums(targets, predictions[i], expected[i], mask[i], weight)
        for i in np.split(np.arange(60), [1, 10])
    ]
    return metrics(total(parts))


@pytest.mark.parametrize("kind", tiered(list(PROBLEMS), ("regression",)))
@pytest.mark.parametrize(
    "change", tiered(SCORES, ("shifted", "large", "tied", "constant"))
)
def test_metrics_are_those_of_float64_for_all_scores(kind, change):
    predictions, expected, mask, (targets, weight) = problem(kind, change)
    found = of_batches(predictions, expected, mask, targets, weight)
    found.pop("r2_batch", None)
    assert found.keys() == REFERENCES[kind].keys()
    of = predictions[mask].astype(np.float64), expected[mask]
    for name, reference in REFERENCES[kind].items():
        assert found[name] == pytest.approx(reference(*of), rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize("kind", tiered(list(PROBLEMS), 0))
def test_metrics_of_nan_are_not_defined(kind):
    """Not even accuracy and F1, for which some class is the most likely of NaN."""
    predictions, expected, mask, how = problem(kind, SCORES["noise"])
    place = tuple(np.argwhere(mask)[7])
    predictions[place] = np.nan
    found = of_batches(predictions, expected, mask, *how)
    assert all(math.isnan(value) for value in found.values()), found
    predictions[place] = 0
    found = of_batches(predictions, expected, mask, *how)
    assert all(math.isfinite(value) for value in found.values()), found


@pytest.mark.parametrize("wrong", [-1, 5])
def test_target_that_is_no_class_is_refused(wrong):
    logits, classes = classification()
    classes[1, 0] = wrong
    with refuses("expected", f"{wrong} at [1, 0]", rule="from 0 to 4"):
        loss_sums("classification", logits, classes, MASK)
    loss_sums("classification", logits, classes, MASK & (classes != wrong))


# Classes of the targets and predicted classes of two batches.
CLASSES = {
    "all": ([[0, 0, 1, 2, 0, 1], [2, 2]], [[0, 1, 1, 2, 0, 0], [0, 2]]),
    "no targets of class 1": ([[0, 0, 2], [2, 0]], [[0, 1, 2], [2, 0]]),
    "class 2 neither there nor predicted": ([[0, 1, 1], [0]], [[0, 1, 0], [1]]),
    "class 2 in the second batch alone": ([[0, 1, 1], [2]], [[0, 1, 0], [2]]),
}
each_classes = pytest.mark.parametrize(
    ("batches", "predicted"),
    tiered(CLASSES, list(CLASSES)[1:2], full=list(CLASSES)[1:], unpack=True),
)


def balanced(batches, predicted):
    """The reductions of batches with random logits whose maxima are given."""
    logits, sums = [], []
    for classes, guesses in zip(batches, predicted, strict=True):
        x = RNG.standard_normal((len(classes), 3)).astype(np.float32)
        x[np.arange(len(classes)), guesses] = 1 + x.max(axis=1)
        logits.append(x)
        of = np.array(classes, np.int32)
        mask = np.ones(len(of), bool)
        sums.append(loss_sums("classification", x, of, mask, "balanced"))
    return np.concatenate(logits), sums


@each_classes
@pytest.mark.filterwarnings("ignore:y_pred contains classes")
def test_metrics_of_balanced_classes_are_those_of_sklearn(batches, predicted):
    _, sums = balanced(batches, predicted)
    y_true, y_pred = np.concatenate(batches), np.concatenate(predicted)
    found = metrics(total(sums))
    f1 = f1_score(y_true, y_pred, average="macro")
    assert found["macro_f1"] == pytest.approx(f1, rel=1e-12)
    accuracy = balanced_accuracy_score(y_true, y_pred)
    assert found["balanced_accuracy"] == pytest.approx(accuracy, rel=1e-12)
    assert found["accuracy"] == pytest.approx(np.mean(y_true == y_pred))


@each_classes
def test_each_class_contributes_equally_to_a_balanced_loss(batches, predicted):
    logits, sums = balanced(batches, predicted)
    y = np.concatenate(batches)
    x = logits.astype(np.float64)
    nats = np.log(np.exp(x).sum(-1)) - x[np.arange(len(y)), y]
    weight = np.array([1 / np.sum(y == each) for each in y])
    wanted = np.sum(weight * nats) / np.sum(weight)
    assert metrics(total(sums))["loss"] == pytest.approx(wanted, rel=1e-6)
    # The parts of two devices add up to the loss of both.
    whole = jax.tree.map(np.add, sums[0]["loss"], sums[1]["loss"])
    parts = sum(float(each["loss"].part_of(whole)) for each in sums)
    assert parts == pytest.approx(wanted, rel=1e-6)


def test_balanced_batch_without_targets_has_zeros():
    logits, classes = classification()
    sums = loss_sums("classification", logits, classes, MASK & False, "balanced")
    assert set(metrics(sums).values()) == {0.0}


@each_kind
@pytest.mark.parametrize("dtype", tiered(["bfloat16", "float16"], ("float16",)))
def test_loss_of_half_precision_is_that_of_the_same_numbers(
    targets, class_weight, dtype
):
    make = regression if targets == "regression" else classification
    predictions, expected = make(shape=(40, 100))
    predictions, mask = jnp.asarray(predictions, dtype), RNG.random((40, 100)) < 0.9
    found, wanted = (
        loss_sums(targets, x, expected, mask, class_weight)
        for x in (predictions, predictions.astype(np.float32))
    )
    chex.assert_trees_all_equal(found, wanted)
    assert all(leaf.dtype.itemsize == 4 for leaf in jax.tree.leaves(found))


@each_kind
def test_main_metric_is_one_of_the_metrics(targets, class_weight):
    task, name, example = {
        "regression": (Shift(length=8, n_shifts=2), "r2", regression),
        "classification": (Digits(), "accuracy", classification),
        "balanced": (PathfinderSegmentation(), "macro_f1", classification),
    }[class_weight or targets]
    spec = task.spec
    assert (spec.targets, spec.class_weight) == (targets, class_weight)
    assert main_metric(spec) == name
    assert name in metrics(loss_sums(targets, *example(), MASK, class_weight))


@each_kind
def test_promotion_is_explicit(targets, class_weight):
    predictions, expected = (
        regression() if targets == "regression" else classification(n_classes=2)
    )

    def sums(*args):
        return loss_sums(targets, *args, class_weight)

    assert_allowed_by_strict_promotion(sums, predictions, expected, MASK)


MISFITS = {
    "a value of one for two": ("regression", (2, 3, 1), (2, 3, 4), (2, 3)),
    "no axis of values": ("regression", (2, 3, 4), (2, 3), (2, 3)),
    "classes one hot": ("classification", (2, 3, 5), (2, 3, 5), (2, 3)),
    "a prediction a sequence": ("classification", (2, 5), (2, 3), (2, 3)),
    "mask of one step": ("regression", (2, 3, 4), (2, 3, 4), (2, 1)),
}


@pytest.mark.parametrize(
    ("targets", "predictions", "expected", "mask"), MISFITS.values(), ids=MISFITS.keys()
)
def test_shapes_that_do_not_fit_are_refused(targets, predictions, expected, mask):
    dtype = np.int32 if targets == "classification" else np.float32
    arrays = np.zeros(predictions, np.float32), np.zeros(expected, dtype)
    with pytest.raises((ValueError, TypeCheckError)):
        loss_sums(targets, *arrays, np.ones(mask, bool))


@pytest.mark.usefixtures("unchecked")
def test_error_of_shapes_names_all_of_them():
    predictions, mask = np.zeros((2, 3, 1), np.float32), np.ones((2, 3), bool)
    with pytest.raises(ValueError, match=r"(?s)^[^\n]*\(2, 3, 4\)[^\n]*\(2, 3, 1\)"):
        loss_sums("regression", predictions, np.zeros((2, 3, 4), np.float32), mask)
