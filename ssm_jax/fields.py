"""Checks of the numbers that a class is made of: types and ranges, one line each."""

import dataclasses
import functools
import math
import numbers
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_WORDS = {
    int: ("an integer", "sizes and counts are whole numbers such as 8"),
    float: ("a finite number", "it is a real number such as 0.5"),
    bool: ("True or False", "a flag is no number"),
    str: ("a string", "write it in quotes"),
}


def check_fields(instance: Any, *, least: int | None = None) -> None:
    """Checks that every field of a dataclass holds what its annotation says.

    An integer stands for a number, but neither a flag nor a string does; numpy's
    numbers are taken as Python's.

    Args:
      instance: Of a dataclass or Flax module.
      least: Lower bound of the integers, if they have one.

    Raises:
      ValueError: A field is of another type, a number is not finite, a choice is
        unknown, or an integer is below ``least``.

    Example:
      >>> from ssm_jax.recurrences import DLR
      >>> DLR(dt_max=float("nan"))
      Traceback (most recent call last):
        ...
      ValueError: `dt_max` must be a finite number, got nan; it is a real number such as
      0.5.
    """
    for name, annotation in _annotations(type(instance)).items():
        value = getattr(instance, name)
        if not _fits(value, annotation):
            rule, remedy = _rule(annotation)
            raise ValueError(f"`{name}` must be {rule}, got {value!r}; {remedy}.")
        if least is not None and _is_integer(value) and value < least:
            raise ValueError(
                f"`{name}` must be at least {least}, got {value}; it is a size."
            )


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
      ValueError: `length` must be a positive integer, got 0; it is a number of steps,
      states or channels.
    """
    if not _is_integer(value) or value < least:
        rule = "a positive integer" if least == 1 else f"an integer from {least} on"
        raise ValueError(
            f"`{name}` must be {rule}, got {value!r}; it is a number of steps, states "
            "or channels."
        )


def check_probability(name: str, value: Any) -> None:
    """Checks the probability that something is dropped.

    Args:
      name: Name of the argument.
      value: What was given.

    Raises:
      ValueError: ``value`` is no number in ``[0, 1)``.
    """
    if not _fits(value, float) or not 0 <= value < 1:
        raise ValueError(
            f"`{name}` must be in [0, 1), got {value!r}; 0 drops nothing, and 1 would "
            "drop everything."
        )


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
    if not _fits(value, choices):
        raise ValueError(
            f"`{name}` must be one of {list(get_args(choices))}, got {value!r}; "
            f"{remedy}."
        )


@functools.cache
def _annotations(cls: type) -> dict[str, Any]:
    """The annotation of each field, but for the two that Flax adds to its modules."""
    hints = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    return {name: hints[name] for name in names if name not in ("parent", "name")}


def _fits(value: Any, annotation: Any) -> bool:
    origin, members = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(_fits(value, member) for member in members)
    if origin is Literal:
        return any(type(value) is type(word) and value == word for word in members)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if members[1:] == (...,):
            members = members[:1] * len(value)
        return len(value) == len(members) and all(map(_fits, value, members))
    if annotation is int:
        return _is_integer(value)
    if annotation is float:
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return is_number and math.isfinite(value)
    return not isinstance(annotation, type) or isinstance(value, annotation)


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _rule(annotation: Any) -> tuple[str, str]:
    """What an annotation asks for, and what to do where it is not met."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        some = [member for member in members if member is not types.NoneType]
        rule, remedy = _rule(some[0])
        return (f"{rule} or None" if len(some) < len(members) else rule), remedy
    if origin is Literal:
        return f"one of {list(members)}", "the docstring of the class explains them"
    if origin is tuple:
        rule, _ = _rule(members[0])
        count = "" if members[1:] == (...,) else f"{len(members)} times "
        return f"a tuple, {count}{rule}", "write (0.5, 0.9), for example"
    if annotation in _WORDS:
        return _WORDS[annotation]
    name = getattr(annotation, "__name__", str(annotation))
    return f"a {name}", "make one and pass it"
