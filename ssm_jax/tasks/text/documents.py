"""Folders of text files, read as one long text a split."""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import numpy as np

from ssm_jax.tasks.base import Split
from ssm_jax.tasks.text import subwords, tokens, words

BYTE_SEPARATOR = 0
"""The token around documents that are read as bytes."""

WORD_SEPARATOR = words.SEPARATOR
"""The token around documents that are read as words."""


@functools.cache
def read_bytes(data_dir: str | None, split: Split) -> np.ndarray:
    """Reads the documents of a split as bytes; once per process.

    Args:
      data_dir: Folder of text files.
      split: Part of the files; `files` says which.

    Returns:
      Tokens, uint16: all documents, a border before each and behind the last.

    Raises:
      FileNotFoundError: The folder is not there.
      ValueError: A split has no file, or a file no text.
    """
    found = files(data_dir)[split]
    rows = (tokens.from_bytes(file.read_bytes()) for file in found)
    return _joined(found, rows, np.array([BYTE_SEPARATOR], np.uint16))


@functools.cache
def read_words(data_dir: str | None, split: Split, size: int) -> np.ndarray:
    """Reads the documents of a split as words; once per process.

    Args:
      data_dir: Folder of text files, in UTF-8.
      split: Part of the files; `files` says which.
      size: Tokens, of which the most frequent words of the train split get those
        that `ssm_jax.tasks.text.words` leaves to words.

    Returns:
      Tokens, uint16 or int32: all documents, a border before each and behind the last.

    Raises:
      FileNotFoundError: As for `read_bytes`.
      ValueError: As for `read_bytes`.
    """
    found = files(data_dir)[split]
    rows = vocabulary(data_dir, size).encode(map(_decoded, found))
    dtype = np.uint16 if size <= 2**16 else np.int32
    return _joined(found, rows, np.array([WORD_SEPARATOR], dtype))


@functools.cache
def read_subwords(
    data_dir: str | None, split: Split, tokenizer: str, separator: str
) -> np.ndarray:
    """Reads the documents of a split as a tokenizer's file says; once per process.

    Args:
      data_dir: Folder of text files, in UTF-8.
      split: Part of the files; `files` says which.
      tokenizer: Name of the file; see `subwords_of`.
      border: The token around documents.

    Returns:
      Tokens, uint16 or int32: all documents, a border before each and behind the last.

    Raises:
      FileNotFoundError: As for `read_bytes`, or there is no such tokenizer.
      ValueError: As for `read_bytes`, or the tokenizer cannot be read.
    """
    from tqdm import tqdm

    found, reader = files(data_dir)[split], subwords_of(data_dir, tokenizer)
    dtype = np.uint16 if reader.size <= 2**16 else np.int32
    separator_token = np.array([reader.number(separator)], dtype)
    with tqdm(found, f"{tokenizer} {split}", disable=None) as shown:
        return _joined(found, reader.encode(map(_decoded, shown)), separator_token)


def subwords_of(data_dir: str | None, tokenizer: str) -> subwords.Subwords:
    """The tokenizer of a file that is in the folder of the texts, or elsewhere."""
    return subwords.load(Path(data_dir or "", tokenizer).expanduser())


@functools.cache
def vocabulary(data_dir: str | None, size: int) -> words.Vocabulary:
    """The most frequent words of the train split, ``size`` tokens with the others."""
    return words.Vocabulary.of(map(_decoded, files(data_dir)["train"]), size)


def files(data_dir: str | None) -> dict[Split, list[Path]]:
    """Lists the ``.txt`` files of each split, in the order of their names.

    Args:
      data_dir: Their folder. Where it has a folder ``train``, ``validation`` or
        ``test``, these are the splits; else, of each ten files, the first is for
        validation, the second for tests and the others for training.

    Returns:
      Files by split, some for each.

    Raises:
      FileNotFoundError: The folder is not there.
      ValueError: A split has no file.
    """
    folder = None if data_dir is None else Path(data_dir).expanduser()
    if folder is None or not folder.is_dir():
        raise FileNotFoundError(
            f"`data_dir` must be a folder of text files, got {data_dir}; "
            "`launch.train` takes it as `--data_dir`."
        )
    splits: tuple[Split, ...] = get_args(Split)
    if any((folder / split).is_dir() for split in splits):
        found: dict[Split, list[Path]] = {s: _texts(folder / s) for s in splits}
    else:
        texts = _texts(folder)
        train = [file for i, file in enumerate(texts) if i % 10 > 1]
        found = {"train": train, "validation": texts[::10], "test": texts[1::10]}
    for split in splits:
        if not found[split]:
            raise ValueError(
                f"`data_dir` must hold .txt files for the {split} split, got none in "
                f"{folder}; put three files there or more, or some into each of its "
                "folders train, validation and test."
            )
    return found


def _texts(folder: Path) -> list[Path]:
    paths = (path for path in folder.rglob("*.txt") if path.is_file())
    return sorted(paths, key=lambda path: path.relative_to(folder).as_posix())


def _decoded(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _joined(
    found: list[Path], rows: Iterable[np.ndarray], separator: np.ndarray
) -> np.ndarray:
    """All documents as one text, in the dtype of the border that is around each."""
    parts = [separator]
    for file, row in zip(found, rows, strict=True):
        if not len(row):
            raise ValueError(
                f"`data_dir` must hold no file without text, got {file}; remove it."
            )
        parts += [row.astype(separator.dtype), separator]
    return np.concatenate(parts)
