"""Comparison of configs, field by field, and the classes that they name."""

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ml_collections import ConfigDict, FieldReference

from ssm_jax.config.spec import CLASS, Config, import_target, spec

MAY_CHANGE = (
    "task.data_dir",
    "training.steps",
    "training.patience",
    "training.log_every",
    "training.evaluate_every",
    "training.parallel",
    "training.mesh",
    "optimizer.schedule_steps",
    "optimizer.decay_steps",
)
"""Fields of a config that may differ between two starts of a run.

Data may move, a run may be made longer, and what is logged, when it is evaluated and
how devices share a step change no number, but for rounding."""

_OURS = __name__.split(".")[0]
_TRUSTED = (_OURS, "optax")


def flatten(config: ConfigDict) -> dict[str, Any]:
    """Maps dotted paths to values; specs in a tuple have paths such as ``blocks[0]``.

    Example:
      >>> flatten(ConfigDict({"model": {"d_model": 64}, "steps": 10}))
      {'model.d_model': 64, 'steps': 10}
    """
    return dict(_leaves(config, ""))


def differences(old: ConfigDict, new: ConfigDict) -> list[str]:
    """Lists the differences between two configs, sorted by path.

    A missing field counts as the default of its class, so a config written before the
    class had the field does not differ from one with the default.

    Example:
      >>> differences(ConfigDict({"steps": 10}), ConfigDict({"steps": 20, "seed": 0}))
      ['seed: absent -> 0', 'steps: 10 -> 20']
    """
    # Compared as text, because 1 == 1.0 == True and nan != nan.
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
    """Adds missing fields with their defaults to every spec whose class is known."""
    if isinstance(value, tuple):
        return tuple(map(_with_defaults, value))
    if not isinstance(value, ConfigDict):
        return value
    entries = {name: _with_defaults(value[name]) for name in value}
    fields = {name: entry for name, entry in entries.items() if name != CLASS}
    module = str(entries.get(CLASS)).split(":")[0]
    # A comparison runs no code of other packages that is not there already.
    if _package(module) == _OURS or module in sys.modules:
        try:
            return spec(import_target(entries.get(CLASS), CLASS), **fields)
        except ValueError:  # not a spec, or a spec of another version
            pass
    return ConfigDict(entries)


def changed_fields(
    old: ConfigDict,
    new: ConfigDict,
    n_shown: int = 10,
    *,
    may_change: Sequence[str] = MAY_CHANGE,
) -> str:
    """Lists the differences between two configs in one line.

    Args:
      old: A config.
      new: Another config.
      n_shown: Number of differences that are listed; the further ones are counted.
      may_change: Paths of fields that are left out, by default `MAY_CHANGE`.

    Example:
      >>> old = {"task": {"data_dir": "a"}, "steps": 10}
      >>> new = {"task": {"data_dir": "b"}, "steps": 20}
      >>> changed_fields(ConfigDict(old), ConfigDict(new))
      'steps: 10 -> 20'
    """
    fields = tuple(f"{field}:" for field in may_change)
    changes = [line for line in differences(old, new) if not line.startswith(fields)]
    more = f" and {len(changes) - n_shown} more" if len(changes) > n_shown else ""
    return "; ".join(changes[:n_shown]) + more


def unknown_classes(config: Config) -> list[str]:
    """Lists the addresses in ssm_jax that name no class of this version.

    Example:
      >>> unknown_classes(ConfigDict({"task": {"cls": "ssm_jax.tasks:Unknown"}}))
      ['ssm_jax.tasks:Unknown']
    """
    unknown = []
    for path, address in _addresses(config):
        if re.match(rf"{_OURS}\b", address):
            try:
                import_target(address, path)
            except ValueError:
                unknown.append(address)
    return unknown


def check_packages(config: Config, packages: Collection[str] = ()) -> None:
    """Checks that a config names classes of ssm_jax and of the given packages only.

    Nothing is imported, so that a config can be checked before `build` runs the code of
    the modules that it names.

    Args:
      config: The config, as read from a file.
      packages: Names of further packages or top-level modules.

    Raises:
      ValueError: The config names a class of another package.

    Example:
      >>> check_packages(ConfigDict({"task": {"cls": "mine.tasks:Waves"}}), ["mine"])
    """
    if isinstance(packages, str):
        raise ValueError(
            f"`packages` must be several names, got {packages!r}; [{packages!r}] is a "
            "list of one."
        )
    for path, address in _addresses(config):
        package = _package(address)
        if package not in (*_TRUSTED, *packages):
            raise ValueError(
                f"`{path}` must be a class of {_OURS} or of a package that is named, "
                f"got {address!r}; if you trust its code, name it: packages="
                f"[{package!r}], on the command line --packages={package}."
            )


def packages_of(config: Config) -> list[str]:
    """Lists the packages whose classes a config names, but ssm_jax.

    Example:
      >>> packages_of(ConfigDict({"task": {"cls": "mine.tasks:Waves"}}))
      ['mine']
    """
    return sorted(
        {_package(address) for _, address in _addresses(config)} - {*_TRUSTED}
    )


def _addresses(config: Config) -> Iterator[tuple[str, str]]:
    """Yields the path and the value of all addresses of classes in a config."""
    for path, value in _leaves(config, ""):
        if path.rpartition(".")[-1] == CLASS:
            yield path, str(value)


def _package(address: str) -> str:
    return re.split(r"[.:]", address)[0]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, FieldReference):
        value = value.get()
    if isinstance(value, ConfigDict):
        for key in value:
            yield from _leaves(value[key], f"{path}.{key}".lstrip("."))
    elif isinstance(value, tuple | list) and any(map(_holds_spec, value)):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{path}[{i}]")
    else:
        yield path, value


def _holds_spec(value: Any) -> bool:
    """Whether a value is or holds something that `build` builds, however deep."""
    if isinstance(value, tuple | list):
        return any(map(_holds_spec, value))
    return isinstance(value, ConfigDict | FieldReference)
