"""Batches and spec shared by the tasks that classify images pixel by pixel."""

from typing import NamedTuple

import numpy as np

from ssm_jax.tasks import base, order


class LabelledImages(NamedTuple):
    """Images as rows of integer pixels, with a class each.

    Attributes:
      pixels: uint8, ``(n, l)``, row by row from the top left.
      labels: int32, ``(n,)``, the class of each image.
      white: The maximum value of a pixel.
    """

    pixels: np.ndarray
    labels: np.ndarray
    white: int

    def batch(
        self,
        split: base.Split,
        index: int,
        batch_size: int,
        seed: int,
        *,
        rows: slice | None = None,
    ) -> base.Batch:
        """Returns batch ``index`` of these images, which are one whole split.

        Args:
          split: The split that the images are; ``"train"`` is shuffled.
          index: Position in the split, in batches.
          batch_size: Number of rows of the batch, ``b``.
          seed: Seeds the order of the train split.
          rows: The rows of the batch that are returned. None means all.

        Returns:
          Inputs ``(b, l, 1)`` in [0, 1], targets and loss mask ``(b,)``.

        Raises:
          ValueError: As for `ssm_jax.tasks.Task.batch`.

        Example:
          >>> pixels, labels = np.array([[0, 8, 16]], np.uint8), np.array([7], np.int32)
          >>> images = LabelledImages(pixels, labels, white=16)
          >>> batch = images.batch("test", 0, batch_size=1, seed=0)
          >>> print(batch.inputs[0, :, 0], batch.targets)
          [0.  0.5 1. ] [7]
        """
        indices, loss_mask = order.shuffled_indices(
            len(self.labels), split, index, batch_size, seed, rows
        )
        # Pixels are stored as uint8 and converted per batch: a quarter of the memory. A
        # Python integer as the divisor would make the batch float64.
        inputs = self.pixels[indices, :, None] / np.float32(self.white)
        return base.Batch(inputs, self.labels[indices], loss_mask)


def pixel_spec(*, length: int, n_classes: int, d_input: int = 1) -> base.TaskSpec:
    """Returns the spec of a task that predicts one class after the last step."""
    return base.TaskSpec(
        length=length,
        inputs="vector",
        d_input=d_input,
        targets="classification",
        d_output=n_classes,
        l_output=None,
    )
