"""Variants of an experiment: ``--config=FILE:model=fru,size=small``.

A variant is a list of ``name=value`` pairs separated by commas. An experiment declares
its variants as a frozen dataclass: the names are its fields, the values those that
their annotations allow, and a field with a default may be left out::

    @dataclasses.dataclass(frozen=True)
    class Variant:
        model: Literal["fru", "sru"]
        size: Literal["full", "small"] = "full"


    def get_config(variant="model=fru"):
        chosen = parse_variant(variant, Variant)
        ...
"""

import dataclasses
import functools
import types
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints as hints_of,
)

from ssm_jax.config import nearest
from ssm_jax.fields import check_value

Chosen = TypeVar("Chosen")


def parse_variant(text: str, choices: type[Chosen]) -> Chosen:
    """Parses the variant of an experiment.

    Args:
      text: ``name=value`` pairs separated by commas, in any order; may be empty.
      choices: A frozen dataclass whose fields are annotated with `bool`, `int`,
        `float`, a `Literal` of strings and integers, one of these with a
        `ssm_jax.fields.Rule`, or one of these or None.

    Returns:
      An instance of ``choices``.

    Raises:
      ValueError: A pair is malformed, a name is unknown, given twice or missing, or a
        value is not one of its choices.

    Example:
      >>> @dataclasses.dataclass(frozen=True)
      ... class Variant:
      ...     model: Literal["fru", "sru"]
      ...     size: Literal["full", "small"] = "full"
      >>> parse_variant("size=small,model=fru", Variant)
      Variant(model='fru', size='small')
      >>> parse_variant("model=fruu", Variant)
      Traceback (most recent call last):
        ...
      ValueError: `variant: model` must be one of 'fru', 'sru', got 'fruu'; did you mean
      `fru`?
    """
    annotations = hints_of(choices, include_extras=True)
    values: dict[str, Any] = {}
    for pair in text.split(",") if text else []:
        name, equals, word = pair.partition("=")
        if not (name and equals and word):
            raise ValueError(
                f"`variant` must be name=value pairs joined by commas, got {pair!r}; "
                f"{_example(choices)}"
            )
        if name not in annotations:
            raise ValueError(
                f"`variant` must have names of this experiment, got {name!r}; "
                f"{nearest(name, annotations) if annotations else 'it has none.'}"
            )
        # Without this check the last value would win, as in a dict.
        if name in values:
            raise ValueError(
                f"`variant` must have each name once, got {name!r} in {text!r}; leave "
                "one out."
            )
        values[name] = _value(name, word, annotations[name])
    missing = [
        field.name
        for field in _fields(choices)
        if field.default is dataclasses.MISSING and field.name not in values
    ]
    if missing:
        raise ValueError(
            f"`variant` must have a value for {missing[0]!r}, got {text!r}; "
            f"{_example(choices)}"
        )
    return choices(**values)


def format_variant(chosen: Any) -> str:
    """Formats a variant: the fields in order, without those that have their default.

    Equal variants have the same text.

    Args:
      chosen: An instance as returned by `parse_variant`.

    Example:
      >>> @dataclasses.dataclass(frozen=True)
      ... class Variant:
      ...     model: Literal["fru", "sru"]
      ...     rows: int = 32
      ...     permuted: bool = False
      >>> format_variant(Variant("fru", permuted=True))
      'model=fru,permuted=true'
    """
    return ",".join(
        f"{field.name}={_word(getattr(chosen, field.name))}"
        for field in _fields(chosen)
        if getattr(chosen, field.name) != field.default
    )


def _fields(choices: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(choices)


def _value(name: str, word: str, annotation: Any) -> Any:
    """Parses a value according to its annotation, and validates it."""
    # The first type that parses wins; text that none parses is left to `check_value`,
    # which names the choices.
    value = next(
        (value for kind in _kinds(annotation) if (value := kind(word)) is not None),
        word,
    )
    choices = [_word(choice) for choice in _choices(annotation)]
    remedy = nearest(word, choices).rstrip(".") if choices else ""
    try:
        check_value(f"variant: {name}", value, annotation, remedy)
    except ValueError as error:  # "did you mean `fru`?" ends the sentence
        raise ValueError(str(error).replace("?.", "?")) from None
    return value


def _kinds(annotation: Any) -> list[Any]:
    """Parsers of the types of an annotation; they return None for other text."""
    if hasattr(annotation, "__metadata__"):
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [kind for each in get_args(annotation) for kind in _kinds(each)]
    if get_origin(annotation) is Literal:
        types_of = {type(choice) for choice in get_args(annotation)}
        # Integers first: any text parses as a string.
        return [_READERS[each] for each in (int, str) if each in types_of]
    return [_READERS[annotation]] if annotation in _READERS else []


def _choices(annotation: Any) -> tuple[Any, ...]:
    if annotation is bool:
        return (True, False)
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return sum((_choices(each) for each in get_args(annotation)), ())
    return ()


def _number(kind: type, word: str) -> Any:
    try:
        # `int` and `float` also accept digits of other scripts.
        return kind(word) if word.isascii() else None
    except ValueError:
        return None


_READERS: dict[type, Any] = {
    bool: {"true": True, "false": False}.get,
    int: functools.partial(_number, int),
    float: functools.partial(_number, float),
    str: str,
}


def _word(value: Any) -> str:
    """Formats a value as in a variant."""
    # Before the numbers, since a bool is an integer; lower case as on the command line.
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _example(choices: type) -> str:
    """Lists the possible pairs, for the end of an error message."""
    annotations = hints_of(choices, include_extras=True)
    pairs = [
        f"{field.name}={'|'.join(map(_word, _choices(annotations[field.name])))}"
        for field in _fields(choices)
    ]
    pairs = [pair if pair[-1] != "=" else f"{pair}NUMBER" for pair in pairs]
    return f"choices: {', '.join(pairs)}." if pairs else "it has no variants."
