"""Converts the Python version of CIFAR-10 to a prepared set."""

import io
import pickle
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from ssm_jax.tasks.images.pixels import CIFAR10 as PREPARED
from ssm_jax.tasks.images.prepare_mnist import encode_png
from ssm_jax.tasks.tfds import files
from ssm_jax.tasks.tfds.writing import Examples, RawSet

_LABELS = "airplane automobile bird cat deer dog frog horse ship truck".split()


class _ArraysOnly(pickle.Unpickler):
    """Unpickles builtin types and numpy arrays only, so that no code is executed."""

    def find_class(self, module: str, name: str) -> Any:
        # The files name modules of an old numpy; the names are mapped to this one.
        known = {
            "_reconstruct": np.empty(0).__reduce__()[0],
            "ndarray": np.ndarray,
            "dtype": np.dtype,
        }
        if module.split(".")[0] == "numpy" and name in known:
            return known[name]
        raise pickle.UnpicklingError(f"{module}.{name}, which is not an array")


def _examples(split: str, paths: Sequence[Path]) -> Examples:
    (path,) = paths
    prefix = "data_batch_" if split == "train" else "test_batch"
    # Sorted by name: the order in the archive differs from that of the batch numbers.
    batches = {
        member.name: content
        for member, content in files.members(path)
        if member.name.startswith(prefix)
    }
    # Counts through all batches: TFDS shuffles by this key, which must be unique.
    index = 0
    for name in sorted(batches):
        pixels, labels = _read_batch(path / PurePosixPath(name), batches[name])
        for image, label in zip(pixels, labels, strict=True):
            # Three planes, one per color; PNG has the colors of a pixel together.
            image = image.reshape(3, 32, 32).transpose(1, 2, 0)
            yield (
                index,
                {
                    "id": f"{split}_{index:05d}",
                    "image": encode_png(np.ascontiguousarray(image)),
                    "label": label,
                },
            )
            index += 1


def _read_batch(location: Path, content: bytes) -> tuple[np.ndarray, list[int]]:
    try:
        # Pickled by Python 2, whose strings are bytes.
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        pixels, labels = batch[b"data"], batch[b"labels"]
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError) as error:
        raise files.invalid(
            location, "be a pickle of b'data' and b'labels'", error
        ) from error
    if getattr(pixels, "shape", None) != (len(labels), 3072):
        rule = f"hold pixels ({len(labels)}, 3072), as many rows as labels"
        raise files.invalid(location, rule, getattr(pixels, "shape", type(pixels)))
    if pixels.dtype != np.uint8:
        raise files.invalid(location, "hold bytes", pixels.dtype)
    for row, label in enumerate(labels):
        if label not in range(10):
            raise files.invalid(f"{location}, label {row}", "be from 0 to 9", label)
    return pixels, labels


CIFAR10 = RawSet(
    prepared=PREPARED,
    publisher="https://www.cs.toronto.edu/~kriz/cifar.html",
    wanted=(("cifar-10-python.tar.gz", "cifar-10-batches-py"),),
    features={
        "id": tfds.features.Text(),
        "image": tfds.features.Image(shape=(32, 32, 3)),
        "label": tfds.features.ClassLabel(names=_LABELS),
    },
    counts={"train": 50_000, "test": 10_000},
    examples=_examples,
)
"""CIFAR-10, 32 by 32 pixels in colour."""
