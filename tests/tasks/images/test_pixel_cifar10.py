"""PixelCifar10 on known images."""

import decimal

import numpy as np

from ssm_jax import tasks
from ssm_jax.tasks.images import pixels
from tests.tasks import raw_sets


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
