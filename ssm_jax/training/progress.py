"""Progress of a run: a bar on a terminal, log lines otherwise."""

import contextlib
import sys
from collections.abc import Mapping

from absl import logging
from tqdm import tqdm


class Progress(contextlib.AbstractContextManager["Progress"]):
    """Shows the progress of a run.

    Args:
      start: Number of steps already taken.
      steps: Total number of steps.
    """

    def __init__(self, start: int, steps: int):
        """Draws the bar if standard error is a terminal."""
        self._steps = steps
        # In a file each redraw of the bar would be appended to the log.
        terminal = sys.stderr.isatty()
        self._bar = (
            tqdm(total=steps, initial=start, unit="step", dynamic_ncols=True)
            if terminal
            else None
        )

    def show(self, step: int, measured: Mapping[str, float | None]) -> None:
        """Advances to a step and shows its metrics, but those that are None."""
        text = " ".join(
            f"{name} {value:.4g}"
            for name, value in measured.items()
            if value is not None
        )
        if self._bar is None:
            logging.info("step %d of %d: %s", step, self._steps, text)
        else:
            # `update` takes a difference and redraws, so the bar is not refreshed
            # twice.
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(step - self._bar.n)

    def __exit__(self, *error: object) -> None:
        """Closes the bar, which stays on the terminal."""
        if self._bar is not None:
            self._bar.close()
