"""Rules for the fields of classes and for arguments, said in their annotations.

A field is annotated with the rule it keeps, ``dropout: Fraction = 0.0``, and
`check_fields`, called when the object is made, holds every field to its type and its
rule. One line says which field is wrong, the rule, the value and a way out.
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

_LINEN = ("parent", "name")  # fields that Linen adds to each module, and checks
_TINY, _MAX = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # normal float32 numbers


@dataclasses.dataclass(frozen=True)
class Rule:
    """What holds for a number beyond its type, as a part of its annotation.

    Attributes:
      text: The rule behind the type, ``"in [0, 1)"``.
      holds: Whether a number keeps it.
      remedy: What helps, if the field has no default and says nothing better.

    Example:
      >>> Even = Annotated[int, Rule("that is even", lambda n: n % 2 == 0, "take 2")]
      >>> check_value("d_state", 3, Even)
      Traceback (most recent call last):
      ValueError: `d_state` must be an integer that is even, got 3; take 2.
    """

    text: str
    holds: Callable[[Any], bool]
    remedy: str = "give another"


PositiveInt = Annotated[
    int, Rule("from 1 to 2**31 - 1", lambda n: 1 <= n < 2**31, "64 is one")
]
"""Sizes and numbers of steps; those beyond 32 bits overflow on devices."""

NonNegativeInt = Annotated[
    int, Rule("from 0 to 2**31 - 1", lambda n: 0 <= n < 2**31, "0 is one")
]

Depth = Annotated[
    int, Rule("from 1 to 10,000", lambda n: 1 <= n <= 10_000, "6 is usual")
]
"""Layers of a model, which are compiled one by one."""

Seed = Annotated[int, Rule("from 0 to 2**32 - 1", lambda n: 0 <= n < 2**32, "0 is one")]
"""`jax.random.key` keeps 32 bits: of a greater seed it would make another's key."""

PositiveFloat = Annotated[
    float, Rule("greater than 0", lambda x: x >= _TINY, "1.0 is one")
]
"""A number that is positive in float32 too."""

NonNegativeFloat = Annotated[
    float, Rule("of at least 0", lambda x: x == 0 or x >= _TINY, "0.0 is one")
]

Fraction = Annotated[
    float,
    Rule("in [0, 1), in float32", lambda x: 0 <= x <= 1 - 2.0**-24, "0.0 is one"),
]
"""A probability or a decay that stays below 1 when it is rounded to float32."""


def check_fields(instance: Any, *, least: int | None = None) -> None:
    """Holds every field of a dataclass or Flax module to its annotation.

    Numbers, strings, flags, `typing.Literal`s, classes, and tuples and unions of these
    are checked; what else an annotation may say is not. An integer is no bool and no
    float, a number is finite in float32. NumPy's scalars are taken for Python's.

    Args:
      instance: A dataclass, with all its fields set.
      least: Lower bound of all integers, if they have one.

    Raises:
      ValueError: A field has another type, a choice is unknown, a number is not finite
        or breaks the rule of its annotation, or an integer is below ``least``.

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
        if least is not None and _has_type(value, int) and value < least:
            check_size(name, value, least=least)


def check_value(name: str, value: Any, annotation: Any, remedy: str = "") -> None:
    """Holds one value to an annotation, as `check_fields` does each field.

    Args:
      name: What the error calls it.
      value: The value.
      annotation: Its type, with a `Rule` and a remedy of its own (a string) if it has
        them: ``Annotated[PositiveFloat, "1e-3 is usual"]``.
      remedy: What helps, where the annotation says no remedy of its own. Empty: that of
        the rule.

    Raises:
      ValueError: It has another type, or breaks the rule.
    """
    if (broken := _broken(value, annotation)) is None:
        return
    where, got, rule = broken
    notes = _notes(annotation)
    ways_out = [
        *(note for note in notes if isinstance(note, str)),
        *filter(None, [remedy]),
        *(note.remedy for note in notes if isinstance(note, Rule)),
        "the docstring of its class says more",
    ]
    way_out = f"got {_shown(got)}; {ways_out[0]}."
    raise ValueError(f"`{name}{where}` must be {rule}, {way_out}")


def check_size(name: str, value: Any, *, least: int = 1) -> None:
    """Checks an integer argument.

    Args:
      name: Name of the argument.
      value: What was given.
      least: Lower bound.

    Raises:
      ValueError: ``value`` is no integer, or less than ``least``.

    Example:
      >>> check_size("length", 0)
      Traceback (most recent call last):
        ...
      ValueError: `length` must be an integer from 1 on, got 0; it is a number of steps,
      states or channels.
    """
    rule = Rule(f"from {least} on", lambda n: n >= least)
    remedy = "it is a number of steps, states or channels"
    check_value(name, value, Annotated[int, rule], remedy)


def check_choice(name: str, value: Any, choices: Any, remedy: str) -> None:
    """Checks an argument that is one of the words of a `Literal`.

    Args:
      name: Name of the argument.
      value: What was given.
      choices: The `Literal`.
      remedy: What to do instead, for the message.

    Raises:
      ValueError: ``value`` is none of them.
    """
    check_value(name, value, choices, remedy)


@functools.cache
def _fields(cls: type) -> list[tuple[str, Any, Any]]:
    """Name, annotation and default of each field."""
    hints = get_type_hints(cls, include_extras=True)
    return [
        (field.name, hints[field.name], field.default)
        for field in dataclasses.fields(cls)
        if field.init and field.name not in _LINEN
    ]


def _notes(annotation: Any) -> list[Any]:
    """What stands beside the types in an annotation, unions looked into."""
    if get_origin(annotation) is Annotated:
        # What is written outermost comes last, and counts first.
        return [*reversed(annotation.__metadata__)]
    return [note for member in get_args(annotation) for note in _notes(member)]


def _broken(value: Any, annotation: Any) -> tuple[str, Any, str] | None:
    """Which part of a value breaks which rule: its place, itself and the rule."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        broken = _broken(value, members[0])
        for rule in (note for note in members[1:] if isinstance(note, Rule)):
            text = f"{_article(members[0])} {rule.text}"
            if broken or not rule.holds(value):
                return "", value, text
        return broken
    if origin in (Union, types.UnionType):
        found = [_broken(value, member) for member in members]
        if None in found:
            return None
        # Of a tuple that may also be None, the entry that is wrong.
        inner = next((each for each in found if each and each[0]), None)
        return inner or ("", value, " or ".join(each[2] for each in found if each))
    if origin is Literal:
        known = any(type(value) is type(word) and value == word for word in members)
        return None if known else ("", value, f"one of {_listed(members)}")
    if origin is tuple and isinstance(value, tuple):
        if members[1:] == (...,):
            members = members[:1] * len(value)
        if len(members) != len(value):
            return "", value, f"a tuple of {len(members)}"
        for index, (item, member) in enumerate(zip(value, members, strict=True)):
            if broken := _broken(item, member):
                return f"[{index}]{broken[0]}", *broken[1:]
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
        return cast(float, value) <= _MAX and cast(float, -value) <= _MAX  # no NaN
    if annotation is tuple or get_origin(annotation) is tuple:
        return isinstance(value, tuple)
    if not isinstance(annotation, type):
        return True
    try:
        return isinstance(value, annotation)
    except TypeError:  # a protocol that is not checked at run time
        return True


def _article(annotation: Any) -> str:
    """The type in words."""
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


def _listed(words: tuple[Any, ...]) -> str:
    return ", ".join(map(repr, words))


def _shown(value: Any) -> str:
    plain = isinstance(value, numbers.Number | str | tuple | list | None)
    text = repr(value) if plain else f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
