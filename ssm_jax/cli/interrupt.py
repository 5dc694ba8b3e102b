"""Handles Ctrl-C while a program is being imported.

Importing JAX takes seconds, during which no result can be lost: Ctrl-C ends the process
immediately, without a traceback. `ssm_jax.cli.app.run` turns it into an exception
afterwards.
"""

import os
import signal
import threading


def exit_on_interrupt() -> None:
    """Makes Ctrl-C end the process with one line of output."""
    # `signal.signal` raises a ValueError in other threads.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _exit)


def _exit(*_: object) -> None:
    # Unbuffered, because `os._exit` does not flush; a handler must not use `print`.
    os.write(2, b"interrupted; the same command continues\n")
    os._exit(130)  # a module being imported could catch an exception
