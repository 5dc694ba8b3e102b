"""What tables of bad inputs share: bad values by kind, and how a refusal is checked."""

import contextlib
import dataclasses
import functools
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import jax.numpy as jnp
import numpy as np
import pytest

from tests.tiers import tiered

SIZES = (4.5, 4.0, "8", None, True, 0, -1)
NUMBERS = ("0.1", float("nan"), float("inf"), True)


class Bad(NamedTuple):
    """A call that must be refused.

    Attributes:
      call: Takes nothing.
      name: The argument that the message must name.
      shown: What the message must show of it.
    """

    call: Callable[[], Any]
    name: str
    shown: str


@contextlib.contextmanager
def refuses(
    name: str,
    value: Any = "",
    *,
    rule: str = "",
    error: type[Exception] | tuple[type[Exception], ...] = ValueError,
) -> Iterator[pytest.ExceptionInfo]:
    """Checks that a block ends in an error of one line; its wording is free.

    Args:
      name: The argument that the message must name, or how that begins.
      value: What the message must show of its value.
      rule: What the message must say of the rule: a bound, a choice, a keyword.
      error: The class of the error.
    """
    with pytest.raises(error) as refusal:
        yield refusal
    message = str(refusal.value)
    assert f"`{name}" in message
    assert rule in message
    assert str(value) in message
    assert "\n" not in message


def check_refusal(bad: Bad) -> None:
    """Checks that a call ends in one line that names the argument and its value."""
    with refuses(bad.name, bad.shown) as refusal:
        bad.call()
    assert len(str(refusal.value).split("; ")) == 2, "the way out follows a semicolon"


def table(rows: dict[str, Bad], fast: Collection[str] | None = None):
    """Marks a test to run on every row.

    Args:
      rows: The rows; the part of a key before the first dot says of what it is.
      fast: Those whose rows are in the fast tier; None: all.
    """
    first = [key for key in rows if fast is None or key.split(".")[0] in fast]
    return pytest.mark.parametrize("bad", tiered(rows, first))


def not_floating(x: np.ndarray) -> dict[str, Any]:
    """The same numbers as no floating-point array."""
    return {
        "int": np.ones(x.shape, np.int32),
        "bool": np.ones(x.shape, bool),
        "list": np.ones(x.shape).tolist(),
        "complex": jnp.ones(x.shape, jnp.complex64),
    }


def not_flags(shape: tuple[int, ...]) -> dict[str, Any]:
    """Flags that are no boolean arrays of a shape."""
    return {
        "int": np.ones(shape, np.int32),
        "float": jnp.ones(shape),
        "list": np.ones(shape, bool).tolist(),
        "shape": np.ones((*shape, 1), bool),
    }


def shown(value: Any) -> str:
    """What a message must show of a value."""
    if isinstance(value, np.ndarray) or hasattr(value, "dtype"):
        return str(value.shape if value.dtype == bool else value.dtype)
    return "list" if isinstance(value, list) else repr(value)


def field_rows(label: str, make: Callable[..., Any], cls: type) -> dict[str, Bad]:
    """Every field of a class with the bad values of its annotation."""
    hints, rows = get_type_hints(cls), {}
    for field in dataclasses.fields(cls):
        if field.name in ("parent", "name"):
            continue
        for value in bad_values(hints[field.name]):
            key = f"{label}.{field.name}={value!r}"
            call = functools.partial(make, **{field.name: value})
            # Of a tuple the message may show the first entry that is wrong alone.
            wrong = value[0] if isinstance(value, tuple) else value
            rows[key] = Bad(call, field.name, repr(wrong))
    return rows


def bad_values(annotation: Any) -> tuple[Any, ...]:
    """Values that a field of an annotation must refuse."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        some = [member for member in members if member is not types.NoneType]
        return tuple(v for v in bad_values(some[0]) if v is not None)
    if origin is Literal:
        return ("magic", 0, None)
    if origin is tuple:
        return (0.5, ("a", "b"), [0.5, 0.9])
    kinds = {int: SIZES, float: NUMBERS, bool: (1, "yes", None), str: (1,)}
    return kinds.get(annotation, (3, "DLR"))
