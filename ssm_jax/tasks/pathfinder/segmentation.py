"""The task Pathfinder-Segmentation: the class of each pixel of an image."""

import dataclasses
from pathlib import Path

import numpy as np
from typing_extensions import override

from ssm_jax.fields import PositiveInt, check_fields
from ssm_jax.tasks import base, generated
from ssm_jax.tasks.pathfinder.examples import data_files, examples
from ssm_jax.tasks.pathfinder.settings import SEGMENTATION, SegmentationSize


@dataclasses.dataclass(frozen=True, kw_only=True)
class PathfinderSegmentation(generated.GeneratedTask):
    """Classification of pixels: which lie on the dashed curve that has both dots.

    An image shows two long dashed curves, up to 18 short ones, and dots: one at the
    beginning of a long curve, one at the end of the same or the other long curve, and
    one at the beginning of each short curve. The classes of a pixel are

    - 2 on the dashes of the long curve that has both dots, which half of the images
      have;
    - 1 on the dashes of the other long curve, or of both if each has one of the dots;
    - 0 elsewhere: background, short curves, and dots beside the dashes.

    What the task asks of a model: to relate each pixel to those at both ends of its
    curve, thousands of steps before and after it, so that a model must be
    bidirectional. About 1 % of the pixels are of class 2; see ``class_weight`` of
    `TaskSpec` for loss and metrics.

    Attributes:
      data_dir: Directory that holds ``pathfinder_segmentation128/1.0.0``, written by
        ``python -m launch.prepare --dataset=pathfinder_segmentation128``; images are
        read from disk per batch. None means that images are generated on first use and
        cached in memory.
      size: Side length of an image in pixels: 128, 256 and 512 are published, 32 and 64
        are for reduced experiments.
      n_train: Number of train examples, the first ones of the split.
      n_validation: Number of validation examples.
      n_test: Number of test examples.

    Batch:
      inputs: float32, ``(b, size * size, 1)``: pixels row by row from the top left,
        scaled to [-1, 1]; black is -1.
      targets: int32, ``(b, size * size)``, the classes.
      loss_mask: bool, ``(b, size * size)``, false in the rows that pad the last batch.

    Splits: 80,000 train, 10,000 validation and 10,000 test images, as in the authors'
    code, where the paper states 96, 2 and 2 %. They are disjoint because each split has
    its own random stream: example i depends only on the size, the split and i. Nothing
    is downloaded. One core draws about 280 images of 64 pixels, 65 of 128, 22 of 256 or
    11 of 512 per second; all of them take 2 bytes per pixel in memory, 3.3 GB at 128
    pixels and 52 GB at 512, but 70 MB to 1.3 GB in a prepared set, which is compressed.
    Preparing the set once uses all cores; it holds the same examples.

    Note:
      The images are generated from the authors' description with the settings of their
      code: curves of 14, 16 and 12 dashes at 128, 256 and 512 pixels. They are similar
      to the authors' images, not equal. The settings of 64 pixels are ours: 12 dashes
      of 3 pixels with gaps of 2, and up to 8 short curves; and those of 32 pixels: 9
      dashes of 2 pixels, and up to 3 short curves.

    Raises:
      FileNotFoundError: At the first batch, if ``data_dir`` does not hold the set.
      ValueError: ``size`` is not 32, 64, 128, 256 or 512, or a split is empty; at the
        first batch, if the set in ``data_dir`` is smaller, damaged or in another
        format.

    Example:
      >>> task = PathfinderSegmentation(size=64, n_train=50, n_validation=1, n_test=1)
      >>> batch = task.batch("train", 0, batch_size=50, seed=0)
      >>> batch.inputs.shape, np.bincount(batch.targets.ravel()).tolist()
      ((50, 4096, 1), [195734, 6611, 2455])

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 4.2;
      Linsley, Kim, Veerabadran, Windolf and Serre, `Learning long-range spatial
      dependencies with horizontal gated recurrent units
      <https://arxiv.org/abs/1805.08315>`_, 2018, section 3.1
    """

    data_dir: str | None = None
    size: SegmentationSize = 128
    n_train: PositiveInt = 80_000
    n_validation: PositiveInt = 10_000
    n_test: PositiveInt = 10_000

    @override
    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def spec(self) -> base.TaskSpec:
        """One feature and one of three classes per step; the classes are balanced."""
        return base.TaskSpec(
            length=self.size**2,
            inputs="vector",
            d_input=1,
            targets="classification",
            d_output=3,
            l_output=self.size**2,
            class_weight="balanced",
        )

    def data_files(self) -> dict[str, Path]:
        """Returns the files of the prepared set by name; none if images are drawn."""
        return data_files(SEGMENTATION[self.size], self.data_dir)

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        n = self.n_examples(split)
        images = examples(SEGMENTATION[self.size], self.data_dir, split, n)
        pixels, masks = images.take(indices)
        inputs = pixels[..., None] / np.float32(255)
        return base.Batch(
            inputs=(inputs - np.float32(0.5)) / np.float32(0.5),
            targets=masks.astype(np.int32),
            loss_mask=np.repeat(loss_mask[:, None], self.spec.length, axis=1),
        )
