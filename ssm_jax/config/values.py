"""Values of config fields: whether they have the annotated types."""

import contextlib
import dataclasses
import difflib
import inspect
import types
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from ml_collections import ConfigDict, FieldReference

SCALARS = (bool, int, float, str, types.NoneType)


def nearest(word: str, words: Iterable[str]) -> str:
    """Suggests a known name for an error message about an unknown one.

    Returns:
      A question with the most similar name, or a list of the first ten names if none is
      similar.

    Example:
      >>> nearest("d_modle", ["d_model", "d_state"])
      'did you mean `d_model`?'
    """
    words = list(words)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"known: {', '.join(words[:10])}{', ...' if words[10:] else '.'}"


def converted(value: Any, annotation: Any, path: str) -> Any:
    """Converts a value to its annotated type, for example an int to a float."""
    if not _is_finite(value):
        raise ValueError(
            f"`{path}` must be finite, got {shown(value)}; its default is a "
            "number that works."
        )
    try:
        return _fitted(value, annotation)
    except TypeError:
        words = _words(annotation) if isinstance(value, str) else []
        hint = f"; {nearest(value, words)}" if words else "."
        wanted = inspect.formatannotation(annotation)
        raise ValueError(
            f"`{path}` must be {wanted}, got {shown(value)}{hint}"
        ) from None


def _fitted(value: Any, annotation: Any) -> Any:
    """Converts a value to its annotated type; raises TypeError if it does not fit."""
    origin, members = get_origin(annotation), get_args(annotation)
    if annotation is Any or isinstance(value, FieldReference):
        return value
    if origin in (Union, types.UnionType):
        # Try the type of the value first: an int stays an int in `float | int`.
        for member in sorted(members, key=lambda member: type(value) is not member):
            with contextlib.suppress(TypeError):
                return _fitted(value, member)
        raise TypeError
    if isinstance(value, tuple) and (origin or annotation) in (tuple, Sequence):
        if members[1:] in ((), (...,)):
            members = (members or (Any,))[:1] * len(value)
        if len(members) == len(value):
            return tuple(map(_fitted, value, members))
        raise TypeError
    # `spec(Cls, rate=1)` and untyped flags pass an int for a float.
    if annotation is float and type(value) is int:
        return float(value)
    # Types are compared exactly, because True == 1 and a bool is an int.
    if origin is Literal:
        good = any(type(value) is type(word) and value == word for word in members)
    elif annotation in SCALARS:
        good = type(value) is annotation
    elif dataclasses.is_dataclass(annotation) and not isinstance(value, ConfigDict):
        good = isinstance(value, annotation)
    else:  # a protocol or another class, which is not checked further
        good = type(value) not in (*SCALARS, tuple)
    if not good:
        raise TypeError
    return value


def _is_finite(value: Any) -> bool:
    """Whether a value holds neither NaN nor infinity."""
    if isinstance(value, tuple):
        return all(map(_is_finite, value))
    # An integer may overflow when it is converted to a float.
    return not isinstance(value, int | float) or abs(value) < 2**1023


def _words(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [word for word in get_args(annotation) if isinstance(word, str)]
    return [word for member in get_args(annotation) for word in _words(member)]


def shown(value: Any) -> str:
    """Formats a value for a message: plain data in full, others by their type."""
    return repr(value) if type(value) in (*SCALARS, tuple) else type(value).__name__
