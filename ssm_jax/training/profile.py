"""A trace of some steps of a run by JAX's profiler."""

import contextlib
from pathlib import Path

import jax
from absl import logging

from ssm_jax.types import PyTree


class Profile(contextlib.AbstractContextManager["Profile"]):
    """Traces steps; without any it does nothing.

    Args:
      steps: The first and the last of the traced steps. None: no trace.
      directory: Where the trace is written, for TensorBoard, XProf or Perfetto.
      start: Number of steps taken before.
      end: Number of steps of the run.

    Raises:
      ValueError: The steps are not among those that will be taken.
    """

    def __init__(
        self, steps: tuple[int, int] | None, directory: Path, start: int, end: int
    ):
        """Checks the steps."""
        if steps is not None and not start < steps[0] <= steps[1] <= end:
            raise ValueError(
                f"`profile_steps` must be two of the steps {start + 1} to {end}, the "
                f"first and the last, got {steps[0]},{steps[1]}; the first step after "
                "a start compiles."
            )
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
