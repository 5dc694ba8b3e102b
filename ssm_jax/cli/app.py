"""Runs a program: defines its flags, parses the command line, handles errors.

A program is a module with a docstring, which ``--help`` shows, and two functions::

    def define_flags():
        config_file.define_config()
        flags.DEFINE_string("workdir", None, "Work dir of the run.", required=True)


    def main(argv):
        ...

Flags are defined when the program runs and not when its module is imported, so that
one process can import all programs, whose flags share names.

Errors that the user can correct (a flag, a field, a file, an experiment, a full disk,
too little memory, a loss that is not finite) print ``error: ...`` and exit with status
2; ``--traceback`` shows their traceback. Every other exception is a bug and keeps its
traceback. Ctrl-C exits with status 130; `ssm_jax.cli.startup` handles it during
imports.

``--compile_cache=DIR`` keeps compiled programs there, ``--compile_cache=none`` nowhere;
see `ssm_jax.cli.compile_cache`.
"""

import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags, logging as absl_logging
from ml_collections import ConfigDict

import ssm_jax
from ssm_jax.cli import config_file
from ssm_jax.cli.compile_cache import define_compile_cache, open_compile_cache
from ssm_jax.cli.config_file import describe_error, frames
from ssm_jax.cli.errors import USER_ERRORS, one_line_errors
from ssm_jax.cli.run_flags import import_neighbours
from ssm_jax.cli.startup import open_streams

_OURS = str(Path(ssm_jax.__file__).parent)


def run(main: Callable[[Sequence[str]], Any], define_flags: Callable[[], Any]) -> None:
    """Defines and parses the flags, calls ``main`` and exits.

    Args:
      main: Called with the name of the program, since all other arguments are flags.
        The docstring of its module is the text of ``--help``.
      define_flags: Defines the flags of the program.

    Raises:
      SystemExit: With the return value of ``main`` (0 for None), with 2 after an error
        that the user can correct, with 130 after Ctrl-C.
    """

    def start(argv):
        open_compile_cache(flags.FLAGS.compile_cache)
        return main(argv)

    open_streams()
    # Flags that absl has defined at import are not listed by --help.
    known = set(flags.FLAGS)
    flags.DEFINE_bool("traceback", False, "Show the traceback of an error.")
    define_compile_cache()
    sys.modules["__main__"].__doc__ = sys.modules[main.__module__].__doc__
    # absl's prefix has the thread and the source line, which mean nothing to the user.
    handler = absl_logging.get_absl_handler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    handler.python_handler.addFilter(_is_for_the_user)
    # Read from the command line, because a flag may be what is wrong.
    with one_line_errors(traceback="--traceback" in sys.argv):
        define_flags()  # Defaults may be from the environment, and wrong.
        # --help lists the key flags of the script that was started.
        for name in set(flags.FLAGS) - known:
            flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])
        # From here on Ctrl-C is an exception, so that files are closed and written.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _report_unraisable
        app.run(start, flags_parser=parse)


def parse(
    argv: Sequence[str], flag_values: flags.FlagValues = flags.FLAGS
) -> list[str]:
    """Parses a command line that has only flags.

    Args:
      argv: The command line, starting with the name of the program.
      flag_values: The flags; tests pass their own.

    Returns:
      The name of the program.

    Raises:
      FileNotFoundError: There is no such experiment.
      ValueError: The experiment cannot be run, does not have the variant or has no such
        field, or an argument is not a flag.
      flags.Error: A flag is unknown or its value is invalid.
    """
    problem, rest = None, []
    if "config" in flag_values:
        import_neighbours(flag_values.read_flags_from_files(argv, force_gnu=False))
    try:
        rest = flag_values(argv)
    except Exception as error:  # ml_collections lets all errors through
        problem = error
    except SystemExit as error:  # raised by --help or by the experiment
        # Only `--help` exits inside absl; an exit elsewhere is one of the experiment.
        if frames(error)[-1].filename == app.__file__:
            raise
        problem = error
    # ml_collections reports a broken experiment or an unknown field by errors of many
    # kinds; `explain` loads the file again and raises one with the cause.
    if "config" in flag_values:
        if problem or not isinstance(flag_values["config"].value, ConfigDict):
            read = flag_values.read_flags_from_files(argv, force_gnu=False)
            config_file.explain(read)
    if problem and not isinstance(problem, USER_ERRORS):
        raise ValueError(
            "`--config` and its overrides must be readable, got "
            f"{describe_error(problem)}; `--traceback` shows where."
        ) from problem
    if problem:
        raise problem
    if "config" in flag_values:
        config_file.check_overrides(flag_values)
    # absl returns arguments that are no flags; a forgotten `--` would go unnoticed.
    if rest[1:]:
        raise ValueError(f"every argument must be --FLAG=VALUE, got {rest[1]!r}.")
    return rest


def _report_unraisable(unraisable: Any) -> None:
    """`sys.unraisablehook` without the errors that follow a failed write.

    When the disk is full, the storage library closes its event loop after the first
    write that fails, and every other pending write fails because the loop is closed.
    Dozens of such tracebacks would precede the line with the cause.
    """
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def _is_for_the_user(record: logging.LogRecord) -> bool:
    """Drops records of other libraries below warnings, if not at ``--verbosity=1``."""
    asked = absl_logging.get_verbosity() > absl_logging.INFO
    ours = record.pathname.startswith(_OURS)
    return ours or asked or record.levelno >= logging.WARNING
