"""SIGTERM and SIGINT end a run after the step that is being taken, which is saved."""

import contextlib
import os
import signal
import threading
from typing import NoReturn

import jax
from absl import logging
from jax.experimental import multihost_utils

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interruption(contextlib.AbstractContextManager["Interruption"]):
    """Receives the signals while the block runs, in the main thread.

    The first signal is a request, which the block reads between steps. A second one
    ends the process at once, with status 128 plus its number; what was saved stays.
    With several processes a signal to any of them, or a notice of preemption that JAX
    receives, ends all of them after the same step; there JAX handles SIGTERM, of which
    a second one has no effect.
    """

    def __init__(self):
        """Creates it without a request; signals are received within the block."""
        self._signal: int | None = None
        self._before = {}

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
          KeyboardInterrupt: The signal was SIGINT; programs exit with status 130.
          SystemExit: It was SIGTERM, with status 143.
        """
        logging.info("interrupted after step %d, which is saved", step)
        if self._signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt

    def __enter__(self) -> "Interruption":
        """Installs the handlers; Python has them in the main thread only."""
        if threading.current_thread() is threading.main_thread():
            # With several processes, JAX handles SIGTERM.
            handled = _SIGNALS if jax.process_count() == 1 else (signal.SIGINT,)
            self._before = {one: signal.signal(one, self._receive) for one in handled}
        return self

    def __exit__(self, *error: object) -> None:
        """Puts the handlers back that were there before."""
        for one, before in self._before.items():
            signal.signal(one, before)

    def _receive(self, number, frame):
        del frame
        if self._signal is not None:
            os._exit(128 + number)  # Also in the middle of a compilation.
        self._signal = number
        # A handler must not use `print` or `logging`, which it may have interrupted.
        os.write(2, b"the step is finished and saved; a second signal exits at once\n")
        if jax.process_count() > 1:
            os.kill(os.getpid(), signal.SIGTERM)  # JAX tells the others.
