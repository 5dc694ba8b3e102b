"""The predictions file: every example once, and the metrics that are printed."""

import numpy as np
import pytest

from ssm_jax.evaluation import evaluate_run, predictions, restore
from ssm_jax.evaluation.predictions import example_ids
from ssm_jax.tasks import TextFolder
from ssm_jax.training import train
from tests.bad_inputs import refuses
from tests.training import tiny


def train_and_predict(config, workdir, **options):
    """Trains, evaluates with a predictions file, and returns both."""
    train(config, str(workdir))
    path = workdir / "predictions.npz"
    measured = evaluate_run(workdir, predictions_file=path, **options)
    with np.load(path) as file:
        return measured, dict(file)


def cross_entropy(logits, targets):
    logits = logits.astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(log_p, targets[..., None], -1).mean()


@pytest.mark.parametrize("size", [1, 7, 300])
def test_rows_of_a_stream_have_the_index_of_their_window(sets_dir, size):
    task = TextFolder(data_dir=f"{sets_dir}/novels", length=20)
    n, all_ids = task.n_examples("test"), []
    whole = task.batch("test", 0, n, seed=0)
    for index in range(-(-n // size)):
        ids, is_example = example_ids(task, "test", index, size)
        batch = task.batch("test", index, size, seed=0)
        for row, text in zip(ids[is_example], batch.inputs[is_example], strict=True):
            np.testing.assert_array_equal(text, whole.inputs[row])
        all_ids += ids[is_example].tolist()
    assert sorted(all_ids) == list(range(n))


@pytest.mark.nightly
def test_metrics_of_classes_follow_from_the_file(tmp_path):
    config = tiny.digits(steps=2, evaluate_every=2)
    measured, arrays = train_and_predict(config, tmp_path)
    # 300 examples in batches of 16, so that the last batch is padded.
    np.testing.assert_array_equal(arrays["id"], np.arange(300))
    whole = restore(tmp_path).task.batch("test", 0, 300, seed=0)
    np.testing.assert_array_equal(arrays["target"], whole.targets)
    np.testing.assert_array_equal(arrays["prediction"], arrays["logits"].argmax(-1))
    accuracy = np.mean(arrays["prediction"] == arrays["target"])
    assert measured["accuracy"] == pytest.approx(accuracy, rel=1e-6)
    loss = cross_entropy(arrays["logits"], arrays["target"])
    assert measured["loss"] == pytest.approx(loss, rel=1e-5)
    one_device = predictions(restore(tmp_path), "test")
    assert one_device.keys() == arrays.keys()
    np.testing.assert_allclose(one_device["logits"], arrays["logits"], atol=1e-5)
    with refuses("split", "train", rule="validation or test"):
        evaluate_run(tmp_path, split="train", predictions_file=tmp_path / "a.npz")


@pytest.mark.nightly
def test_metrics_of_carried_states_follow_from_the_file(tmp_path):
    config = tiny.shift(steps=1, evaluate_every=1, initial_state="carry")
    config.training.parallel = "shard_map"
    measured, arrays = train_and_predict(config, tmp_path)
    np.testing.assert_array_equal(arrays["id"], np.arange(32))
    np.testing.assert_array_equal(arrays["step"], np.arange(16))
    assert arrays["loss_mask"].shape == (32, 16)
    counts = np.broadcast_to(arrays["loss_mask"][..., None], arrays["target"].shape)
    error = np.square(arrays["prediction"].astype(float) - arrays["target"])[counts]
    assert measured["loss"] == pytest.approx(error.mean(), rel=1e-5)
    r2 = 1 - error.mean() / np.var(arrays["target"][counts].astype(float))
    assert measured["r2"] == pytest.approx(r2, abs=1e-5)
