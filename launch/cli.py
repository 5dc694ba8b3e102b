"""What all entry points share: the flag of the experiment, and errors of one line.

An entry point is::

    CONFIG = cli.define_config()
    WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)


    def main(argv):
        ...


    if __name__ == "__main__":
        cli.run(main)

What the caller can mend (a flag, a field, a file, an experiment, a full disk, too
little memory, a loss that is not finite) ends in ``error: ...`` and status 2;
``--traceback`` shows where it was found. Every other exception is a bug and keeps its
traceback. Ctrl-C ends in status 130, also while the program is still being imported,
for which ``launch/__init__.py`` cares.
"""

import contextlib
import importlib.util
import inspect
import itertools
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags
from absl import logging as absl_logging
from ml_collections import ConfigDict, config_flags
from ml_collections.config_flags import config_path

import ssm_jax.config
from ssm_jax.config import Config, flatten, nearest

flags.disclaim_key_flags()  # --help lists the flags under the entry point

PICTURES = ("png", "pdf", "svg", "jpg", "webp")
"""What the name of a picture may end in."""

_TRACEBACK = "traceback"
_MENDABLE = (ValueError, OSError, FloatingPointError, MemoryError, flags.Error)
_OURS = tuple(str(Path(file).parent) for file in (__file__, ssm_jax.config.__file__))


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


def run(main: Callable[[Sequence[str]], Any]) -> None:
    """Parses the flags, calls ``main`` and exits: ``app.run`` with errors of one line.

    Args:
      main: Called with the name of the program, all other arguments being flags.

    Raises:
      SystemExit: With what ``main`` returns (None: 0), with 2 after an error that the
        caller can mend, with 130 after Ctrl-C.
    """
    flags.DEFINE_bool(_TRACEBACK, False, "Shows where an error was found.")
    handler = absl_logging.get_absl_handler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    handler.python_handler.addFilter(_is_for_the_caller)
    # Asked of the command line, because a flag may be what is wrong.
    with one_line_errors(traceback=f"--{_TRACEBACK}" in sys.argv):
        # From here on Ctrl-C is an exception, so that what is under way is left whole.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _tell
        app.run(main, flags_parser=parse)


@contextlib.contextmanager
def one_line_errors(*, traceback: bool = False) -> Iterator[None]:
    """Turns what the caller can mend into one line on stderr and an exit status.

    Args:
      traceback: Lets all exceptions through as they are.

    Raises:
      SystemExit: With 2 for a ValueError, OSError, FloatingPointError, MemoryError
        (also that of a device) or error of a flag, with 130 for a KeyboardInterrupt.
    """
    try:
        yield
    except (*_MENDABLE, RuntimeError, KeyboardInterrupt) as error:
        bug = isinstance(error, RuntimeError) and not _is_of_memory(error)
        if traceback or bug:
            raise
        if isinstance(error, KeyboardInterrupt):
            line, status = "interrupted; the same command continues", 130
        else:
            line, status = f"error: {_one_line(error)}", 2
        print(line, file=sys.stderr)
        sys.exit(status)


def parse(
    argv: Sequence[str], flag_values: flags.FlagValues = flags.FLAGS
) -> list[str]:
    """Parses a command line in which everything is a flag.

    Args:
      argv: The command line, the name of the program first.
      flag_values: The flags; the process's own unless in a test.

    Returns:
      The name of the program.

    Raises:
      FileNotFoundError: There is no such experiment.
      ValueError: It cannot be run, refuses its variant or has no such field, or an
        argument is not a flag.
      flags.Error: A flag is unknown or its value is wrong.
    """
    problem, rest = None, []
    try:
        rest = flag_values(argv)
    except Exception as error:  # ml_collections lets through whatever it meets
        problem = error
    except SystemExit as error:  # of --help, or of the experiment
        if _frames(error)[-1].filename == app.__file__:
            raise
        problem = error
    if "config" in flag_values:
        if problem or not isinstance(flag_values["config"].value, ConfigDict):
            _explain(flag_values.read_flags_from_files(argv, force_gnu=False))
    if problem and not isinstance(problem, _MENDABLE):
        raise ValueError(
            f"`--config` and its overrides must be readable, got {_told(problem)}; "
            f"`--{_TRACEBACK}` shows where."
        ) from problem
    if problem:
        raise problem
    if rest[1:]:
        raise ValueError(f"every argument must be --FLAG=VALUE, got {rest[1]!r}.")
    return rest


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


@contextlib.contextmanager
def _errors_named(file: str) -> Iterator[None]:
    """Says of whatever an experiment raises where in its file that was."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, ValueError) and str(error).startswith("`"):
            raise  # says the rule, the value and the way out already
        lines = [frame.lineno for frame in _frames(error) if frame.filename == file]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [1])[-1]
        raise ValueError(
            f"`--config` must be a file that Python can run, got {file}, line {line}: "
            f"{_told(error)}; mend it, `--{_TRACEBACK}` shows more."
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


def _frames(error: BaseException) -> traceback.StackSummary:
    return traceback.extract_tb(error.__traceback__)


def _told(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def check_writable(flag: str, path: str | None, suffixes: Sequence[str] = ()) -> None:
    """Checks a file that is to be written at the end, before anything is measured.

    Args:
      flag: The flag that names it.
      path: The file; None, or empty, where none is asked for.
      suffixes: What its name may end in. None given: anything.

    Raises:
      ValueError: It is a folder, there is no folder that it could be in, it may not be
        written, or its name ends in something else.
    """
    if not path:
        return
    file = Path(path)
    got, way_out = None, "give another path"
    if file.is_dir():
        got = "a folder"
    elif not file.parent.is_dir():
        got, way_out = "no such folder", f"`mkdir -p {file.parent}` makes it"
    elif not os.access(file if file.exists() else file.parent, os.W_OK):
        got = "no permission"
    elif suffixes and file.suffix.lstrip(".").lower() not in suffixes:
        got, way_out = "another name", f"end it in one of .{', .'.join(suffixes)}"
    if got:
        raise ValueError(
            f"`--{flag}` must be a file that can be written, got {path} with {got}; "
            f"{way_out}."
        )


def _explain(argv: Sequence[str]) -> None:
    """Raises what is wrong with the experiment or the names of its fields, if it is."""
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


def _one_line(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:  # without "[Errno 28]"
        text = error.strerror + (f": {error.filename}" if error.filename else "")
    if isinstance(error, MemoryError | RuntimeError):
        text = f"memory must suffice, got too little: {text}; take a smaller batch or "
        text += "model, shorter sequences, or a larger device"
    return " ".join(text.split()) or type(error).__name__


def _is_of_memory(error: RuntimeError) -> bool:
    """Whether a device says that it has too little memory; XLA's has no class."""
    return str(error).startswith("RESOURCE_EXHAUSTED")


def _tell(unraisable: Any) -> None:
    """`sys.unraisablehook`, but for the writes that come after one that failed.

    When the disk is full the storage library ends its event loop with the first write
    that fails; each of the others finds that loop closed when it ends. Dozens of such
    tracebacks would stand before the one line that says what happened.
    """
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def _is_for_the_caller(record: logging.LogRecord) -> bool:
    """Leaves out what other libraries tell, unless it is a warning or was asked for."""
    asked = absl_logging.get_verbosity() > absl_logging.INFO
    ours = record.pathname.startswith(_OURS)
    return ours or asked or record.levelno >= logging.WARNING
