"""Samples of sound files as scipy reads them, and files that are damaged."""

import importlib
import struct

import numpy as np
import pytest
from scipy.io import wavfile

from ssm_jax.tasks.folders import sound_files

RNG = np.random.default_rng(0)
INTEGERS = RNG.integers(-(2**31), 2**31, (100, 2)).astype(np.int32)
KINDS = {
    "u1": ((INTEGERS >> 24) + 128).astype(np.uint8),
    "i2": (INTEGERS >> 16).astype(np.int16),
    "i4": INTEGERS,
    "f4": RNG.normal(size=(100, 2)).astype(np.float32),
    "f8": RNG.normal(size=(100, 2)),
}


def read(path, n=1000):
    header = sound_files.read_header(str(path))
    return sound_files.read_samples(str(path), header, n)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_are_those_of_scipy(tmp_path, kind, channels):
    values = KINDS[kind][:, :channels]
    wavfile.write(path := tmp_path / "a.wav", 22_050, values)
    scale = {"u1": 2**7, "i2": 2**15, "i4": 2**31}.get(kind, 1)
    expected = (values.astype(np.float64) - 128 * (kind == "u1")) / scale
    np.testing.assert_allclose(read(path), expected, rtol=1e-6)
    np.testing.assert_array_equal(read(path, 7), read(path)[:7])
    assert sound_files.read_header(str(path))[:3] == (100, 22_050, channels)


def wav(values, *, codec=1, bits=16, stated=None, extra=b"", block=None):
    """The bytes of a file whose header may be wrong."""
    data = values.tobytes()
    block = bits // 8 if block is None else block
    form = struct.pack("<HHIIHH", codec, 1, 8_000, 8_000 * block, block, bits) + extra
    stated = len(data) if stated is None else stated
    chunks = b"WAVEJUNK\3\0\0\0abc\0fmt " + struct.pack("<I", len(form)) + form
    chunks += b"data" + struct.pack("<I", stated) + data
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


VALUES = np.arange(-5, 5, dtype="<i2")


@pytest.mark.parametrize("extensible", [False, True])
def test_24_bits_and_extensible_headers_are_read(tmp_path, extensible):
    numbers = np.array([0, 1, -1, 2**23 - 1, -(2**23)], "<i4")
    data = numbers.view(np.uint8).reshape(-1, 4)[:, :3].copy()
    guid = struct.pack("<HHIH", 22, 24, 4, 1) + bytes(14)
    form = {"codec": 0xFFFE, "extra": guid} if extensible else {}
    path = tmp_path / "a.wav"
    path.write_bytes(wav(data, bits=24, **form))
    np.testing.assert_array_equal(read(path)[:, 0], numbers / 2**23)


@pytest.mark.parametrize("stated", [0xFFFFFFFF, 0x7FFFF000])
def test_stream_of_unknown_length_is_read_to_its_end(tmp_path, stated):
    (path := tmp_path / "a.wav").write_bytes(wav(VALUES, stated=stated))
    np.testing.assert_array_equal(read(path)[:, 0], VALUES / 2**15)


BAD = {
    "gigabytes": (wav(VALUES, stated=2**31), "truncated, 20 of 2,147,483,648"),
    "truncated": (wav(VALUES)[:-2], "truncated"),
    "no samples": (wav(VALUES[:0]), "no samples"),
    "no data": (wav(VALUES)[:48], "no chunk"),
    "codec": (wav(VALUES, codec=7), "codec 7"),
    "bits": (wav(VALUES, bits=12), "12 bits"),
    "block": (wav(VALUES, block=3), "3 bytes"),
    "nan": (wav(np.full(9, np.nan, "<f4"), codec=3, bits=32), "not finite"),
    "large": (wav(np.full(9, 1e99), codec=3, bits=64), "not finite"),
    "zip": (b"PK\3\4 and more of it", "not in WAV format"),
    "zeros": (b"RIFF0000WAVE" + bytes(9_999), "no description"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_refused_with_its_cause(tmp_path, name):
    content, cause = BAD[name]
    (path := tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(ValueError, match=cause):
        read(path)


def test_other_formats_need_soundfile(tmp_path):
    (path := tmp_path / "a.flac").write_bytes(b"fLaC")
    try:
        soundfile = importlib.import_module("soundfile")
    except ImportError:
        with pytest.raises(ValueError, match=r"ssm_jax\[audio\]"):
            read(path)
        return
    values = KINDS["i2"]
    soundfile.write(path, values, 44_100)
    np.testing.assert_array_equal(read(path), values.astype(np.float32) / 2**15)
    np.testing.assert_array_equal(read(path, 9), read(path)[:9])
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(Exception, match="."):
        read(path)
