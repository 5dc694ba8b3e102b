"""Generator of the images of Pathfinder, Path-X and Pathfinder-Segmentation."""

from typing import NamedTuple

import numpy as np

from ssm_jax.tasks import base
from ssm_jax.tasks.pathfinder.canvas import Canvas
from ssm_jax.tasks.pathfinder.dashes import DashStamps, make_stamps
from ssm_jax.tasks.pathfinder.settings import Setting

_DISTRACTOR_TRIES = 5


class Drawings(NamedTuple):
    """Images and their geometry; positions are rows and columns of pixels.

    Attributes:
      images: uint8, ``(n, size, size)``, black background.
      labels: int32, ``(n,)``, 1 if both dots are on one curve.
      masks: uint8, ``(n, size, size)``: 2 at the pixels of the dashes of the long curve
        with both dots, 1 at those of a long curve with one dot or none, 0 elsewhere.
      dots: Positions of the dots, int64, ``(n, m, 2)``: those on the long curves, which
        come first, and those of the short curves if these have some. A short curve that
        is not drawn has ``[-size, -size]``.
      tails: Beginning of each of up to ``d`` dashes, int64, ``(n, d, 2)``.
      heads: End of each dash, int64, ``(n, d, 2)``.
      curves: Curve of each dash, int64, ``(n, d)``, in order from the beginning of a
        curve to its end: 0 and 1 are the long curves, 2 and above the short ones, -1
        means no dash.
    """

    images: np.ndarray
    labels: np.ndarray
    masks: np.ndarray
    dots: np.ndarray
    tails: np.ndarray
    heads: np.ndarray
    curves: np.ndarray


def draw_block(setting: Setting, seed: int, split: base.Split, block: int) -> Drawings:
    """Draws the ``p`` examples of a split from ``block * p`` on, ``p`` by the setting.

    Equal arguments give equal examples in every process.

    Args:
      setting: Setting of the images.
      seed: Seed of the data set, at least 0.
      split: The split.
      block: Index of the block, at least 0.

    Returns:
      The ``setting.per_block`` examples.
    """
    rng = base.generator(setting.name, split, seed, block)
    return draw(rng, setting.per_block, setting)


def draw(rng: np.random.Generator, n: int, setting: Setting) -> Drawings:
    """Draws images of two long dashed curves, short ones, and dots.

    One dot is at the beginning of one of the two long curves, the other at the end of
    the same curve or of the other one, with equal probability. The distance between
    curves is at least the gap between two dashes. If a long curve has no room left, the
    pair is rejected; a short curve is tried five times.

    Args:
      rng: Random number generator.
      n: Number of images.
      setting: Setting of the images.

    Returns:
      The images and their geometry.

    Example:
      >>> from ssm_jax.tasks.pathfinder.settings import PATHFINDER
      >>> drawings = draw(np.random.default_rng(1), 3, PATHFINDER[32])
      >>> drawings.images.shape, drawings.labels.tolist()
      ((3, 32, 32), [0, 1, 1])
    """
    # Before the curves: rejecting them does not change the frequency of the labels.
    labels = rng.integers(2, size=n, dtype=np.int32)
    which = rng.integers(len(setting.styles), size=n)
    parts, order = [], []
    for number, style in enumerate(setting.styles):
        rows = np.flatnonzero(which == number)
        if len(rows):
            stamps = make_stamps(style, setting.size)
            parts.append(_draw(rng, labels[rows], stamps, setting))
            order.append(rows)
    # The images were drawn by style; this restores their order.
    inverse = np.argsort(np.concatenate(order))
    return Drawings(*(np.concatenate(x)[inverse] for x in zip(*parts, strict=True)))


def _draw(
    rng: np.random.Generator, labels: np.ndarray, stamps: DashStamps, setting: Setting
) -> Drawings:
    """Draws an image for each label, all in one style."""
    n, n_long = len(labels), 2 * setting.n_dashes
    n_short = setting.distractor_dashes
    short = range(n_long, n_long + setting.n_distractors * n_short)
    canvas = Canvas(stamps, n, short.stop)
    every_sheet = np.arange(n)
    pivot, direction = _draw_pairs(rng, n, stamps, setting)
    for dash in range(n_long):
        canvas.draw(every_sheet, pivot[:, dash], direction[:, dash], dash)
    for first in short[::n_short]:
        missing = every_sheet
        for _ in range(_DISTRACTOR_TRIES):
            dashes = range(first, first + n_short)
            # Only the sheets where the curve failed are tried again.
            missing = canvas.draw_curve(rng, missing, dashes)
    pivots = stamps.to_position(canvas.pivot)
    tails, heads = (
        pivots + end[canvas.direction] for end in (stamps.tail, stamps.head)
    )
    begins = rng.integers(2, size=n)
    ends = np.where(labels == 1, begins, 1 - begins)
    # The last dashes of both curves have the numbers n_long - 2 and n_long - 1.
    dots = np.stack(
        [tails[every_sheet, begins], heads[every_sheet, n_long - 2 + ends]], axis=1
    )
    is_drawn = canvas.direction >= 0
    if setting.dots_on_distractors:
        firsts = slice(n_long, None, n_short)
        starts = np.where(is_drawn[:, firsts, None], pivots[:, firsts], -setting.size)
        dots = np.append(dots, starts, axis=1)
    curves = np.r_[
        np.tile([0, 1], setting.n_dashes),
        np.repeat(2 + np.arange(setting.n_distractors), n_short),
    ]
    # Class 2 for the curve with both dots, which has the number `begins`.
    classes = 1 + ((labels == 1)[:, None] & (begins[:, None] == np.arange(2)))
    images, masks = _paint(canvas, dots, classes.astype(np.uint8), setting)
    return Drawings(
        images=images,
        labels=labels,
        masks=masks,
        dots=dots,
        tails=tails,
        heads=heads,
        curves=np.where(is_drawn, curves, -1),
    )


def _draw_pairs(
    rng: np.random.Generator, n: int, stamps: DashStamps, setting: Setting
) -> tuple[np.ndarray, np.ndarray]:
    """Draws pairs of long curves; returns their dashes, alternating, ``(n, d)``."""
    pivots, directions = [], []
    while n:
        canvas = Canvas(stamps, n * setting.n_begun, 2 * setting.n_dashes)
        grown = _begin_pairs(rng, canvas, setting)
        for dash in range(2, 2 * setting.n_dashes):
            # The curves grow in turns: neither occupies the space of the other first.
            grown = canvas.extend(rng, grown, after=dash - 2, dash=dash)
        # The first completed pairs in order: any other selection would bias the sample.
        grown = grown[:n]
        pivots.append(canvas.pivot[grown])
        directions.append(canvas.direction[grown])
        n -= len(grown)
    return np.concatenate(pivots), np.concatenate(directions)


def _begin_pairs(
    rng: np.random.Generator, canvas: Canvas, setting: Setting
) -> np.ndarray:
    """Draws the first dash of both curves; returns the sheets where both fit."""
    stamps = canvas.stamps
    n, size = len(canvas.pivot), stamps.width - 2 * stamps.edge
    every_sheet = np.arange(n)
    # Away from the edge: the second curve begins `apart` pixels from the first.
    position = rng.integers(2 * setting.apart, size - 2 * setting.apart, size=(n, 2))
    first, second = rng.integers(len(stamps.step), size=(2, n))
    canvas.draw(every_sheet, stamps.to_index(position), first, dash=0)
    angle = 2 * np.pi * rng.random(n)
    shift = setting.apart * np.stack([np.sin(angle), np.cos(angle)], axis=-1)
    # The distance is between the beginnings of the dashes, not between pivots.
    position = (
        position + stamps.tail[first] + np.rint(shift).astype(int) - stamps.tail[second]
    )
    pivot = stamps.to_index(position)
    fits = canvas.fits(every_sheet, pivot[:, None], second[:, None])[:, 0]
    canvas.draw(every_sheet[fits], pivot[fits], second[fits], dash=1)
    return every_sheet[fits]


def _paint(
    canvas: Canvas, dots: np.ndarray, classes: np.ndarray, setting: Setting
) -> tuple[np.ndarray, np.ndarray]:
    """Renders the dashes, with brightness by coverage, and the dots.

    Args:
      canvas: The canvas with all dashes.
      dots: Positions of the dots, ``(n, m, 2)``.
      classes: Class of the pixels of both long curves, uint8, ``(n, 2)``.
      setting: Setting of the images.

    Returns:
      Images and masks, both uint8, ``(n, size, size)``.
    """
    stamps = canvas.stamps
    n, n_dashes = canvas.pivot.shape
    brightness = np.zeros(n * stamps.width**2, np.float32)
    masks = np.zeros(len(brightness), np.uint8)
    for dash in range(n_dashes):
        drawn = np.flatnonzero(canvas.direction[:, dash] >= 0)
        direction = canvas.direction[drawn, dash]
        position = drawn * stamps.width**2 + canvas.pivot[drawn, dash]
        pixels = position[:, None] + stamps.ink[direction]
        is_long = dash < 2 * setting.n_dashes
        contrast = setting.contrast if is_long else setting.distractor_contrast
        light = contrast * stamps.coverage[direction]
        # The maximum: where dashes overlap they are not brighter. A pixel that pads a
        # stamp by repetition is written twice with one value.
        brightness[pixels] = np.maximum(brightness[pixels], light)
        if is_long:
            masks[pixels] = classes[drawn, dash % 2, None]
    inside = slice(stamps.edge, -stamps.edge)
    shape = (n, stamps.width, stamps.width)
    images = brightness.reshape(shape)[:, inside, inside].astype(float)
    _add_dots(images, dots, setting.dot_radius)
    return (
        # Contrasts above 1 saturate.
        np.rint(255 * np.minimum(images, 1)).astype(np.uint8),
        masks.reshape(shape)[:, inside, inside].copy(),
    )


def _add_dots(images: np.ndarray, dots: np.ndarray, radius: float) -> None:
    """Draws discs on images, in place; those outside of an image are left out."""
    reach, size = int(np.ceil(radius)), images.shape[1]
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    # The edge of a dot is one pixel wide, from 1 to 0.
    disc = np.clip(radius + 0.5 - np.hypot(y, x), 0, 1)
    for number in range(dots.shape[1]):
        rows, columns = (
            dots[:, number, axis, None, None] + offset
            for axis, offset in enumerate((y, x))
        )
        is_inside = (rows >= 0) & (rows < size) & (columns >= 0) & (columns < size)
        sheets = np.broadcast_to(np.arange(len(images))[:, None, None], is_inside.shape)
        pixels = sheets[is_inside], rows[is_inside], columns[is_inside]
        light = np.broadcast_to(disc, is_inside.shape)[is_inside]
        images[pixels] = np.maximum(images[pixels], light)
