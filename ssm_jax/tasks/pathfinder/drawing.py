"""Generator of the images of Pathfinder and Path-X."""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from ssm_jax.tasks import base
from ssm_jax.tasks.pathfinder.canvas import Canvas
from ssm_jax.tasks.pathfinder.dashes import DashStamps, DashStyle, make_stamps

Size = Literal[32, 128]
"""Side length of an image in pixels: 32 for Pathfinder, 128 for Path-X."""

PER_BLOCK = 50
"""Number of examples that `draw_block` draws."""

_DASHES = 14  # Dashes of each of the two long curves, which have the dots.
_DISTRACTOR_DASHES = 4
_DISTRACTOR_TRIES = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Setting:
    """Settings of the Long Range Arena for the authors' generator, hard variant.

    Attributes:
      styles: Styles of the dashes; each image has one of them, uniformly.
      apart: Distance between the beginnings of the two long curves in pixels, and half
        of the minimum distance of the first pivot from the edge.
      n_distractors: Maximum number of short curves.
      dot_radius: Radius of the dots in pixels.
      contrast: Brightness of the long curves at full coverage of a pixel.
      distractor_contrast: Brightness of the short curves.
      n_begun: Pairs of curves that are started for each completed pair, on average.
    """

    styles: tuple[DashStyle, ...]
    apart: int
    n_distractors: int
    dot_radius: float
    contrast: float
    distractor_contrast: float
    n_begun: int


_SETTINGS: dict[int, _Setting] = {
    32: _Setting(
        styles=(DashStyle(dash=2, thickness=0.5, margin=1, continuity=1.0),),
        apart=7,
        n_distractors=5,
        dot_radius=1.5,
        contrast=1.5,
        distractor_contrast=2.0,
        n_begun=24,
    ),
    128: _Setting(
        styles=(
            DashStyle(dash=5, thickness=1.5, margin=2, continuity=1.8),
            DashStyle(dash=5, thickness=1.5, margin=3, continuity=1.8),
        ),
        apart=20,
        n_distractors=8,
        dot_radius=3.0,
        contrast=0.9,
        distractor_contrast=0.9,
        n_begun=50,
    ),
}


class Drawings(NamedTuple):
    """Images and their geometry; positions are rows and columns of pixels.

    Attributes:
      images: uint8, ``(n, size, size)``, black background.
      labels: int32, ``(n,)``, 1 if both dots are on one curve.
      dots: Positions of the two dots, int64, ``(n, 2, 2)``.
      tails: Beginning of each of up to ``d`` dashes, int64, ``(n, d, 2)``.
      heads: End of each dash, int64, ``(n, d, 2)``.
      curves: Curve of each dash, int64, ``(n, d)``, in order from the beginning of a
        curve to its end: 0 and 1 are the long curves, 2 and above the short ones, -1
        means no dash.
    """

    images: np.ndarray
    labels: np.ndarray
    dots: np.ndarray
    tails: np.ndarray
    heads: np.ndarray
    curves: np.ndarray


def draw_block(size: Size, seed: int, split: base.Split, block: int) -> Drawings:
    """Draws the `PER_BLOCK` examples of a split from ``block * PER_BLOCK`` on.

    Equal arguments give equal examples in every process.

    Args:
      size: Side length of an image in pixels.
      seed: Seed of the data set, at least 0.
      split: The split.
      block: Index of the block, at least 0.

    Returns:
      The examples.
    """
    rng = base.generator(f"pathfinder{size}", split, seed, block)
    return draw(rng, PER_BLOCK, size)


def draw(rng: np.random.Generator, n: int, size: Size) -> Drawings:
    """Draws images of two long dashed curves, short ones, and two dots.

    One dot is at the beginning of one of the two long curves, the other at the end of
    the same curve or of the other one, with equal probability. The distance between
    curves is at least the gap between two dashes. If a long curve has no room left, the
    pair is rejected; a short curve is tried five times.

    Args:
      rng: Random number generator.
      n: Number of images.
      size: Side length in pixels.

    Returns:
      The images and their geometry.

    Example:
      >>> drawings = draw(np.random.default_rng(1), 3, size=32)
      >>> drawings.images.shape, drawings.labels.tolist()
      ((3, 32, 32), [0, 1, 1])
    """
    setting = _SETTINGS[size]
    # Before the curves: rejecting them does not change the frequency of the labels.
    labels = rng.integers(2, size=n, dtype=np.int32)
    which = rng.integers(len(setting.styles), size=n)
    parts, order = [], []
    for number, style in enumerate(setting.styles):
        rows = np.flatnonzero(which == number)
        if len(rows):
            stamps = make_stamps(style, size)
            parts.append(_draw(rng, labels[rows], stamps, setting))
            order.append(rows)
    # The images were drawn by style; this restores their order.
    inverse = np.argsort(np.concatenate(order))
    return Drawings(*(np.concatenate(x)[inverse] for x in zip(*parts, strict=True)))


def _draw(
    rng: np.random.Generator, labels: np.ndarray, stamps: DashStamps, setting: _Setting
) -> Drawings:
    """Draws an image for each label, all in one style."""
    n, n_long = len(labels), 2 * _DASHES
    short = range(n_long, n_long + setting.n_distractors * _DISTRACTOR_DASHES)
    canvas = Canvas(stamps, n, short.stop)
    every_sheet = np.arange(n)
    pivot, direction = _draw_pairs(rng, n, stamps, setting)
    for dash in range(n_long):
        canvas.draw(every_sheet, pivot[:, dash], direction[:, dash], dash)
    for first in short[::_DISTRACTOR_DASHES]:
        missing = every_sheet
        for _ in range(_DISTRACTOR_TRIES):
            dashes = range(first, first + _DISTRACTOR_DASHES)
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
    curves = np.r_[
        np.tile([0, 1], _DASHES),
        np.repeat(2 + np.arange(setting.n_distractors), _DISTRACTOR_DASHES),
    ]
    return Drawings(
        images=_paint(canvas, dots, setting),
        labels=labels,
        dots=dots,
        tails=tails,
        heads=heads,
        curves=np.where(canvas.direction >= 0, curves, -1),
    )


def _draw_pairs(
    rng: np.random.Generator, n: int, stamps: DashStamps, setting: _Setting
) -> tuple[np.ndarray, np.ndarray]:
    """Draws pairs of long curves; returns their dashes, alternating, ``(n, 28)``."""
    pivots, directions = [], []
    while n:
        canvas = Canvas(stamps, n * setting.n_begun, 2 * _DASHES)
        grown = _begin_pairs(rng, canvas, setting)
        for dash in range(2, 2 * _DASHES):
            # The curves grow in turns: neither occupies the space of the other first.
            grown = canvas.extend(rng, grown, after=dash - 2, dash=dash)
        # The first completed pairs in order: any other selection would bias the sample.
        grown = grown[:n]
        pivots.append(canvas.pivot[grown])
        directions.append(canvas.direction[grown])
        n -= len(grown)
    return np.concatenate(pivots), np.concatenate(directions)


def _begin_pairs(
    rng: np.random.Generator, canvas: Canvas, setting: _Setting
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


def _paint(canvas: Canvas, dots: np.ndarray, setting: _Setting) -> np.ndarray:
    """Renders the dashes, with brightness by coverage, and the dots."""
    stamps = canvas.stamps
    n, n_dashes = canvas.pivot.shape
    brightness = np.zeros(n * stamps.width**2, np.float32)
    for dash in range(n_dashes):
        drawn = np.flatnonzero(canvas.direction[:, dash] >= 0)
        direction = canvas.direction[drawn, dash]
        position = drawn * stamps.width**2 + canvas.pivot[drawn, dash]
        pixels = position[:, None] + stamps.ink[direction]
        is_long = dash < 2 * _DASHES
        contrast = setting.contrast if is_long else setting.distractor_contrast
        light = contrast * stamps.coverage[direction]
        # The maximum: where dashes overlap they are not brighter. A pixel that pads a
        # stamp by repetition is written twice with one value.
        brightness[pixels] = np.maximum(brightness[pixels], light)
    inside = slice(stamps.edge, -stamps.edge)
    images = brightness.reshape(n, stamps.width, stamps.width)[:, inside, inside]
    axis = np.arange(images.shape[1])
    for y, x in (dot[..., None, None] for dot in dots.transpose(1, 2, 0)):
        distance = np.hypot(axis[:, None] - y, axis - x)
        # The edge of a dot is one pixel wide, from 1 to 0.
        disc = np.clip(setting.dot_radius + 0.5 - distance, 0, 1)
        images = np.maximum(images, disc)
    # Contrasts above 1 saturate.
    return np.rint(255 * np.minimum(images, 1)).astype(np.uint8)
