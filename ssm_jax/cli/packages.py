"""Modules of the user: beside the file of an experiment, or in packages that he names.

Folders are added at the end of ``sys.path``: a file of the user replaces no installed
package.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from ssm_jax.cli.config_file import config_argument


def define_packages() -> None:
    """Defines ``--packages``."""
    flags.DEFINE_list(
        "packages",
        [],
        "Packages or modules, beside ssm_jax, whose classes the run may name. Their "
        "code is run; they are installed or in the working directory.",
    )


def named_packages() -> list[str]:
    """Returns the value of ``--packages``, and makes the working directory importable.

    The working directory is that of ``python -m`` anyway, but not of ``ssm-jax``.
    """
    names = flags.FLAGS.packages
    if names:
        _importable(os.getcwd())
    return names


def import_neighbours(argv: Sequence[str]) -> None:
    """Makes what the file of ``--config`` imports importable, wherever it is run from.

    These are the modules beside it and, if it is a module of a package such as
    ``experiments``, that package.
    """
    experiment = config_argument(argv)
    if experiment:
        folder = Path(experiment.split(":", 1)[0]).resolve().parent
        _importable(str(folder))
        while (folder / "__init__.py").exists():
            folder = folder.parent
        _importable(str(folder))


def _importable(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)
