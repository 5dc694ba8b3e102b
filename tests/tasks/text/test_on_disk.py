"""Tokens on disk: all slices against the joined text, and the memory of a batch."""

import itertools
import tracemalloc

import numpy as np
import pytest

from ssm_jax import tasks
from ssm_jax.tasks.text import on_disk
from tests.bad_inputs import refuses


@pytest.fixture
def files(tmp_path):
    texts = {"a": b"b\0\xff", "b": b"x", "c": b"four"}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    return [tmp_path / name for name in texts]


def test_all_slices_are_those_of_the_joined_text(files):
    joined = [0]
    for file in files:
        joined += [byte + 1 for byte in file.read_bytes()] + [0]
    text = on_disk.ByteFiles(files, separator=0)
    assert len(text) == len(joined) == 12
    for start, stop in itertools.product([*range(14), None], repeat=2):
        part = text[start:stop]
        assert part.dtype == np.uint16
        np.testing.assert_array_equal(part, joined[start:stop])


def test_tokens_of_documents_are_mapped(files):
    rows = [np.array([5, 6]), np.array([70_000]), np.array([8])]
    tokens = on_disk.map_documents(files, rows, np.array([2], np.int32))
    assert isinstance(tokens, np.memmap) and tokens.dtype == np.int32
    assert tokens.tolist() == [2, 5, 6, 2, 70_000, 2, 8, 2]
    with pytest.raises(ValueError, match="read-only"):
        tokens[0] = 1


def test_file_that_became_shorter_is_refused(files):
    text = on_disk.ByteFiles(files, separator=0)
    files[2].write_bytes(b"fo")
    assert text[6:9].tolist() == [0, 103, 112]
    with refuses("data_dir", "c", rule="not change"):
        text[6:12]


@pytest.mark.parametrize("layout", ["stream", "packed"])
def test_batch_of_a_text_of_gigabytes_needs_no_memory(layout, tmp_path):
    for split in ("train", "validation", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.txt").write_text("abc " * 9)
    # Sparse: a file of this size that takes no space.
    with (tmp_path / "train" / "large.txt").open("wb") as large:
        large.truncate(2**34)
    task = tasks.TextFolder(data_dir=str(tmp_path), length=2**20, layout=layout)
    tracemalloc.start()
    batch = task.batch("train", 1, 2, seed=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert task.n_examples("train") == 2**14
    assert (batch.targets[1, :-1] == 1).all() and batch.loss_mask.all()
    # The bytes, tokens, positions and masks of a batch of 2 MB, at most.
    assert peak < 2**20 * 2 * 40
