"""ArrayTask: each example of a file in one split, with its target and its length."""

import zipfile

import numpy as np
import pytest

from ssm_jax import tasks
from ssm_jax.files import ArrayFile
from tests.bad_inputs import refuses

RNG = np.random.default_rng(0)
N, LENGTH = 40, 6
VECTORS = RNG.normal(size=(N, LENGTH, 3)).astype(np.float32)
TOKENS = np.stack([np.arange(N) * 7 + step for step in range(LENGTH)], 1)
LENGTHS = RNG.integers(1, LENGTH + 1, N)
KINDS = {
    "vectors, class": (VECTORS, np.arange(N) % 5, None, {}),
    "vectors, values": (VECTORS, VECTORS[:, 0, :2], LENGTHS, {}),
    "tokens, class of a step": (TOKENS, TOKENS % 5, LENGTHS, {"per_step": True}),
    "vectors, values of a step": (VECTORS, VECTORS[..., :2], None, {"per_step": True}),
    "pairs of vectors": (
        np.stack([VECTORS, -VECTORS], 1),
        np.arange(N) % 5,
        np.stack([LENGTHS, LENGTHS[::-1]], 1),
        {"pair": True},
    ),
    "pairs of tokens": (
        np.stack([TOKENS, TOKENS[::-1]], 1),
        VECTORS[:, 0, :2],
        None,
        {"pair": True},
    ),
}


def task(folder, inputs, targets, lengths=None, split=None, **fields):
    arrays = {"inputs": inputs, "targets": targets, "lengths": lengths, "split": split}
    arrays = {name: x for name, x in arrays.items() if x is not None}
    np.savez(folder / "a.npz", allow_pickle=True, **arrays)
    inputs, targets = np.asarray(inputs), np.asarray(targets)
    tokens, classes = inputs.dtype.kind == "i", targets.dtype.kind == "i"
    options = {
        "length": LENGTH,
        "inputs": "token" if tokens else "vector",
        "d_input": 7 * N if tokens else 3,
        "targets": "classification" if classes else "regression",
        "d_output": 5 if classes else 2,
    }
    return tasks.ArrayTask(file="a.npz", data_dir=str(folder), **(options | fields))


@pytest.mark.parametrize("kind", KINDS)
def test_examples_are_those_of_the_file_each_in_one_split(kind, tmp_path):
    inputs, targets, lengths, fields = KINDS[kind]
    it, indices = task(tmp_path, inputs, targets, lengths, **fields), []
    for split, n in (("train", 32), ("validation", 4), ("test", 4)):
        assert it.n_examples(split) == n
        batch = it.batch(split, 0, it.n_examples(split), seed=1)
        for row, x in enumerate(batch.inputs):
            (i,) = [i for i in range(N) if np.array_equal(inputs[i], x)]
            indices.append(i)
            np.testing.assert_array_equal(batch.targets[row], targets[i])
            if lengths is None:
                assert batch.mask is None
                continue
            valid = np.arange(LENGTH) < np.expand_dims(lengths[i], -1)
            np.testing.assert_array_equal(batch.mask[row], valid)
            if it.per_step:
                np.testing.assert_array_equal(batch.loss_mask[row], valid)
    assert sorted(indices) == list(range(N))


def test_splits_of_the_file_are_taken(tmp_path):
    split = np.array(["test", "train", "train", "validation"] * 10)
    it = task(tmp_path, VECTORS, np.arange(N) % 5, split=split)
    batch = it.batch("test", 0, 10, seed=0)
    np.testing.assert_array_equal(batch.inputs, VECTORS[::4])
    assert it.n_examples("train") == 20


CLASSES = np.arange(N) % 5
BAD = {
    "shape": ({"length": 7}, {}, "inputs", (N, LENGTH, 3)),
    "vocabulary": ({"d_input": 9}, {"inputs": TOKENS}, "inputs", 9),
    "classes": ({"d_output": 4}, {}, "targets", 4),
    "floats": ({}, {"lengths": LENGTHS * 1.0}, "lengths", "float64"),
    "length": ({}, {"lengths": LENGTHS * 0}, "lengths", 0),
    "infinite": ({}, {"inputs": VECTORS * np.inf}, "inputs", "inf"),
    "split": ({}, {"split": np.array(["dev"] * N)}, "split", "dev"),
    "empty": ({"validation_fraction": 0.0}, {}, "file", "validation"),
    "no axis": ({}, {"inputs": np.float32(3)}, "inputs", "float32 ()"),
    "objects": ({}, {"targets": np.array([None] * N)}, "file", "pickled"),
    "structure": ({}, {"inputs": np.zeros(N, [("a", "f4")])}, "inputs", (N,)),
    "numbers of splits": ({}, {"split": np.arange(N)}, "split", "int64"),
    "no example": ({}, {"inputs": VECTORS[:0], "targets": CLASSES[:0]}, "file", "none"),
    "pair": ({"per_step": True, "pair": True}, {}, "per_step", True),
}


@pytest.mark.parametrize(("fields", "arrays", "name", "value"), BAD.values(), ids=BAD)
def test_file_that_does_not_fit_is_refused(fields, arrays, name, value, tmp_path):
    arrays = {"inputs": VECTORS, "targets": CLASSES} | arrays
    with refuses(name, value):
        task(tmp_path, **arrays, **fields).n_examples("validation")


def test_arrays_that_no_field_asks_for_are_not_read(tmp_path, monkeypatch):
    it = task(tmp_path, VECTORS, CLASSES)
    with zipfile.ZipFile(tmp_path / "a.npz", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.txt", "hello")
        archive.writestr("objects.npy", b"\x80 a pickle")
    read, before = [], ArrayFile.__getitem__
    monkeypatch.setattr(
        ArrayFile,
        "__getitem__",
        lambda self, name: read.append(name) or before(self, name),
    )
    assert it.n_examples("train") == 32
    assert read == ["inputs", "targets"]


def test_shapes_are_checked_before_an_array_is_read(tmp_path, monkeypatch):
    monkeypatch.delattr(ArrayFile, "__getitem__")
    with refuses("targets", (N, 1)):
        task(tmp_path, VECTORS, CLASSES[:, None]).n_examples("train")


def test_file_that_lacks_an_array_is_refused(tmp_path):
    it = task(tmp_path, VECTORS, CLASSES)
    np.savez(tmp_path / "a.npz", x=VECTORS, targets=CLASSES)
    with refuses("file", "x, targets"):
        it.n_examples("test")
    (tmp_path / "a.npz").unlink()
    with refuses("file", "a.npz", error=FileNotFoundError):
        it.n_examples("test")


@pytest.mark.parametrize("kept", [0, 10, -100])
def test_damaged_file_is_refused(kept, tmp_path):
    it = task(tmp_path, VECTORS, CLASSES)
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[:kept])
    with refuses("file", "a.npz", rule="whole"):
        it.n_examples("test")
