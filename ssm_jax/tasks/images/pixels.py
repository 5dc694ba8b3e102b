"""Images from sets in TFDS's folder format, read one pixel a step."""

import dataclasses
import functools
import io

import numpy as np

from ssm_jax.tasks import base
from ssm_jax.tasks.images import labelled
from ssm_jax.tasks.tfds import reading

MNIST = reading.PreparedSet("mnist", "mnist/3.0.1", ("image", "label"))
CIFAR10 = reading.PreparedSet("cifar10", "cifar10/3.0.2", ("image", "label"))

_SIZE = 28  # Pixels of a side of an image of MNIST.
_SEED = 1803


@dataclasses.dataclass(frozen=True, kw_only=True)
class PixelMnist:
    """Classification: which digit an image shows, read pixel by pixel or row by row.

    What it asks of a model: to gather evidence over 784 steps, most of them blank, and
    judge once, at the end. Permuted, neighbours in the image are far apart in time, and
    there is no local structure to lean on.

    Attributes:
      data_dir: Folder that holds ``mnist/3.0.1``, as ``python -m launch.prepare
        --dataset=mnist`` or TFDS itself prepares it (array_record). None means the
        folder that TFDS itself would take: the environment variable
        ``TFDS_DATA_DIR``, else ``~/tensorflow_datasets``.
      permuted: Whether the pixels come in one fixed random order, the same for every
        image, every seed and every run.
      rows: Whether a step is a row of pixels, and not one.
      size: Pixels of a side; less than 28, a divisor of it: means of squares of pixels.
      pooled: Whether all 70,000 images are pooled, mixed in one fixed order, and a
        fifth of them taken for the test, as the code of the paper below does.
      n_validation: Images held out for validation, the last ones of the train split.

    Batch:
      inputs: float32, ``(b, 784, 1)``, or of rows ``(b, 28, 28)``: pixels row by row
        from the top left, divided by 255, not centred, then permuted if asked for.
      targets: int32, ``(b,)``, the digit, 0 to 9.
      loss_mask: bool, ``(b,)``, false for rows that fill up the last batch.

    Splits: 55,000 train, 5,000 validation and 10,000 test images, from TFDS's mnist
    3.0.1 (60,000 and 10,000, in the fixed order that TFDS shuffled them to); pooled,
    51,000, 5,000 and 14,000. Read once per process, a few seconds for all, into 55 MB,
    without TensorFlow. Licence CC BY-SA 3.0. The tests prepare a few images of noise in
    its place.

    Raises:
      FileNotFoundError: At the first batch or count, where the set is not there.
      ValueError: ``size`` is no divisor of 28; at the first batch or count, where the
        set is there in another format than array_record or damaged, or
        ``n_validation`` leaves nothing to train on.

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
        """Checks the size."""
        if self.size < 1 or _SIZE % self.size:
            raise ValueError(
                f"`size` must be a divisor of {_SIZE}, got {self.size}; 14 is one."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """What a model must know: pixels in, one of ten classes out."""
        length, d_input = (self.size, self.size) if self.rows else (self.size**2, 1)
        return labelled.pixel_spec(length=length, n_classes=10, d_input=d_input)

    def n_examples(self, split: base.Split) -> int:
        """Counts the images of a split."""
        return len(self._part(split).labels)

    def batch(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> base.Batch:
        """Gives batch number ``index``; see `ssm_jax.tasks.Task.batch`."""
        batch = self._part(split).batch(split, index, batch_size, seed)
        n, size = len(batch.inputs), self.size
        squares = batch.inputs.reshape(n, size, _SIZE // size, size, _SIZE // size)
        pixels = squares.mean((2, 4)).reshape(n, size**2)
        if self.permuted:
            # One order for everybody, so that figures of different runs compare.
            pixels = pixels[:, np.random.default_rng(_SEED).permutation(size**2)]
        return batch._replace(inputs=pixels.reshape(n, self.spec.length, -1))

    def _part(self, split):
        if not self.pooled:
            return _part(MNIST, self.data_dir, split, self.n_validation)
        base.check_split(split)
        return _pooled(self.data_dir, self.n_validation)[split]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PixelCifar10:
    """Classification: what a grey photograph of 32 by 32 pixels shows, pixel by pixel.

    The task Image of the Long Range Arena. What it asks of a model: to find shapes that
    are local in two dimensions in a sequence that has only one.

    Attributes:
      data_dir: Folder that holds ``cifar10/3.0.2``, as ``python -m launch.prepare
        --dataset=cifar10`` or TFDS itself prepares it (array_record). None means the
        folder that TFDS itself would take.
      n_validation: Images held out for validation, the last ones of TFDS's train split.

    Batch:
      inputs: float32, ``(b, 1024, 1)``: pixels row by row from the top left, grey as
        ``0.299 R + 0.587 G + 0.114 B`` rounded to an integer (halves up), then
        ``(x / 255 - 0.5) / 0.5``.
      targets: int32, ``(b,)``: airplane, automobile, bird, cat, deer, dog, frog, horse,
        ship, truck.
      loss_mask: bool, ``(b,)``, false for rows that fill up the last batch.

    Splits: 45,000 train, 5,000 validation and 10,000 test images, from TFDS's cifar10
    3.0.2 (50,000 and 10,000, in the fixed order that TFDS shuffled them to). Read once
    per process, a few seconds for all, into 61 MB, without TensorFlow. The publisher
    names no licence. The tests prepare a few images of noise in its place.

    Raises:
      FileNotFoundError: At the first batch or count, where the set is not there.
      ValueError: At the first batch or count, where the set is there in another format
        than array_record or damaged, or ``n_validation`` leaves nothing to train on.

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
        """What a model must know: one feature in, one of ten classes out."""
        return labelled.pixel_spec(length=32 * 32, n_classes=10)

    def n_examples(self, split: base.Split) -> int:
        """Counts the images of a split."""
        return len(_part(CIFAR10, self.data_dir, split, self.n_validation).labels)

    def batch(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> base.Batch:
        """Gives batch number ``index``; see `ssm_jax.tasks.Task.batch`."""
        part = _part(CIFAR10, self.data_dir, split, self.n_validation)
        batch = part.batch(split, index, batch_size, seed)
        return batch._replace(inputs=2 * batch.inputs - 1)


def _part(
    prepared: reading.PreparedSet,
    data_dir: str | None,
    split: base.Split,
    n_validation: int,
) -> labelled.LabelledImages:
    """Gives a split, the validation split being the end of the set's train split."""
    base.check_split(split)
    if split == "test":
        return _read(prepared, data_dir, "test")
    pixels, labels, white = _read(prepared, data_dir, "train")
    n_train = len(labels) - n_validation
    reading.check_held_out(len(labels), n_validation, "5,000")
    part = slice(n_train) if split == "train" else slice(n_train, None)
    return labelled.LabelledImages(pixels[part], labels[part], white)


@functools.cache
def _pooled(data_dir, n_validation):
    """All images of both splits of MNIST in one order; a fifth is for the test."""
    pixels, labels, white = (
        [getattr(_read(MNIST, data_dir, split), field) for split in ("train", "test")]
        for field in labelled.LabelledImages._fields
    )
    order = np.random.default_rng(_SEED).permutation(sum(map(len, labels)))
    pixels, labels = np.concatenate(pixels)[order], np.concatenate(labels)[order]
    n = len(labels) - len(labels) // 5
    reading.check_held_out(n, n_validation, "5,000")
    ends = {"train": (0, n - n_validation), "validation": (n - n_validation, n)}
    return {
        split: labelled.LabelledImages(pixels[a:b], labels[a:b], white[0])
        for split, (a, b) in (ends | {"test": (n, len(labels))}).items()
    }


@functools.cache
def _read(
    prepared: reading.PreparedSet, data_dir: str | None, split: str
) -> labelled.LabelledImages:
    """Decodes a split of a prepared set into arrays, once per process."""
    from PIL import Image

    pixels, labels = [], []
    for record in prepared.open(data_dir, split):
        image = np.asarray(Image.open(io.BytesIO(record.text("image"))))
        pixels.append(_grey(image).ravel())
        labels.append(record.integer("label"))
    return labelled.LabelledImages(
        np.stack(pixels), np.array(labels, np.int32), white=255
    )


def _grey(image: np.ndarray) -> np.ndarray:
    """Makes colours ``(h, w, 3)`` grey, in integers; grey stays what it is."""
    if image.ndim == 2:
        return image
    weighted = image @ np.array([299, 587, 114], np.uint32)
    return ((weighted + 500) // 1000).astype(np.uint8)
