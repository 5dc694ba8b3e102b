"""MNIST and CIFAR-10 from prepared TFDS sets, one pixel (or row) per step."""

import dataclasses
import functools
from pathlib import Path

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base, order
from ssm_jax.tasks.images import labelled
from ssm_jax.tasks.tfds import reading

# The versions are fixed, as the order of the examples depends on them.
MNIST = reading.PreparedSet("mnist", "mnist/3.0.1", ("image", "label"))
CIFAR10 = reading.PreparedSet("cifar10", "cifar10/3.0.2", ("image", "label"))

_SIZE = 28  # Side length of an MNIST image in pixels.
_IMAGES = {MNIST: (_SIZE, "L"), CIFAR10: (32, "RGB")}  # Side length and mode.
_SEED = 1803


@dataclasses.dataclass(frozen=True, kw_only=True)
class PixelMnist(order.FiniteTask):
    """Classification: which digit an image shows, read pixel by pixel or row by row.

    What the task asks of a model: to accumulate evidence over 784 steps, most of them
    blank, and classify once, at the last step. In the permuted variant adjacent pixels
    are far apart in time, and the sequence has no local structure.

    Attributes:
      data_dir: Folder that holds ``mnist/3.0.1``, as ``python -m launch.prepare
        --dataset=mnist`` or TFDS itself prepares it (array_record). None means the
        folder that TFDS itself would take: the environment variable
        ``TFDS_DATA_DIR``, else ``~/tensorflow_datasets``.
      permuted: Whether the pixels are permuted by one fixed random permutation, the
        same for every image, seed and run.
      rows: Whether a step is a row of pixels instead of one pixel.
      size: Side length in pixels, a divisor of 28. Below 28, each pixel is the mean of
        a square of pixels.
      pooled: Whether all 70,000 images are pooled, shuffled in one fixed order, and a
        fifth of them used as the test split, as in the code of the paper below.
      n_validation: Number of images held out for validation, the last ones of the
        train split.

    Batch:
      inputs: float32, ``(b, 784, 1)``, or with ``rows`` ``(b, 28, 28)``: pixels row by
        row from the top left, divided by 255, not centered, then permuted if requested.
      targets: int32, ``(b,)``, the digit, 0 to 9.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.

    Splits: 55,000 train, 5,000 validation and 10,000 test images from TFDS's mnist
    3.0.1, whose train split (60,000, in TFDS's fixed order) is divided by position;
    pooled, 51,000, 5,000 and 14,000, divided by position after the fixed shuffle. Read
    once per process, in a few seconds, into 55 MB, without TensorFlow. Licence CC BY-SA
    3.0. The tests use a few images of noise instead.

    Raises:
      FileNotFoundError: At the first batch or count, if the set does not exist.
      ValueError: ``size`` is not a divisor of 28; at the first batch or count, if the
        set is damaged or not in array_record format, or ``n_validation`` leaves no
        train example.

    Example:
      >>> task = PixelMnist(data_dir="~/tensorflow_datasets", permuted=True)
      >>> task.spec.length, task.spec.d_output
      (784, 10)

    References:
      Zhang, Lin, Song and Dhillon, `Learning Long Term Dependencies via Fourier
      Recurrent Units <https://arxiv.org/abs/1803.06585>`_, 2018, sections 6.2 and 6.3
    """

    data_dir: str | None = None
    permuted: bool = False
    rows: bool = False
    size: int = _SIZE
    pooled: bool = False
    n_validation: int = 5_000

    def __post_init__(self) -> None:
        if self.size < 1 or _SIZE % self.size:
            raise ValueError(
                f"`size` must be a divisor of {_SIZE}, got {self.size}; 14 is valid."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """Pixels as features, one of ten classes per sequence."""
        length, d_input = (self.size, self.size) if self.rows else (self.size**2, 1)
        return labelled.pixel_spec(length=length, n_classes=10, d_input=d_input)

    def data_files(self) -> dict[str, Path]:
        """Returns the files of the prepared set by name."""
        return MNIST.data_files(self.data_dir)

    @override
    def n_examples(self, split: base.Split) -> int:
        return len(self._part(split).labels)

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        batch = self._part(split).take(indices, loss_mask)
        n, size = len(indices), self.size
        # Average pooling; with the full size the squares are single pixels.
        squares = batch.inputs.reshape(n, size, _SIZE // size, size, _SIZE // size)
        pixels = squares.mean((2, 4)).reshape(n, size**2)
        if self.permuted:
            # One permutation for all seeds, so that results of different runs compare.
            pixels = pixels[:, np.random.default_rng(_SEED).permutation(size**2)]
        return batch._replace(inputs=pixels.reshape(n, self.spec.length, -1))

    def _part(self, split):
        if not self.pooled:
            return _part(MNIST, self.data_dir, split, self.n_validation)
        base.check_split(split)
        return _pool_splits(self.data_dir, self.n_validation)[split]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PixelCifar10(order.FiniteTask):
    """Classification: the object in a gray photograph of 32 by 32 pixels, by pixels.

    The Image task of the Long Range Arena. What the task asks of a model: to detect
    shapes that are local in two dimensions in a one-dimensional sequence.

    Attributes:
      data_dir: Folder that holds ``cifar10/3.0.2``, as ``python -m launch.prepare
        --dataset=cifar10`` or TFDS itself prepares it (array_record). None means the
        folder that TFDS itself would take.
      n_validation: Number of images held out for validation, the last ones of TFDS's
        train split.

    Batch:
      inputs: float32, ``(b, 1024, 1)``: pixels row by row from the top left, gray as
        ``0.299 R + 0.587 G + 0.114 B`` rounded to an integer (halves up), then
        ``(x / 255 - 0.5) / 0.5``.
      targets: int32, ``(b,)``: airplane, automobile, bird, cat, deer, dog, frog, horse,
        ship, truck.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.

    Splits: 45,000 train, 5,000 validation and 10,000 test images from TFDS's cifar10
    3.0.2, whose train split (50,000, in TFDS's fixed order) is divided by position.
    Read once per process, in a few seconds, into 61 MB, without TensorFlow. The
    publisher states no licence. The tests use a few images of noise instead.

    Raises:
      FileNotFoundError: At the first batch or count, if the set does not exist.
      ValueError: At the first batch or count, if the set is damaged or not in
        array_record format, or ``n_validation`` leaves no train example.

    Example:
      >>> PixelCifar10().spec.length
      1024

    References:
      Tay et al., `Long Range Arena <https://arxiv.org/abs/2011.04006>`_, 2020,
      section 2.2.4; normalised as in the authors' code of Chu and Lin, `Incorporating
      Exponential Smoothing into MLP <https://arxiv.org/abs/2403.17445>`_, 2024
    """

    data_dir: str | None = None
    n_validation: int = 5_000

    @property
    def spec(self) -> base.TaskSpec:
        """One feature per step, one of ten classes per sequence."""
        return labelled.pixel_spec(length=32 * 32, n_classes=10)

    def data_files(self) -> dict[str, Path]:
        """Returns the files of the prepared set by name."""
        return CIFAR10.data_files(self.data_dir)

    @override
    def n_examples(self, split: base.Split) -> int:
        return len(_part(CIFAR10, self.data_dir, split, self.n_validation).labels)

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        part = _part(CIFAR10, self.data_dir, split, self.n_validation)
        batch = part.take(indices, loss_mask)
        # (x - 0.5) / 0.5, the normalization of the authors' code.
        return batch._replace(inputs=2 * batch.inputs - 1)


def _part(
    prepared: reading.PreparedSet,
    data_dir: str | None,
    split: base.Split,
    n_validation: int,
) -> labelled.LabelledImages:
    """Returns a split; the validation split is the end of the set's train split."""
    base.check_split(split)
    if split == "test":
        return _read(prepared, data_dir, "test")
    pixels, labels, white = _read(prepared, data_dir, "train")
    n_train = len(labels) - n_validation
    # Checked before the slices, which a negative number would not stop.
    reading.check_held_out(len(labels), n_validation, "5,000")
    part = slice(n_train) if split == "train" else slice(n_train, None)
    return labelled.LabelledImages(pixels[part], labels[part], white)


@functools.cache
def _pool_splits(data_dir, n_validation):
    """Pools both splits of MNIST, shuffles them once, and splits off a fifth."""
    pixels, labels, white = (
        [getattr(_read(MNIST, data_dir, split), field) for split in ("train", "test")]
        for field in labelled.LabelledImages._fields
    )
    # One order for all runs: the test split must not depend on the seed.
    order = np.random.default_rng(_SEED).permutation(sum(map(len, labels)))
    pixels, labels = np.concatenate(pixels)[order], np.concatenate(labels)[order]
    n = len(labels) - len(labels) // 5
    reading.check_held_out(n, n_validation, "5,000")
    ends = {"train": (0, n - n_validation), "validation": (n - n_validation, n)}
    return {
        split: labelled.LabelledImages(pixels[a:b], labels[a:b], white[0])
        for split, (a, b) in (ends | {"test": (n, len(labels))}).items()
    }


# Cached per set and split: tasks with different fields share the arrays.
@functools.cache
def _read(
    prepared: reading.PreparedSet, data_dir: str | None, split: str
) -> labelled.LabelledImages:
    """Decodes a split of a prepared set into arrays, once per process."""
    (size, mode), where = _IMAGES[prepared], f"{prepared.path(data_dir)} {split}"

    def check(height, width):
        if (height, width) != (size, size):
            raise ValueError(
                f"`data_dir` must hold images of {size} by {size} pixels, got "
                f"{height} by {width} in {where}; prepare the set again."
            )

    pixels, labels = [], []
    for record in prepared.open(data_dir, split):
        image = labelled.decode(record.text("image"), check, where, mode)
        pixels.append(_grey(image).ravel())
        labels.append(record.integer("label"))
    return labelled.LabelledImages(
        np.stack(pixels), np.array(labels, np.int32), white=255
    )


def _grey(image: np.ndarray) -> np.ndarray:
    """Converts an RGB image ``(h, w, 3)`` to gray; returns a gray image unchanged."""
    if image.ndim == 2:
        return image
    # Integer arithmetic: the rounding of halves is exact on every platform.
    weighted = image @ np.array([299, 587, 114], np.uint32)
    return ((weighted + 500) // 1000).astype(np.uint8)
