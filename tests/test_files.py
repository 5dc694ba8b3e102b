"""Files of any origin: npz and JSON are refused in one line, before memory is taken."""

import io
import json
import pickle
import struct
import zipfile

import numpy as np
import pytest

from ssm_jax import files

X = np.arange(12.0).reshape(3, 4)


def npy(array=X):
    """The bytes of an array."""
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def header(text, version=1):
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text


def archive(path, method=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", method) as opened:
        for name, content in members.items():
            opened.writestr(f"{name}.npy", content)
    return path


def write_claimed(path, n):
    """A file whose directory and header claim more bytes than there are."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({n // 8},), }}\n"
    start = header(text.encode())
    archive(path, x=start)
    content = path.read_bytes()
    at = content.index(b"PK\x01\x02") + 24
    path.write_bytes(
        content[:at] + struct.pack("<I", n + len(start)) + content[at + 4 :]
    )


def npy_header(dtype, shape):
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}\n"
    return header(text.encode())


MEMBERS = {
    "not npy": (b"hello", "magic"),
    "empty": (b"", "magic"),
    "pickled": (npy(np.array([{}, None])), "pickled objects"),
    "pickle": (pickle.dumps(X), "magic"),
    "2^60 numbers": (npy_header("'<f8'", f"({2**60},)"), "0 bytes"),
    "3000 axes": (npy_header("'<f8'", "(" + "1, " * 3000 + ")"), "0 bytes"),
    "negative": (npy_header("'<f8'", "(-1, -12)") + bytes(96), "-12"),
    "text for a shape": (npy_header("'<f8'", "'3'"), "shape"),
    "wide words": (npy_header("'<U400000000'", "(3,)"), "0 bytes"),
    "truncated": (npy()[:-8], "88 bytes"),
    "too long": (npy() + b"1", "97 bytes"),
    "long header": (header(b" " * 2**20, version=2), "header"),
    "claimed header": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "header"),
    "nested": (header(b"(" * 9000 + b"\n"), "(header|nested|EOF)"),
    "minus": (header(b"-" * 9000 + b"1\n"), "header"),
    "version": (header(b"{}\n", version=7), "version"),
    "no dict": (header(b"[1]\n"), "dictionary"),
}


@pytest.mark.parametrize(("content", "shown"), MEMBERS.values(), ids=MEMBERS)
def test_array_that_is_damaged_is_refused_when_it_is_asked_for(
    content, shown, tmp_path
):
    arrays = files.ArrayFile(archive(tmp_path / "a.npz", x=content, good=npy()))
    assert list(arrays) == ["x", "good"] and "x" in arrays and "y" not in arrays
    np.testing.assert_array_equal(arrays["good"], X)
    for ask in (arrays.layout, arrays.__getitem__):
        with pytest.raises(ValueError, match=f"^x with .*{shown}") as refusal:
            ask("x")
        assert "\n" not in str(refusal.value)
    with pytest.raises(KeyError):
        arrays["y"]


def twice(path):
    with pytest.warns(UserWarning, match="Duplicate"):
        with zipfile.ZipFile(path, "w") as opened:
            opened.writestr("x.npy", npy())
            opened.writestr("x.npy", npy(X + 1))


FILES = {
    "renamed npy": lambda path: path.write_bytes(npy()),
    "pickle": lambda path: path.write_bytes(pickle.dumps(X)),
    "empty": lambda path: path.write_bytes(b""),
    "two of one name": twice,
}


@pytest.mark.parametrize("write", FILES.values(), ids=FILES)
def test_file_that_is_no_archive_is_refused(write, tmp_path):
    write(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="^got .*$"):
        files.ArrayFile(tmp_path / "a.npz", "got {}".format)


def test_directory_and_missing_file_keep_their_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.ArrayFile(tmp_path / "a.npz")
    with pytest.raises(IsADirectoryError):
        files.ArrayFile(tmp_path)


def test_array_that_claims_more_than_the_file_may_hold_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    write_claimed(path, 2**31)
    with pytest.raises(ValueError, match=f"{2**31:,} bytes.*{files.MAX_BYTES:,}"):
        files.read_arrays(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_arrays_that_unpack_to_more_than_the_bounds_are_refused(
    method, tmp_path, monkeypatch
):
    small, zeros = np.ones(10), npy(np.zeros(100_000))
    path = archive(tmp_path / "a.npz", method, x=zeros, y=zeros, small=npy(small))
    assert files.max_unpacked(path) == files.MAX_BYTES
    assert len(files.read_arrays(path)) == 3
    monkeypatch.setattr(files, "MAX_BYTES", 1_000_000)
    arrays = files.ArrayFile(path)
    # One of them fits, and the same array once more; both do not.
    assert arrays["x"].size == arrays["x"].size == 100_000
    with pytest.raises(ValueError, match="1,600,000 bytes.*1,000,000"):
        arrays["y"]
    np.testing.assert_array_equal(files.ArrayFile(path)["small"], small)


def test_file_without_compression_is_read_whatever_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 1)
    np.savez(tmp_path / "a.npz", x=X, y=np.zeros(1000))
    assert files.read_arrays(tmp_path / "a.npz")["y"].shape == (1000,)


def test_link_in_the_place_of_a_file_is_not_followed(tmp_path):
    """In a work dir of others it may lead to any file."""
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "a.json").symlink_to(tmp_path / "mine")
    files.write_text(tmp_path / "a.json", "written")
    assert (tmp_path / "a.json").read_text() == "written"
    (tmp_path / "b.json.part").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="b.json"):
        files.write_text(tmp_path / "b.json", "written")
    assert (tmp_path / "mine").read_text() == "kept"


OPENED = ('{"a": ', "[")
CLOSED = ("}", "]")


@pytest.mark.parametrize("depth", [99, 100, 101, 900, 200_000])
@pytest.mark.parametrize("kind", [0, 1], ids=["objects", "lists"])
def test_json_is_parsed_up_to_a_depth(kind, depth):
    # The innermost pair is empty: 100 levels hold 99 others.
    opened, closed = OPENED[kind] * (depth - 1), CLOSED[kind] * (depth - 1)
    text = f"{opened}[]{closed}"
    if depth <= 100:
        assert files.parse_json(text) == json.loads(text)
    else:
        with pytest.raises(ValueError, match="at most 100 deep$"):
            files.parse_json(text)
