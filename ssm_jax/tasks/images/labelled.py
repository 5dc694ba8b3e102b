"""What the tasks share that read an image one pixel a step."""

from typing import NamedTuple

import numpy as np

from ssm_jax.tasks import base


class LabelledImages(NamedTuple):
    """Images as rows of pixels, held as the integers they are stored as.

    Attributes:
      pixels: uint8, ``(n, l)``, row by row from the top left.
      labels: int32, ``(n,)``, the class of each image.
      white: The greatest value that a pixel can take.
    """

    pixels: np.ndarray
    labels: np.ndarray
    white: int

    def batch(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> base.Batch:
        """Gives batch number ``index`` of these images; they are the split.

        Args:
          split: Which split they are: ``"train"`` is shuffled.
          index: Position in the split, in batches.
          batch_size: Rows of the batch, ``b``.
          seed: Draws the order of the train split.

        Returns:
          Inputs ``(b, l, 1)`` in [0, 1], targets and mask ``(b,)``.

        Raises:
          ValueError: As for `ssm_jax.tasks.Task.batch`.

        Example:
          >>> pixels, labels = np.array([[0, 8, 16]], np.uint8), np.array([7], np.int32)
          >>> images = LabelledImages(pixels, labels, white=16)
          >>> batch = images.batch("test", 0, batch_size=1, seed=0)
          >>> print(batch.inputs[0, :, 0], batch.targets)
          [0.  0.5 1. ] [7]
        """
        rows, mask = base.shuffled_indices(
            len(self.labels), split, index, batch_size, seed
        )
        inputs = self.pixels[rows, :, None] / np.float32(self.white)
        return base.Batch(inputs, self.labels[rows], mask)


def pixel_spec(*, length: int, n_classes: int, d_input: int = 1) -> base.TaskSpec:
    """Describes a task that names the class of an image after its last pixel."""
    return base.TaskSpec(
        length=length,
        inputs="vector",
        d_input=d_input,
        targets="classification",
        d_output=n_classes,
        l_output=None,
    )
