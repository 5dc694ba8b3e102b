"""Interruptions of a run: drawn, carried out, and checked when the processes end."""

import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ssm_jax.training.checkpointing import Checkpoints
from tests.training.processes import Ended, Processes
from tests.training.trials.runs import LONGEST_S, check_ended_well, lines, saving

DELAY_S = 0.2  # At most, from a step to its signal.
END_S = 180  # At most, from the signal to the end of all processes.
_LOST = (2, 128 + signal.SIGABRT)  # By the error of a collective, or by JAX.


class Drawn(NamedTuple):
    """An interruption: which signal, to which process, and at which moment.

    The moment is ``delay_s`` after a number of steps was logged, or the first save
    after them.
    """

    signal: signal.Signals
    process: int
    steps: int
    delay_s: float
    save: bool


class Interrupted(NamedTuple):
    """An interruption that was carried out."""

    drawn: Drawn
    steps: int  # Logged when the signal was sent.
    in_save: bool
    taking_steps: bool  # Not yet in the imports, or before the first step.
    seconds: float  # Until the last process had ended.

    def __str__(self) -> str:
        """What happened, for the log of the trials."""
        where = " while saving" * self.in_save
        where += " before the first step" * (not self.taking_steps)
        return (
            f"{self.drawn.signal.name} to process {self.drawn.process} after "
            f"{self.steps} steps{where} ({self.seconds:.1f} s)"
        )


def draw(
    rng: random.Random,
    signals: Sequence[signal.Signals],
    processes: int,
    logged: int,
    steps: int,
    duration_s: float,
) -> Drawn:
    """Draws an interruption of a run that has logged some of its steps.

    A third of the moments follows a step that is drawn uniformly, a third is in the
    save after one, and a third is drawn uniformly over the time of a start, because
    imports and compilation take most of it.
    """
    kind = rng.choice(("step", "save", "time"))
    step = 0 if kind == "time" else rng.randint(logged, steps)
    longest = {"step": DELAY_S, "save": 0, "time": duration_s}[kind]
    return Drawn(
        signal=rng.choice(signals),
        process=rng.randrange(processes),
        steps=step,
        delay_s=rng.uniform(0, longest),
        save=kind == "save",
    )


def interrupt(
    started: Processes, run: Path, drawn: Drawn, total: int
) -> Interrupted | None:
    """Sends a signal to one of the processes and checks how all of them end.

    Args:
      started: The processes.
      run: Their work dir.
      drawn: The interruption.
      total: Number of lines of metrics of a finished run.

    Returns:
      What happened; None if the run was finished before.

    Raises:
      RuntimeError: A process did not end in time or with another status, or a step that
        was taken is not saved.
    """
    before, saved = lines(run), Checkpoints(run / "checkpoints").latest_step or 0

    began = time.time()

    def holds():
        there = len(lines(run)) >= drawn.steps
        return there and (saving(run, began) or not drawn.save)

    moment = 0.0

    def late():
        return time.monotonic() >= moment

    reached = started.reached(holds)
    moment = time.monotonic() + drawn.delay_s
    if not (reached and started.reached(late)):
        check_ended_well(started.ended(LONGEST_S))
        return None
    in_save, steps, sent = saving(run, began), len(lines(run)), time.monotonic()
    started.signal(drawn.process, drawn.signal)
    try:
        ended = started.ended(END_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no end within {END_S} s of {drawn}") from None
    seconds = time.monotonic() - sent
    if all(process.status == 0 for process in ended):
        return None
    told = any("interrupted after step" in process.text for process in ended)
    _check_statuses(ended, drawn, told, len(lines(run)) == total)
    if drawn.signal != signal.SIGKILL:
        _check_nothing_lost(ended, run, before, saved)
    taking = told or lines(run) != before
    return Interrupted(drawn, steps, in_save, taking, seconds)


def _check_statuses(
    ended: list[Ended], drawn: Drawn, told: bool, finished: bool
) -> None:
    """Checks the exit statuses, as a shell has them."""
    for i, process in enumerate(ended):
        status = process.status if process.status >= 0 else 128 - process.status
        if i == drawn.process:
            allowed = (128 + drawn.signal,)
        elif drawn.signal == signal.SIGKILL:  # This one may have finished before.
            allowed = (*_LOST, 0) if finished else _LOST
        else:  # A process that was not yet connected is lost, too.
            allowed = (128 + signal.SIGTERM, *(() if told else _LOST))
        if status not in allowed:
            raise RuntimeError(
                f"process {i} ended with {status}, not {allowed}, after {drawn}: "
                f"{process.text[-2000:]}"
            )


def _check_nothing_lost(
    ended: list[Ended], run: Path, before: list[str], saved: int
) -> None:
    """Checks that the checkpoint is of the last step; each step logs a line."""
    logged, latest = lines(run), Checkpoints(run / "checkpoints").latest_step or 0
    message = f"interrupted after step {latest}, which is saved"
    # What was logged after the last checkpoint is taken back by the first start after
    # a SIGKILL, and this one may have ended before that.
    if len(logged) != latest and (logged != before or latest != saved):
        raise RuntimeError(f"{len(logged)} steps are logged, {latest} are saved")
    told = [p.text for p in ended if "interrupted after step" in p.text]
    if not all(message in text for text in told):
        raise RuntimeError(f"the log does not say {message!r}: {told[0][-2000:]}")
