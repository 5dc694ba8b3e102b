"""Optimizers and schedules of optax by name, and any others by their address."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ssm_jax.config import nearest

Arguments = tuple[tuple[str, Any], ...]
"""Pairs of a name and a value, for example ``(("nesterov", True),)``."""

OPTIMIZERS = (
    "adabelief",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamaxw",
    "adamw",
    "adan",
    "amsgrad",
    "fromage",
    "lamb",
    "lars",
    "lion",
    "novograd",
    "optimistic_gradient_descent",
    "radam",
    "rmsprop",
    "sgd",
    "sign_sgd",
    "yogi",
)
"""Constructors of optax that a config may name."""

SCHEDULES = (
    "cosine_decay_schedule",
    "cosine_onecycle_schedule",
    "exponential_decay",
    "linear_onecycle_schedule",
    "linear_schedule",
    "polynomial_schedule",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
)
"""Schedules of optax that a config may name."""


def check_name(field: str, name: str, names: Iterable[str]) -> None:
    """Checks that a name is known or an address; an address is not imported.

    Args:
      field: What errors call the name.
      name: A name, or the address ``module:function`` of a function.
      names: The known names.

    Raises:
      ValueError: It is neither.
    """
    names = list(names)
    if name not in names and not re.fullmatch(r"\w+(\.\w+)*:\w+", name):
        raise ValueError(
            f"`{field}` must be a known name or the address `module:function` of a "
            f"function, got {name!r}; {nearest(name, names)}"
        )


def call(
    field: str, name: str, arguments: Arguments, given: Mapping[str, Any] | None = None
) -> Any:
    """Calls a function of optax, or the one at an address.

    Args:
      field: What errors call the name.
      name: A name in optax, or ``module:function``.
      arguments: Arguments from the config.
      given: Further arguments, which ``arguments`` may not repeat.

    Returns:
      What the function returns.

    Raises:
      ValueError: There is no such function, it has no such argument, it lacks one, or
        refuses a value.

    Example:
      >>> schedule = call("schedule", "optax:constant_schedule", (("value", 0.5),))
      >>> float(schedule(100))
      0.5
    """
    called, given = function(field, name), dict(given or {})
    known, any_name = _parameters(called)
    for argument, _ in arguments:
        if argument in given:
            raise ValueError(
                f"`{field}` must be given {argument} once, got it in the arguments of "
                f"{name} too; set the field of that name."
            )
    every = given | dict(arguments)
    for argument in sorted(every.keys() - known):
        if not any_name:
            raise ValueError(
                f"`{field}` must have the argument {argument}, got {name} without it; "
                f"{nearest(argument, sorted(known))}"
            )
    try:
        return called(**every)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{field}` must accept its arguments, got an error of {name}: {error}"
        ) from error


def accepts(field: str, name: str, argument: str) -> bool:
    """Whether the function at a name or an address has an argument.

    Raises:
      ValueError: There is no such function.
    """
    known, any_name = _parameters(function(field, name))
    return any_name or argument in known


def function(field: str, name: str) -> Callable[..., Any]:
    """Imports the function at an address; a name alone is one of optax.

    Raises:
      ValueError: There is no such function.
    """
    module, _, attribute = name.rpartition(":")
    try:
        found = getattr(importlib.import_module(module or "optax"), attribute, None)
    except ModuleNotFoundError as error:
        # The module exists, but one that it imports does not.
        if not module.startswith(str(error.name)):
            raise
        found = None
    if not callable(found):
        raise ValueError(
            f"`{field}` must be the address of a function, got {name!r}; write "
            "`module:function`, where Python can import the module."
        )
    return found


def _parameters(function: Callable[..., Any]) -> tuple[set[str], bool]:
    """The names of the arguments, and whether any other name is accepted too."""
    parameters = inspect.signature(function).parameters
    any_name = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return set(parameters), any_name
