"""What tests of several tiers share; the tiers are described in conftest.py."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest


def tiered(
    values: Iterable[Any] | Mapping[str, Any],
    fast: int | Collection[Any] = 1,
    *,
    unpack: bool = False,
) -> list:
    """Parameters of a test, marked `full` but for the fast ones.

    Where parametrizations are stacked, a case is fast if all its parameters are.

    Args:
      values: The parameters; a mapping gives their ids as well.
      fast: How many of the first, or which (by id for a mapping), stay unmarked.
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
    first = keys[:fast] if isinstance(fast, int) else fast
    return [
        param
        if any(key is one or key == one for one in first)
        else pytest.param(*param.values, id=param.id, marks=[*param.marks, FULL])
        for key, param in zip(keys, params, strict=True)
    ]


FULL = pytest.mark.full
