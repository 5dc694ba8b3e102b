"""Settings of the generator of dashed curves: one for each set of images."""

import dataclasses
from typing import Literal

from ssm_jax.tasks.pathfinder.dashes import DashStyle

Size = Literal[32, 128]
"""Side length of an image in pixels: 32 for Pathfinder, 128 for Path-X."""

SegmentationSize = Literal[32, 64, 128, 256, 512]
"""Side length of an image of Pathfinder-Segmentation in pixels."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of the authors' generator.

    Attributes:
      name: Name of the set, which also seeds its random streams.
      target: What a prepared set holds beside an image: the ``"label"`` of the image,
        or a ``"mask"`` with the class of each pixel.
      n_images: Usual number of images of all splits.
      size: Side length of an image in pixels.
      styles: Styles of the dashes; each image has one of them, uniformly.
      n_dashes: Number of dashes of each of the two long curves, which have the dots.
      distractor_dashes: Number of dashes of each short curve.
      n_distractors: Maximum number of short curves.
      dots_on_distractors: Whether a dot is drawn at the first pivot of each short
        curve, so that a dot alone does not distinguish a long curve.
      apart: Distance between the beginnings of the two long curves in pixels, and half
        of the minimum distance of the first pivot from the edge.
      dot_radius: Radius of the dots in pixels.
      contrast: Brightness of the long curves at full coverage of a pixel.
      distractor_contrast: Brightness of the short curves.
      n_begun: Pairs of curves that are started for each missing one in each round.
      per_block: Number of images that are drawn at a time.
    """

    name: str
    target: Literal["label", "mask"] = "mask"
    n_images: int = 100_000
    size: int
    styles: tuple[DashStyle, ...]
    n_dashes: int = 14
    distractor_dashes: int = 4
    n_distractors: int
    dots_on_distractors: bool = False
    apart: int
    dot_radius: float
    contrast: float = 1.0
    distractor_contrast: float = 1.0
    n_begun: int
    per_block: int = 50


# The Long Range Arena's settings for the hard variant.
PATHFINDER: dict[int, Setting] = {
    32: Setting(
        name="pathfinder32",
        target="label",
        n_images=200_000,
        size=32,
        styles=(DashStyle(dash=2, thickness=0.5, margin=1, continuity=1.0),),
        apart=7,
        n_distractors=5,
        dot_radius=1.5,
        contrast=1.5,
        distractor_contrast=2.0,
        n_begun=24,
    ),
    128: Setting(
        name="pathfinder128",
        target="label",
        n_images=200_000,
        size=128,
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
"""Settings of Pathfinder and Path-X, by side length."""

# From 128 pixels on those of the code of Gupta et al.; those of 32 and 64 are ours.
SEGMENTATION: dict[int, Setting] = {
    32: Setting(
        name="pathfinder_segmentation32",
        size=32,
        styles=PATHFINDER[32].styles,
        n_dashes=9,
        distractor_dashes=3,
        n_distractors=3,
        dots_on_distractors=True,
        apart=7,
        dot_radius=0.9,
        contrast=1.5,
        distractor_contrast=1.5,
        n_begun=24,
    ),
    64: Setting(
        name="pathfinder_segmentation64",
        size=64,
        styles=(DashStyle(dash=3, thickness=1.0, margin=1, continuity=1.8),),
        n_dashes=12,
        n_distractors=8,
        dots_on_distractors=True,
        apart=11,
        dot_radius=1.5,
        n_begun=50,
    ),
    128: Setting(
        name="pathfinder_segmentation128",
        size=128,
        styles=PATHFINDER[128].styles,
        n_distractors=16,
        dots_on_distractors=True,
        apart=22,
        dot_radius=2.1,
        contrast=0.9,
        distractor_contrast=0.9,
        n_begun=50,
    ),
    256: Setting(
        name="pathfinder_segmentation256",
        size=256,
        styles=(DashStyle(dash=8, thickness=2.0, margin=4, continuity=2.2),),
        n_dashes=16,
        distractor_dashes=5,
        n_distractors=16,
        dots_on_distractors=True,
        apart=27,
        dot_radius=4.2,
        n_begun=20,
        per_block=20,
    ),
    512: Setting(
        name="pathfinder_segmentation512",
        size=512,
        styles=(DashStyle(dash=22, thickness=6.0, margin=7, continuity=2.5),),
        n_dashes=12,
        n_distractors=18,
        dots_on_distractors=True,
        apart=40,
        dot_radius=9.0,
        n_begun=20,
        per_block=10,
    ),
}
"""Settings of Pathfinder-Segmentation, by side length."""
