"""ArrayTask: each example of a file in one split, with its target and its length."""

import dataclasses
import zipfile

import chex
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


def task(folder, inputs, labels, lengths=None, split=None, **fields):
    arrays = {"inputs": inputs, "targets": labels, "lengths": lengths, "split": split}
    arrays = {name: x for name, x in arrays.items() if x is not None}
    np.savez(folder / "a.npz", allow_pickle=True, **arrays)
    inputs, labels = np.asarray(inputs), np.asarray(labels)
    tokens, classes = inputs.dtype.kind == "i", labels.dtype.kind == "i"
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
    arrays["labels"] = arrays.pop("targets")
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


LABELS = {
    "words": (np.array(["b", "a", "é"]), ("b", "a", "é")),
    "integers": (np.array([10, -1, 7]), ("10", "-1", "7")),
    "bools": (np.array([True, False, True]), ("True", "False")),
}


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize(("labels", "classes"), LABELS.values(), ids=LABELS)
def test_labels_are_classes_by_position(labels, classes, per_step, tmp_path):
    shape = (N, LENGTH) if per_step else (N,)
    targets = labels[RNG.integers(0, 3, shape)]
    fields = {"targets": "classification", "d_output": len(classes)}
    it = task(tmp_path, VECTORS, targets, classes=classes, per_step=per_step, **fields)
    batch = it.batch("train", 0, 32, seed=0)
    for row, x in enumerate(batch.inputs):
        (i,) = [i for i in range(N) if np.array_equal(VECTORS[i], x)]
        found = np.array(classes)[batch.targets[row]]
        np.testing.assert_array_equal(found, targets[i].astype(str))
    other = ("other", *classes[1:])
    with refuses("classes", repr(classes[0])):
        task(
            tmp_path, VECTORS, targets, classes=other, per_step=per_step, **fields
        ).n_examples("train")
    with refuses("classes", len(classes) + 1):
        task(tmp_path, VECTORS, targets, classes=(*classes, "x"), **fields)


def test_single_numbers_need_no_axis_of_features(tmp_path):
    x, y = VECTORS[..., 0], VECTORS[:, 0, 1]
    short = task(tmp_path, x, y, d_input=1, d_output=1).batch("test", 0, 4, seed=0)
    (tmp_path / "long").mkdir()
    it = task(tmp_path / "long", x[..., None], y[:, None], d_input=1, d_output=1)
    chex.assert_trees_all_equal(short, it.batch("test", 0, 4, seed=0))


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_standardized_numbers_have_mean_0_and_deviation_1_in_train(lengths, tmp_path):
    x = VECTORS * [1e4, 1, 0] + [1e6, 0, 5]
    it = task(tmp_path, x, x[:, 0, :2], lengths, standardize=True)
    batch = it.batch("train", 0, 32, seed=0)
    valid = batch.inputs.reshape(-1, 3) if lengths is None else batch.inputs[batch.mask]
    np.testing.assert_allclose(valid.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(valid.std(0), [1, 1, 0], atol=1e-3)
    np.testing.assert_allclose(batch.targets.std(0), 1, atol=1e-3)
    units = it.in_units(batch.targets, "train", 0, 32, 0)
    assert all(np.isclose(x[:, 0, :2], row, atol=1e-3).all(1).any() for row in units)


def test_statistics_of_a_training_are_those_of_other_files(tmp_path):
    it = task(tmp_path, VECTORS, VECTORS[:, 0, :2], standardize=True)
    stored = str(tmp_path / "statistics.npz")
    np.savez(stored, **it.compute_statistics())
    before, scales = it.batch("test", 0, 4, seed=0), it.scales
    (tmp_path / "new").mkdir()
    x = 3 * VECTORS + 7
    fields = {"standardize": True, "statistics": stored}
    other = task(tmp_path / "new", x, x[:, 0, :2], **fields)
    after = other.batch("test", 0, 4, seed=0)
    for name, scale in scales._asdict().items():
        expected = 3 * getattr(before, name) + (7 + 2 * scale.mean) / scale.std
        np.testing.assert_allclose(getattr(after, name), expected, rtol=1e-4)
    chex.assert_trees_all_equal(other.compute_statistics(), it.compute_statistics())
    with refuses("statistics", "statistics.npz", rule="(3,)"):
        dataclasses.replace(other, standardize=False).batch("test", 0, 4, seed=0)
