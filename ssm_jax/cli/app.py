"""Runs a program: defines its flags, parses the command line, handles errors.

A program is a module with a docstring, which ``--help`` shows, and two functions::

    def define_flags():
        config_file.define_config()
        flags.DEFINE_string("workdir", None, "Work dir of the run.", required=True)


    def main(argv):
        ...

Flags are defined when the program runs and not when its module is imported, so that
one process can import all programs, whose flags share names.

What the user can correct (a flag, a field, a file, an experiment, a full disk, too
little memory, a loss that is not finite) ends in ``error: ...`` and status 2;
``--traceback`` shows where it was found. Every other exception is a bug and keeps its
traceback. Ctrl-C ends in status 130; `ssm_jax.cli.interrupt` handles it during imports.
"""

import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags
from absl import logging as absl_logging
from ml_collections import ConfigDict

import ssm_jax
from ssm_jax.cli import config_file
from ssm_jax.cli.config_file import described, frames
from ssm_jax.cli.errors import USER_ERRORS, one_line_errors

_OURS = str(Path(ssm_jax.__file__).parent)


def run(main: Callable[[Sequence[str]], Any], define_flags: Callable[[], Any]) -> None:
    """Defines and parses the flags, calls ``main`` and exits.

    Args:
      main: Called with the name of the program, all other arguments being flags. The
        docstring of its module is the text of ``--help``.
      define_flags: Defines the flags of the program.

    Raises:
      SystemExit: With what ``main`` returns (None: 0), with 2 after an error that the
        user can correct, with 130 after Ctrl-C.
    """
    known = set(flags.FLAGS)
    flags.DEFINE_bool("traceback", False, "Shows where an error was found.")
    define_flags()
    # --help lists the key flags of the script that was started, under its docstring.
    for name in set(flags.FLAGS) - known:
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])
    sys.modules["__main__"].__doc__ = sys.modules[main.__module__].__doc__
    handler = absl_logging.get_absl_handler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    handler.python_handler.addFilter(_is_for_the_user)
    # Read from the command line, because a flag may be what is wrong.
    with one_line_errors(traceback="--traceback" in sys.argv):
        # From here on Ctrl-C is an exception, so that files are closed and written.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _report_unraisable
        app.run(main, flags_parser=parse)


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
        if frames(error)[-1].filename == app.__file__:
            raise
        problem = error
    if "config" in flag_values:
        if problem or not isinstance(flag_values["config"].value, ConfigDict):
            read = flag_values.read_flags_from_files(argv, force_gnu=False)
            config_file.explain(read)
    if problem and not isinstance(problem, USER_ERRORS):
        raise ValueError(
            f"`--config` and its overrides must be readable, got {described(problem)}; "
            f"`--traceback` shows where."
        ) from problem
    if problem:
        raise problem
    if rest[1:]:
        raise ValueError(f"every argument must be --FLAG=VALUE, got {rest[1]!r}.")
    return rest


def _report_unraisable(unraisable: Any) -> None:
    """`sys.unraisablehook`, but for the writes that come after one that failed.

    When the disk is full the storage library ends its event loop with the first write
    that fails; each of the others finds that loop closed when it ends. Dozens of such
    tracebacks would stand before the one line that says what happened.
    """
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def _is_for_the_user(record: logging.LogRecord) -> bool:
    """Leaves out what other libraries tell, unless it is a warning or was asked for."""
    asked = absl_logging.get_verbosity() > absl_logging.INFO
    ours = record.pathname.startswith(_OURS)
    return ours or asked or record.levelno >= logging.WARNING
