"""A trace of some steps of a run by JAX's profiler."""

import contextlib
from pathlib import Path

import jax
from absl import logging

from ssm_jax.types import PyTree


class Profile(contextlib.AbstractContextManager["Profile"]):
    """Traces steps; without any that are still to be taken it does nothing.

    Args:
      steps: The first and the last of the traced steps; those that were taken before
        are left out, so that the same command continues a run. None: no trace.
      directory: Where the trace is written, for TensorBoard, XProf or Perfetto.
      start: Number of steps taken before.
      end: Number of steps of the run.

    Raises:
      ValueError: The steps are not two of the run in ascending order.
    """

    def __init__(
        self, steps: tuple[int, int] | None, directory: Path, start: int, end: int
    ):
        """Checks the steps."""
        if steps is not None:
            first, last = steps
            if not 1 <= first <= last <= end:
                raise ValueError(
                    f"`profile_steps` must be two of the steps 1 to {end}, the first "
                    f"and the last, got {first},{last}; the first step after a start "
                    "compiles."
                )
            if last <= start:
                logging.info("no trace: the steps %s were taken before", steps)
            steps = (max(first, start + 1), last) if last > start else None
        self._steps, self._directory, self._on = steps, directory, False

    def before(self, step: int) -> None:
        """Starts the trace before its first step."""
        if self._steps is not None and step == self._steps[0]:
            jax.profiler.start_trace(self._directory)
            self._on = True

    def after(self, step: int, state: PyTree) -> None:
        """Ends the trace after its last step."""
        if self._steps is not None and step == self._steps[1]:
            # Steps are dispatched asynchronously.
            jax.block_until_ready(state)
            self._stop()

    def _stop(self):
        jax.profiler.stop_trace()
        self._on = False
        logging.info("trace of the steps %s in %s", self._steps, self._directory)

    def __exit__(self, *error: object) -> None:
        """Ends a trace that an error or the end of the run cut short."""
        if self._on:
            self._stop()
