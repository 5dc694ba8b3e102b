"""The images of Pathfinder: are two dots the ends of one dashed curve?"""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from ssm_jax.tasks import base
from ssm_jax.tasks.pathfinder.canvas import Canvas
from ssm_jax.tasks.pathfinder.dashes import DashStamps, DashStyle, make_stamps

Size = Literal[32, 128]
"""Pixels along a side of an image: Pathfinder, and Path-X."""

PER_BLOCK = 50
"""Examples that `draw_block` draws together."""

_DASHES = 14  # Of each of the two curves that can carry dots.
_DISTRACTOR_DASHES = 4
_DISTRACTOR_TRIES = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Setting:
    """What the Long Range Arena gave the authors' generator, in its hard variant.

    Attributes:
      styles: Each image has one of these, equally likely.
      apart: Pixels between the beginnings of the two curves, and half the distance of
        the first one's pivot from the edge, at least.
      n_distractors: Short curves besides; fewer where there is no room.
      dot_radius: Of the dots, in pixels.
      contrast: Brightness of the two curves, where their dashes cover a whole pixel.
      distractor_contrast: The same of the short ones.
      n_begun: Pairs of curves to begin for each that is expected to come to its end.
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
    """Images with what is on them; places are rows and columns of pixels.

    Attributes:
      images: uint8, ``(n, size, size)``, black background.
      labels: int32, ``(n,)``, 1 where both dots are on one curve.
      dots: Where the two dots are, int64, ``(n, 2, 2)``.
      tails: Where each of up to ``d`` dashes begins, int64, ``(n, d, 2)``.
      heads: Where it ends, int64, ``(n, d, 2)``.
      curves: The curve that it belongs to, int64, ``(n, d)``, in order from the curve's
        beginning to its end: 0 and 1 the long ones, 2 and more the short ones, -1 where
        there is no dash.
    """

    images: np.ndarray
    labels: np.ndarray
    dots: np.ndarray
    tails: np.ndarray
    heads: np.ndarray
    curves: np.ndarray


def draw_block(size: Size, seed: int, split: base.Split, block: int) -> Drawings:
    """Draws the examples ``block * PER_BLOCK`` and on of a split.

    Equal arguments give equal examples in every process.

    Args:
      size: Pixels along a side of an image.
      seed: At least 0; another seed is another data set.
      split: The part of the data that they belong to.
      block: At least 0.

    Returns:
      `PER_BLOCK` examples.
    """
    rng = base.generator(f"pathfinder{size}", split, seed, block)
    return draw(rng, PER_BLOCK, size)


def draw(rng: np.random.Generator, n: int, size: Size) -> Drawings:
    """Draws images of two long dashed curves, short ones, and two dots.

    One dot is at the beginning of one of the two curves, the other at the end of the
    same curve or, as likely, of the other. All curves keep apart by at least the gap
    between two dashes. A curve that gets stuck means a new pair of curves, a short one
    is tried five times.

    Args:
      rng: Where the numbers come from.
      n: Images to draw.
      size: Pixels along a side.

    Returns:
      The images and what is on them.

    Example:
      >>> drawings = draw(np.random.default_rng(1), 3, size=32)
      >>> drawings.images.shape, drawings.labels.tolist()
      ((3, 32, 32), [0, 1, 1])
    """
    setting = _SETTINGS[size]
    labels = rng.integers(2, size=n, dtype=np.int32)
    which = rng.integers(len(setting.styles), size=n)
    parts, order = [], []
    for number, style in enumerate(setting.styles):
        rows = np.flatnonzero(which == number)
        if len(rows):
            stamps = make_stamps(style, size)
            parts.append(_draw(rng, labels[rows], stamps, setting))
            order.append(rows)
    place = np.argsort(np.concatenate(order))
    return Drawings(*(np.concatenate(x)[place] for x in zip(*parts, strict=True)))


def _draw(
    rng: np.random.Generator, labels: np.ndarray, stamps: DashStamps, setting: _Setting
) -> Drawings:
    """Draws an image for each label, all with one stamps."""
    n, n_long = len(labels), 2 * _DASHES
    short = range(n_long, n_long + setting.n_distractors * _DISTRACTOR_DASHES)
    sheets = Canvas(stamps, n, short.stop)
    everywhere = np.arange(n)
    pivot, direction = _draw_pairs(rng, n, stamps, setting)
    for dash in range(n_long):
        sheets.draw(everywhere, pivot[:, dash], direction[:, dash], dash)
    for first in short[::_DISTRACTOR_DASHES]:
        missing = everywhere
        for _ in range(_DISTRACTOR_TRIES):
            dashes = range(first, first + _DISTRACTOR_DASHES)
            missing = sheets.draw_curve(rng, missing, dashes)
    pivots = stamps.place(sheets.pivot)
    tails, heads = (
        pivots + end[sheets.direction] for end in (stamps.tail, stamps.head)
    )
    begins = rng.integers(2, size=n)
    ends = np.where(labels == 1, begins, 1 - begins)
    dots = np.stack(
        [tails[everywhere, begins], heads[everywhere, n_long - 2 + ends]], axis=1
    )
    curves = np.r_[
        np.tile([0, 1], _DASHES),
        np.repeat(2 + np.arange(setting.n_distractors), _DISTRACTOR_DASHES),
    ]
    return Drawings(
        images=_paint(sheets, dots, setting),
        labels=labels,
        dots=dots,
        tails=tails,
        heads=heads,
        curves=np.where(sheets.direction >= 0, curves, -1),
    )


def _draw_pairs(
    rng: np.random.Generator, n: int, stamps: DashStamps, setting: _Setting
) -> tuple[np.ndarray, np.ndarray]:
    """Draws pairs of long curves; gives the dashes of both, in turns, ``(n, 28)``."""
    pivots, directions = [], []
    while n:
        sheets = Canvas(stamps, n * setting.n_begun, 2 * _DASHES)
        grown = _begin_pairs(rng, sheets, setting)
        for dash in range(2, 2 * _DASHES):
            grown = sheets.extend(rng, grown, after=dash - 2, dash=dash)
        # The first that came to their end, whatever they look like.
        grown = grown[:n]
        pivots.append(sheets.pivot[grown])
        directions.append(sheets.direction[grown])
        n -= len(grown)
    return np.concatenate(pivots), np.concatenate(directions)


def _begin_pairs(
    rng: np.random.Generator, sheets: Canvas, setting: _Setting
) -> np.ndarray:
    """Draws the first dash of both curves; gives the sheets where both fit."""
    stamps = sheets.stamps
    n, size = len(sheets.pivot), stamps.width - 2 * stamps.edge
    everywhere = np.arange(n)
    place = rng.integers(2 * setting.apart, size - 2 * setting.apart, size=(n, 2))
    first, second = rng.integers(len(stamps.step), size=(2, n))
    sheets.draw(everywhere, stamps.flat(place), first, dash=0)
    angle = 2 * np.pi * rng.random(n)
    shift = setting.apart * np.stack([np.sin(angle), np.cos(angle)], axis=-1)
    place = (
        place + stamps.tail[first] + np.rint(shift).astype(int) - stamps.tail[second]
    )
    pivot = stamps.flat(place)
    fits = sheets.fits(everywhere, pivot[:, None], second[:, None])[:, 0]
    sheets.draw(everywhere[fits], pivot[fits], second[fits], dash=1)
    return everywhere[fits]


def _paint(sheets: Canvas, dots: np.ndarray, setting: _Setting) -> np.ndarray:
    """Paints the dashes, the nearer to white the more of a pixel they cover."""
    stamps = sheets.stamps
    n, n_dashes = sheets.pivot.shape
    canvas = np.zeros(n * stamps.width**2, np.float32)
    for dash in range(n_dashes):
        drawn = np.flatnonzero(sheets.direction[:, dash] >= 0)
        direction = sheets.direction[drawn, dash]
        place = drawn * stamps.width**2 + sheets.pivot[drawn, dash]
        pixels = place[:, None] + stamps.ink[direction]
        is_long = dash < 2 * _DASHES
        contrast = setting.contrast if is_long else setting.distractor_contrast
        light = contrast * stamps.coverage[direction]
        canvas[pixels] = np.maximum(canvas[pixels], light)
    inside = slice(stamps.edge, -stamps.edge)
    images = canvas.reshape(n, stamps.width, stamps.width)[:, inside, inside]
    axis = np.arange(images.shape[1])
    for y, x in (dot[..., None, None] for dot in dots.transpose(1, 2, 0)):
        distance = np.hypot(axis[:, None] - y, axis - x)
        disc = np.clip(setting.dot_radius + 0.5 - distance, 0, 1)
        images = np.maximum(images, disc)
    return np.rint(255 * np.minimum(images, 1)).astype(np.uint8)
