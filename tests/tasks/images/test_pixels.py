"""PixelMnist and PixelCifar10 on sets that TFDS prepared from known images."""

import decimal
import os

import chex
import numpy as np
import pytest
from PIL import Image

from ssm_jax import tasks
from ssm_jax.tasks.images import pixels
from tests.bad_inputs import refuses
from tests.tasks import raw_sets


@pytest.fixture
def mnist(mnist_dir) -> tasks.PixelMnist:
    return tasks.PixelMnist(data_dir=mnist_dir, n_validation=10)


@pytest.fixture
def permuted(mnist_dir) -> tasks.PixelMnist:
    return tasks.PixelMnist(data_dir=mnist_dir, n_validation=10, permuted=True)


def numbers(batch: tasks.Batch) -> list[int]:
    """Returns the indices of the images, which are their first pixels."""
    return np.rint(batch.inputs[:, 0, 0] * 255).astype(int).tolist()


def test_validation_is_the_end_of_the_train_split(mnist, mnist_dir):
    assert [mnist.n_examples(s) for s in ("train", "validation", "test")] == [
        24,
        10,
        11,
    ]
    less = tasks.PixelMnist(data_dir=mnist_dir, n_validation=3)
    last = numbers(mnist.batch("validation", 0, 10, seed=0))[-3:]
    assert numbers(less.batch("validation", 0, 3, seed=0)) == last


def test_every_prepared_image_is_in_its_split(mnist):
    train = numbers(mnist.batch("train", 0, 24, seed=0))
    validation = numbers(mnist.batch("validation", 0, 10, seed=0))
    assert sorted(train + validation) == list(range(34))
    assert sorted(numbers(mnist.batch("test", 0, 11, seed=0))) == list(range(34, 45))


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_pixels_come_row_by_row_in_units_of_white(mnist, split, png):
    batch = mnist.batch(split, 0, 10, seed=0)
    for number, inputs, target in zip(
        numbers(batch), batch.inputs, batch.targets, strict=True
    ):
        pixels = np.asarray(Image.open(png(number)))
        np.testing.assert_allclose(inputs[:, 0], pixels.ravel() / 255, rtol=1e-7)
        assert target == number % 10


def test_rows_are_steps_of_28_pixels(mnist, mnist_dir):
    rows = tasks.PixelMnist(data_dir=mnist_dir, n_validation=10, rows=True)
    batch, row_batch = (task.batch("train", 0, 5, seed=0) for task in (mnist, rows))
    assert (rows.spec.length, rows.spec.d_input) == (28, 28)
    chex.assert_trees_all_equal(row_batch.inputs, batch.inputs.reshape(5, 28, 28))


def test_smaller_images_are_means_of_squares(mnist, mnist_dir):
    half = tasks.PixelMnist(data_dir=mnist_dir, n_validation=10, size=14)
    batch, small_batch = (task.batch("test", 0, 5, seed=0) for task in (mnist, half))
    image, small = (
        batch.inputs[3].reshape(28, 28),
        small_batch.inputs[3].reshape(14, 14),
    )
    assert half.spec.length == 196
    np.testing.assert_allclose(small[2, 5], image[4:6, 10:12].mean(), rtol=1e-6)
    np.testing.assert_allclose(small.mean(), image.mean(), rtol=1e-6)


def test_size_that_does_not_divide_is_an_error():
    with refuses("size", 10, rule="28"):
        tasks.PixelMnist(size=10)


def test_pooled_images_are_split_four_to_one(mnist_dir):
    pooled = tasks.PixelMnist(data_dir=mnist_dir, n_validation=6, pooled=True)
    sizes = {"train": 30, "validation": 6, "test": 9}
    assert {split: pooled.n_examples(split) for split in sizes} == sizes
    indices = [numbers(pooled.batch(split, 0, n, seed=0)) for split, n in sizes.items()]
    assert sorted(sum(indices, [])) == list(range(45))
    assert indices[-1] != list(range(36, 45))


def test_permutation_is_one_for_all_images_and_splits(mnist, permuted):
    plain, mixed = (t.batch("train", 0, 24, seed=0) for t in (mnist, permuted))
    # Over 24 images of noise every position has a distinct column of values.
    column = {p.tobytes(): i for i, p in enumerate(plain.inputs[..., 0].T)}
    order = [column[p.tobytes()] for p in mixed.inputs[..., 0].T]
    assert sorted(order) == list(range(784))
    assert order != list(range(784))
    for split in ("train", "validation", "test"):
        for index in (0, 1):
            plain, mixed = (t.batch(split, index, 5, seed=9) for t in (mnist, permuted))
            chex.assert_trees_all_equal(mixed.inputs, plain.inputs[:, order])
            chex.assert_trees_all_equal(mixed.targets, plain.targets)


def test_permutation_is_fixed(mnist, permuted):
    # Recorded results depend on it: it must not change between releases.
    plain, mixed = (t.batch("test", 0, 11, seed=0) for t in (mnist, permuted))
    first = [76, 95, 417, 712, 83]
    chex.assert_trees_all_equal(mixed.inputs[:, :5], plain.inputs[:, first])


def test_folder_may_start_with_a_tilde(mnist_dir, monkeypatch):
    parent, name = os.path.split(mnist_dir)
    monkeypatch.setenv("HOME", parent)
    assert tasks.PixelMnist(data_dir=f"~/{name}").n_examples("test") == 11


def luma(red: int, green: int, blue: int) -> int:
    """Returns the gray of a color in decimal arithmetic, halves rounded up."""
    parts = zip((red, green, blue), ("0.299", "0.587", "0.114"), strict=True)
    grey = sum(int(part) * decimal.Decimal(weight) for part, weight in parts)
    return int(decimal.Decimal(grey).quantize(0, decimal.ROUND_HALF_UP))


def test_pixels_are_the_luma_of_the_colours_centred_row_by_row(sets_dir, tmp_path):
    task = tasks.PixelCifar10(data_dir=sets_dir, n_validation=10)
    colours = raw_sets.cifar10(tmp_path)["test"]
    expected = {
        tuple(luma(*colour) for colour in image.reshape(3, -1).T): i
        for i, image in enumerate(colours)
    }
    batch = task.batch("test", 0, 11, seed=0)
    grey = np.rint((batch.inputs[..., 0] * 0.5 + 0.5) * 255).astype(int)
    indices = [expected[tuple(row)] for row in grey.tolist()]
    assert sorted(indices) == list(range(11))
    assert batch.targets.tolist() == [i % 10 for i in indices]
    centred = (grey / 255 - 0.5) / 0.5
    np.testing.assert_allclose(batch.inputs[..., 0], centred, rtol=0, atol=6e-8)


def test_halves_are_rounded_up():
    for colour in ((0, 0, 250), (0, 250, 250)):  # 28.5 and 175.25
        assert luma(*colour) == pixels._grey(np.array([[colour]], np.uint8)).item()
