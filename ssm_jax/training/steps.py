"""The steps of a run with their logging, evaluation and checkpoints."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np
from absl import logging

from ssm_jax.tasks.base import Task
from ssm_jax.tasks.fingerprint import Fingerprint
from ssm_jax.training.checkpointing import Checkpoints
from ssm_jax.training.hosts import agreed, is_first
from ssm_jax.training.interruption import Interruption
from ssm_jax.training.losses import Reductions
from ssm_jax.training.measure import Measurements
from ssm_jax.training.nans import nans_located
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.pending import stacked, unstacked
from ssm_jax.training.prefetch import Prefetch
from ssm_jax.training.profile import Profile
from ssm_jax.training.progress import Progress
from ssm_jax.training.state import RunSpec, TrainState
from ssm_jax.training.stopping import evaluations_since_best
from ssm_jax.training.workdir import WorkDir
from ssm_jax.training.writers import Writer
from ssm_jax.types import PyTree

if TYPE_CHECKING:
    # Configs of runs name `ssm_jax.training.loop:TrainConfig`, and that module imports
    # this one.
    from ssm_jax.training.loop import TrainConfig

# Number of steps that are dispatched before the first of them is waited for: enough to
# keep the devices busy.
_IN_FLIGHT = 3


class Steps:
    """Takes the steps of one run.

    Args:
      run: The constant parts of the run.
      task: The task.
      training: The fields of the training loop.
      parallel: The map over devices.
      work: The work dir, to which the first process writes the metrics.
      checkpoints: The checkpoints of the run.
      writers: Where the metrics go too.
      data: The fingerprint of the data; None if the task reads no files.
    """

    def __init__(
        self,
        run: RunSpec,
        task: Task,
        training: "TrainConfig",
        parallel: DataParallel,
        work: WorkDir,
        checkpoints: Checkpoints,
        writers: Sequence[Writer],
        data: Fingerprint | None,
    ):
        """Maps the training step and what is measured; nothing is compiled yet."""
        self._task, self._training, self._parallel = task, training, parallel
        self._workdir, self._checkpoints = work, checkpoints
        self._writers, self._data = writers, data
        self._train_step = parallel.train_step(run)
        self._measure = Measurements(run, task, training, parallel, checkpoints)

    def take(
        self,
        state: TrainState,
        elapsed_s: float,
        earlier: Mapping[str, np.ndarray],
        trace: Profile,
        interruption: Interruption,
    ) -> None:
        """Takes the steps that are left.

        Args:
          state: The state to start from, as `DataParallel.place` returns it.
          elapsed_s: Seconds that earlier starts of the run took.
          earlier: Reductions of steps before the start that are not logged yet.
          trace: What traces some of the steps.
          interruption: What ends the run after a step.

        Raises:
          CheckpointError: A checkpoint cannot be written.
          FloatingPointError: The loss is not finite.
          KeyboardInterrupt: On SIGINT.
          SystemExit: On SIGTERM, with status 143.
        """
        training, start = self._training, int(state.step)
        began = saved = entered = time.perf_counter()
        began -= elapsed_s
        waiting: list[Reductions] = []
        if start == 0 and (seen := self._measure.of_gradients(state)):
            self._log(0, seen)
        if self._out_of_patience():
            return
        batches = Prefetch(self._batch, range(start, training.steps))
        with Progress(start, training.steps) as progress, batches:
            for step, batch in enumerate(batches, start + 1):
                trace.before(step)
                with nans_located(step):
                    state, sums = self._train_step(state, batch)
                trace.after(step, state)
                if step == start + 1 and is_first():
                    self._workdir.write_environment()
                    self._workdir.write_data(self._data, start)
                waiting += [*unstacked(earlier, sums), sums]
                earlier = {}
                # Steps are dispatched ahead of the devices. With many of them a signal
                # would be answered too late.
                if len(waiting) >= _IN_FLIGHT:
                    jax.block_until_ready(waiting[-_IN_FLIGHT])
                last = step == training.steps
                evaluating = last or step % training.evaluate_every == 0
                logging_now = evaluating or step % training.log_every == 0
                if logging_now:
                    measured = self._measure.of_training(step, waiting, state.params)
                    waiting = []
                    if evaluating:
                        batches.settle()  # The task is read by one thread at a time.
                        measured |= self._measure.of_validation(step, state)
                    seconds = round(time.perf_counter() - began, 3)
                    seen = self._measure.of_gradients(state) if evaluating else {}
                    self._log(step, measured | seen | {"elapsed_s": seconds})
                    if evaluating:
                        share = batches.waited_s / (time.perf_counter() - entered)
                        logging.info(
                            "waited for batches %.1f %% of the time", 100 * share
                        )
                    progress.show(step, measured)
                    if evaluating:
                        measured["elapsed_s"] = seconds
                        self._save(step, state, measured | seen)
                        saved = time.perf_counter()
                    if evaluating and self._out_of_patience():
                        break
                requested = interruption.requested_after(step)
                due = self._is_due(saved, logging_now)
                if not evaluating and (due or requested):
                    # A state that is not finite must not be saved.
                    waiting = self._measure.check_finite(step, waiting)
                    saved = time.perf_counter()
                    seconds = {"elapsed_s": round(saved - began, 3)}
                    self._save(step, state, seconds, waiting)
                if requested and not last:
                    self._checkpoints.wait()
                    interruption.leave(step)

    def _batch(self, index: int) -> PyTree:
        training = self._training
        return self._parallel.batch(
            self._task, "train", index, training.batch_size, training.seed
        )

    def _is_due(self, saved: float, logging_now: bool) -> bool:
        """Whether a checkpoint is due by time."""
        if (minutes := self._training.checkpoint_minutes) is None:
            return False
        due = time.perf_counter() - saved > 60 * minutes
        # The clock of the first process decides; to ask at each step would wait for it.
        if jax.process_count() > 1:
            return logging_now and bool(agreed(due))
        return due

    def _out_of_patience(self) -> bool:
        """Whether the last evaluations that were logged are no better than before."""
        if (patience := self._training.patience) is None:
            return False
        stale = 0
        if is_first():
            stale = evaluations_since_best(self._workdir.metrics(), self._task.spec)
        stale = agreed(stale)
        if stale >= patience:
            logging.info("stopped: no better in %d evaluations", stale)
        return stale >= patience

    def _log(self, step, values):
        if is_first():
            self._workdir.log(step, **values)
        numbers = {name: value for name, value in values.items() if value is not None}
        for writer in self._writers:
            writer.write_scalars(step, numbers)

    def _save(self, step, state, measured, waiting=()):
        gathered, pending = self._parallel.gather(state), stacked(waiting)
        if (evaluated := state.evaluated_params) is not state.params:
            # What `restore` returns; training itself continues without it.
            gathered = gathered.replace(ema=evaluated)
        self._checkpoints.save(step, gathered, measured, pending=pending)
