"""Headers and samples of sound files: WAV, and others by the package soundfile.

WAV is parsed here: `wave` of Python 3.11 refuses floats and extensible headers, and
`scipy.io.wavfile` allocates what a header states and reads the whole of a long file.
"""

import os
import struct
from typing import NamedTuple

import numpy as np

WAV = (".wav", ".wave")
OTHERS = (".flac", ".ogg", ".opus", ".mp3", ".aif", ".aiff")

_TYPES = {
    (1, 8): "u1",
    (1, 16): "<i2",
    (1, 24): "i3",
    (1, 32): "<i4",
    (3, 32): "<f4",
    (3, 64): "<f8",
}
_EXTENSIBLE = 0xFFFE
# What programs write that do not know the length: ffmpeg and sox into a pipe.
_UNTIL_THE_END = (0xFFFFFFFF, 0x7FFFF000)
_MAX_CHUNKS = 1000  # before the samples
_MAX_RATE = 1_000_000


class Header(NamedTuple):
    """What a sound file says of itself, of which a WAV file has all.

    Attributes:
      n: Number of samples of a channel.
      rate: Samples per second.
      channels: Number of channels.
      kind: Type of the samples of WAV, otherwise empty.
      offset: Place of the first sample of WAV in the file.
    """

    n: int
    rate: int
    channels: int
    kind: str = ""
    offset: int = 0


def read_header(path: str) -> Header:
    """Reads the header of a sound file.

    Raises:
      ValueError: It is damaged, truncated, without samples or of an unknown kind, or
        soundfile is not installed.
      OSError: It cannot be read.
    """
    if path.lower().endswith(WAV):
        header = _wav_header(path)
    else:
        info = _soundfile().info(path)
        header = Header(info.frames, info.samplerate, info.channels)
    if header.n < 1:
        raise ValueError("no samples")
    if not 1 <= header.rate <= _MAX_RATE:
        raise ValueError(f"{header.rate:,} samples per second of at most {_MAX_RATE:,}")
    return header


def read_samples(path: str, header: Header, n: int) -> np.ndarray:
    """Reads the first ``n`` samples of each channel.

    Args:
      path: The file.
      header: Its header.
      n: Upper bound of their number.

    Returns:
      float32, ``(min(n, header.n), channels)``; integers in [-1, 1).

    Raises:
      ValueError: The file is damaged, or a sample is not finite.
      OSError: It cannot be read.
    """
    n = min(n, header.n)
    if header.kind:
        samples = _wav_samples(path, header, n)
    else:
        with _soundfile().SoundFile(path) as file:
            samples = file.read(n, dtype="float32", always_2d=True)
    if len(samples) < n:
        raise ValueError(f"truncated, {len(samples):,} of {n:,} samples")
    if not np.isfinite(samples).all():
        raise ValueError("a sample that is not finite")
    return samples


def _wav_header(path):
    size, layout = os.stat(path).st_size, None
    with open(path, "rb") as file:
        start = file.read(12)
        if start[:4] != b"RIFF" or start[8:] != b"WAVE":
            raise ValueError(f"not in WAV format, begins with {start[:12]!r}")
        for _ in range(_MAX_CHUNKS):
            head = file.read(8)
            if len(head) < 8:
                break
            name, n_bytes = struct.unpack("<4sI", head)
            place = file.tell()
            if name == b"fmt ":
                layout = _wav_layout(file.read(min(n_bytes, 40)))
            elif name == b"data" and layout is not None:
                channels, rate, kind, block = layout
                there = size - place
                n_bytes = there if n_bytes in _UNTIL_THE_END else n_bytes
                # Never allocated: a header may state gigabytes.
                if n_bytes > there:
                    raise ValueError(f"truncated, {there:,} of {n_bytes:,} bytes")
                return Header(n_bytes // block, rate, channels, kind, place)
            # Chunks begin at even places.
            file.seek(place + n_bytes + n_bytes % 2)
    raise ValueError("no chunk of samples" if layout else "no description of samples")


def _wav_layout(content):
    if len(content) < 16:
        raise ValueError("a truncated header")
    codec, channels, rate, _, block, bits = struct.unpack("<HHIIHH", content[:16])
    if codec == _EXTENSIBLE and len(content) >= 26:
        # The first bytes of its GUID are the codec.
        (codec,) = struct.unpack("<H", content[24:26])
    kind = _TYPES.get((codec, bits))
    if kind is None:
        raise ValueError(
            f"codec {codec} of {bits} bits, neither PCM of 8, 16, 24 or 32 bits nor "
            "float"
        )
    if channels < 1 or block != channels * bits // 8:
        raise ValueError(f"{block} bytes for {channels} channels of {bits} bits")
    return channels, rate, kind, block


def _wav_samples(path, header, n):
    kind, n_values = header.kind, n * header.channels
    if kind == "i3":
        raw = np.fromfile(path, "u1", 3 * n_values, offset=header.offset)
        raw = raw[: len(raw) // 3 * 3].reshape(-1, 3)
        # The upper three bytes of integers of four.
        wide = np.zeros((len(raw), 4), np.uint8)
        wide[:, 1:] = raw
        values = wide.view("<i4")[:, 0]
    else:
        values = np.fromfile(path, kind, n_values, offset=header.offset)
    values = values[: len(values) // header.channels * header.channels]
    # Overflow to infinity is the error of the caller, not a warning.
    with np.errstate(over="ignore"):
        samples = values.astype(np.float32).reshape(-1, header.channels)
    if kind == "u1":
        samples -= 128
    if "f" not in kind:
        samples /= 2.0 ** (8 * values.dtype.itemsize - 1)
    return samples


def _soundfile():
    try:
        import soundfile  # pyright: ignore[reportMissingImports]
    except (ImportError, OSError) as error:
        raise ValueError(
            "it needs the package soundfile, pip install 'ssm_jax[audio]', or WAV"
        ) from error
    return soundfile
