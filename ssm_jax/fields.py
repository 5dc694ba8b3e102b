"""Validation of dataclass fields and arguments against their annotations.

A field is annotated with a type and with bounds of `annotated_types`, for example
``dropout: Annotated[float, Interval(ge=0, lt=1)] = 0.0``, for which this module has
names such as `Fraction`. `check_fields`, called in ``__post_init__``, validates every
field. The error is one line with the name of the field, the rule, the value and a
remedy.
"""

import dataclasses
import functools
import inspect
import numbers
import operator
import types
from collections.abc import Callable, Iterable, Sequence
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

import annotated_types
import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MultipleOf

_LINEN = ("parent", "name")  # fields that Linen adds to a module and checks
_TINY, _MAX = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # range of normal float32 numbers


class Interval(annotated_types.Interval):
    """Bounds that `help` and signatures show in short, without those that are None.

    Example:
      >>> Annotated[int, Interval(ge=1, lt=10)]
      typing.Annotated[int, ge=1, lt=10]
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        gt: int | float | None = None,
        ge: int | float | None = None,
        lt: int | float | None = None,
        le: int | float | None = None,
    ):
        """Sets the bounds; None is none."""
        super().__init__(gt=gt, ge=ge, lt=lt, le=le)

    def __repr__(self) -> str:
        """The bounds that are set, as ``ge=1, lt=10``."""
        return ", ".join(
            f"{name}={bound}"
            for name, bound in dataclasses.asdict(self).items()
            if bound is not None
        )


PositiveInt = Annotated[int, Interval(ge=1, lt=2**31)]
"""Sizes and step counts. Larger values overflow the int32 arithmetic of devices."""

NonNegativeInt = Annotated[int, Interval(ge=0, lt=2**31)]

Depth = Annotated[int, Interval(ge=1, le=10_000), "6 is typical"]
"""Number of layers of a model."""

Seed = Annotated[int, Interval(ge=0, lt=2**32)]
"""Seed of `jax.random.key`, which truncates larger integers to 32 bits."""

PositiveFloat = Annotated[float, Gt(0)]
"""A number that remains positive when it is rounded to float32."""

NonNegativeFloat = Annotated[float, Ge(0)]

Fraction = Annotated[float, Interval(ge=0, lt=1)]
"""A probability or a decay that remains below 1 when it is rounded to float32."""


class Misfit(Exception):
    """A value does not fit an annotation.

    Attributes:
      where: Index of the invalid item of a tuple, such as ``"[0]"``, or empty.
      value: The invalid value.
      rule: What it must be.
    """

    def __init__(self, where: str, value: Any, rule: str):
        """Creates the exception; see the class."""
        super().__init__(where, value, rule)
        self.where, self.value, self.rule = where, value, rule


def check_fields(instance: Any, *, minimum: int | None = None) -> None:
    """Validates every field of a dataclass or Flax module against its annotation.

    Integers, floats, strings, bools, `typing.Literal`s, classes, and tuples and unions
    of these are checked; other annotations are not. Bools and floats are not accepted
    as integers. Floats must be finite in float32, and bounds hold for the value in
    float32, where numbers below 2^-126 are 0. NumPy scalars are accepted like Python
    scalars.

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
      annotation: A type, optionally annotated with bounds of `annotated_types` and
        with a remedy (a string): ``Annotated[PositiveFloat, "1e-3 is usual"]``.
      remedy: Suggestion used if the annotation contains none. If empty, it is the
        lower bound.

    Raises:
      ValueError: The value has the wrong type or is out of bounds.

    Example:
      >>> Even = Annotated[int, MultipleOf(2), "take 2"]
      >>> check_value("d_state", 3, Even)
      Traceback (most recent call last):
      ValueError: `d_state` must be an integer that is a multiple of 2, got 3; take 2.
    """
    try:
        fit(value, annotation)
    except Misfit as misfit:
        metadata = _metadata(annotation)
        # In order of precedence: the annotation, the default of the field, the bound.
        remedies = [
            *(item for item in metadata if isinstance(item, str)),
            *filter(None, [remedy]),
            *(
                f"for example {limit if holds(limit, limit) else limit + 1}"
                for _, holds, limit in _bounds(metadata)
            ),
            "see the docstring of its class",
        ]
        raise ValueError(
            f"`{name}{misfit.where}` must be {misfit.rule}, got "
            f"{_format_value(misfit.value)}; {remedies[0]}."
        ) from None


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
    remedy = "it counts steps, states or channels"
    check_value(name, value, Annotated[int, Ge(minimum)], remedy)


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


def fit(value: Any, annotation: Any, stand_ins: tuple[type, ...] = ()) -> Any:
    """Converts a value to the type of an annotation, if it fits.

    Args:
      value: The value.
      annotation: As in `check_value`.
      stand_ins: Types whose instances fit wherever a class is annotated, such as a
        description from which an instance of the class is built later.

    Returns:
      The value; an integer where a float is annotated is converted.

    Raises:
      Misfit: It has another type or is out of bounds.
    """
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        if bounds := _bounds(members[1:]):
            return _fit_bounds(value, members[0], bounds, stand_ins)
        return fit(value, members[0], stand_ins)
    if origin in (Union, types.UnionType):
        return _fit_union(value, members, stand_ins)
    if origin is Literal:
        # Compare types as well, since `1 == True` and `1 == 1.0`.
        if any(type(value) is type(word) and value == word for word in members):
            return value
        raise Misfit("", value, f"one of {_join(members)}")
    if isinstance(value, tuple) and (origin or annotation) in (tuple, Sequence):
        if members[1:] in ((), (...,)):
            members = (members or (Any,))[:1] * len(value)
        if len(members) != len(value):
            raise Misfit("", value, f"a tuple of {len(members)}")
        return tuple(
            _fit_item(index, item, member, stand_ins)
            for index, (item, member) in enumerate(zip(value, members, strict=True))
        )
    if not _has_type(value, annotation, stand_ins):
        rule = "a finite number" if annotation is float else _article(annotation)
        raise Misfit("", value, rule)
    if annotation is float and type(value) is int:
        return float(value)
    return value


def _fit_bounds(value, annotation, bounds, stand_ins):
    limits = [f"{words} {limit:,}" for words, _, limit in bounds]
    rule = " ".join([_article(annotation), " and ".join(limits)])
    try:
        result = fit(value, annotation, stand_ins)
    except Misfit:
        raise Misfit("", value, rule) from None
    number = _as_float32 if annotation is float else lambda number: number
    for _, holds, limit in bounds:
        if not holds(number(result), number(limit)):
            hint = ", in float32" if holds(value, limit) else ""
            raise Misfit("", value, rule + hint)
    return result


def _fit_union(value, members, stand_ins):
    by_member = {}
    # The type of the value first: an int stays an int in `float | int`.
    for member in sorted(members, key=lambda member: type(value) is not member):
        try:
            return fit(value, member, stand_ins)
        except Misfit as misfit:
            by_member[member] = misfit
    misfits = [by_member[member] for member in members]
    for misfit in misfits:
        if misfit.where:  # An invalid item of a tuple, rather than the whole tuple.
            raise misfit
    raise Misfit("", value, " or ".join(misfit.rule for misfit in misfits))


def _fit_item(index, item, annotation, stand_ins):
    try:
        return fit(item, annotation, stand_ins)
    except Misfit as misfit:
        where = f"[{index}]{misfit.where}"
        raise Misfit(where, misfit.value, misfit.rule) from None


_BOUNDS: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    Gt: ("greater than", operator.gt),
    Ge: ("of at least", operator.ge),
    Lt: ("below", operator.lt),
    Le: ("of at most", operator.le),
    MultipleOf: ("that is a multiple of", lambda value, factor: value % factor == 0),
}


def _bounds(metadata: Iterable[Any]) -> list[tuple[str, Callable[..., Any], Any]]:
    """Returns the words, the predicate and the limit of each bound of an annotation."""
    single: list[Any] = []
    for item in metadata:
        single += item if isinstance(item, Interval) else [item]
    return [
        (*_BOUNDS[type(item)], *dataclasses.astuple(item))
        for item in single
        if type(item) in _BOUNDS
    ]


def _as_float32(value: Any) -> float:
    """Rounds to float32; devices may flush what is below its normal range to 0."""
    rounded = float(np.float32(value))
    return 0.0 if abs(rounded) < _TINY else rounded


def _has_type(value: Any, annotation: Any, stand_ins: tuple[type, ...] = ()) -> bool:
    if annotation is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if annotation is float:
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            return False
        # `abs` of an integer may exceed float64; a NaN compares as False.
        return abs(cast(float, value)) <= _MAX
    if annotation in (bool, str, types.NoneType):
        return isinstance(value, annotation)
    if isinstance(value, stand_ins):
        return True
    if annotation is tuple or get_origin(annotation) in (tuple, Sequence):
        return isinstance(value, tuple)
    if get_origin(annotation) is Callable:
        return callable(value)
    if not isinstance(annotation, type) or annotation is Any:
        return True
    try:
        return isinstance(value, annotation)
    except TypeError:  # a protocol without `runtime_checkable`
        return not isinstance(value, bool | int | float | str | tuple | None)


def _article(annotation: Any) -> str:
    """Returns the name of a type with its article, for error messages."""
    words = {
        int: "an integer",
        float: "a number",
        bool: "True or False",
        str: "a string",
        types.NoneType: "None",
    }
    if get_origin(annotation) in (tuple, Sequence):
        return "a tuple"
    if get_origin(annotation) is Callable:
        return "a function"
    name = getattr(annotation, "__name__", None) or inspect.formatannotation(annotation)
    return words.get(annotation, f"a {name}")


def _join(words: tuple[Any, ...]) -> str:
    return ", ".join(map(repr, words))


def _format_value(value: Any) -> str:
    plain = isinstance(value, numbers.Number | str | tuple | list | None)
    text = repr(value) if plain else f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
