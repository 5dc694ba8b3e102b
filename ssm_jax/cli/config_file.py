"""The flag ``--config=FILE[:variant]``: the file of an experiment, and overrides."""

import contextlib
import importlib.util
import inspect
import itertools
import os
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
    flag_values: flags.FlagValues = flags.FLAGS, argv: list[str] | None = None
) -> flags.FlagHolder[Config]:
    """Defines ``--config=FILE[:variant]`` and ``--config.any.field=value``.

    Args:
      flag_values: The flags to add it to; tests pass their own.
      argv: The command line with the overrides. None means that of the process.

    Returns:
      The flag. After parsing, its ``value`` is the config that ``get_config(variant)``
      of the file returned, with overrides applied and locked.
    """
    return config_flags.DEFINE_config_file(
        "config",
        help_string="Experiment, FILE[:variant]; --config.FIELD=VALUE overrides.",
        flag_values=flag_values,
        sys_argv=argv,
    )


def load(experiment: str) -> Config:
    """Loads the config of an experiment, as ``--config`` does.

    Args:
      experiment: ``FILE`` or ``FILE:variant``.

    Returns:
      The config that ``get_config(variant)`` of the file returns.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: The file cannot be run, has no ``get_config`` that returns a config,
        or does not have the variant; a ``get_config`` without arguments has none.
    """
    # Only the first colon separates, as in ml_collections; a variant may have others.
    name, *variant = experiment.split(":", 1)
    path = Path(name)
    module_spec = importlib.util.spec_from_file_location("experiment", path)
    if not path.is_file() or module_spec is None or module_spec.loader is None:
        files = {*Path("experiments").rglob("*.py"), *path.parent.glob("*.py")}
        hint = nearest(name, sorted(map(str, files)))
        raise FileNotFoundError(f"`--config` must be a Python file, got {name}; {hint}")
    # Not added to `sys.modules`, where all experiments would have the same name.
    module = importlib.util.module_from_spec(module_spec)
    with _locate_errors(name):
        module_spec.loader.exec_module(module)
    get_config = vars(module).get("get_config")
    if not callable(get_config):
        raise ValueError(
            f"`{name}` must define `get_config(variant)`, got "
            f"{'none' if get_config is None else type(get_config).__name__}; "
            "experiments/dlr/digits.py is an example."
        )
    # Before the call, so that a TypeError inside `get_config` is not taken for one of
    # its arguments.
    _check_variant(get_config, variant, name)
    with _locate_errors(name):
        config = get_config(*variant)
    if not isinstance(config, ConfigDict):
        got = "None" if config is None else f"a {type(config).__name__}"
        raise ValueError(
            f"`get_config` of {name} must return a ConfigDict, got {got}; "
            "experiments/dlr/digits.py is an example."
        )
    return config


def load_with_overrides(argv: Sequence[str], overrides: Sequence[str]) -> Config:
    """Loads the config of a command line with further overrides.

    Args:
      argv: The command line, with ``--config``; its other flags are ignored.
      overrides: Further ``--config.FIELD=VALUE``.

    Returns:
      The config, in which fields that refer to others follow the overrides.

    Raises:
      ValueError: There is no such field, or two overrides set the same value.
      flags.Error: A value has another type than its field.
    """
    line, values = [*argv, *overrides], flags.FlagValues()
    explain(line)
    config = define_config(values, line)
    values(line, known_only=True)
    check_overrides(values)
    return config.value


def check_overrides(flag_values: flags.FlagValues) -> None:
    """Checks that the config holds every override, after the flags are parsed.

    An experiment that assigns a reference to a field of its config, not by way of
    `spec`, gives two fields one value: the later override would replace the earlier.

    Raises:
      ValueError: Two overrides set the same value.
    """
    flag = flag_values["config"]
    for path, value in config_flags.get_override_values(flag).items():
        actual = config_path.get_value(path, flag.value)
        # A NaN is refused when it is built.
        if actual != value and value == value:
            raise ValueError(
                f"`--config.{path}` must be a field of its own, got {value!r} for it "
                f"and {actual!r} for a field that shares its value; in the "
                "experiment, give the reference to `spec`, or use `get_oneway_ref`."
            )


def set_data_dir(config: Config, data_dir: str | None) -> None:
    """Sets the data directory in a config, so that the work dir records it.

    Raises:
      ValueError: The task reads no data set.
    """
    if data_dir is None:
        return
    if "data_dir" not in config.task:
        raise ValueError(
            f"`--data_dir` must be left out for {config.task.cls}, got {data_dir}; "
            "the task reads no data set."
        )
    config.task.data_dir = data_dir


def config_argument(argv: Sequence[str]) -> str | None:
    """Returns the value of ``--config`` on a command line, or None."""
    value = None
    # The last --config is the one that absl uses; its value may be the next argument.
    for argument, following in itertools.pairwise([*argv, ""]):
        if match := re.fullmatch(r"--?config(=.*)?", argument):
            value = (match[1] or f"={following}")[1:]
    return value


def explain(argv: Sequence[str]) -> None:
    """Raises an error that names what is wrong with ``--config`` or an override.

    Returns without an error if the experiment and the names of its fields are valid.

    Args:
      argv: The command line.

    Raises:
      FileNotFoundError: There is no such experiment.
      ValueError: No experiment is given, it cannot be run, or it has no such field.
    """
    experiment = config_argument(argv)
    if not experiment:
        raise ValueError("`--config` must be given, as --config=FILE[:variant].")
    config = load(experiment)
    for argument, following in itertools.pairwise([*argv, ""]):
        # --noconfig.FIELD sets a boolean field to False, as for any flag of absl.
        if match := re.fullmatch(r"--?(?:no)?config\.([^=]+)(=.*)?", argument, re.S):
            _check_field(match[1], config, experiment)
            _check_part(match[1], config, (match[2] or f"={following}")[1:])


@contextlib.contextmanager
def _locate_errors(file: str) -> Iterator[None]:
    """Adds the file and the line to errors that an experiment raises."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, ValueError) and str(error).startswith("`"):
            raise  # already names the rule, the value and a remedy
        # The last frame in the file; later frames are in the libraries that it calls.
        # Python runs the file by its absolute path.
        path = os.path.abspath(file)
        lines = [
            frame.lineno
            for frame in frames(error)
            if os.path.abspath(frame.filename) == path
        ]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [1])[-1]
        raise ValueError(
            f"`--config` must be a file that Python can run, got {file}, line {line}: "
            f"{describe_error(error)}; correct it, `--traceback` shows more."
        ) from error


def _check_variant(
    get_config: Callable[..., Any], variant: list[str], file: str
) -> None:
    """Checks that a variant is given where one is needed, and only there."""
    try:
        inspect.signature(get_config).bind(*variant)
    except ValueError:  # a callable without a signature
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
        # By ml_collections, whose overrides may have paths such as `a.b[0]`.
        config_path.get_value(path, config)
    except (KeyError, IndexError, AttributeError, TypeError, ValueError):
        known = list(flatten(config))
        last = path.split(".")[-1]
        # A field of the right name under another parent is the likelier mistake.
        namesakes = [name for name in known if name.split(".")[-1] == last]
        raise ValueError(
            f"`--config.{path}` must be a field of {experiment}; "
            f"{nearest(path, namesakes or known)}"
        ) from None


def _check_part(path: str, config: ConfigDict, word: str) -> None:
    """Checks that a class or function with fields of its own is not set by a word."""
    part = config_path.get_value(path, config)
    if isinstance(part, ConfigDict) and not word.lstrip().startswith("{"):
        fields = ", ".join(f"--config.{path}.{name}=" for name in part)
        cls = ", where `cls` is the address of a class or function"
        raise ValueError(
            f"`--config.{path}` must be set by its fields, got {word!r}; they are "
            f"{fields or 'none'}{cls if 'cls' in part else ''}."
        )


def frames(error: BaseException) -> traceback.StackSummary:
    """Returns the frames of the traceback of an error, the innermost last."""
    return traceback.extract_tb(error.__traceback__)


def describe_error(error: BaseException) -> str:
    """Returns the class and message of an error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
