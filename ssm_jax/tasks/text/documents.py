"""Reads a directory of text files as one sequence of tokens per split."""

import functools
from pathlib import Path
from typing import get_args

import numpy as np

from ssm_jax.tasks.base import Split
from ssm_jax.tasks.text import on_disk, subwords, words

BYTE_SEPARATOR = 0
"""The token between documents that are read as bytes."""

WORD_SEPARATOR = words.SEPARATOR
"""The token between documents that are read as words."""


@functools.cache
def read_bytes(data_dir: str | None, split: Split) -> on_disk.ByteFiles:
    """Returns the documents of a split as bytes, which are read when needed.

    Args:
      data_dir: Directory of text files.
      split: The split; see `files`.

    Returns:
      Tokens: all documents, with a separator before each and after the last.

    Raises:
      FileNotFoundError: The directory does not exist.
      ValueError: A split has no file, or a file is empty.
    """
    return on_disk.ByteFiles(files(data_dir)[split], BYTE_SEPARATOR)


@functools.cache
def read_words(data_dir: str | None, split: Split, size: int) -> np.ndarray:
    """Reads the documents of a split as words, to a temporary file, once per process.

    Args:
      data_dir: Directory of text files, in UTF-8.
      split: The split; see `files`.
      size: Size of the vocabulary, special tokens included; see `vocabulary`.

    Returns:
      Tokens, uint16 or int32: all documents, with a separator before each and after the
      last.

    Raises:
      FileNotFoundError: As for `read_bytes`.
      ValueError: As for `read_bytes`.
    """
    paths = files(data_dir)[split]
    rows = vocabulary(data_dir, size).encode(map(_read_text, paths))
    # Two bytes for each token where they suffice.
    dtype = np.uint16 if size <= 2**16 else np.int32
    return on_disk.map_documents(paths, rows, np.array([WORD_SEPARATOR], dtype))


@functools.cache
def read_subwords(
    data_dir: str | None, split: Split, tokenizer: str, separator: str
) -> np.ndarray:
    """Reads the documents of a split with a tokenizer's file, once per process.

    The tokens are in a temporary file.

    Args:
      data_dir: Directory of text files, in UTF-8.
      split: The split; see `files`.
      tokenizer: Name of the tokenizer's file; see `subwords_of`.
      separator: The token between documents.

    Returns:
      Tokens, uint16 or int32: all documents, with a separator before each and after the
      last.

    Raises:
      FileNotFoundError: As for `read_bytes`, or the tokenizer does not exist.
      ValueError: As for `read_bytes`, or the tokenizer cannot be read.
    """
    from tqdm import tqdm

    paths, reader = files(data_dir)[split], subwords_of(data_dir, tokenizer)
    dtype = np.uint16 if reader.size <= 2**16 else np.int32
    separator_token = np.array([reader.number(separator)], dtype)
    # `disable=None`: a progress bar on terminals only.
    with tqdm(paths, f"{tokenizer} {split}", disable=None) as progress:
        rows = reader.encode(map(_read_text, progress))
        return on_disk.map_documents(paths, rows, separator_token)


def subwords_of(data_dir: str | None, tokenizer: str) -> subwords.Subwords:
    """Loads a tokenizer's file; see `tokenizer_path`."""
    return subwords.load(tokenizer_path(data_dir, tokenizer))


def tokenizer_path(data_dir: str | None, tokenizer: str) -> Path:
    """Returns the path of a tokenizer's file; relative ones start at ``data_dir``."""
    return Path(data_dir or "", tokenizer).expanduser()


@functools.cache
def vocabulary(data_dir: str | None, size: int) -> words.Vocabulary:
    """Returns the vocabulary of the train split, ``size`` tokens in total."""
    # Of the train split alone: no information from the other splits.
    return words.Vocabulary.of(map(_read_text, files(data_dir)["train"]), size)


def files(data_dir: str | None) -> dict[Split, list[Path]]:
    """Lists the ``.txt`` files of each split, sorted by name.

    Args:
      data_dir: Directory of the files. If it has a subdirectory ``train``,
        ``validation`` or ``test``, these are the splits. Otherwise, of every ten files,
        the first is for validation, the second for test and the others for train.

    Returns:
      The files of each split; no list is empty.

    Raises:
      FileNotFoundError: The directory does not exist.
      ValueError: A split has no file.
    """
    folder = None if data_dir is None else Path(data_dir).expanduser()
    if folder is None or not folder.is_dir():
        raise FileNotFoundError(
            f"`data_dir` must be a folder of text files, got {data_dir}; "
            "`ssm-jax train` and `ssm-jax evaluate` accept it as `--data_dir`."
        )
    splits: tuple[Split, ...] = get_args(Split)
    if any((folder / split).is_dir() for split in splits):
        paths: dict[Split, list[Path]] = {s: _texts(folder / s) for s in splits}
    else:
        texts = _texts(folder)
        # By position in the sorted list: three files suffice for three splits.
        train = [file for i, file in enumerate(texts) if i % 10 > 1]
        paths = {"train": train, "validation": texts[::10], "test": texts[1::10]}
    for split in splits:
        if not paths[split]:
            raise ValueError(
                f"`data_dir` must hold .txt files for the {split} split, got none in "
                f"{folder}; put at least three files there, or some into each of its "
                "folders train, validation and test."
            )
    return paths


def data_files(data_dir: str | None) -> dict[str, Path]:
    """Returns the files of all splits by their paths in ``data_dir``.

    Raises:
      FileNotFoundError: As for `files`.
      ValueError: As for `files`.
    """
    paths = [path for split in files(data_dir).values() for path in split]
    folder = Path(data_dir or "").expanduser()
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _texts(folder: Path) -> list[Path]:
    paths = [path for path in folder.rglob("*.txt") if path.is_file()]
    # What a run writes is no text: its work dir may lie beside what it is trained on.
    directories = {path.parent for path in paths}
    directories |= {
        parent
        for directory in directories
        for parent in directory.parents
        if parent.is_relative_to(folder)
    }
    runs = {
        directory
        for directory in directories
        if (directory / "config.json").is_file()
        and (directory / "checkpoints").exists()
    }
    if runs:
        paths = [path for path in paths if runs.isdisjoint(path.parents)]
    # Sorted by relative path: the order of a file system differs between machines.
    return sorted(paths, key=lambda path: path.relative_to(folder).as_posix())


def _read_text(file: Path) -> str:
    # Invalid bytes become replacement characters: one must not stop a run.
    return file.read_text(encoding="utf-8", errors="replace")
