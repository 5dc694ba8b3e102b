"""The console script ``ssm-jax PROGRAM [--flag=value ...]``.

Programs::

    train     trains an experiment, or continues a run
    evaluate  evaluates the model of a run from its work dir
    predict   predicts what follows new rows by the model of a run
    generate  continues a prompt with the language model of a run
    prepare   prepares a data set for the tasks that read it
    new       writes an experiment on a series, texts or labelled sequences of yours
    export    exports the model of a run, to be run with JAX alone
    report    prints tables of runs and draws their figures
    compile   compiles an experiment for GPUs or TPUs that need not be there
    sweep     trains and evaluates an experiment over a grid of values and seeds

``ssm-jax PROGRAM --help`` lists the flags of a program.
"""

import importlib
import sys

from ssm_jax.cli.startup import exit_on_interrupt, open_streams

PROGRAMS = (
    "train",
    "evaluate",
    "predict",
    "generate",
    "prepare",
    "new",
    "export",
    "report",
    "compile",
    "sweep",
)


def main() -> None:
    """Runs the program named by the first argument.

    Raises:
      SystemExit: With the status of the program, or 2 if there is no such program.
    """
    exit_on_interrupt()
    open_streams()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    # Imported here, so that --help is quick and Ctrl-C ends the imports in one line.
    from ssm_jax.cli.errors import one_line_errors

    if name in ("--help", "-h", "help"):
        with one_line_errors():
            print((__doc__ or "").strip())
        sys.exit(0)
    from ssm_jax.cli import app
    from ssm_jax.config import nearest

    with one_line_errors():
        if name not in PROGRAMS:
            hint = nearest(name, PROGRAMS)
            raise ValueError(f"`PROGRAM` must be a program, got {name!r}; {hint}")
    # Outside of `one_line_errors`: an error of an import is a bug and keeps its
    # traceback.
    program = importlib.import_module(f"ssm_jax.cli.{name}")
    # absl takes the name in --help and in errors from the first argument.
    sys.argv[:2] = [f"ssm-jax {name}"]
    app.run(program.main, program.define_flags)
