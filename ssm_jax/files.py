"""Files that are written whole or not at all, and arrays and JSON read from them."""

import contextlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

PART = ".part"
"""Suffix of what is not yet whole."""

_MAX_DEPTH = 100  # of JSON; a config has about ten levels


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that replaces ``path`` at the end of the block.

    A kill or an error in the block, or a power failure, leaves the previous file.

    Raises:
      OSError: The file cannot be written; the error names it.
    """
    part = path.with_name(path.name + PART)
    with named_errors(path):
        with part.open("wb") as file:
            yield file
            # Without fsync, a rename may reach the disk before the content does.
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)


def write_text(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with replaced(path) as file:
        file.write(text.encode())


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an ``.npz`` file, whole or not at all, of any name."""
    # An open file, because numpy would add its extension to the name.
    with replaced(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads the arrays of an ``.npz`` file.

    Raises:
      FileNotFoundError: There is none.
      ValueError: It does not hold arrays, or not whole; the error does not name it.
    """
    try:
        # NumPy leaves a file open that it cannot read. Pickled objects would run code
        # when they are loaded.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
            return dict(found)
    except (EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(str(error)) from error


def parse_json(text: str) -> Any:
    """Parses JSON that may be of any origin.

    Raises:
      ValueError: ``text`` is no JSON, or nested so deeply that a recursive function
        would not return; the error does not name the file.

    Example:
      >>> parse_json('{"steps": [1, 2]}')
      {'steps': [1, 2]}
    """
    rule = f"lists and objects must be nested at most {_MAX_DEPTH} deep"
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(rule) from error
    # By levels: what recursion would count, it could not return from.
    level, depth = [value], 1
    while level := [
        item
        for parent in level
        if isinstance(parent, dict | list)
        for item in (parent.values() if isinstance(parent, dict) else parent)
    ]:
        depth += 1
        if depth > _MAX_DEPTH:
            raise ValueError(rule)
    return value


@contextlib.contextmanager
def named_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Says which file could not be written; the error of a full disk does not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
