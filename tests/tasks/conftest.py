"""A prepared mnist that holds noise: the real reading path without the real data."""

import io
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

N_TRAIN, N_TEST = 34, 11


def encode_image(i: int) -> io.BytesIO:
    """Gives image ``i`` as PNG: its own noise, and its number in the first pixel."""
    pixels = np.random.default_rng(i).integers(0, 256, (28, 28), np.uint8)
    pixels[0, 0] = i
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    file.seek(0)
    return file


@pytest.fixture
def png() -> Callable[[int], io.BytesIO]:
    """What `mnist_dir` holds, by the number of the image."""
    return encode_image


@pytest.fixture(scope="session")
def mnist_dir(tmp_path_factory) -> str:
    """A folder with mnist 3.0.1: 34 and 11 images, the label of image i is i % 10."""
    import tensorflow_datasets as tfds

    class Mnist(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("3.0.1")
        url_infos = None  # Nothing is downloaded, there are no checksums to look for.

        def _info(self):
            image = tfds.features.Image(shape=(28, 28, 1))
            label = tfds.features.ClassLabel(num_classes=10)
            features = tfds.features.FeaturesDict({"image": image, "label": label})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {
                "train": self._generate_examples(range(N_TRAIN)),
                "test": self._generate_examples(range(N_TRAIN, N_TRAIN + N_TEST)),
            }

        def _generate_examples(self, numbers):
            for i in numbers:
                yield i, {"image": encode_image(i), "label": i % 10}

    folder = str(tmp_path_factory.mktemp("tfds"))
    Mnist(data_dir=folder, file_format="array_record").download_and_prepare()
    return folder


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Runs a program in a process of its own and gives what it prints."""

    def run(program: str, **environment: str) -> str:
        command = [sys.executable, "-c", program]
        root = pathlib.Path(__file__).parents[2]
        printed = subprocess.run(
            command,
            cwd=root,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        return printed.stdout.strip()

    return run
