"""Checks of files that a program writes when it ends."""

import os
from collections.abc import Sequence
from pathlib import Path

PICTURES = ("png", "pdf", "svg", "jpg", "webp")
"""What the name of a picture may end in."""


def check_writable(flag: str, path: str | None, suffixes: Sequence[str] = ()) -> None:
    """Checks a file that is to be written at the end, before anything is measured.

    Args:
      flag: The flag that names it.
      path: The file; None, or empty, where none is asked for.
      suffixes: What its name may end in. None given: anything.

    Raises:
      ValueError: It is a folder, there is no folder that it could be in, it may not be
        written, or its name ends in something else.
    """
    if not path:
        return
    file = Path(path)
    got, way_out = None, "give another path"
    if file.is_dir():
        got = "a folder"
    elif not file.parent.is_dir():
        got, way_out = "no such folder", f"`mkdir -p {file.parent}` makes it"
    elif not os.access(file if file.exists() else file.parent, os.W_OK):
        got = "no permission"
    elif suffixes and file.suffix.lstrip(".").lower() not in suffixes:
        got, way_out = "another name", f"end it in one of .{', .'.join(suffixes)}"
    if got:
        raise ValueError(
            f"`--{flag}` must be a file that can be written, got {path} with {got}; "
            f"{way_out}."
        )
