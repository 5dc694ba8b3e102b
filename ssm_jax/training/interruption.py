"""SIGTERM and SIGINT end a run after the step that is being taken, which is saved."""

import contextlib
import ctypes
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import NoReturn

import jax
from absl import logging
from jax.experimental import multihost_utils

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class SavedInterrupt(KeyboardInterrupt):
    """A SIGINT after which all processes of the run ended with the same step."""


class Interruption(contextlib.AbstractContextManager["Interruption"]):
    """Receives the signals while the block runs, in the main thread.

    The first signal is a request, which the block reads between steps. A second one
    ends the process at once, with status 128 plus its number; what was saved stays.
    With several processes a signal to any of them ends all of them after the same step:
    each is passed on to the handler that JAX has for SIGTERM.
    """

    def __init__(self):
        """Creates it without a request; signals are received within the block."""
        self._signal: int | None = None
        self._cleanup = contextlib.ExitStack()
        self._notify_jax: Callable[[int], object] | None = None

    def requested_after(self, step: int) -> bool:
        """Whether the run ends after a step, which is the same in all processes.

        Args:
          step: The step that was taken; every process asks after each step.
        """
        if jax.process_count() == 1:
            return self._signal is not None
        # JAX tells the other processes of a SIGTERM, and a step that all will take.
        if not multihost_utils.reached_preemption_sync_point(step):
            return False
        if self._signal is None:
            self._signal = signal.SIGTERM
        return True

    def leave(self, step: int) -> NoReturn:
        """Ends the run after a step that was saved.

        Raises:
          SavedInterrupt: The signal was SIGINT; programs exit with status 130.
          SystemExit: It was SIGTERM, with status 143.
        """
        logging.info("interrupted after step %d, which is saved", step)
        if self._signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise SavedInterrupt

    def __enter__(self) -> "Interruption":
        """Installs the handlers; Python has them in the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            return self
        if jax.process_count() > 1:
            of_jax = _handler_in_c(signal.SIGTERM)
            self._notify_jax = of_jax
            # Runs after the next line has put back what Python knew, which is not it.
            self._cleanup.callback(_set_handler_in_c, signal.SIGTERM, of_jax)
        for one in _SIGNALS:
            self._cleanup.callback(
                signal.signal, one, signal.signal(one, self._receive)
            )
        self._watch()
        return self

    def __exit__(self, *error: object) -> None:
        """Puts the handlers back that were there before."""
        self._cleanup.close()

    def _receive(self, number, frame):
        del frame
        if self._signal is not None:
            return  # `_exit_at_second` ends the process.
        self._signal = number
        # A handler must not use `print` or `logging`, which it may have interrupted.
        os.write(2, b"the step is finished and saved; a second signal exits at once\n")
        if self._notify_jax:
            self._notify_jax(signal.SIGTERM)  # JAX tells the other processes.

    def _watch(self):
        """Starts the thread that ends the process at the second signal.

        The handlers of Python run between two instructions of the main thread, not
        before the end of a compilation or of a step; the numbers of the signals are
        written to a socket at once.
        """
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        thread = threading.Thread(target=_exit_at_second, args=(reader,), daemon=True)
        thread.start()
        self._cleanup.callback(writer.close)  # which ends the thread
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._cleanup.callback(signal.set_wakeup_fd, before)


def _exit_at_second(reader):
    """Reads the numbers of signals until the other end is closed."""
    received = 0
    with reader:
        while number := reader.recv(1):
            received += number[0] in _SIGNALS
            if received == 2:
                os._exit(128 + number[0])


_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


def _handler_in_c(number):
    """The function that handles a signal; Python does not know those of libraries."""
    get = ctypes.pythonapi.PyOS_getsig
    get.restype = _HANDLER
    return get(int(number))


def _set_handler_in_c(number, handler):
    set_handler = ctypes.pythonapi.PyOS_setsig
    set_handler.argtypes, set_handler.restype = (ctypes.c_int, _HANDLER), _HANDLER
    set_handler(int(number), handler)
