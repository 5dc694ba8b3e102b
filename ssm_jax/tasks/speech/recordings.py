"""The published folder of Speech Commands v0.02: its files by split, and their samples.

The folder has a folder for each word, with files in WAV format, and two lists of the
files for validation and test.
"""

import functools
import wave
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ssm_jax.tasks.base import Split

WORDS = (
    "backward", "bed", "bird", "cat", "dog", "down", "eight", "five", "follow",
    "forward", "four", "go", "happy", "house", "learn", "left", "marvin", "nine", "no",
    "off", "on", "one", "right", "seven", "sheila", "six", "stop", "three", "tree",
    "two", "up", "visual", "wow", "yes", "zero",
)  # fmt: skip
"""The words by class."""

SAMPLE_RATE = 16_000
"""Samples per second of the published files."""

_LISTS: dict[Split, str] = {
    "validation": "validation_list.txt",
    "test": "testing_list.txt",
}


class Files(NamedTuple):
    """The files of a split.

    Attributes:
      paths: Paths of the ``n`` files, sorted by word and name.
      labels: int32, ``(n,)``, the index of the word of each file in `WORDS`.
    """

    paths: tuple[Path, ...]
    labels: np.ndarray


@functools.cache
def files(data_dir: str | None) -> dict[Split, Files]:
    """Lists the files of each split, once per process.

    Args:
      data_dir: The folder into which the published archive was extracted.

    Returns:
      The files of each split: those of the lists, and for train all other files of the
      words. No split is empty.

    Raises:
      FileNotFoundError: The folder, the folder of a word or a list does not exist.
      ValueError: A list names a file that does not exist or that is in the other list,
        or a split has no file.
    """
    folder = Path(data_dir or "").expanduser()
    for name in ("", *_LISTS.values(), *WORDS):
        if data_dir is None or not (folder / name).exists():
            raise FileNotFoundError(
                "`data_dir` must hold a folder for each of the 35 words, "
                f"{' and '.join(_LISTS.values())}, got {data_dir}, without "
                f"{name or 'a folder'}; extract speech_commands_v0.02.tar.gz there."
            )
    # As in the lists: "word/file". Recordings of noise are in none of these folders.
    train_names = {f"{w}/{p.name}" for w in WORDS for p in (folder / w).glob("*.wav")}
    names: dict[Split, set[str]] = {}
    for split, file in _LISTS.items():
        names[split] = set((folder / file).read_text(encoding="utf-8").split())
        if missing := names[split] - train_names:
            raise ValueError(
                f"`data_dir` must hold each file of {file}, and in one list only, got "
                f"none left for {min(missing)} in {data_dir}; extract the archive anew."
            )
        train_names -= names[split]
    names["train"] = train_names
    for split in names:
        if not names[split]:
            raise ValueError(
                f"`data_dir` must hold files for the {split} split, got none in "
                f"{data_dir}; extract the archive anew."
            )
    return {split: _sort_files(folder, names[split]) for split in names}


def data_files(data_dir: str | None) -> dict[str, Path]:
    """Returns the files of all splits and the two lists by their paths in the folder.

    Raises:
      FileNotFoundError: As for `files`.
      ValueError: As for `files`.
    """
    folder = Path(data_dir or "").expanduser()
    paths = [path for split in files(data_dir).values() for path in split.paths]
    paths += [folder / name for name in _LISTS.values()]
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _sort_files(folder: Path, names: set[str]) -> Files:
    # Sorted: the order of a file system differs between machines.
    ordered = sorted(names)
    labels = [WORDS.index(name.split("/")[0]) for name in ordered]
    return Files(tuple(folder / name for name in ordered), np.array(labels, np.int32))


def read(path: Path) -> np.ndarray:
    """Reads the samples of a file.

    Args:
      path: A file of one channel, 16 bits per sample and 16,000 samples per second.

    Returns:
      The samples, int16, ``(n,)``.

    Raises:
      ValueError: The file is not in WAV format, is truncated, or has another number of
        channels, of bits or of samples per second.
    """
    try:
        with wave.open(str(path), "rb") as file:
            got = (file.getnchannels(), 8 * file.getsampwidth(), file.getframerate())
            n, data = file.getnframes(), b""
            if got == (1, 16, SAMPLE_RATE):
                # No more than the file has: its header may state gigabytes.
                data = file.readframes(min(n, path.stat().st_size))
    except (wave.Error, EOFError) as error:
        raise ValueError(
            f"`data_dir` must hold files in WAV format, got {path} ({error}); extract "
            "the archive anew."
        ) from error
    if got != (1, 16, SAMPLE_RATE):
        raise ValueError(
            "`data_dir` must hold files of 1 channel, 16 bits and 16000 samples per "
            f"second, got {got} for {path}; convert it to these."
        )
    # A truncated file has fewer than its header states.
    if len(data) != 2 * n:
        raise ValueError(
            f"`data_dir` must hold whole files, got {len(data)} of {2 * n} bytes of "
            f"{path}; extract the archive anew."
        )
    return np.frombuffer(data, "<i2")
