"""Digits: small handwritten digits, read one pixel a step."""

import dataclasses
import functools

import numpy as np

from ssm_jax.tasks import base
from ssm_jax.tasks.images import labelled


@dataclasses.dataclass(frozen=True, kw_only=True)
class Digits:
    """Classification: which digit an image of 8 by 8 pixels shows, pixel by pixel.

    What it asks of a model: to gather evidence over 64 steps and judge once, at the
    end. A small stand-in for `PixelMnist` that needs no prepared set.

    Batch:
      inputs: float32, ``(b, 64, 1)``: pixels row by row from the top left, the integers
        0 to 16 divided by 16, not centred.
      targets: int32, ``(b,)``, the digit, 0 to 9.
      loss_mask: bool, ``(b,)``, false for rows that fill up the last batch.

    Splits: 1,347 train, 150 validation and 300 test of 1,797 images, drawn once with
    the classes in proportion. One writer can be in several of them. The images come
    with scikit-learn, nothing is downloaded; licence CC BY 4.0.

    Example:
      >>> batch = Digits().batch("test", 0, batch_size=300, seed=0)
      >>> batch.inputs.shape, np.bincount(batch.targets).tolist()
      ((300, 64, 1), [30, 30, 30, 31, 30, 30, 30, 30, 29, 30])

    References:
      Alpaydin and Kaynak, `Optical Recognition of Handwritten Digits
      <https://doi.org/10.24432/C50P49>`_, 1998, the test part as
      `sklearn.datasets.load_digits` has it
    """

    @property
    def spec(self) -> base.TaskSpec:
        """What a model must know: one feature in, one of ten classes out."""
        return labelled.pixel_spec(length=64, n_classes=10)

    def n_examples(self, split: base.Split) -> int:
        """Counts the images of a split."""
        base.check_split(split)
        return len(_read()[split].labels)

    def batch(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> base.Batch:
        """Gives batch number ``index``; see `ssm_jax.tasks.Task.batch`."""
        base.check_split(split)
        return _read()[split].batch(split, index, batch_size, seed)


@functools.cache
def _read() -> dict[base.Split, labelled.LabelledImages]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    rest, test = train_test_split(
        np.arange(len(labels)), test_size=300, stratify=labels, random_state=0
    )
    train, validation = train_test_split(
        rest, test_size=150, stratify=labels[rest], random_state=0
    )

    def part(rows: np.ndarray | list[int]) -> labelled.LabelledImages:
        return labelled.LabelledImages(
            pixels[rows].astype(np.uint8), labels[rows].astype(np.int32), white=16
        )

    return {"train": part(train), "validation": part(validation), "test": part(test)}
