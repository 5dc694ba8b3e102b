"""Images from `tensorflow_datasets`, read one pixel a step."""

import dataclasses
import functools
import os

import numpy as np

from ssm_jax.tasks import base, images

_NAME, _VERSION = "mnist", "3.0.1"
_LENGTH = 28 * 28
_READ_AT_ONCE = 32

# One order for everybody, so that figures of different runs can be compared.
_PERMUTATION = np.random.default_rng(1803).permutation(_LENGTH)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PixelMnist:
    """Classification: which digit an image of 28 by 28 pixels shows, pixel by pixel.

    What it asks of a model: to gather evidence over 784 steps, most of them blank, and
    judge once, at the end. Permuted, neighbours in the image are far apart in time, and
    there is no local structure to lean on.

    Attributes:
      data_dir: Folder that holds ``mnist/3.0.1`` as TFDS prepares it (array_record).
        None means the folder that TFDS itself would take: the environment variable
        ``TFDS_DATA_DIR``, else ``~/tensorflow_datasets``.
      permuted: Whether the pixels come in one fixed random order, the same for every
        image, every seed and every run.
      n_validation: Images held out for validation, the last ones of TFDS's train split.

    Batch:
      inputs: float32, ``(b, 784, 1)``: pixels row by row from the top left, divided by
        255, not centred, then permuted if asked for.
      targets: int32, ``(b,)``, the digit, 0 to 9.
      mask: bool, ``(b,)``, false for rows that fill up the last batch.

    Splits: 55,000 train, 5,000 validation and 10,000 test images, from TFDS's mnist
    3.0.1 (60,000 and 10,000, in the fixed order that TFDS shuffled them to). Read once
    per process, a few seconds for all, into 55 MB; TensorFlow is needed to prepare the
    set, not to read it. Licence CC BY-SA 3.0. The tests prepare a few images of noise
    in its place.

    Note:
      The code of the paper below pools all 70,000 images and tests on 14,000 of them;
      this is the usual test set of 10,000.

    Raises:
      FileNotFoundError: At the first batch or count, where the set is not there.
      ValueError: At the first batch or count, where the set is there in another format
        than array_record, or ``n_validation`` leaves nothing to train on.

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
    n_validation: int = 5_000

    @property
    def spec(self) -> base.TaskSpec:
        """What a model must know: one feature in, one of ten classes out."""
        return images.pixel_spec(length=_LENGTH, n_classes=10)

    def n_examples(self, split: base.Split) -> int:
        """Counts the images of a split."""
        return len(self._images(split).labels)

    def batch(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> base.Batch:
        """Gives batch number ``index``; see `ssm_jax.tasks.Task.batch`."""
        batch = self._images(split).batch(split, index, batch_size, seed)
        if self.permuted:
            return batch._replace(inputs=batch.inputs[:, _PERMUTATION])
        return batch

    def _images(self, split: base.Split) -> images.LabelledImages:
        base.check_split(split)
        if split == "test":
            return _read(self.data_dir, "test")
        pixels, labels, white = _read(self.data_dir, "train")
        n_train = len(labels) - self.n_validation
        if not 0 < n_train < len(labels):
            raise ValueError(
                f"`n_validation` must be from 1 to {len(labels) - 1}, so that images "
                f"to train on are left, got {self.n_validation}; 5,000 is usual."
            )
        part = slice(n_train) if split == "train" else slice(n_train, None)
        return images.LabelledImages(pixels[part], labels[part], white)


@functools.cache
def _read(data_dir: str | None, tfds_split: str) -> images.LabelledImages:
    """Decodes a split of the prepared set into arrays, once per process."""
    import tensorflow_datasets as tfds
    from tqdm import tqdm

    folder = None if data_dir is None else os.path.expanduser(data_dir)
    try:
        # With a version, TFDS goes by the files alone and not by its own builder.
        builder = tfds.builder(
            f"{_NAME}:{_VERSION}", data_dir=folder, file_format="array_record"
        )
    except ValueError as error:
        raise ValueError(_unprepared(data_dir, "a set in another format")) from error
    if not builder.is_prepared():
        missing = f"nothing at {builder.data_path}"
        raise FileNotFoundError(_unprepared(data_dir, missing))
    source = builder.as_data_source(split=tfds_split)  # pyright: ignore[reportCallIssue]
    pixels = np.empty((len(source), _LENGTH), np.uint8)
    labels = np.empty(len(source), np.int32)
    with tqdm(total=len(source), desc=f"{_NAME} {tfds_split}", disable=None) as bar:
        for start in range(0, len(source), _READ_AT_ONCE):
            rows = range(start, min(start + _READ_AT_ONCE, len(source)))
            for row, example in zip(rows, source.__getitems__(rows), strict=True):
                pixels[row] = example["image"].reshape(_LENGTH)
                labels[row] = example["label"]
            bar.update(len(rows))
    return images.LabelledImages(pixels, labels, white=255)


def _unprepared(data_dir: str | None, found: str) -> str:
    return (
        f"`data_dir` must hold {_NAME} {_VERSION} prepared by TFDS as array_record, "
        f"got {data_dir!r} with {found}; copy a prepared folder there, or prepare it "
        f"where TensorFlow is installed: "
        f'`tfds.data_source("{_NAME}", split="train", data_dir=...)`.'
    )
