"""Images, batches and spec shared by the tasks that classify images by pixels."""

import io
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from ssm_jax.tasks import base


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

    def take(self, indices: np.ndarray, loss_mask: np.ndarray) -> base.Batch:
        """Returns some images as inputs ``(b, l, 1)`` in [0, 1], and their classes.

        Example:
          >>> pixels, labels = np.array([[0, 8, 16]], np.uint8), np.array([7], np.int32)
          >>> images = LabelledImages(pixels, labels, white=16)
          >>> batch = images.take(np.array([0]), np.array([True]))
          >>> print(batch.inputs[0, :, 0], batch.targets)
          [0.  0.5 1. ] [7]
        """
        # Pixels are stored as uint8 and converted per batch: a quarter of the memory. A
        # Python integer as the divisor would make the batch float64.
        inputs = self.pixels[indices, :, None] / np.float32(self.white)
        return base.Batch(inputs, self.labels[indices], loss_mask)


def decode(
    encoded: bytes,
    check: Callable[[int, int], None],
    where: str,
    mode: str | None = None,
) -> np.ndarray:
    """Decodes an image in one of the formats of TFDS.

    Args:
      encoded: The content of a file in PNG or JPEG.
      check: Called with height and width before the pixels are decoded; raises an error
        for a size that is not expected.
      where: Where the image is from, for errors.
      mode: Mode of Pillow that the image is converted to. None leaves it.

    Returns:
      Pixels, ``(h, w)`` or ``(h, w, channels)``.

    Raises:
      ValueError: The image is damaged or in another format.
    """
    # Imported on first use: the other tasks do not need Pillow.
    from PIL import Image

    try:
        # Of the other formats of Pillow one starts another program, Ghostscript.
        image = Image.open(io.BytesIO(encoded), formats=("PNG", "JPEG"))
        # From the header: a small file may stand for gigabytes of pixels.
        check(image.height, image.width)
        return np.asarray(image if mode is None else image.convert(mode))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(
            f"`data_dir` must hold whole images in PNG or JPEG, got {where} with "
            f"{type(error).__name__}; prepare the set again."
        ) from error


def pixel_spec(
    *,
    length: int,
    n_classes: int,
    d_input: int = 1,
    class_weight: Literal["balanced"] | None = None,
) -> base.TaskSpec:
    """Returns the spec of a task that predicts one class after the last step."""
    return base.TaskSpec(
        length=length,
        inputs="vector",
        d_input=d_input,
        targets="classification",
        d_output=n_classes,
        l_output=None,
        class_weight=class_weight,
    )
