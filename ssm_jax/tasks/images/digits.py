"""Digits: small handwritten digits, one pixel per step."""

import dataclasses
import functools
import importlib.util
from pathlib import Path

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base, order
from ssm_jax.tasks.images import labelled


@dataclasses.dataclass(frozen=True, kw_only=True)
class Digits(order.FiniteTask):
    """Classification: which digit an image of 8 by 8 pixels shows, pixel by pixel.

    What the task asks of a model: to accumulate evidence over 64 steps and classify
    once, at the last step. A small substitute for `PixelMnist` that needs no data.

    Batch:
      inputs: float32, ``(b, 64, 1)``: pixels row by row from the top left, the integers
        0 to 16 divided by 16, not centered.
      targets: int32, ``(b,)``, the digit, 0 to 9.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.

    Splits: 1,347 train, 150 validation and 300 test images, a partition of the 1,797
    images by one fixed draw, stratified by class. Images of one writer can be in
    several splits. The images are part of scikit-learn; nothing is downloaded. Licence
    CC BY 4.0.

    Example:
      >>> batch = Digits().batch("test", 0, batch_size=300, seed=0)
      >>> batch.inputs.shape, np.bincount(batch.targets).tolist()
      ((300, 64, 1), [30, 30, 30, 31, 30, 30, 30, 30, 29, 30])

    References:
      Alpaydin and Kaynak, `Optical Recognition of Handwritten Digits
      <https://doi.org/10.24432/C50P49>`_, 1998, the test part, as
      returned by `sklearn.datasets.load_digits`
    """

    @property
    def spec(self) -> base.TaskSpec:
        """One feature per step, one of ten classes per sequence."""
        return labelled.pixel_spec(length=64, n_classes=10)

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        return len(_read()[split].labels)

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        return _read()[split].take(indices, loss_mask)


@functools.cache
def _read() -> dict[base.Split, labelled.LabelledImages]:
    # As files: importing scikit-learn takes two seconds.
    sklearn = importlib.util.find_spec("sklearn")
    if sklearn is None or sklearn.origin is None:
        raise ModuleNotFoundError(
            "scikit-learn must be installed for `Digits`, got no such module; it is a "
            "dependency of ssm_jax."
        )
    data = Path(sklearn.origin).parent / "datasets" / "data" / "digits.csv.gz"
    pixels, labels = np.split(np.loadtxt(data, np.uint8, delimiter=","), [-1], -1)
    # Drawn once, by scikit-learn's `train_test_split` stratified by class: all runs are
    # evaluated on the same images.
    lines = (Path(__file__).parent / "digits_split.txt").read_text().splitlines()
    train, validation, test = (np.fromstring(line, int, sep=" ") for line in lines)

    def part(rows: np.ndarray) -> labelled.LabelledImages:
        rows_labels = labels[rows, 0].astype(np.int32)
        return labelled.LabelledImages(pixels[rows], rows_labels, white=16)

    return {"train": part(train), "validation": part(validation), "test": part(test)}
