"""What a reduced setting has less of than that of full size, read from the configs."""

import re
import textwrap
from collections.abc import Iterable

from experiments.coverage import Table
from experiments.records import config_named
from ssm_jax.config import differences

_CHOICES = re.compile(r"(?<=[:,])(size|rows|learning_rate|state_penalty)=[^,]+,?")
# Fields that say how much is trained and evaluated, in the order of the sentence.
_FIELDS = (
    "task", "model.encoder.d_model", "model.n_layers",
    "d_state", "n_frequencies", "frequencies", "horizon", "d_hidden",
    "training.batch_size", "training.steps",
)  # fmt: skip
_LONGEST = 40  # Characters of a value.


def sentence(table: Table, names: Iterable[str]) -> str:
    """Returns what the reduced settings of a table change.

    Args:
      table: The table.
      names: Experiments of reduced settings; those count whose name without the choices
        of a size is a cell of the table.

    Returns:
      Markdown; empty if none of them is.
    """
    changes: dict[str, list[tuple[str, str]]] = {}
    for name in names:
        published = _CHOICES.sub("", name).rstrip(",:")
        if published not in table.cells:
            continue
        lines = differences(config_named(published), config_named(name))
        for line in lines:
            path, values = line.split(": ", 1)
            pair = tuple(values.split(" -> "))
            if len(pair) == 2 and _told(path) and max(map(len, pair)) < _LONGEST:
                changes.setdefault(path, []).append(pair)
    if not changes:
        return ""
    told = "; ".join(
        f"`{path}` {_either(new for _, new in pairs)} "
        f"(at full size {_either(old for old, _ in pairs)})"
        for path, pairs in sorted(changes.items(), key=lambda each: _rank(each[0]))
    )
    return textwrap.fill(f"They have {told}.", 88, break_on_hyphens=False) + "\n"


def _rank(path: str) -> tuple[int, str]:
    """A sort key; the number of `_FIELDS` first for a field that is not told."""
    ranks = (
        rank
        for rank, field in enumerate(_FIELDS)
        if path.startswith(f"{field}.") or f".{path}".endswith(f".{field}")
    )
    return next(ranks, len(_FIELDS)), path


def _told(path: str) -> bool:
    return _rank(path)[0] < len(_FIELDS)


def _either(values: Iterable[str]) -> str:
    return " or ".join(sorted(dict.fromkeys(values), key=lambda v: (len(v), v)))
