"""Dataclasses and functions described as plain data, and built from it."""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_origin, get_type_hints

from ml_collections import ConfigDict, FieldReference

from ssm_jax.config.values import SCALARS, converted, nearest, shown
from ssm_jax.files import parse_json

Config = Any
"""A ConfigDict. As `Any`, because type checkers treat attributes of a ConfigDict as
scalars and reject ``config.a.b``."""

CLASS = "cls"
"""Key of the address of the class or function; no field may have this name."""

MOVED = {"ssm_jax.training.loop:TrainConfig": "ssm_jax.training.config:TrainConfig"}
"""Addresses of classes that configs of earlier versions hold, and the present ones."""

_DATA = "numbers, strings, None, specs, functions and tuples of these"


def spec(cls: Callable[..., Any], /, **fields: Any) -> Config:
    """Describes a dataclass, a Flax module or a function by its address and fields.

    The result contains every field, with its default value if none is given, so that
    each can be overridden. A field that allows None or several types accepts any Python
    literal on the command line; `build` checks it. The spec of a function contains the
    arguments that are given, and `build` returns the function with these arguments, as
    `functools.partial` does.

    Args:
      cls: Frozen dataclass, Linen module, function or `functools.partial` of one,
        defined at the top level of a module that can be imported: of ssm_jax, of an
        installed package, or of a file beside the experiment. Its address is stored
        under the key ``cls``, as ``"module:Name"``.
      **fields: Fields of ``cls``, or arguments of the function: numbers, strings, None,
        specs, functions and dataclass instances (converted to specs), tuples of these,
        or references to fields of other specs, such as
        ``spec(Head, d_output=task.get_ref("n_shifts"))``. A field given by a reference
        follows the other field until it is set itself, which does not change the other
        one.

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
      >>> import optax
      >>> schedule = build(spec(optax.linear_schedule, init_value=1.0, end_value=0.5))
      >>> float(schedule(transition_steps=100)(50))
      0.75
    """
    if not isinstance(cls, type):
        return _function_spec(cls, fields)
    where = cls.__name__
    address = f"{cls.__module__}:{cls.__qualname__}"
    if import_target(address, where) is not cls:
        raise ValueError(_not_importable(address, where))
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
      An instance of the class that ``config`` names, or the function, as a
      `functools.partial` if it holds arguments.

    Raises:
      ValueError: ``config`` names anything but a dataclass or a function at the top
        level of a module, has an unknown field, lacks a required one, or holds a value
        that does not have the annotated type or that the class rejects. The message
        contains the dotted path.
    """
    cls = import_target(config.get(CLASS), f"{where or 'config'}.{CLASS}")
    where = where or cls.__name__
    stored = {n: config[n] for n in config if n != CLASS and n not in runtime}
    if not isinstance(cls, type):
        arguments = {n: _built(stored[n], f"{where}.{n}") for n in stored} | runtime
        check_arguments(cls, arguments, where)
        return functools.partial(cls, **arguments) if arguments else cls
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


def import_target(address: Any, path: str) -> Callable[..., Any]:
    """Imports the dataclass or the function with an address, ``"module:name"``.

    Raises:
      ValueError: There is none; the error calls the address ``path``.

    Example:
      >>> import_target("optax:adamw", "optimizer").__name__
      'adamw'
    """
    if isinstance(address, str) and re.fullmatch(r"\w+(\.\w+)*:\w+", address):
        module, name = address.split(":")
        try:
            target = getattr(importlib.import_module(module), name, None)
        except ModuleNotFoundError as error:
            # The module exists, but one that it imports does not.
            if not module.startswith(str(error.name)):
                raise
        else:
            # `optax.nadam` is a partial of `optax.adam`.
            is_partial = isinstance(target, functools.partial)
            function = target.func if is_partial else target
            home = getattr(function, "__module__", None) or ""
            # Rejects what the module only imports: classes of any other module, and
            # functions of other packages, as packages export those of their modules.
            if isinstance(target, type):
                if home == module and dataclasses.is_dataclass(target):
                    return target
            elif callable(target) and home.split(".")[0] == module.split(".")[0]:
                return target
    raise ValueError(_not_importable(address, path))


def check_arguments(
    function: Callable[..., Any], arguments: Mapping[str, Any], path: str
) -> None:
    """Checks that a function has arguments of these names.

    Raises:
      ValueError: It has not; the error calls the function ``path``.
    """
    for name in sorted(name for name in arguments if not accepts(function, name)):
        known = inspect.signature(function).parameters
        raise ValueError(
            f"`{path}.{name}` must be an argument of {_name(function)}; "
            f"{nearest(name, known)}"
        )


def accepts(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of this name, or takes any.

    Example:
      >>> accepts(sorted, "reverse"), accepts(sorted, "order")
      (True, False)
    """
    parameters = inspect.signature(function).parameters
    return name in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def address_of(function: Callable[..., Any]) -> str:
    """Returns the address at which users import a function: its shortest one.

    Example:
      >>> import optax
      >>> optax.adamw.__module__, address_of(optax.adamw)
      ('optax._src.alias', 'optax:adamw')
    """
    name, module = _name(function), function.__module__
    # Packages import the public functions of their private modules.
    public = [part for part in module.split(".") if not part.startswith("_")]
    for n in range(1, len(public) + 1):
        with contextlib.suppress(ModuleNotFoundError):
            parent = ".".join(public[:n])
            if getattr(importlib.import_module(parent), name, None) is function:
                return f"{parent}:{name}"
    return f"{module}:{name}"


def _function_spec(function, arguments):
    if isinstance(function, functools.partial):
        if function.args:
            raise ValueError(
                "`spec` must get a partial with arguments by name only, got "
                f"{shown(function.args)} by position; name them."
            )
        arguments = {**function.keywords, **arguments}
        function = function.func
    where, address = _name(function), address_of(function)
    # A function within another, or a lambda, has no address.
    if import_target(address, where) is not function:
        raise ValueError(_not_importable(address, where))
    check_arguments(function, arguments, where)
    entries = {
        name: _entry(value, Any, f"{where}.{name}") for name, value in arguments.items()
    }
    return ConfigDict({CLASS: address, **entries})


def _name(function):
    # An instance with `__call__` has no name of its own.
    return getattr(function, "__name__", type(function).__name__)


def _not_importable(address, path):
    return (
        f"`{path}` must be a dataclass, Flax module or function at the top level of a "
        f"module that can be imported, got {address!r}; put it into a file beside the "
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
    if callable(value) and not isinstance(value, type):
        return spec(value)
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
