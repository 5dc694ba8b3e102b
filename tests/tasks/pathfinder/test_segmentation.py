"""Pathfinder-Segmentation: the masks against the geometry of the curves, the task."""

import dataclasses
import functools

import numpy as np
import pytest
from scipy.spatial import KDTree

from ssm_jax import tasks
from ssm_jax.tasks.pathfinder import drawing
from ssm_jax.tasks.pathfinder.prepare import write_images
from ssm_jax.tasks.pathfinder.settings import PATHFINDER, SEGMENTATION
from tests.bad_inputs import refuses
from tests.tiers import tiered

N_DRAWN = {32: 200, 64: 100, 128: 30, 256: 10, 512: 6}
N_DASHES = {32: (9, 3), 64: (12, 4), 128: (14, 4), 256: (16, 5), 512: (12, 4)}
THICKNESS = {32: 0.5, 64: 1.0, 128: 1.5, 256: 2.0, 512: 6.0}
each_size = pytest.mark.parametrize("size", tiered(list(N_DRAWN), full=3))


@functools.cache
def drawings(size: int) -> drawing.Drawings:
    rng = np.random.default_rng(1)
    return drawing.draw(rng, N_DRAWN[size], SEGMENTATION[size])


@functools.cache
def class_of_curve(size: int) -> np.ndarray:
    """Class of both long curves by the dots at their ends, ``(n, 2)``."""
    drawn = drawings(size)
    classes = np.ones((len(drawn.images), 2), int)
    for i, (first, last) in enumerate(drawn.dots[:, :2]):
        for curve in (0, 1):
            is_curve = drawn.curves[i] == curve
            begins = (drawn.tails[i, is_curve][0] == first).all()
            ends = (drawn.heads[i, is_curve][-1] == last).all()
            classes[i, curve] += begins and ends
    return classes


@each_size
def test_mask_is_the_lit_pixels_of_the_long_curves_alone(size):
    """Drawn without short curves and dots, an image has the same long curves."""
    bare = dataclasses.replace(SEGMENTATION[size], n_distractors=0, dot_radius=-0.5)
    alone = drawing.draw(np.random.default_rng(1), N_DRAWN[size], bare)
    n_long = 2 * N_DASHES[size][0]
    same = (drawings(size).heads[:, :n_long] == alone.heads).all((1, 2))
    # At 128 pixels only the images of the style that is drawn first.
    assert same.all() if len(bare.styles) == 1 else same.mean() > 0.3
    lit = drawings(size).masks[same] > 0
    np.testing.assert_array_equal(lit, alone.images[same] > 0)


@each_size
def test_class_of_a_pixel_is_that_of_its_dash(size):
    drawn = drawings(size)
    for i, mask in enumerate(drawn.masks):
        pixels = np.argwhere(mask)
        to_curve = []
        for curve in (0, 1):
            is_curve = drawn.curves[i] == curve
            along = np.linspace(0, 1, 3 * size // 8)[:, None, None]
            spots = (
                drawn.tails[i, is_curve] * (1 - along)
                + drawn.heads[i, is_curve] * along
            )
            to_curve.append(KDTree(spots.reshape(-1, 2)).query(pixels)[0])
        nearest = np.argmin(to_curve, axis=0)
        np.testing.assert_array_equal(mask[mask > 0], class_of_curve(size)[i, nearest])
        # Half a pixel's diagonal, and another half because a dash begins between two.
        assert np.min(to_curve, axis=0).max() < THICKNESS[size] / 2 + 1.5


@each_size
def test_both_dots_are_on_the_curve_of_class_2_if_there_is_one(size):
    drawn = drawings(size)
    classes = class_of_curve(size)
    np.testing.assert_array_equal((classes == 2).sum(axis=1), drawn.labels)
    np.testing.assert_array_equal(drawn.masks.max(axis=(1, 2)), 1 + drawn.labels)
    for mask, label, dots in zip(drawn.masks, drawn.labels, drawn.dots, strict=True):
        distance, nearest = KDTree(pixels := np.argwhere(mask)).query(dots[:2])
        assert distance.max() <= 1.5
        assert (mask[tuple(pixels[nearest].T)] == 1 + label).all()


@each_size
def test_every_short_curve_begins_with_a_dot(size):
    setting, drawn = SEGMENTATION[size], drawings(size)
    (style, *_), radius = setting.styles, setting.dot_radius
    for i, image in enumerate(drawn.images):
        dots = drawn.dots[i, 2:]
        is_drawn = dots[:, 0] >= 0
        firsts = 2 * N_DASHES[size][0] + N_DASHES[size][1] * np.arange(len(dots))
        np.testing.assert_array_equal(is_drawn, drawn.curves[i, firsts] >= 0)
        gaps = np.linalg.norm(drawn.tails[i, firsts] - dots, axis=1)[is_drawn]
        # The gap is the margin of the style, 2 or 3 at 128 pixels; both are rounded.
        assert style.margin - 1.25 <= gaps.min() and gaps.max() <= style.margin + 1.75
        assert (image[tuple(dots[is_drawn].T)] == 255).all()
        bright = np.argwhere(image == 255)
        to_dot, _ = KDTree(drawn.dots[i]).query(bright)
        if setting.contrast < 1:  # Otherwise dashes are as bright as dots.
            assert to_dot.max() <= radius


@each_size
def test_classes_are_as_frequent_as_published(size):
    """Few pixels are of the long curves, and half of the images have class 2."""
    drawn = drawings(size)
    part = np.bincount(drawn.masks.ravel(), minlength=3) / drawn.masks.size
    # More where dashes are not much thinner than the image is wide.
    assert (0.9 if size == 32 else 0.94) < part[0] < 0.99
    assert 2 < part[1] / part[2] < 5  # 3 on average: (1 + 2) / 2 curves to 1 / 2.


@pytest.mark.parametrize(
    ("size", "lit", "classes"),
    tiered(
        [
            (32, 739_522, 5_436),
            (64, 3_425_557, 11_164),
            (128, 11_616_564, 30_098),
            (256, 14_378_578, 28_092),
            (512, 47_139_205, 58_902),
        ],
        full=3,
        unpack=True,
    ),
)
def test_images_and_masks_are_fixed(size, lit, classes):
    # Recorded results depend on them: they must not change between releases.
    drawn = drawing.draw_block(SEGMENTATION[size], 0, "test", 0)
    assert drawn.images.sum(dtype=int) == lit
    assert drawn.masks.sum(dtype=int) == classes


def test_pixels_are_scaled_to_1_and_have_their_classes():
    task = tasks.PathfinderSegmentation(size=64, n_test=50)
    batch = task.batch("test", 1, 30, seed=0)
    drawn = drawing.draw_block(SEGMENTATION[64], 0, "test", 0)
    pixels = drawn.images[30:].reshape(20, 4096) / 127.5 - 1
    np.testing.assert_allclose(batch.inputs[:20, :, 0], pixels, atol=1e-6)
    masks = drawn.masks[30:].reshape(20, 4096)
    np.testing.assert_array_equal(batch.targets[:20], masks)
    assert batch.loss_mask[:20].all() and not batch.loss_mask[20:].any()


def test_defaults_are_those_of_the_authors_code():
    assert tasks.PathfinderSegmentation() == tasks.PathfinderSegmentation(
        data_dir=None, size=128, n_train=80_000, n_validation=10_000, n_test=10_000
    )
    assert {s.name for s in SEGMENTATION.values()}.isdisjoint(
        s.name for s in PATHFINDER.values()
    )


@pytest.mark.parametrize("workers", tiered([1, 2], 0, full=1))
def test_prepared_images_are_those_that_are_drawn_without_a_folder(tmp_path, workers):
    write_images(tmp_path, SEGMENTATION[64], n=70, workers=workers)
    sizes = {"n_train": 56, "n_validation": 7, "n_test": 7}
    drawn = tasks.PathfinderSegmentation(size=64, **sizes)
    read = dataclasses.replace(drawn, data_dir=str(tmp_path))
    for split, n in (("train", 56), ("validation", 7), ("test", 4)):
        batch, expected = (task.batch(split, 0, n, seed=3) for task in (read, drawn))
        for x, y in zip(batch[:3], expected[:3], strict=True):
            np.testing.assert_array_equal(x, y)
            assert x.dtype == y.dtype


BAD_FIELDS = {
    "size": ({"size": 16}, "32", 16),
    "n_train": ({"n_train": 0}, "at least 1", 0),
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_bad_field_is_an_error_of_one_line(name, unchecked):
    fields, rule, value = BAD_FIELDS[name]
    with refuses(name, value, rule=rule):
        tasks.PathfinderSegmentation(**fields)
