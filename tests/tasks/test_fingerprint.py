"""Fingerprints: equal for equal content wherever it is, others after a change."""

import os
import shutil

import numpy as np
import pytest

from ssm_jax.tasks import fingerprint as module
from ssm_jax.tasks.fingerprint import fingerprint, fingerprint_of, same
from tests.bad_inputs import refuses


def write(folder, n=3):
    """Files by name, each with its own content."""
    folder.mkdir()
    paths = {f"{i}.txt": folder / f"{i}.txt" for i in range(n)}
    for name, path in paths.items():
        path.write_bytes(np.random.default_rng(int(name[:-4])).bytes(50_000))
    return paths


def append(path):
    with path.open("ab") as file:
        file.write(b"a")


def edit(path, offset, whence=os.SEEK_SET):
    with path.open("r+b") as file:
        file.seek(offset, whence)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


CHANGES = {
    "appended": lambda files: append(files["2.txt"]),
    "cut": lambda files: os.truncate(files["2.txt"], 49_999),
    "head": lambda files: edit(files["1.txt"], 0),
    "inside": lambda files: edit(files["1.txt"], 31_234),
    "tail": lambda files: edit(files["1.txt"], -1, os.SEEK_END),
    "exchanged": lambda files: files.update(
        {"0.txt": files["1.txt"], "1.txt": files["0.txt"]}
    ),
    "removed": lambda files: files.pop("0.txt"),
    "renamed": lambda files: files.update({"a.txt": files.pop("0.txt")}),
    "added": lambda files: files.update({"3.txt": files["0.txt"]}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_change_of_small_files_is_seen(tmp_path, change):
    files = write(tmp_path / "data")
    before = fingerprint(files)
    change(files)
    assert not same(fingerprint(files), before)


def test_copied_and_touched_files_are_the_same(tmp_path):
    files = write(tmp_path / "data")
    before = fingerprint(files)
    assert (before["files"], before["bytes"]) == (3, 150_000)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    copies = {name: tmp_path / "copy" / name for name in reversed(files)}
    os.utime(copies["1.txt"], (2_000_000_000, 2_000_000_000))
    after = fingerprint(copies)
    assert same(after, before) and after["modified"] == "2033-05-18T03:33:20Z"


LARGE = {
    "appended": append,
    "head": lambda path: edit(path, 100),
    "tail": lambda path: edit(path, -100, os.SEEK_END),
    "rewritten": lambda path: path.write_bytes(b"a" * path.stat().st_size),
}


@pytest.mark.parametrize("change", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("n", [1, 3, 200], ids="{}_files".format)
def test_changes_of_large_files_are_seen(tmp_path, monkeypatch, change, n):
    """Of which parts are read: fewer bytes than there are."""
    for name, value in {"_WHOLE": 40_000, "_SAMPLE": 256, "_SAMPLES": 130}.items():
        monkeypatch.setattr(module, name, value)
    files = write(tmp_path / "data", n)
    before = fingerprint(files)
    assert same(fingerprint(files), before)
    change(files[min(files)])
    assert not same(fingerprint(files), before)


def test_a_large_file_is_read_in_parts(tmp_path):
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(2**34)
    before = fingerprint({"a": path})
    assert before["bytes"] == 2**34
    edit(path, -1, os.SEEK_END)
    assert not same(fingerprint({"a": path}), before)


def test_many_files_are_not_all_read(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"a")
    files = dict.fromkeys(map(str, range(5000)), path)
    before = fingerprint(files)
    assert before["files"] == 5000
    files["-1"] = path
    assert not same(fingerprint(files), before)


class Own:
    """A task of a user."""

    def __init__(self, files):
        self.data_files = files


def test_a_task_need_not_have_files(tmp_path):
    for files in (dict, None, ()):  # An attribute of that name is not the method.
        assert fingerprint_of(Own(files)) is None
    assert fingerprint_of(object()) is None
    with refuses("data_files", "list", rule="by their names"):
        fingerprint_of(Own(lambda: [tmp_path]))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        fingerprint_of(Own(lambda: {"a": tmp_path / "nowhere"}))
