"""Flags and checks that several programs share: data, packages and output files.

Modules of the user are beside the file of an experiment, or in packages that he names.
Their folders are added at the end of ``sys.path``: a file of the user replaces no
installed package.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from ssm_jax.cli.config_file import config_argument

PICTURES = ("png", "pdf", "svg", "jpg", "webp")
"""File name extensions of figures."""


def define_data(where: str) -> None:
    """Defines ``--data_dir`` and ``--allow_changed_data``.

    Args:
      where: What ``--help`` says of the directory.
    """
    flags.DEFINE_string("data_dir", None, where)
    flags.DEFINE_bool(
        "allow_changed_data", False, "Go on with other data than the run began with."
    )


def define_run(where: str) -> None:
    """Defines the flags of a program that reads a run, those of `run_options` too.

    Args:
      where: What ``--help`` says of the data directory.
    """
    flags.DEFINE_string("workdir", None, "Work dir of the run.", required=True)
    define_data(where)
    flags.DEFINE_list(
        "packages",
        [],
        "Packages or modules, beside ssm_jax, whose classes the run may name. Their "
        "code is run; they are installed or in the working directory.",
    )
    flags.DEFINE_string(
        "mesh", None, "Shards large parameters over local devices: model=M."
    )


def define_checkpoint() -> None:
    """Defines ``--checkpoint``."""
    flags.DEFINE_string(
        "checkpoint", "best", "Checkpoint to use: best, latest or a step."
    )


def checkpoint() -> Any:
    """Returns ``--checkpoint`` as `ssm_jax.evaluation.restore` takes it.

    Raises:
      ValueError: It is no checkpoint.
    """
    which = flags.FLAGS.checkpoint
    if which in ("best", "latest"):
        return which
    # `int` alone would also accept signs, underscores and other scripts' digits.
    if not (which.isascii() and which.isdecimal()):
        raise ValueError(
            f"`--checkpoint` must be best, latest or a step, got {which!r}; the "
            "directories in checkpoints/ are the steps that were kept."
        )
    return int(which)


def run_options() -> dict[str, Any]:
    """Returns the flags of `define_run` as options of `ssm_jax.evaluation.restore`.

    With ``--packages`` the working directory becomes importable, which is that of
    ``python -m`` anyway, but not of ``ssm-jax``.
    """
    values = flags.FLAGS
    if values.packages:
        _add_to_path(os.getcwd())
    names = ("data_dir", "packages", "allow_changed_data", "mesh")
    return {name: getattr(values, name) for name in names}


def import_neighbours(argv: Sequence[str]) -> None:
    """Makes what the file of ``--config`` imports importable, wherever it is run from.

    These are the modules beside it and, if it is a module of a package such as
    ``experiments``, that package.
    """
    experiment = config_argument(argv)
    if experiment:
        folder = Path(experiment.split(":", 1)[0]).resolve().parent
        _add_to_path(str(folder))
        while (folder / "__init__.py").exists():
            folder = folder.parent
        _add_to_path(str(folder))


def _add_to_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)


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
