"""The training loop: builds a run from its config, takes its steps, measures, saves."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import logging

from ssm_jax.config import Config
from ssm_jax.tasks.base import TaskSpec
from ssm_jax.tasks.fingerprint import Fingerprint, fingerprint_of
from ssm_jax.training.checkpointing import Checkpoints
from ssm_jax.training.checkpointing.loading import Restored
from ssm_jax.training.config import TrainConfig
from ssm_jax.training.hosts import (
    broadcast_from_first,
    check_same_data,
    is_first,
    name_lost_processes,
    on_first,
)
from ssm_jax.training.interruption import Interruption
from ssm_jax.training.losses import Reductions
from ssm_jax.training.measure import Measurements, stack_steps, unstack_steps
from ssm_jax.training.parallel import DataParallel, locate_nans
from ssm_jax.training.prefetch import Prefetch
from ssm_jax.training.profile import Profile
from ssm_jax.training.setup import Parts, build_parts, initialize_run, steps_reached
from ssm_jax.training.state import RunSpec, TrainState
from ssm_jax.training.stopping import evaluations_since_best
from ssm_jax.training.workdir import WorkDir
from ssm_jax.training.writers import Progress, Writer, check_writers, open_writers

# Number of steps that are dispatched before the first of them is waited for: enough to
# keep the devices busy.
_IN_FLIGHT = 3


@name_lost_processes()
def train(
    config: Config,
    workdir: str,
    *,
    writers: Sequence[str] = (),
    profile_steps: tuple[int, int] | None = None,
    allow_changed_data: bool = False,
) -> dict[str, Any]:
    """Trains the run of a config, continuing from the last checkpoint of its work dir.

    Several processes that `jax.distributed` has connected train one run: each calls
    this with the same arguments, the work dir is on a disk that all of them share, and
    the numbers are those of one process with all devices. The first process writes the
    metrics.

    On SIGTERM or SIGINT, in any process, the step is finished and saved, and the run
    ends; a second signal ends it at once. A run that is interrupted at any moment and
    started again logs the same numbers as one that was not interrupted. A finished run
    continues if ``training.steps`` or ``training.patience`` is raised. Its state is
    then that of a run with this number of steps from the start, except that a schedule
    with ``optimizer.schedule_steps`` or ``decay_steps`` other than before applies from
    the next step on. A cosine, linear or wsd schedule that is not made longer stays at
    0 after its end, which the log warns of.

    Args:
      config: ``task``, ``model``, ``optimizer`` and ``training``, each a `spec`.
      workdir: Directory of the run; see `WorkDir`.
      writers: Names of `WRITERS`, to which the metrics go too.
      profile_steps: The first and the last of the steps that `jax.profiler` traces,
        into ``profile`` of the work dir, but those taken before. None: no trace.
      allow_changed_data: Whether a run continues on other data than it was trained on
        before, with a warning; see `ssm_jax.tasks.fingerprint`.

    Returns:
      The last line of metrics.

    Raises:
      ValueError: The fields of the config do not fit together, the work dir belongs to
        another run or is in use by another process, it has taken more than
        ``training.steps`` steps, its data changed or differ between processes, a writer
        is unknown or not installed, or ``profile_steps`` are not among the steps of the
        run.
      CheckpointError: A checkpoint cannot be written or is damaged.
      ConnectionError: Another process of the run has ended.
      FloatingPointError: The loss is not finite; the error names the step, and with
        `jax.debug_nans` the operation.
      KeyboardInterrupt: On SIGINT.
      SystemExit: On SIGTERM, with status 143.
    """
    work = WorkDir(workdir)
    # All checks come before the work dir is created, so that an error leaves no trace.
    parts = build_parts(config)
    training = parts.training
    check_writers(writers)
    work.metrics()  # A damaged file is refused before anything is compiled.
    reached = steps_reached(work, training)
    data = fingerprint_of(parts.task)
    check_same_data(data)
    allowed = {"allow_changed": allow_changed_data}
    on_first(lambda: work.check_data(data, reached or 0, **allowed))
    trace = Profile(profile_steps, work.path / "profile", reached or 0, training.steps)
    run, state = initialize_run(
        parts.model,
        parts.task,
        parts.optimizer,
        training,
        new=reached is None,
        sharding_of=parts.parallel.sharding_of(),
    )
    with contextlib.ExitStack() as stack:
        on_first(lambda: stack.enter_context(work.claim(config)))
        checkpoints = stack.enter_context(work.open_checkpoints(run.spec))
        for line in run.summary:
            logging.info("%s", line)
        if parts.parallel.sharding_of() is not None:
            logging.info("%s", parts.parallel.describe(state))
        elapsed_s, measured, pending = 0.0, {}, {}
        target = parts.parallel.abstract(state.replace(carry=None))
        target = target.replace(carry=jax.eval_shape(lambda: state.carry))
        if (restored := _restored(checkpoints, target)) is not None:
            state, measured = restored.state, restored.metrics
            elapsed_s, pending = measured["elapsed_s"] or 0.0, restored.pending
            logging.info("continuing after step %d in %s", restored.step, work.path)
        if restored is not None:
            parts = parts._replace(task=work.with_statistics(parts.task))
        else:
            on_first(lambda: work.write_statistics(parts.task))
        start = int(state.step)
        # A step that was saved without an evaluation knows only the time.
        last = measured if len(measured) > 1 else None
        # Without a checkpoint the line before the first step is measured again, too.
        on_first(lambda: work.rewind(-1 if restored is None else start, last))
        state = parts.parallel.place(state)
        names = writers if is_first() else ()
        stack.enter_context(trace)
        opened = stack.enter_context(open_writers(names, work.path, start))
        interruption = stack.enter_context(Interruption())
        _take_steps(
            parts,
            run,
            state,
            Output(work, checkpoints, opened, data),
            new=restored is None,
            elapsed_s=elapsed_s,
            pending=pending,
            trace=trace,
            interruption=interruption,
        )
    return (work.metrics() or [{"step": training.steps}])[-1]


def _restored(checkpoints: Checkpoints, target: TrainState) -> Restored | None:
    """Reads the newest usable step, which is the same in all processes."""
    step = -1

    def choose():
        nonlocal step
        # By one process, because a shared disk may not show the same to all.
        if checkpoints.latest_step is not None:
            step = checkpoints.usable_step()

    on_first(choose)
    step = broadcast_from_first(step)
    if step < 0:
        return None
    return checkpoints.restore(target, step=step)


class Output(NamedTuple):
    """Where a run writes what it measures, and its states.

    Attributes:
      work: The work dir, to which the first process writes the metrics.
      checkpoints: The checkpoints of the run.
      writers: Where the metrics go too.
      data: The fingerprint of the data; None if the task reads no files.
    """

    work: WorkDir
    checkpoints: Checkpoints
    writers: Sequence[Writer]
    data: Fingerprint | None

    def write_start(self, start: int) -> None:
        """Writes what the steps after ``start`` are taken on, and on which data."""
        if is_first():
            self.work.write_environment()
            self.work.write_data(self.data, start)

    def log(self, step: int, values: Mapping[str, float | None]) -> None:
        """Writes a line of metrics."""
        if is_first():
            self.work.log(step, **values)
        numbers = {name: value for name, value in values.items() if value is not None}
        for writer in self.writers:
            writer.write_scalars(step, numbers)

    def save(
        self,
        step: int,
        parallel: DataParallel,
        state: TrainState,
        measured: Mapping[str, float | None],
        waiting: Sequence[Reductions] = (),
    ) -> None:
        """Saves a state, with the reductions of steps that are not logged yet."""
        gathered, pending = parallel.gather(state), stack_steps(waiting)
        if (evaluated := state.evaluated_params) is not state.params:
            # What `restore` returns; training itself continues without it.
            gathered = gathered.replace(ema=evaluated)
        self.checkpoints.save(step, gathered, measured, pending=pending)


def _take_steps(
    parts: Parts,
    run: RunSpec,
    state: TrainState,
    output: Output,
    *,
    new: bool,
    elapsed_s: float,
    pending: Mapping[str, np.ndarray],
    trace: Profile,
    interruption: Interruption,
) -> None:
    """Takes the steps that are left: each is taken, measured where due, and saved.

    Args:
      parts: What the config describes.
      run: The constant parts of the run.
      state: The state to start from, as `DataParallel.place` returns it.
      output: Where metrics and states are written.
      new: Whether there is no checkpoint yet.
      elapsed_s: Seconds that earlier starts of the run took.
      pending: Reductions of steps before the start that are not logged yet.
      trace: What traces some of the steps.
      interruption: What ends the run after a step.
    """
    task, training, parallel = parts.task, parts.training, parts.parallel
    start = int(state.step)
    measure = Measurements(run, task, training, parallel, output.checkpoints)
    take_step = parallel.train_step(run)
    entered = last_save = time.perf_counter()
    began = entered - elapsed_s
    if new:
        line: dict[str, float | None] = measure.gradient_norms(state)
        if training.evaluate_at_start:
            line = measure.validation_metrics(0, state) | line
            line["elapsed_s"] = round(time.perf_counter() - began, 3)
        if line:
            output.log(0, line)
        if training.evaluate_at_start:
            output.write_start(0)
            output.save(0, parallel, state, line)
    if _out_of_patience(training, task.spec, output.work):
        return

    def make_batch(index):
        return parallel.batch(task, "train", index, training.batch_size, training.seed)

    waiting: list[Reductions] = []  # Of the steps since the last line of metrics.
    batches = Prefetch(make_batch, range(start, training.steps))
    with Progress(start, training.steps) as progress, batches:
        for step, batch in enumerate(batches, start + 1):
            last = step == training.steps
            is_evaluated = last or step % training.evaluate_every == 0
            is_logged = is_evaluated or step % training.log_every == 0

            # Take the step.
            trace.before(step)
            with contextlib.ExitStack() as stack:
                stack.enter_context(locate_nans(step))
                if step == start + 1:
                    stack.enter_context(progress.compiling("training step"))
                state, sums = take_step(state, batch)
            trace.after(step, state)
            if step == start + 1:
                output.write_start(start)
                waiting += unstack_steps(pending, sums)
            waiting.append(sums)
            # Steps are dispatched ahead of the devices. With many of them a signal
            # would be answered too late.
            if len(waiting) >= _IN_FLIGHT:
                jax.block_until_ready(waiting[-_IN_FLIGHT])

            # Measure it.
            line = {}
            if is_logged:
                measured = measure.training_metrics(step, waiting, state.params)
                waiting = []
                if is_evaluated:
                    batches.wait()  # The task is read by one thread at a time.
                    measured |= measure.validation_metrics(step, state)
                seconds = round(time.perf_counter() - began, 3)
                norms = measure.gradient_norms(state) if is_evaluated else {}
                line = measured | norms | {"elapsed_s": seconds}
                output.log(step, line)
                if is_evaluated:
                    share = batches.waited_s / (time.perf_counter() - entered)
                    logging.info("waited for batches %.1f %% of the time", 100 * share)
                progress.show(step, measured)

            # Save it.
            if is_evaluated:
                output.save(step, parallel, state, line)
                last_save = time.perf_counter()
                if _out_of_patience(training, task.spec, output.work):
                    break
            requested = interruption.requested_after(step)
            due = _is_save_due(training, last_save, is_logged)
            if not is_evaluated and (due or requested):
                # A state that is not finite must not be saved.
                waiting = measure.check_finite(step, waiting)
                last_save = time.perf_counter()
                seconds = {"elapsed_s": round(last_save - began, 3)}
                output.save(step, parallel, state, seconds, waiting)
            if requested and not last:
                output.checkpoints.wait()
                interruption.leave(step)


def _is_save_due(training: TrainConfig, last_save: float, is_logged: bool) -> bool:
    """Whether a checkpoint is due by time."""
    if (minutes := training.checkpoint_minutes) is None:
        return False
    due = time.perf_counter() - last_save > 60 * minutes
    # The clock of the first process decides; to ask at each step would wait for it.
    if jax.process_count() > 1:
        return is_logged and bool(broadcast_from_first(due))
    return due


def _out_of_patience(training: TrainConfig, spec: TaskSpec, work: WorkDir) -> bool:
    """Whether the last evaluations that were logged are no better than before."""
    if (patience := training.patience) is None:
        return False
    stale = evaluations_since_best(work.metrics(), spec) if is_first() else 0
    stale = broadcast_from_first(stale)
    if stale >= patience:
        logging.info("stopped: no better in %d evaluations", stale)
    return stale >= patience
