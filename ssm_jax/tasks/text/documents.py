"""Reads a directory of text files as one sequence of tokens per split."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np

from ssm_jax.tasks.base import Split
from ssm_jax.tasks.text import on_disk, subwords, words

BYTE_SEPARATOR = 0
"""The token between documents that are read as bytes."""

WORD_SEPARATOR = words.SEPARATOR
"""The token between documents that are read as words."""

# Of one or two files, which are cut.
_PARTS: dict[Split, on_disk.Part] = {
    "train": (0.0, 0.8),
    "validation": (0.8, 0.9),
    "test": (0.9, 1.0),
}


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
      ValueError: There is no file, or a split has none.
    """
    paths, part = _files_and_part(data_dir, split)
    return on_disk.ByteFiles(paths, BYTE_SEPARATOR, part)


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
    paths, _ = _files_and_part(data_dir, split)
    rows = vocabulary(data_dir, size).encode(texts(data_dir, split))
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

    paths, _ = _files_and_part(data_dir, split)
    reader = subwords_of(data_dir, tokenizer)
    dtype = np.uint16 if reader.size <= 2**16 else np.int32
    separator_token = np.array([reader.number(separator)], dtype)
    # `disable=None`: a progress bar on terminals only.
    documents = texts(data_dir, split)
    with tqdm(
        documents, f"{tokenizer} {split}", total=len(paths), disable=None
    ) as progress:
        rows = reader.encode(iter(progress))
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
    return words.Vocabulary.of(texts(data_dir, "train"), size)


def texts(
    data_dir: str | None, split: Split, max_bytes: int | None = None
) -> Iterator[str]:
    """Yields the text of each document of a split, read as UTF-8.

    Args:
      data_dir: Directory of text files.
      split: The split; see `files`.
      max_bytes: Bytes that are read in all, of each file the same fraction from its
        beginning. None means all.

    Raises:
      FileNotFoundError: As for `files`.
      ValueError: As for `files`.
    """
    paths, part = _files_and_part(data_dir, split)
    spans = [on_disk.span(path, part) for path in paths]
    total = sum(size for _, size in spans)
    shown = 1.0 if max_bytes is None else min(1.0, max_bytes / max(total, 1))
    for path, (start, size) in zip(paths, spans, strict=True):
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(int(size * shown))
        # Invalid bytes become replacement characters: one must not stop a run.
        yield data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


def files(data_dir: str | None) -> dict[Split, list[Path]]:
    """Lists the ``.txt`` files of each split, sorted by name, without empty ones.

    Args:
      data_dir: Directory of the files. If it has a subdirectory ``train``,
        ``validation`` or ``test``, these are the splits. Otherwise, of every ten files,
        the first is for validation, the second for test and the others for train; of
        one or two files, each split reads a part of each.

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
        found = _texts(folder)
        # By position in the sorted list: three files suffice for three splits.
        train = [file for i, file in enumerate(found) if i % 10 > 1]
        paths = {"train": train, "validation": found[::10], "test": found[1::10]}
        if len(found) < len(splits):
            paths = dict.fromkeys(splits, found)
    for split in splits:
        if not paths[split]:
            raise ValueError(
                f"`data_dir` must hold .txt files for the {split} split, got none in "
                f"{folder}; put text there, or some files into each of its folders "
                "train, validation and test."
            )
    return paths


def _files_and_part(data_dir, split):
    """The files of a split, and the part of each that it reads."""
    by_split = files(data_dir)
    is_cut = by_split["train"] == by_split["test"]
    return by_split[split], _PARTS[split] if is_cut else on_disk.WHOLE


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
    paths = [
        path
        for path in folder.rglob("*.txt")
        if path.is_file() and path.stat().st_size > 0
    ]
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
