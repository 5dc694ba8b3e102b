"""Converts the four IDX files of MNIST to a prepared set."""

import gzip
import io
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from ssm_jax.files import max_unpacked
from ssm_jax.tasks.images.pixels import MNIST as PREPARED
from ssm_jax.tasks.tfds import files
from ssm_jax.tasks.tfds.writing import Examples, RawSet


def encode_png(pixels: np.ndarray) -> io.BytesIO:
    """Encodes an image, uint8 ``(h, w)`` or ``(h, w, 3)``, as PNG, as TFDS does."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    # TFDS reads from the current position.
    file.seek(0)
    return file


def _examples(split: str, paths: Sequence[Path]) -> Examples:
    # In the order of `wanted` below.
    images_file, labels_file = paths[:2] if split == "train" else paths[2:]
    images, labels = _read_idx(images_file, 3), _read_idx(labels_file, 1)
    if images.shape[1:] != (28, 28):
        raise files.invalid(images_file, "hold images of 28 by 28", images.shape[1:])
    if len(images) != len(labels):
        rule = f"hold a label for each of {len(images)} images"
        raise files.invalid(labels_file, rule, len(labels))
    for i, (pixels, label) in enumerate(zip(images, labels, strict=True)):
        if label > 9:
            raise files.invalid(f"{labels_file}, label {i}", "be from 0 to 9", label)
        yield i, {"image": encode_png(pixels), "label": int(label)}


def _read_idx(path: Path, ndim: int) -> np.ndarray:
    """Reads an array of bytes in the format of LeCun's IDX files."""
    with files.report_damage(path), gzip.open(path) as file:
        content = file.read(max_unpacked(path) + 1)
    files.check_unpacked(path, len(content))
    head = 4 * (1 + ndim)
    magic = 0x0800 + ndim  # 0x08 is unsigned byte; the last byte is the rank.
    if len(content) < head or struct.unpack(">i", content[:4])[0] != magic:
        raise files.invalid(path, f"begin with {magic:#010x}", f"0x{content[:4].hex()}")
    # Big-endian, as the format requires.
    shape = struct.unpack(f">{ndim}i", content[4:head])
    if len(content) - head != np.prod(shape):
        rule = f"hold {np.prod(shape)} bytes after its head"
        raise files.invalid(path, rule, len(content) - head)
    # A view of `content`, without a copy.
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


MNIST = RawSet(
    prepared=PREPARED,
    publisher="http://yann.lecun.com/exdb/mnist",
    wanted=(
        ("train-images-idx3-ubyte.gz",),
        ("train-labels-idx1-ubyte.gz",),
        ("t10k-images-idx3-ubyte.gz",),
        ("t10k-labels-idx1-ubyte.gz",),
    ),
    features={
        "image": tfds.features.Image(shape=(28, 28, 1)),
        "label": tfds.features.ClassLabel(num_classes=10),
    },
    counts={"train": 60_000, "test": 10_000},
    examples=_examples,
)
"""MNIST, 28 by 28 pixels."""
