"""Digits against the data of scikit-learn."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from ssm_jax import tasks

SIZES: dict[tasks.Split, int] = {"train": 1347, "validation": 150, "test": 300}


def whole(split):
    return tasks.Digits().batch(split, 0, SIZES[split], seed=0)


def test_splits_have_the_sizes_of_the_docstring():
    assert {split: tasks.Digits().n_examples(split) for split in SIZES} == SIZES


def test_splits_together_are_the_set():
    pixels, labels = load_digits(return_X_y=True)
    rows = np.concatenate([whole(split).inputs[..., 0] * 16 for split in SIZES])
    targets = np.concatenate([whole(split).targets for split in SIZES])
    expected = sorted(zip(pixels.tolist(), labels.tolist(), strict=True))
    assert sorted(zip(rows.tolist(), targets.tolist(), strict=True)) == expected


@pytest.mark.parametrize("split", SIZES)
def test_splits_are_stratified_by_class(split):
    share = np.bincount(load_digits(return_X_y=True)[1]) / 1797
    counts = np.bincount(whole(split).targets)
    assert np.abs(counts - share * SIZES[split]).max() <= 1.0


def test_split_is_fixed():
    # Recorded results depend on it: a new scikit-learn must not change it.
    first = whole("test").targets[:12]
    assert first.tolist() == [4, 0, 7, 8, 7, 2, 3, 6, 1, 5, 8, 2]


@pytest.mark.full
def test_digits_are_read_without_importing_sklearn():
    program = (
        "import sys; from ssm_jax.tasks import Digits; Digits().n_examples('test'); "
        "sys.exit('sklearn' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
