"""Experiments as data: classes and numbers in one ``ConfigDict``, to JSON and back.

``spec`` writes a class of ssm_jax down with all its fields, ``build`` makes the object.
Between them the config is plain data: it is overridden from the command line
(``--config.model.d_model=64``), stored as JSON, compared, and read again by a process
that has nothing but the file. A config names classes of ssm_jax and no others.
"""

import contextlib
import dataclasses
import difflib
import importlib
import inspect
import json
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ml_collections import ConfigDict, FieldReference

Config = Any
"""A ConfigDict; type checkers take its attributes for scalars and refuse config.a.b."""

_CLASS = "cls"  # the key of the class; no field may have its name
_SCALARS = (bool, int, float, str, types.NoneType)
_DATA = "numbers, strings, None, specs and tuples of these"


def spec(cls: type, /, **fields: Any) -> Config:
    """Writes down a dataclass or Flax module of ssm_jax with all its fields.

    Every field stands in the result, with its default where none is given, so that each
    can be overridden. A field that may be None, or of several types, takes any Python
    literal on the command line and is checked by `build`.

    Args:
      cls: Frozen dataclass or Linen module, defined at the top level of a module of
        ssm_jax. It is kept under the key ``cls``, as ``"ssm_jax.module:Name"``.
      **fields: Fields of ``cls``: numbers, strings, None, specs, dataclass instances
        (which become specs), tuples of these, or references to fields of other specs,
        which follow an override: ``spec(Head, d_output=task.get_ref("n_shifts"))``.

    Returns:
      The class and its fields; lists have become tuples.

    Raises:
      ValueError: A config cannot name ``cls``, a field is unknown or missing, or a
        value is not of the annotated type.

    Example:
      >>> from ssm_jax.tasks import Digits
      >>> task = spec(Digits)
      >>> task.cls
      'ssm_jax.tasks.images.digits:Digits'
      >>> build(task)
      Digits()
    """
    where = cls.__name__
    address = f"{cls.__module__}:{cls.__qualname__}"
    _import(address, where)
    hints = _annotations(cls, fields, where)
    values = {f.name: _default(f) for f in _fields(cls) if f.name not in fields}
    entries = {
        name: _entry(value, hints[name], f"{where}.{name}")
        for name, value in {**values, **fields}.items()
    }
    return ConfigDict({_CLASS: address, **entries})


def build(config: ConfigDict, where: str = "", /, **runtime: Any) -> Any:
    """Makes the object that a spec describes, the specs inside it first.

    Args:
      config: What `spec` returned, overridden or read from JSON since.
      where: Dotted path of ``config`` for the errors, ``"config.model"``; where it is
        empty they say the name of the class instead.
      **runtime: Fields that only the caller knows (a folder, a mesh), taken as they are
        in place of the config's.

    Returns:
      An instance of the class that ``config`` names.

    Raises:
      ValueError: ``config`` names something else than a dataclass that ssm_jax defines,
        has an unknown field, lacks one, or holds a value that is not of the annotated
        type or that the class refuses. The error says the dotted path.
    """
    cls = _import(config.get(_CLASS), f"{where or 'config'}.{_CLASS}")
    where = where or cls.__name__
    stored = {n: config[n] for n in config if n != _CLASS and n not in runtime}
    hints = _annotations(cls, {**stored, **runtime}, where)
    values = {}
    for name, value in stored.items():
        path = f"{where}.{name}"
        values[name] = _converted(_built(value, path), hints[name], path)
    try:
        return cls(**values, **runtime)
    except ValueError as error:
        raise ValueError(f"`{where}`: {error}") from error


def to_json(config: ConfigDict) -> str:
    r"""Writes a config as JSON: references resolved, keys sorted, tuples as lists.

    Raises:
      ValueError: A value is no number, string, None, spec, group or tuple of these.

    Example:
      >>> to_json(ConfigDict({"seed": None}))
      '{\n  "seed": null\n}'
    """
    try:
        return config.to_json(indent=2, sort_keys=True)
    except TypeError as error:
        raise ValueError(
            f"`config` must hold {_DATA}, got an error: {error}"
        ) from error


def from_json(text: str) -> Config:
    """Reads what `to_json` wrote: nothing is imported, lists come out as tuples.

    Returns:
      The config, its values equal to those that were written, bit for bit.

    Raises:
      ValueError: ``text`` is not a JSON object.

    Example:
      >>> from_json('{"betas": [0.9, 0.99]}').betas
      (0.9, 0.99)
    """
    try:
        config = _with_tuples(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"`text` must be JSON, got an error: {error}.") from error
    if not isinstance(config, ConfigDict):
        raise ValueError(f"`text` must be a JSON object, got {_shown(config)}.")
    return config


def flatten(config: ConfigDict) -> dict[str, Any]:
    """Lists every value under its dotted path; specs in a tuple are ``blocks[0]``.

    Example:
      >>> flatten(ConfigDict({"model": {"d_model": 64}, "steps": 10}))
      {'model.d_model': 64, 'steps': 10}
    """
    return dict(_leaves(config, ""))


def differences(old: ConfigDict, new: ConfigDict) -> list[str]:
    """Says where two configs differ, sorted by path; empty where they mean the same.

    A field that a config lacks has the default of its class: a config that was written
    before the class had the field means what it meant then.

    Example:
      >>> differences(ConfigDict({"steps": 10}), ConfigDict({"steps": 20, "seed": 0}))
      ['seed: absent -> 0', 'steps: 10 -> 20']
    """
    # As text, because 1 == 1.0 == True and nan != nan.
    before, after = (
        {path: repr(value) for path, value in flatten(_with_defaults(config)).items()}
        for config in (old, new)
    )
    return [
        f"{path}: {before.get(path, 'absent')} -> {after.get(path, 'absent')}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]


def _with_defaults(value: Any) -> Any:
    """A config in which every spec has all fields of its class, where that is known."""
    if isinstance(value, tuple):
        return tuple(map(_with_defaults, value))
    if not isinstance(value, ConfigDict):
        return value
    entries = {name: _with_defaults(value[name]) for name in value}
    fields = {name: entry for name, entry in entries.items() if name != _CLASS}
    try:
        return spec(_import(entries.get(_CLASS), _CLASS), **fields)
    except ValueError:  # no spec, or one of another version
        return ConfigDict(entries)


def nearest(word: str, words: Iterable[str]) -> str:
    """Ends an error about an unknown name: the likeliest name, else the first ten.

    Example:
      >>> nearest("d_modle", ["d_model", "d_state"])
      'did you mean `d_model`?'
    """
    words = list(words)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"known: {', '.join(words[:10])}{', ...' if words[10:] else '.'}"


def _import(address: Any, path: str) -> type:
    """Finds the class with this address, if it is a dataclass that ssm_jax defines."""
    if isinstance(address, str) and re.fullmatch(r"ssm_jax(\.\w+)*:\w+", address):
        module, name = address.split(":")
        try:
            cls = vars(importlib.import_module(module)).get(name)
        except ModuleNotFoundError as error:
            if not module.startswith(str(error.name)):  # the module needs another one
                raise
        else:
            # What the module only imports, from another package say, is refused too.
            if isinstance(cls, type) and cls.__module__ == module:
                if dataclasses.is_dataclass(cls):
                    return cls
    raise ValueError(
        f"`{path}` must be a dataclass or Flax module defined at the top level of a "
        f"module of ssm_jax, got {address!r}; a config can name no other class."
    )


def _fields(cls: type) -> list[dataclasses.Field]:
    """Lists what the constructor takes, without the two fields that Linen adds."""
    linen = sys.modules.get("flax.linen")
    added = ("parent", "name") if linen and issubclass(cls, linen.Module) else ()
    return [f for f in dataclasses.fields(cls) if f.init and f.name not in added]


def _default(field: dataclasses.Field) -> Any:
    """Gives the default of a field, or `dataclasses.MISSING`."""
    if field.default_factory is dataclasses.MISSING:
        return field.default
    return field.default_factory()


def _annotations(cls: type, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Maps every field to its annotation, once the given names are found good."""
    hints = get_type_hints(cls)
    fields = {field.name: field for field in _fields(cls)}
    for name in sorted(given.keys() - fields.keys()):
        raise ValueError(
            f"`{where}.{name}` must be a field of {cls.__name__}; "
            f"{nearest(name, fields)}"
        )
    for name, field in fields.items():
        if name not in given and _default(field) is dataclasses.MISSING:
            raise ValueError(
                f"`{where}.{name}` must be given, it has no default; "
                f"it is {inspect.formatannotation(hints[name])}."
            )
    return {name: hints[name] for name in fields}


def _entry(value: Any, annotation: Any, path: str) -> Any:
    """Makes a value of a spec: checked, and open to all that its annotation allows."""
    value = _converted(_plain(value, path), annotation, path)
    typed = annotation in _SCALARS or get_origin(annotation) in (tuple, Literal)
    if typed or isinstance(value, ConfigDict | FieldReference):
        return value
    # A flag takes only what has the type of the value; with `object`, any literal.
    return FieldReference(value, field_type=object)


def _plain(value: Any, path: str) -> Any:
    """Turns lists into tuples, dataclass instances into specs, and refuses the rest."""
    if type(value) in _SCALARS or isinstance(value, ConfigDict | FieldReference):
        return value
    if isinstance(value, tuple | list):
        return tuple(_plain(item, f"{path}[{i}]") for i, item in enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in _fields(type(value))]
        return spec(type(value), **{name: getattr(value, name) for name in names})
    raise ValueError(f"`{path}` must be {_DATA}, got {_shown(value)}.")


def _built(value: Any, path: str) -> Any:
    if isinstance(value, FieldReference):
        return _built(value.get(), path)
    if isinstance(value, ConfigDict):
        return build(value, path)
    if isinstance(value, tuple | list):
        return tuple(_built(item, f"{path}[{i}]") for i, item in enumerate(value))
    return value


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return ConfigDict({key: _with_tuples(item) for key, item in value.items()})
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, FieldReference):
        value = value.get()
    if isinstance(value, ConfigDict):
        for key in value:
            yield from _leaves(value[key], f"{path}.{key}".lstrip("."))
    elif isinstance(value, tuple) and any(
        isinstance(item, ConfigDict | FieldReference) for item in value
    ):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{path}[{i}]")
    else:
        yield path, value


def _converted(value: Any, annotation: Any, path: str) -> Any:
    """Returns the value as its annotation wants it: an int as a float, for example."""
    if not _is_finite(value):
        raise ValueError(
            f"`{path}` must be finite, got {_shown(value)}; its default is a "
            "number that works."
        )
    try:
        return _fitted(value, annotation)
    except TypeError:
        words = _words(annotation) if isinstance(value, str) else []
        hint = f"; {nearest(value, words)}" if words else "."
        wanted = inspect.formatannotation(annotation)
        raise ValueError(
            f"`{path}` must be {wanted}, got {_shown(value)}{hint}"
        ) from None


def _fitted(value: Any, annotation: Any) -> Any:
    """Does the work of `_converted`; raises TypeError where the value does not fit."""
    origin, members = get_origin(annotation), get_args(annotation)
    if annotation is Any or isinstance(value, FieldReference):
        return value
    if origin in (Union, types.UnionType):
        # Its own type goes first: an int stays an int in `float | int`.
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
    if annotation is float and type(value) is int:
        return float(value)
    if origin is Literal:
        good = any(type(value) is type(word) and value == word for word in members)
    elif annotation in _SCALARS:
        good = type(value) is annotation
    elif dataclasses.is_dataclass(annotation) and not isinstance(value, ConfigDict):
        good = isinstance(value, annotation)
    else:  # a protocol or another class: an object of some kind
        good = type(value) not in (*_SCALARS, tuple)
    if not good:
        raise TypeError
    return value


def _is_finite(value: Any) -> bool:
    """Whether there is no NaN and no infinity among numbers."""
    if isinstance(value, tuple):
        return all(map(_is_finite, value))
    # An integer may overflow where a float is asked for.
    return not isinstance(value, int | float) or abs(value) < 2**1023


def _words(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [word for word in get_args(annotation) if isinstance(word, str)]
    return [word for member in get_args(annotation) for word in _words(member)]


def _shown(value: Any) -> str:
    return repr(value) if type(value) in (*_SCALARS, tuple) else type(value).__name__
