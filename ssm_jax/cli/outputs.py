"""Checks of output files that a program writes at its end."""

import os
from collections.abc import Sequence
from pathlib import Path

PICTURES = ("png", "pdf", "svg", "jpg", "webp")
"""File name extensions of figures."""


def check_writable(flag: str, path: str | None, suffixes: Sequence[str] = ()) -> None:
    """Checks that an output file can be written, before anything is computed.

    Args:
      flag: Name of the flag with the path.
      path: Path of the file; None or empty if there is none.
      suffixes: Accepted file name extensions. Empty means any.

    Raises:
      ValueError: The path is a directory, its directory does not exist, it is not
        writable, or it has another extension.
    """
    if not path:
        return
    file = Path(path)
    got, way_out = None, "give another path"
    if file.is_dir():
        got = "a directory"
    elif not file.parent.is_dir():
        got, way_out = "no such directory", f"`mkdir -p {file.parent}` makes it"
    # A new file needs permission on its directory. Nothing is opened, because that
    # would truncate or create the file.
    elif not os.access(file if file.exists() else file.parent, os.W_OK):
        got = "no permission"
    elif suffixes and file.suffix.lstrip(".").lower() not in suffixes:
        got, way_out = "another name", f"end it in one of .{', .'.join(suffixes)}"
    if got:
        raise ValueError(
            f"`--{flag}` must be a file that can be written, got {path} with {got}; "
            f"{way_out}."
        )
