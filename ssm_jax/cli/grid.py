"""Grids of values of the fields of a config."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ssm_jax.cli.config_file import load_with_overrides
from ssm_jax.config import Config

SEED = "training.seed"
"""The field whose values are averaged over."""

_VALUE = re.compile(r"""(?:\([^()]*\)|\[[^\[\]]*\]|"[^"]*"|'[^']*'|[^,])+""")


class Cell(NamedTuple):
    """A run of a grid.

    Attributes:
      values: The words on the command line by the path of their field.
      config: The config with these values.
      workdir: Work dir of the run; its name is made of the values, so that a larger
        grid finds the runs of a smaller one.
    """

    values: dict[str, str]
    config: Config
    workdir: Path


def parse_grid(axes: Sequence[str]) -> list[dict[str, str]]:
    """Parses the axes of a grid and returns their product, the last axis fastest.

    Args:
      axes: ``FIELD=VALUE,VALUE,...`` each. Commas in brackets or quotes do not
        separate.

    Returns:
      The value of each field, as a word, for each cell of the grid.

    Raises:
      ValueError: An axis is malformed, or a field or a value occurs twice.

    Example:
      >>> parse_grid(["task.betas=(0, 1),(0, 2)", "training.seed=0,1"])[1]
      {'task.betas': '(0, 1)', 'training.seed': '1'}
    """
    words_by_field: dict[str, list[str]] = {}
    for axis in axes:
        field, equals, text = axis.partition("=")
        field = field.strip().removeprefix("config.")
        pieces = _VALUE.findall(text)
        words = [piece.strip() for piece in pieces]
        # Where two commas meet, no piece lies between them.
        if not (field and equals and text) or ",".join(pieces) != text or "" in words:
            raise ValueError(
                f"`--grid` must be FIELD=VALUE,VALUE,..., got {axis!r}; "
                f"--grid={SEED}=0,1,2 is an example."
            )
        if field in words_by_field or len(set(words)) < len(words):
            raise ValueError(
                f"`--grid` must have each field, and each of its values, once, got "
                f"{axis!r}; leave one out."
            )
        words_by_field[field] = words
    return [
        dict(zip(words_by_field, words, strict=True))
        for words in itertools.product(*words_by_field.values())
    ]


def cells(argv: Sequence[str], axes: Sequence[str], root: str) -> list[Cell]:
    """Returns the runs of a grid.

    Args:
      argv: The command line, with ``--config`` and overrides that all runs share.
      axes: The axes; see `parse_grid`.
      root: Directory of the work dirs.

    Raises:
      ValueError: An axis is malformed, a field does not exist, or two runs would have
        the same work dir.
      flags.Error: A value has another type than its field.
    """
    runs, names = [], set()
    for values in parse_grid(axes):
        overrides = [f"--config.{field}={word}" for field, word in values.items()]
        workdir = Path(root)
        for field, word in values.items():
            # The directory is a word without spaces, commas or slashes.
            workdir /= re.sub(r"[^\w.+=-]+", "_", f"{field}={word}")
        if workdir in names:
            raise ValueError(
                f"`--grid` must have values of different names, got {workdir} twice; "
                "letters, digits, signs and dots make a difference."
            )
        names.add(workdir)
        runs.append(Cell(values, load_with_overrides(argv, overrides), workdir))
    return runs
