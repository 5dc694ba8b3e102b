"""The images of a setting: drawn on first use, or read from a prepared set."""

import functools
import zlib
from pathlib import Path

import numpy as np

from ssm_jax.tasks import base, generated
from ssm_jax.tasks.pathfinder.drawing import Drawings, draw_block
from ssm_jax.tasks.pathfinder.settings import Setting
from ssm_jax.tasks.tfds import reading


def prepared_set(setting: Setting) -> reading.PreparedSet:
    """Returns the prepared set of a setting.

    Example:
      >>> from ssm_jax.tasks.pathfinder.settings import SEGMENTATION
      >>> prepared_set(SEGMENTATION[256]).path("data")
      'data/pathfinder_segmentation256/1.0.0'
    """
    features = ("image", setting.target)
    return reading.PreparedSet(setting.name, f"{setting.name}/1.0.0", features)


def data_files(setting: Setting, data_dir: str | None) -> dict[str, Path]:
    """Returns the files of the prepared set by name; none without ``data_dir``."""
    return {} if data_dir is None else prepared_set(setting).data_files(data_dir)


def targets_of(drawings: Drawings, setting: Setting) -> np.ndarray:
    """Returns labels, int32, ``(n,)``, or masks, uint8, ``(n, size, size)``."""
    return drawings.labels if setting.target == "label" else drawings.masks


class PreparedExamples:
    """The images of a split of a prepared set, read from disk per batch."""

    def __init__(
        self, setting: Setting, data_dir: str, split: base.Split, n: int
    ) -> None:
        """Opens the split; see `examples`."""
        prepared = prepared_set(setting)
        # Opened, not read: the images of Path-X take 3.3 GB.
        self._records = prepared.open(data_dir, split)
        self._target, self._n_pixels = setting.target, setting.size**2
        self._where = f"{prepared.path(data_dir)} {split}"
        n_there = len(self._records)
        # Fewer are valid: the first `n` images of the split.
        if n > n_there:
            raise ValueError(
                f"`n_{split}` must be at most {n_there}, the images in "
                f"{prepared.path(data_dir)}, got {n}; prepare more, or leave out "
                "`data_dir`."
            )

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns pixels, uint8, ``(b, l)``, and targets.

        Args:
          rows: int64, ``(b,)``, in ``[0, n)``.

        Returns:
          Pixels, and labels, int32, ``(b,)``, or masks, uint8, ``(b, l)``.
        """
        records = self._records.read(rows.tolist())

        def pixels(name):
            # One buffer, viewed as an array: no array per image.
            data = b"".join(self._pixels(record.text(name)) for record in records)
            return np.frombuffer(data, np.uint8).reshape(len(rows), -1)

        if self._target == "mask":
            return pixels("image"), pixels("mask")
        labels = [record.integer("label") for record in records]
        return pixels("image"), np.array(labels, np.int32)

    def _pixels(self, stored: bytes) -> bytes:
        """The pixels of an image or a mask, a byte each."""
        if self._target == "mask":
            try:
                # At most one more: a small record may stand for gigabytes.
                stored = zlib.decompressobj().decompress(stored, self._n_pixels + 1)
            except zlib.error:
                stored = b""
        if len(stored) != self._n_pixels:
            raise ValueError(
                f"`data_dir` must hold images of {self._n_pixels} pixels, got another "
                f"number in {self._where}; prepare the set again."
            )
        return stored


# Equal arguments share their examples.
@functools.cache
def examples(
    setting: Setting, data_dir: str | None, split: base.Split, n: int
) -> generated.GeneratedExamples | PreparedExamples:
    """Returns the first images of a split.

    Args:
      setting: Setting of the images.
      data_dir: Directory of all prepared sets. None means that images are drawn on
        first use and cached in memory.
      split: The split.
      n: Number of images.

    Returns:
      An object whose ``take(rows)`` returns pixels and targets.

    Raises:
      FileNotFoundError: ``data_dir`` does not hold the set.
      ValueError: The set there is smaller, damaged or in another format.
    """
    if data_dir is not None:
        return PreparedExamples(setting, data_dir, split, n)

    def draw(block: int) -> tuple[np.ndarray, np.ndarray]:
        # Seed 0, the default of `write_images`: prepared sets have the same images.
        drawings = draw_block(setting, 0, split, block)
        targets = targets_of(drawings, setting)
        if setting.target == "mask":
            targets = targets.reshape(setting.per_block, -1)
        return drawings.images.reshape(setting.per_block, -1), targets

    return generated.GeneratedExamples(n=n, per_block=setting.per_block, draw=draw)
