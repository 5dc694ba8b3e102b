"""What tests of several tiers share; the tiers are described in conftest.py."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest


def tiered(
    values: Iterable[Any] | Mapping[str, Any],
    fast: int | Collection[Any] = 1,
    *,
    full: int | Collection[Any] | None = None,
    unpack: bool = False,
) -> list:
    """Parameters of a test, marked `full` or `nightly` but for the fast ones.

    Where parametrizations are stacked, a case is of the slowest tier of its parameters.

    Args:
      values: The parameters; a mapping gives their ids as well.
      fast: How many of the first, or which (by id for a mapping), stay unmarked.
      full: How many of the first, or which, of the full tier and the fast one; all
        others are marked `nightly`. None: all.
      unpack: Whether each value is a tuple of several arguments.
    """
    if isinstance(values, Mapping):
        params = [
            pytest.param(*(value if unpack else (value,)), id=key)
            for key, value in values.items()
        ]
        keys = list(values)
    else:
        keys = list(values)
        params = [pytest.param(*(value if unpack else (value,))) for value in keys]

    def among(key, first):
        first = keys[:first] if isinstance(first, int) else first
        return any(key is choice or key == choice for choice in first)

    def marks(key):
        if among(key, fast):
            return ()
        is_full = full is None or among(key, full)
        return (pytest.mark.full if is_full else pytest.mark.nightly,)

    return [
        pytest.param(*param.values, id=param.id, marks=[*param.marks, *marks(key)])
        for key, param in zip(keys, params, strict=True)
    ]
