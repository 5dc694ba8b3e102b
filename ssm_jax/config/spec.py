"""Dataclasses described as plain data, and built from it."""

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal, get_origin, get_type_hints

from ml_collections import ConfigDict, FieldReference

from ssm_jax.config.values import SCALARS, converted, nearest, shown
from ssm_jax.files import parse_json

Config = Any
"""A ConfigDict. As `Any`, because type checkers treat attributes of a ConfigDict as
scalars and reject ``config.a.b``."""

CLASS = "cls"
"""Key of the address of the class; no field may have this name."""

MOVED = {"ssm_jax.training.loop:TrainConfig": "ssm_jax.training.config:TrainConfig"}
"""Addresses of classes that configs of earlier versions hold, and the present ones."""

_DATA = "numbers, strings, None, specs and tuples of these"


def spec(cls: type, /, **fields: Any) -> Config:
    """Describes a dataclass or Flax module by its address and fields.

    The result contains every field, with its default value if none is given, so that
    each can be overridden. A field that allows None or several types accepts any Python
    literal on the command line; `build` checks it.

    Args:
      cls: Frozen dataclass or Linen module, defined at the top level of a module that
        can be imported: of ssm_jax, of an installed package, or of a file beside the
        experiment. Its address is stored under the key ``cls``, as ``"module:Name"``.
      **fields: Fields of ``cls``: numbers, strings, None, specs, dataclass instances
        (converted to specs), tuples of these, or references to fields of other specs,
        such as ``spec(Head, d_output=task.get_ref("n_shifts"))``. A field given by a
        reference follows the other field until it is set itself, which does not change
        the other one.

    Returns:
      A ConfigDict of the address and the fields; lists are converted to tuples.

    Raises:
      ValueError: A config cannot name ``cls``, a field is unknown or missing, or a
        value does not have the annotated type.

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
    import_class(address, where)
    hints = _annotations(cls, fields, where)
    values = {f.name: _default(f) for f in _fields(cls) if f.name not in fields}
    entries = {
        name: _entry(value, hints[name], f"{where}.{name}")
        for name, value in {**values, **fields}.items()
    }
    return ConfigDict({CLASS: address, **entries})


def build(config: ConfigDict, where: str = "", /, **runtime: Any) -> Any:
    """Creates the object that a spec describes, including the objects of nested specs.

    This imports the modules that the config names, and so runs their code. Check a
    config from a file that you do not trust by `check_packages` first, as `restore`
    does.

    Args:
      config: Result of `spec`, possibly overridden or read back from JSON.
      where: Dotted path of ``config`` for error messages, such as ``"config.model"``.
        If empty, messages use the name of the class.
      **runtime: Fields that only the caller knows, such as a data folder or a mesh;
        they replace those of the config and are not checked against annotations.

    Returns:
      An instance of the class that ``config`` names.

    Raises:
      ValueError: ``config`` names anything but a dataclass at the top level of a
        module, has an unknown field, lacks a required one, or holds a value that does
        not have the annotated type or that the class rejects. The message contains the
        dotted path.
    """
    cls = import_class(config.get(CLASS), f"{where or 'config'}.{CLASS}")
    where = where or cls.__name__
    stored = {n: config[n] for n in config if n != CLASS and n not in runtime}
    hints = _annotations(cls, {**stored, **runtime}, where)
    values = {}
    for name, value in stored.items():
        path = f"{where}.{name}"
        values[name] = converted(_built(value, path), hints[name], path)
    try:
        # Errors of the class name the field only; the path is added to them.
        return cls(**values, **runtime)
    except ValueError as error:
        raise ValueError(f"`{where}`: {error}") from error


def to_json(config: ConfigDict) -> str:
    r"""Serializes a config as JSON: references resolved, keys sorted, tuples as lists.

    Raises:
      ValueError: A value is not a number, a string, None, a spec, a ConfigDict or a
        tuple of these.

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
    """Parses a config that `to_json` serialized, without importing any class.

    Returns:
      The config, with lists converted to tuples and the present addresses of classes
      that have `MOVED`; numbers are bitwise equal to those that were serialized.

    Raises:
      ValueError: ``text`` is not a JSON object, or is nested too deeply.

    Example:
      >>> from_json('{"betas": [0.9, 0.99]}').betas
      (0.9, 0.99)
    """
    try:
        config = _with_tuples(parse_json(text))
    # A ConfigDict has no keys such as `__class__`.
    except (ValueError, AttributeError, KeyError) as error:
        raise ValueError(f"`text` must be JSON, got an error: {error}.") from error
    if not isinstance(config, ConfigDict):
        raise ValueError(f"`text` must be a JSON object, got {shown(config)}.")
    return config


def import_class(address: Any, path: str) -> type:
    """Imports the dataclass with this address, ``"module:Name"``."""
    if isinstance(address, str) and re.fullmatch(r"\w+(\.\w+)*:\w+", address):
        module, name = address.split(":")
        try:
            cls = vars(importlib.import_module(module)).get(name)
        except ModuleNotFoundError as error:
            # The module exists, but one that it imports does not.
            if not module.startswith(str(error.name)):
                raise
        else:
            # Also rejects names that the module only imports, as from other packages.
            if isinstance(cls, type) and cls.__module__ == module:
                if dataclasses.is_dataclass(cls):
                    return cls
    raise ValueError(
        f"`{path}` must be a dataclass or Flax module at the top level of a module "
        f"that can be imported, got {address!r}; put it into a file beside the "
        "experiment, or install its package, or name the directory of its module in "
        "PYTHONPATH."
    )


def _fields(cls: type) -> list[dataclasses.Field]:
    """Fields of the constructor, without the two that Linen adds."""
    linen = sys.modules.get("flax.linen")
    added = ("parent", "name") if linen and issubclass(cls, linen.Module) else ()
    return [f for f in dataclasses.fields(cls) if f.init and f.name not in added]


def _default(field: dataclasses.Field) -> Any:
    """Returns the default of a field, or `dataclasses.MISSING`."""
    if field.default_factory is dataclasses.MISSING:
        return field.default
    return field.default_factory()


def _annotations(cls: type, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Checks the names of the given fields and maps every field to its annotation."""
    hints = get_type_hints(cls)
    fields = {field.name: field for field in _fields(cls)}
    # Sorted, so that the first of several unknown names is always the same.
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
    """Checks a value of a spec and makes it overridable by any value of its type."""
    value = converted(_plain(value, path), annotation, path)
    typed = annotation in SCALARS or get_origin(annotation) in (tuple, Literal)
    if typed or isinstance(value, ConfigDict):
        return value
    # A flag accepts only values of the type of the field, so None would allow nothing
    # else; with `object` it accepts any literal.
    return FieldReference(value, field_type=object)


def _plain(value: Any, path: str) -> Any:
    """Converts lists to tuples and dataclasses to specs; rejects other types."""
    if type(value) in SCALARS or isinstance(value, ConfigDict):
        return value
    if isinstance(value, FieldReference):
        # The reference itself would be one field under two names: to set either would
        # set both. One that refers to it follows, and can be set on its own.
        return FieldReference(value)
    if isinstance(value, tuple | list):
        return tuple(_plain(item, f"{path}[{i}]") for i, item in enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in _fields(type(value))]
        return spec(type(value), **{name: getattr(value, name) for name in names})
    raise ValueError(f"`{path}` must be {_DATA}, got {shown(value)}.")


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
        entries = {key: _with_tuples(item) for key, item in value.items()}
        if isinstance(address := entries.get(CLASS), str):
            entries[CLASS] = MOVED.get(address, address)
        return ConfigDict(entries)
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
