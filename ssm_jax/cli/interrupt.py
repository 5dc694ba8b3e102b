"""Ctrl-C while a program is still being imported.

Importing JAX takes seconds, in which nothing is computed or written that could be lost:
Ctrl-C then ends the process at once, without a traceback. `ssm_jax.cli.app.run` makes
it an exception from then on.
"""

import os
import signal
import threading


def exit_on_interrupt() -> None:
    """Lets Ctrl-C end the process in one line; only the main thread may set this."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _exit)


def _exit(*_: object) -> None:
    os.write(2, b"interrupted; the same command continues\n")
    os._exit(130)  # an exception could be caught, or shown, by what is being imported
