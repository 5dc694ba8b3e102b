"""The flag ``--config=FILE[:variant]``: the file of an experiment, and overrides."""

import contextlib
import importlib.util
import inspect
import itertools
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags
from ml_collections.config_flags import config_path

from ssm_jax.config import Config, flatten, nearest


def define_config(
    flag_values: flags.FlagValues = flags.FLAGS,
) -> flags.FlagHolder[Config]:
    """Defines ``--config=FILE[:variant]`` and ``--config.any.field=value``.

    Args:
      flag_values: Where the flag is defined; the process's own unless in a test.

    Returns:
      The flag. After parsing, its ``value`` is what ``get_config(variant)`` of the file
      returned, overridden and locked.
    """
    return config_flags.DEFINE_config_file(
        "config",
        help_string="Experiment, FILE[:variant]; --config.FIELD=VALUE overrides.",
        flag_values=flag_values,
    )


def load(experiment: str) -> Config:
    """Gets the config of an experiment as ``--config`` does.

    Args:
      experiment: ``FILE`` or ``FILE:variant``.

    Returns:
      What ``get_config(variant)`` of the file returns.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: It cannot be run, has no ``get_config`` that returns one, or refuses
        the variant. A ``get_config`` without argument takes none.
    """
    name, *variant = experiment.split(":", 1)
    path = Path(name)
    found = importlib.util.spec_from_file_location("experiment", path)
    if not path.is_file() or found is None or found.loader is None:
        files = {*Path("experiments").rglob("*.py"), *path.parent.glob("*.py")}
        hint = nearest(name, sorted(map(str, files)))
        raise FileNotFoundError(f"`--config` must be a Python file, got {name}; {hint}")
    module = importlib.util.module_from_spec(found)
    with _errors_named(name):
        found.loader.exec_module(module)
    get_config = vars(module).get("get_config")
    if not callable(get_config):
        raise ValueError(
            f"`{name}` must define `get_config(variant)`, got "
            f"{'none' if get_config is None else type(get_config).__name__}; "
            "experiments/dlr/digits.py is an example."
        )
    _check_takes(get_config, variant, name)
    with _errors_named(name):
        config = get_config(*variant)
    if not isinstance(config, ConfigDict):
        got = "None" if config is None else f"a {type(config).__name__}"
        raise ValueError(
            f"`get_config` of {name} must return a ConfigDict, got {got}; "
            "experiments/dlr/digits.py is an example."
        )
    return config


def explain(argv: Sequence[str]) -> None:
    """Raises what is wrong with the experiment or with the names of its fields.

    Args:
      argv: The command line.

    Raises:
      FileNotFoundError: There is no such experiment.
      ValueError: None is given, it cannot be run, or it has no such field.
    """
    experiment = None
    for argument, following in itertools.pairwise([*argv, ""]):
        if match := re.fullmatch(r"--?config(=.*)?", argument):
            experiment = (match[1] or f"={following}")[1:]
    if not experiment:
        raise ValueError("`--config` must be given, as --config=FILE[:variant].")
    config = load(experiment)
    for argument in argv:
        if match := re.match(r"--?(?:no)?config\.([^=]+)", argument):
            _check_field(match[1], config, experiment)


@contextlib.contextmanager
def _errors_named(file: str) -> Iterator[None]:
    """Says of whatever an experiment raises where in its file that was."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, ValueError) and str(error).startswith("`"):
            raise  # says the rule, the value and the way out already
        lines = [frame.lineno for frame in frames(error) if frame.filename == file]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [1])[-1]
        raise ValueError(
            f"`--config` must be a file that Python can run, got {file}, line {line}: "
            f"{described(error)}; correct it, `--traceback` shows more."
        ) from error


def _check_takes(get_config: Callable[..., Any], variant: list[str], file: str) -> None:
    """Checks that a variant is given where one is needed, and only there."""
    try:
        inspect.signature(get_config).bind(*variant)
    except ValueError:  # of a class that does not say what it takes
        return
    except TypeError:
        if variant:
            rule, got = "name no variant: its `get_config` takes none", variant[0]
            way_out = f"--config={file} is all"
        else:
            rule, got = "name a variant: its `get_config` needs one", "none"
            way_out = f"give --config={file}:VARIANT"
        raise ValueError(
            f"`--config` of {file} must {rule}, got {got}; {way_out}."
        ) from None


def _check_field(path: str, config: ConfigDict, experiment: str) -> None:
    try:
        config_path.get_value(path, config)
    except (KeyError, IndexError, AttributeError, TypeError, ValueError):
        known = list(flatten(config))
        last = path.split(".")[-1]
        namesakes = [name for name in known if name.split(".")[-1] == last]
        raise ValueError(
            f"`--config.{path}` must be a field of {experiment}; "
            f"{nearest(path, namesakes or known)}"
        ) from None


def frames(error: BaseException) -> traceback.StackSummary:
    """The frames that an error passed through, the innermost last."""
    return traceback.extract_tb(error.__traceback__)


def described(error: BaseException) -> str:
    """The class and message of an error, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
