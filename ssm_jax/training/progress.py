"""Progress of a run: a bar on a terminal, lines in a log elsewhere."""

import contextlib
import sys
from collections.abc import Mapping

from absl import logging
from tqdm import tqdm


class Progress(contextlib.AbstractContextManager["Progress"]):
    """Shows how far a run is.

    Args:
      start: Steps already taken.
      steps: Steps in all.
    """

    def __init__(self, start: int, steps: int):
        """Draws the bar if standard error is a terminal."""
        self._steps = steps
        terminal = sys.stderr.isatty()
        self._bar = (
            tqdm(total=steps, initial=start, unit="step", dynamic_ncols=True)
            if terminal
            else None
        )

    def show(self, step: int, measured: Mapping[str, float]) -> None:
        """Moves on to a step and shows what was measured there."""
        text = " ".join(f"{name} {value:.4g}" for name, value in measured.items())
        if self._bar is None:
            logging.info("step %d of %d: %s", step, self._steps, text)
        else:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(step - self._bar.n)

    def __exit__(self, *error: object) -> None:
        """Leaves the bar as it stands."""
        if self._bar is not None:
            self._bar.close()
