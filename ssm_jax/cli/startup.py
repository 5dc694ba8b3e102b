"""What a program does before it imports anything that takes time.

Importing JAX takes seconds, during which no result can be lost: Ctrl-C ends the process
immediately, without a traceback. `ssm_jax.cli.app.run` turns it into an exception
afterwards.
"""

import os
import signal
import sys
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


def open_streams() -> None:
    """Opens standard streams that were closed before, as by ``>&-``.

    The null device takes their place. Python leaves ``sys.stdout`` None then, and the
    next file that is opened would take its descriptor, with what libraries print.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, since those below are open by now.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))
