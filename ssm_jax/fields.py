"""Validation of dataclass fields and arguments against their annotations.

A field is annotated with a type and a `Rule`, for example ``dropout: Fraction = 0.0``.
`check_fields`, called in ``__post_init__``, validates every field. The error is one
line with the name of the field, the rule, the value and a remedy.
"""

import dataclasses
import functools
import inspect
import numbers
import types
from collections.abc import Callable
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

_LINEN = ("parent", "name")  # fields that Linen adds to a module and checks
_TINY, _MAX = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # range of normal float32 numbers


@dataclasses.dataclass(frozen=True)
class Rule:
    """Constraint on a value in addition to its type, used as `Annotated` metadata.

    Attributes:
      text: The constraint in words, appended to the type: ``"in [0, 1)"``.
      holds: Predicate that returns True for valid values.
      remedy: Suggestion in the error message, used if the annotation has no other one
        and the field has no default.

    Example:
      >>> Even = Annotated[int, Rule("that is even", lambda n: n % 2 == 0, "take 2")]
      >>> check_value("d_state", 3, Even)
      Traceback (most recent call last):
      ValueError: `d_state` must be an integer that is even, got 3; take 2.
    """

    text: str
    holds: Callable[[Any], bool]
    remedy: str = "use another value"


PositiveInt = Annotated[
    int, Rule("from 1 to 2**31 - 1", lambda n: 1 <= n < 2**31, "for example 64")
]
"""Sizes and step counts. Larger values overflow the int32 arithmetic of devices."""

NonNegativeInt = Annotated[
    int, Rule("from 0 to 2**31 - 1", lambda n: 0 <= n < 2**31, "for example 0")
]

Depth = Annotated[
    int, Rule("from 1 to 10,000", lambda n: 1 <= n <= 10_000, "6 is typical")
]
"""Number of layers of a model."""

Seed = Annotated[
    int, Rule("from 0 to 2**32 - 1", lambda n: 0 <= n < 2**32, "for example 0")
]
"""Seed of `jax.random.key`, which truncates larger integers to 32 bits."""

PositiveFloat = Annotated[
    float, Rule("greater than 0", lambda x: x >= _TINY, "for example 1.0")
]
"""A number that remains positive when it is rounded to float32."""

NonNegativeFloat = Annotated[
    float, Rule("of at least 0", lambda x: x == 0 or x >= _TINY, "for example 0.0")
]

Fraction = Annotated[
    float,
    Rule("in [0, 1), in float32", lambda x: 0 <= x <= 1 - 2.0**-24, "for example 0.0"),
]
"""A probability or a decay that remains below 1 when it is rounded to float32."""


def check_fields(instance: Any, *, minimum: int | None = None) -> None:
    """Validates every field of a dataclass or Flax module against its annotation.

    Integers, floats, strings, bools, `typing.Literal`s, classes, and tuples and unions
    of these are checked; other annotations are not. Bools and floats are not accepted
    as integers. Floats must be finite in float32. NumPy scalars are accepted like
    Python scalars.

    Args:
      instance: A dataclass instance whose fields are set.
      minimum: Lower bound of all integer fields. None means no bound.

    Raises:
      ValueError: A field has the wrong type, is not one of the choices, is not finite,
        violates the rule of its annotation, or is an integer below ``minimum``.

    Example:
      >>> from ssm_jax.recurrences import DLR
      >>> DLR(dt_max=float("nan"))
      Traceback (most recent call last):
        ...
      ValueError: `dt_max` must be a finite number, got nan; the default is 0.1.
    """
    for name, annotation, default in _fields(type(instance)):
        remedy = "" if default is dataclasses.MISSING else f"the default is {default!r}"
        value = getattr(instance, name)
        check_value(name, value, annotation, remedy)
        if minimum is not None and _has_type(value, int) and value < minimum:
            check_size(name, value, minimum=minimum)


def check_value(name: str, value: Any, annotation: Any, remedy: str = "") -> None:
    """Validates one value against an annotation, as `check_fields` does for each field.

    Args:
      name: Name used in the error message.
      value: The value.
      annotation: A type, optionally annotated with a `Rule` and with a remedy (a
        string): ``Annotated[PositiveFloat, "1e-3 is usual"]``.
      remedy: Suggestion used if the annotation contains none. If empty, the remedy of
        the rule is used.

    Raises:
      ValueError: The value has the wrong type or violates the rule.
    """
    if (violation := _violation(value, annotation)) is None:
        return
    where, got, rule = violation
    metadata = _metadata(annotation)
    # In order of precedence: the annotation, the default of the field, the rule.
    remedies = [
        *(item for item in metadata if isinstance(item, str)),
        *filter(None, [remedy]),
        *(item.remedy for item in metadata if isinstance(item, Rule)),
        "see the docstring of its class",
    ]
    raise ValueError(
        f"`{name}{where}` must be {rule}, got {_format_value(got)}; {remedies[0]}."
    )


def check_size(name: str, value: Any, *, minimum: int = 1) -> None:
    """Checks an integer argument.

    Args:
      name: Name of the argument.
      value: The argument.
      minimum: Lower bound.

    Raises:
      ValueError: ``value`` is not an integer, or is below ``minimum``.

    Example:
      >>> check_size("length", 0)
      Traceback (most recent call last):
        ...
      ValueError: `length` must be an integer of at least 1, got 0; it counts steps,
      states or channels.
    """
    rule = Rule(f"of at least {minimum}", lambda n: n >= minimum)
    remedy = "it counts steps, states or channels"
    check_value(name, value, Annotated[int, rule], remedy)


def check_indices(
    name: str,
    indices: np.ndarray,
    n: int,
    remedy: str,
    *,
    counts: np.ndarray | None = None,
) -> None:
    """Checks on the host that indices that are data select one of ``n`` rows.

    A compiled function cannot raise this error: there an index out of range gives NaN.

    Args:
      name: Name of the array.
      indices: Integers, ``(*s,)``.
      n: Number of rows; indices are in ``[0, n)``. Negative ones do not count from the
        end.
      remedy: Suggestion in the error message.
      counts: bool, ``(*s,)``, true at the indices that are checked. None means all.

    Raises:
      ValueError: An index is out of range.

    Example:
      >>> check_indices("prompts", np.array([3, -1]), 7, "bytes are from 1 on")
      Traceback (most recent call last):
        ...
      ValueError: `prompts` must be from 0 to 6, got -1 at [1]; bytes are from 1 on.
    """
    # Usually all are in range, which takes no array of flags to see.
    if not indices.size or (indices.min() >= 0 and indices.max() < n):
        return
    outside = (indices < 0) | (indices >= n)
    places = np.argwhere(outside if counts is None else outside & counts)
    if len(places):
        first = places[0].tolist()
        raise ValueError(
            f"`{name}` must be from 0 to {n - 1}, got {indices[tuple(first)]} at "
            f"{first}; {remedy}."
        )


def check_choice(name: str, value: Any, choices: Any, remedy: str) -> None:
    """Checks that an argument is one of the values of a `Literal`.

    Args:
      name: Name of the argument.
      value: The argument.
      choices: The `Literal`.
      remedy: Suggestion in the error message.

    Raises:
      ValueError: ``value`` is not one of the choices.
    """
    check_value(name, value, choices, remedy)


@functools.cache
def _fields(cls: type) -> list[tuple[str, Any, Any]]:
    """Returns the name, annotation and default of each field of ``__init__``."""
    hints = get_type_hints(cls, include_extras=True)
    return [
        (field.name, hints[field.name], field.default)
        for field in dataclasses.fields(cls)
        if field.init and field.name not in _LINEN
    ]


def _metadata(annotation: Any) -> list[Any]:
    """Returns the metadata of an annotation, including that of union members."""
    if get_origin(annotation) is Annotated:
        # Nested `Annotated` types append to the metadata; the outermost has precedence.
        return [*reversed(annotation.__metadata__)]
    return [item for member in get_args(annotation) for item in _metadata(member)]


def _violation(value: Any, annotation: Any) -> tuple[str, Any, str] | None:
    """Returns the index, value and rule of the first invalid part, or None."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        violation = _violation(value, members[0])
        for rule in (item for item in members[1:] if isinstance(item, Rule)):
            text = f"{_article(members[0])} {rule.text}"
            if violation or not rule.holds(value):
                return "", value, text
        return violation
    if origin in (Union, types.UnionType):
        violations = [_violation(value, member) for member in members]
        if None in violations:
            return None
        # For an optional tuple, report the invalid entry rather than the whole tuple.
        inner = next((each for each in violations if each and each[0]), None)
        return inner or ("", value, " or ".join(each[2] for each in violations if each))
    if origin is Literal:
        # Compare types as well, since `1 == True` and `1 == 1.0`.
        known = any(type(value) is type(word) and value == word for word in members)
        return None if known else ("", value, f"one of {_join(members)}")
    if origin is tuple and isinstance(value, tuple):
        if members[1:] == (...,):
            members = members[:1] * len(value)
        if len(members) != len(value):
            return "", value, f"a tuple of {len(members)}"
        for index, (item, member) in enumerate(zip(value, members, strict=True)):
            if violation := _violation(item, member):
                return f"[{index}]{violation[0]}", *violation[1:]
        return None
    if _has_type(value, annotation):
        return None
    return "", value, "a finite number" if annotation is float else _article(annotation)


def _has_type(value: Any, annotation: Any) -> bool:
    if annotation is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if annotation is float:
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            return False
        return (
            cast(float, value) <= _MAX and cast(float, -value) <= _MAX
        )  # False for NaN
    if annotation is tuple or get_origin(annotation) is tuple:
        return isinstance(value, tuple)
    if not isinstance(annotation, type):
        return True
    try:
        return isinstance(value, annotation)
    except TypeError:  # a protocol without `runtime_checkable`
        return True


def _article(annotation: Any) -> str:
    """Returns the name of a type with its article, for error messages."""
    words = {
        int: "an integer",
        float: "a number",
        bool: "True or False",
        str: "a string",
        types.NoneType: "None",
    }
    if get_origin(annotation) is tuple:
        return "a tuple"
    name = getattr(annotation, "__name__", None) or inspect.formatannotation(annotation)
    return words.get(annotation, f"a {name}")


def _join(words: tuple[Any, ...]) -> str:
    return ", ".join(map(repr, words))


def _format_value(value: Any) -> str:
    plain = isinstance(value, numbers.Number | str | tuple | list | None)
    text = repr(value) if plain else f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
