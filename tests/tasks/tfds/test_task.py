"""TFDSTask: the batches of the tasks that know their set, by its names alone."""

import numpy as np
import pytest

from ssm_jax import tasks
from ssm_jax.tasks.tfds import reading, task as task_module
from tests.bad_inputs import refuses

IMDB = {"name": "imdb_reviews/plain_text/1.0.0", "feature": "text", "n_classes": 2}
MNIST = {"name": "mnist/3.0.1", "feature": "image", "n_classes": 10, "length": 784}
SAME = {
    "bytes": (
        {**IMDB, "inputs": "bytes", "length": 70},
        lambda path: tasks.ImdbBytes(data_dir=path, length=70, n_validation=10),
    ),
    "words": (
        {**IMDB, "inputs": "words", "length": 20, "vocabulary": 40},
        lambda path: tasks.ImdbWords(
            data_dir=path, length=20, vocabulary=40, min_count=1, n_validation=10
        ),
    ),
}


@pytest.mark.parametrize(("fields", "known"), SAME.values(), ids=SAME)
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_texts_are_those_of_the_task_on_the_set(fields, known, split, sets_dir):
    task = tasks.TFDSTask(data_dir=sets_dir, n_validation=10, **fields)
    known_task = known(sets_dir)
    assert task.spec == known_task.spec
    n = task.n_examples(split)
    assert n == known_task.n_examples(split)
    for array, expected in zip(
        task.batch(split, 0, n, 3), known_task.batch(split, 0, n, 3), strict=True
    ):
        np.testing.assert_array_equal(array, expected)


def test_pixels_are_those_of_the_images_in_order(mnist_dir):
    task = tasks.TFDSTask(data_dir=mnist_dir, inputs="pixels", n_validation=9, **MNIST)
    known_task = tasks.PixelMnist(data_dir=mnist_dir, n_validation=9)
    n = task.n_examples("test")
    for array, expected in zip(
        task.batch("test", 0, n, 0)[:3],
        known_task.batch("test", 0, n, 0)[:3],
        strict=True,
    ):
        np.testing.assert_array_equal(array, expected)


BAD = {
    "length": ({"length": 783}, "length", 783),
    "classes": ({"n_classes": 2}, "n_classes", 2),
    "feature": ({"feature": "picture"}, "data_dir", "picture"),
    "split": ({"train": "all"}, "data_dir", "all"),
    "held out": ({"n_validation": 10**6}, "n_validation", 10**6),
    "splits": ({"validation": "train"}, "validation", "train"),
}


@pytest.mark.parametrize(("fields", "name", "value"), BAD.values(), ids=BAD)
def test_set_that_does_not_fit_is_refused(fields, name, value, mnist_dir):
    options = {**MNIST, "inputs": "pixels", "n_validation": 9, **fields}
    with refuses(name, value):
        tasks.TFDSTask(data_dir=mnist_dir, **options).n_examples("test")


def test_label_that_is_no_class_is_refused_at_the_batch_that_has_it(
    mnist_dir, monkeypatch
):
    options = {**MNIST, "inputs": "pixels", "n_validation": 8}
    task = tasks.TFDSTask(data_dir=mnist_dir, **options)
    n = task.n_examples("test")
    monkeypatch.setattr(reading.Record, "integer", lambda self, name: 10)
    with refuses("n_classes", 10):
        task.batch("test", 0, n, seed=0)


def test_no_more_examples_are_kept_than_there_is_room_for(mnist_dir, monkeypatch):
    monkeypatch.setattr(task_module, "_KEPT", 3 * (784 + task_module._OVERHEAD))
    options = {**MNIST, "inputs": "pixels", "n_validation": 7}
    task = tasks.TFDSTask(data_dir=mnist_dir, **options)
    first, again = (task.batch("test", 0, 8, seed=0) for _ in range(2))
    for array, expected in zip(first[:3], again[:3], strict=True):
        np.testing.assert_array_equal(array, expected)
    assert len(task_module._splits(task)["test"]._kept) == 3


def test_set_that_is_not_there_is_refused(tmp_path):
    options = {**MNIST, "name": "mine/1.0.0", "inputs": "pixels"}
    with refuses("data_dir", "mine/1.0.0", error=FileNotFoundError) as refusal:
        tasks.TFDSTask(data_dir=str(tmp_path), **options).n_examples("test")
    assert "launch.prepare" not in str(refusal.value)
