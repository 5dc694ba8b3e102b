"""LongTable: the steps of each example in order, its target, and missing values."""

import numpy as np
import pytest

from ssm_jax.tasks import LongTable
from tests.bad_inputs import refuses

N = 20


def task(folder, lines, **fields):
    (folder / "a.csv").write_text("\n".join(["id,x,y,label", *lines]))
    options = {"features": ("x", "y"), "length": 4, "classes": ("down", "up")}
    options |= {"example": "id", "target": "label", **fields}
    return LongTable(file="a.csv", data_dir=str(folder), **options)


def lines(*, last="", value=lambda i, t: i + 100 * t):
    """Steps 0 to 3 of even examples and 0 to 1 of odd ones, in the order of steps."""
    rows = [
        f"e{i},{value(i, t)},7,{'up' if i % 2 else 'down'}"
        for t in range(4)
        for i in range(N)
        if t < (2 if i % 2 else 4)
    ]
    return [*rows, *filter(None, [last])]


def all_rows(it):
    """Inputs in the units of the file, masks and targets, of all splits."""
    batches = [
        it.batch(split, 0, it.n_examples(split), seed=0)
        for split in ("train", "validation", "test")
    ]
    scale = it.preprocessing()["inputs"]
    inputs = np.concatenate([b.inputs for b in batches]) * scale["std"] + scale["mean"]
    masks = np.concatenate([b.mask for b in batches])
    return inputs, masks, np.concatenate([b.targets for b in batches]), batches[0]


def test_steps_are_in_the_order_of_the_file_with_their_label(tmp_path):
    inputs, masks, targets, train = all_rows(task(tmp_path, lines()))
    first = np.rint(inputs[:, 0, 0]).astype(int)
    assert sorted(first) == list(range(N))
    for i, x, mask, target in zip(first, inputs, masks, targets, strict=True):
        n = 2 if i % 2 else 4
        assert mask.tolist() == [t < n for t in range(4)] and target == i % 2
        np.testing.assert_allclose(x[:n, 0], i + 100 * np.arange(n), atol=1e-3)
        np.testing.assert_allclose(x[:n, 1], 7)
    valid = train.inputs[train.mask]
    np.testing.assert_allclose(valid.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(valid.std(0), [1, 0], atol=1e-5)


def test_missing_values_are_the_mean(tmp_path):
    rows = lines(value=lambda i, t: "" if t == 1 else i)
    with refuses("missing", "line 22", rule="'mean'"):
        task(tmp_path, rows).n_examples("train")
    (tmp_path / "filled").mkdir()
    batch = task(tmp_path / "filled", rows, missing="mean").batch("train", 0, 16, 0)
    assert (batch.inputs[:, 1, 0] == 0).all()
    np.testing.assert_allclose(batch.inputs[batch.mask].mean(0), 0, atol=1e-5)


def test_number_as_target_is_in_units_of_the_file(tmp_path):
    rows = [row.replace("up", "1e4").replace("down", "-3") for row in lines()]
    it = task(tmp_path, rows, classes=None)
    request = "train", 0, 16, 0
    targets = it.batch(*request).targets
    np.testing.assert_allclose([targets.mean(), targets.std()], [0, 1], atol=1e-5)
    assert np.unique(np.rint(it.in_units(targets, *request))).tolist() == [-3, 10_000]


BAD = {
    "two labels": (
        lines(last="e0,1,1,up"),
        {"length": 9},
        "target",
        "'up' of 'label' in line 62",
    ),
    "no example": (lines(last=",1,1,up"), {"length": 9}, "example", "line 62"),
    "no label": (lines(last="e9,1,1,"), {"length": 9}, "target", "line 62"),
    "word": (lines(last="e0,word,1,down"), {"length": 9}, "features", "'word'"),
    "infinite": (lines(last="e1,inf,1,up"), {"length": 9}, "features", "inf"),
    "longer": (lines(), {"length": 3}, "length", 4),
    "class": (lines(), {"classes": ("down", "left")}, "classes", "'up'"),
    "one class": (lines(), {"classes": ("down",)}, "classes", "down"),
    "column": (lines(), {"features": ("z",)}, "features", "'z'"),
    "no features": (lines(), {"features": ()}, "features", "none"),
    "few": (lines()[:1], {"classes": None, "target": "y"}, "file", "1 in all"),
}


@pytest.mark.parametrize(("rows", "fields", "name", "value"), BAD.values(), ids=BAD)
def test_table_that_does_not_fit_is_refused(rows, fields, name, value, tmp_path):
    with refuses(name, value):
        task(tmp_path, rows, **fields).n_examples("test")
