"""JSON of any origin: as deep as any of ours, and an error beyond."""

import json

import pytest

from ssm_jax.files import parse_json

OPENED = ('{"a": ', "[")
CLOSED = ("}", "]")


@pytest.mark.parametrize("depth", [99, 100, 101, 900, 200_000])
@pytest.mark.parametrize("kind", [0, 1], ids=["objects", "lists"])
def test_json_is_parsed_up_to_a_depth(kind, depth):
    # The innermost pair is empty: 100 levels hold 99 others.
    opened, closed = OPENED[kind] * (depth - 1), CLOSED[kind] * (depth - 1)
    text = f"{opened}[]{closed}"
    if depth <= 100:
        assert parse_json(text) == json.loads(text)
    else:
        with pytest.raises(ValueError, match="at most 100 deep$"):
            parse_json(text)
