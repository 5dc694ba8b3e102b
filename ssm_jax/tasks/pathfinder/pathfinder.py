"""The tasks Pathfinder and Path-X, generated on demand or read from a prepared set."""

import dataclasses
from pathlib import Path

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base, generated
from ssm_jax.tasks.images import labelled
from ssm_jax.tasks.pathfinder.examples import data_files, examples
from ssm_jax.tasks.pathfinder.settings import PATHFINDER, Size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pathfinder(generated.GeneratedTask):
    """Classification: whether two dots are the ends of one dashed curve, by pixels.

    An image shows two curves of 14 dashes each, up to 5 short ones (8 at 128 pixels),
    and two dots, one at the beginning of a long curve and one at the end of the same or
    the other long curve. The curves bend but do not touch or cross.

    What the task asks of a model: to relate pixels that are thousands of steps apart; a
    vertical curve has one short run of pixels in every row of the image.

    Attributes:
      data_dir: Directory that holds ``pathfinder32/1.0.0`` or ``pathfinder128/1.0.0``,
        written by ``python -m launch.prepare --dataset=pathfinder32`` (or
        ``pathfinder128``); images are read from disk per batch. None means that images
        are generated on first use and cached in memory.
      size: Side length of an image in pixels: 32 is the arena's Pathfinder, 128 its
        Path-X.
      n_train: Number of train examples, the first ones of the split.
      n_validation: Number of validation examples.
      n_test: Number of test examples.

    Batch:
      inputs: float32, ``(b, size * size, 1)``: pixels row by row from the top left,
        divided by 255, not centered; black is 0.
      targets: int32, ``(b,)``, 1 if both dots are on one curve, else 0.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.

    Splits: 160,000 train, 20,000 validation and 20,000 test images, disjoint because
    each split has its own random stream: example i depends only on the size, the split
    and i. Labels are drawn with probability 1/2. Nothing is downloaded. One core draws
    about 1,000 images of 32 pixels or 90 of 128 pixels per second; all of them take
    three minutes and 200 MB, or forty minutes and 3.3 GB. Preparing the set once uses
    all cores. A set prepared with the default seed holds the same examples.

    Note:
      The images are generated from the authors' description, with the arena's settings
      for its hard variant (``curv_contour_length_14``); they are similar to the
      published files, not equal. As there, the short curves of the small images are a
      third brighter than the long ones. The positions of the dots alone predict the
      label slightly, with accuracy 56 % at size 32 (their distance 54 %) and 51 % at
      128; brightness and the number of lit pixels do not.

    Raises:
      FileNotFoundError: At the first batch, if ``data_dir`` does not hold the set.
      ValueError: ``size`` is not 32 or 128, or a split is empty; at the first batch, if
        the set in ``data_dir`` is smaller, damaged or in another format.

    Example:
      >>> task = Pathfinder(size=32, n_train=100, n_validation=10, n_test=10)
      >>> batch = task.batch("test", 0, batch_size=10, seed=0)
      >>> batch.inputs.shape, batch.targets.tolist()
      ((10, 1024, 1), [0, 1, 0, 0, 0, 0, 1, 1, 0, 1])

    References:
      Linsley, Kim, Veerabadran, Windolf and Serre, `Learning long-range spatial
      dependencies with horizontal gated recurrent units
      <https://arxiv.org/abs/1805.08315>`_, 2018, section 3.1; Tay et al., `Long Range
      Arena <https://arxiv.org/abs/2011.04006>`_, 2020, sections 2.2.5 and 2.2.6
    """

    data_dir: str | None = None
    size: Size = 32
    n_train: int = 160_000
    n_validation: int = 20_000
    n_test: int = 20_000

    @override
    def __post_init__(self) -> None:
        if self.size not in PATHFINDER:
            raise ValueError(
                f"`size` must be 32 or 128, got {self.size}; they are the arena's "
                "Pathfinder and Path-X."
            )
        super().__post_init__()

    @property
    def spec(self) -> base.TaskSpec:
        """One feature per step, one of two classes per sequence."""
        return labelled.pixel_spec(length=self.size**2, n_classes=2)

    def data_files(self) -> dict[str, Path]:
        """Returns the files of the prepared set by name; none if images are drawn."""
        return data_files(PATHFINDER[self.size], self.data_dir)

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        n = self.n_examples(split)
        images = examples(PATHFINDER[self.size], self.data_dir, split, n)
        pixels, labels = images.take(indices)
        # float32, as an integer divisor would make the batch float64.
        return base.Batch(pixels[..., None] / np.float32(255), labels, loss_mask)
