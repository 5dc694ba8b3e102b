"""Classes, splits and groups of folders of files, and folders that are not in order."""

import os
import shutil
import unicodedata

import numpy as np
import pytest

from ssm_jax import tasks
from ssm_jax.tasks.folders import labelled_files
from tests.bad_inputs import refuses
from tests.tasks import raw_sets

SPLITS = ("train", "validation", "test")


@pytest.fixture(autouse=True)
def said(monkeypatch):
    """The warnings of a test."""
    messages = []
    monkeypatch.setattr(labelled_files, "_said", set())
    log = lambda form, *args: messages.append(form % args)  # noqa: E731
    monkeypatch.setattr(labelled_files.logging, "warning", log)
    return messages


def write(folder, *names):
    for name in names:
        path = folder / name
        number = sum(name.encode())
        raw_sets.wav(path, np.random.default_rng(number).integers(-99, 99, 50))
    return folder


def fill(folder, classes=("cat", "dog"), n=20):
    return write(folder, *(f"{c}/{i:02}.wav" for c in classes for i in range(n)))


def make(folder, **fields):
    fields = {"sample_rate": 16_000, "length": 40, **fields}
    return tasks.AudioFolder(data_dir=str(folder), **fields)


def splits(task):
    return {f.name: s for f, s in zip(task.files, task._splits(), strict=True)}


def test_classes_are_the_folders_in_order_and_a_tuple_fixes_them(tmp_path):
    names = ("zebra", "Big cat", unicodedata.normalize("NFD", "été"))
    fill(tmp_path, names, n=5)
    task = make(tmp_path)
    assert task.class_names() == ("Big cat", "zebra", "été")
    fixed = make(tmp_path, classes=("été", "zebra"))
    assert fixed.spec.d_output == 2 and len(fixed.files) == 10
    batch = fixed.batch("train", 0, fixed.n_examples("train"), seed=0)
    assert set(batch.targets.tolist()) == {0, 1}
    fill(tmp_path, ("ant",), n=5)
    assert make(tmp_path).spec.d_output == 4
    assert make(tmp_path, classes=("été", "zebra")).class_names() == ("été", "zebra")


def test_added_file_moves_no_other(tmp_path):
    before = splits(make(fill(tmp_path, n=50)))
    counts = [list(before.values()).count(split) for split in SPLITS]
    assert sum(counts) == 100 and 3 <= counts[1] <= 20 and 3 <= counts[2] <= 20
    write(tmp_path, "cat/new.wav", "dog/aaa.wav")
    after = splits(make(tmp_path))
    assert all(after[name] == split for name, split in before.items())


@pytest.mark.parametrize("n", [3, 4, 7])
def test_few_files_of_a_class_are_in_each_split(tmp_path, n):
    found = splits(make(fill(tmp_path, n=n)))
    for label in ("cat", "dog"):
        own = [split for name, split in found.items() if name.startswith(label)]
        assert set(own) == set(SPLITS) and len(own) == n


def test_group_is_in_one_split(tmp_path):
    names = [f"{c}/s{i % 12}_nohash_{i}.wav" for c in ("cat", "dog") for i in range(60)]
    task = make(write(tmp_path, *names), group=r"/(\w+)_nohash")
    found = {}
    for name, split in splits(task).items():
        found.setdefault(name.split("/")[1].split("_")[0], set()).add(split)
    assert len(found) == 12 and all(len(split) == 1 for split in found.values())
    assert set.union(*found.values()) == set(SPLITS)
    write(tmp_path, "cat/other.wav")
    with refuses("group", "cat/other.wav"):
        make(tmp_path, group=r"/(\w+)_nohash").n_examples("train")


def test_folder_may_have_its_own_splits(tmp_path, said):
    for split in ("Train", "val", "test"):
        fill(tmp_path / split, n=4)
    task = make(tmp_path)
    assert [task.n_examples(split) for split in SPLITS] == [8, 8, 8]
    assert task.class_names() == ("cat", "dog") and not said
    shutil.rmtree(tmp_path / "val")
    task = make(tmp_path)
    assert [task.n_examples(split) for split in SPLITS] == [6, 2, 8]
    with refuses("group", "'00'"):
        make(tmp_path, group=r"/(\d+)\.").n_examples("train")


def test_test_files_without_classes_are_left_out(tmp_path, said):
    fill(tmp_path / "train", n=5)
    write(tmp_path, "test/1.wav", "test/2.wav")
    assert make(tmp_path).n_examples("test") >= 2
    assert "2 .wav" in said[0]


def test_class_may_be_named_train(tmp_path):
    assert make(fill(tmp_path, ("bus", "train"))).class_names() == ("bus", "train")


def test_messy_folder_is_read_and_what_is_left_out_is_counted_once(tmp_path, said):
    fill(tmp_path, n=4)
    write(tmp_path, "cat/deep/er/A.WAV", "dog/.hidden.wav", "cat/._x.wav", "loose.wav")
    write(tmp_path, ".git/a.wav", "__MACOSX/cat/a.wav")
    for name in ("cat/Thumbs.db", "cat/.DS_Store", "dog/a.txt", "dog/b.png", "README"):
        (tmp_path / name).write_text("x")
    elsewhere = fill(tmp_path.parent / f"{tmp_path.name}_more", ("cow",), n=4)
    (tmp_path / "cow").symlink_to(elsewhere / "cow")
    (tmp_path / "cat/loop").symlink_to(tmp_path)
    (tmp_path / "cat/own").symlink_to(tmp_path / "cat")
    task = make(tmp_path)
    assert task.class_names() == ("cat", "cow", "dog")
    assert len(task.files) == 13 and "cat/deep/er/A.WAV" in task.data_files()
    make(tmp_path).n_examples("train")
    assert len(said) == 1
    for part in ("1 .txt", "1 .png", "1 .wav", "1 without extension"):
        assert part in said[0]


def bad_folder(kind, folder):
    fill(folder, n=4)
    if kind == "flat":
        shutil.rmtree(folder)
        write(folder, "a.wav", "b.wav")
    elif kind == "single":
        shutil.rmtree(folder / "dog")
    elif kind == "empty class":
        (folder / "cow").mkdir()
        (folder / "cow/a.m4a").touch()
    elif kind == "empty file":
        (folder / "cat/a.wav").touch()
    elif kind == "dead link":
        (folder / "cat/a.wav").symlink_to("nowhere")
    elif kind == "pipe":
        os.mkfifo(folder / "cat/a.wav")
    elif kind == "text":
        (folder / "cat/a.wav").write_text("no sound")


BAD = {
    "flat": "2 .wav",
    "single": "'cat' alone",
    "empty class": "'cow'",
    "empty file": "a.wav (empty)",
    "dead link": "a.wav (no regular file)",
    "pipe": "a.wav (no regular file)",
    "text": "a.wav (not in WAV format",
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_folder_is_one_error(tmp_path, kind):
    bad_folder(kind, tmp_path / "x")
    for ask in ("n_examples", "batch", "data_files"):
        arguments = {"n_examples": ("test",), "batch": ("test", 0, 2, 0)}.get(ask, ())
        with refuses("data_dir", BAD[kind]):
            getattr(make(tmp_path / "x"), ask)(*arguments)


def test_all_bad_files_are_one_error(tmp_path):
    fill(tmp_path, n=4)
    for i in range(5):
        (tmp_path / f"cat/bad{i}.wav").write_text("no sound")
    with refuses("data_dir", "2 more", rule="bad2.wav"):
        make(tmp_path).n_examples("train")


def test_missing_folder_is_an_error():
    for data_dir in (None, "/nowhere"):
        task = tasks.AudioFolder(data_dir=data_dir, sample_rate=8_000, length=9)
        with refuses("data_dir", data_dir, error=FileNotFoundError):
            _ = task.spec


def test_class_without_a_file_and_empty_split_are_errors(tmp_path):
    fill(tmp_path, n=1)
    with refuses("data_dir", "none among the 2", rule="validation"):
        make(tmp_path).n_examples("validation")
    with refuses("data_dir", "'cow'", rule="train"):
        make(tmp_path, classes=("cat", "cow", "dog")).n_examples("train")


def test_folder_that_changes_is_seen_by_a_new_task(tmp_path):
    first = make(fill(tmp_path, n=5))
    n = sum(first.n_examples(split) for split in SPLITS)
    write(tmp_path, "cat/new.wav")
    assert sum(first.n_examples(split) for split in SPLITS) == n
    assert sum(make(tmp_path).n_examples(split) for split in SPLITS) == n + 1
    (tmp_path / "cat/new.wav").write_text("no sound")
    with refuses("data_dir", "new.wav"):
        make(tmp_path).n_examples("train")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("classes", ("cat",)),
        ("classes", ("cat", "cat")),
        ("classes", ("cat", "a/b")),
        ("group", "no group"),
        ("group", "(("),
        ("validation_fraction", 0.95),
    ],
)
def test_bad_field_is_refused(name, value):
    with refuses(name, value):
        make("/nowhere", **{name: value})
