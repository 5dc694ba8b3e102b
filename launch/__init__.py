"""Entry points: everything that is run from the command line.

``python -m launch.PROGRAM`` imports this first, and then for seconds JAX. Ctrl-C there
ends the process at once, without a traceback: nothing is under way yet that could be
lost. `launch.cli.run` lets it be an exception from then on.
"""

import os
import signal
import sys
import threading


def _leave(*_: object) -> None:
    os.write(2, b"interrupted; the same command continues\n")
    os._exit(130)  # an exception would be caught, or told, by what is being imported


# While `python -m` looks for a module of a package, "-m" stands for its path.
if sys.argv[:1] == ["-m"] and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, _leave)
