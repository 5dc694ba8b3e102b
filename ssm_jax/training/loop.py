"""The training loop: builds task, model and optimizer from a config and trains."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import jax
from absl import logging

from ssm_jax.config import Config
from ssm_jax.fields import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Rule,
    Seed,
    check_fields,
)
from ssm_jax.tasks.fingerprint import fingerprint_of
from ssm_jax.training.checkpointing import Checkpoints
from ssm_jax.training.checkpointing.loading import Restored
from ssm_jax.training.hosts import (
    agreed,
    check_same_data,
    is_first,
    lost_processes_named,
    on_first,
)
from ssm_jax.training.initial import Kind
from ssm_jax.training.interruption import Interruption
from ssm_jax.training.profile import Profile
from ssm_jax.training.start import build_parts, first_state, steps_reached
from ssm_jax.training.state import TrainState
from ssm_jax.training.steps import Steps
from ssm_jax.training.workdir import WorkDir
from ssm_jax.training.writers import check_writers, open_writers

_Decay = Annotated[
    float, Rule("in (0, 1)", lambda x: 0 < x <= 1 - 2.0**-24), "0.999 is usual"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Fields of the training loop.

    Attributes:
      steps: Number of steps.
      batch_size: Number of examples per step, over all devices.
      seed: Seed of parameters, dropout and data.
      accumulate: Number of parts ``k`` of a batch whose gradients are computed one
        after the other and added, so that the activations of a ``k``-th of the rows are
        in memory at a time. The step is that of the whole batch: losses are divided by
        its number of targets, dropout and noise depend on the row of the whole batch,
        and each row starts from its own carried state. BatchNorm alone differs: each
        part is normalized by its own moments, and the running moments are updated
        ``k`` times.
      log_every: Steps between two lines of training metrics.
      evaluate_every: Steps between two evaluations on the validation split; each is
        followed by a checkpoint. The last step is always evaluated.
      evaluation_batches: Number of batches of an evaluation during training. None means
        the whole split, which must then be finite.
      parallel: Transformation that maps the step over devices.
      mesh: ``"data=N,seq=M"``, with ``parallel="shard_map"``: the rows of a batch are
        sharded over ``N`` and the length of each sequence over ``M`` devices, which
        pass on states only; see `sharded_length`. The numbers are those of whole
        sequences. None: all devices share the rows.
      initial_state: States from which the recurrences start a batch; see `StateInit`.
        With ``"carry"`` they are reset at each epoch, and evaluation carries its states
        between batches too; otherwise it starts each batch from zero states.
      initial_noise: Standard deviation of ``"noise"``. None means that of the states
        after the last batch.
      gradient_windows: Number of windows that a gradient flows through, including that
        of the step, if states are carried (``"carry"``); see `TBPTTWindow`. With 1,
        states carry no gradient between batches.
      state_penalty: Factor of the mean square of the final states, added to the loss
        that is minimized but not to the one that is logged; it keeps carried states
        from growing.
      gradient_steps: Steps ``t`` of a sequence. The norms of the gradient of the loss
        at ``t`` with respect to the initial state are logged as ``gradient/NORM/t``
        (l1, l2, linf), before training and at each evaluation; see `state_gradients`.
      gradient_outputs: Number of outputs per block; the same norms are logged for the
        error of each block of the last prediction, as ``gradient_outputs/NORM/i`` with
        ``i`` the first output of the block; see `output_gradients`. None means none.
      ema: Decay of the exponential moving average of the parameters over the steps,
        corrected for its start from zeros as by `optax.ema`. It is the average that is
        evaluated, in validation and after `restore`, while training metrics, gradient
        norms and the running moments of BatchNorm are those of the parameters
        themselves. None means no average.
      patience: Number of evaluations without a better main metric, or an equal one with
        a lower loss, after which training stops. None means that it does not.
      checkpoint_minutes: Time after which a checkpoint is written also between two
        evaluations. None means that it is not.
      init_from: Work dir of another run, whose best parameters and variables of the
        same path and shape replace initial ones; the log lists them. It is read until
        the run has a checkpoint of its own. None means no other run.

    Raises:
      ValueError: A field has another type, a number is not positive, ``seed`` is not in
        [0, 2**32), ``ema`` not in (0, 1), ``initial_noise`` is set but not used, or
        ``gradient_windows`` is greater than 1 without carried states.
    """

    steps: PositiveInt
    batch_size: PositiveInt
    seed: Seed = 0
    accumulate: PositiveInt = 1
    log_every: PositiveInt = 50
    evaluate_every: PositiveInt = 500
    evaluation_batches: PositiveInt | None = None
    parallel: Literal["pmap", "shard_map"] = "pmap"
    mesh: str | None = None
    initial_state: Kind = "zero"
    initial_noise: PositiveFloat | None = None
    gradient_windows: PositiveInt = 1
    state_penalty: NonNegativeFloat = 0.0
    gradient_steps: tuple[PositiveInt, ...] = ()
    gradient_outputs: PositiveInt | None = None
    ema: _Decay | None = None
    patience: PositiveInt | None = None
    checkpoint_minutes: PositiveFloat | None = None
    init_from: str | None = None

    def __post_init__(self):
        """Validates the fields and their combination."""
        check_fields(self)
        if self.gradient_windows > 1 and self.initial_state != "carry":
            raise ValueError(
                "`gradient_windows` must be 1 unless the initial state is 'carry', "
                f"got {self.gradient_windows} with {self.initial_state!r}; use a "
                "longer window instead."
            )
        if self.initial_noise is not None and self.initial_state != "noise":
            raise ValueError(
                "`initial_noise` must be None unless the initial state is 'noise', got "
                f"{self.initial_noise} with {self.initial_state!r}; leave it out."
            )


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
    task, model, optimizer, training, parallel = build_parts(config)
    check_writers(writers)
    work.metrics()  # A damaged file is refused before anything is compiled.
    reached = steps_reached(work, training)
    data = fingerprint_of(task)
    check_same_data(data)
    allowed = {"allow_changed": allow_changed_data}
    on_first(lambda: work.check_data(data, reached or 0, **allowed))
    trace = Profile(profile_steps, work.path / "profile", reached or 0, training.steps)
    run, state = first_state(model, task, optimizer, training, new=reached is None)
    with contextlib.ExitStack() as stack:
        on_first(lambda: stack.enter_context(work.claimed(config)))
        checkpoints = stack.enter_context(work.open_checkpoints(run.spec))
        for line in run.summary:
            logging.info("%s", line)
        elapsed_s, measured, earlier = 0.0, {}, {}
        if (restored := _restored(checkpoints, state)) is not None:
            state, measured = restored.state, restored.metrics
            elapsed_s, earlier = measured["elapsed_s"] or 0.0, restored.pending
            logging.info("continuing after step %d in %s", restored.step, work.path)
        start = int(state.step)
        # A step that was saved without an evaluation knows only the time.
        last = measured if len(measured) > 1 else None
        # Without a checkpoint the line before the first step is measured again, too.
        on_first(lambda: work.rewind(-1 if restored is None else start, last))
        state = parallel.place(state)
        names = writers if is_first() else ()
        stack.enter_context(trace)
        opened = stack.enter_context(open_writers(names, work.path, start))
        interruption = stack.enter_context(Interruption())
        stack.enter_context(lost_processes_named())
        loop = Steps(run, task, training, parallel, work, checkpoints, opened, data)
        loop.take(state, elapsed_s, earlier, trace, interruption)
    return (work.metrics() or [{"step": training.steps}])[-1]


def _restored(checkpoints: Checkpoints, state: TrainState) -> Restored | None:
    """Reads the newest usable step, which is the same in all processes."""
    step = -1

    def choose():
        nonlocal step
        # By one process, because a shared disk may not show the same to all.
        if checkpoints.latest_step is not None:
            step = checkpoints.usable_step()

    on_first(choose)
    step = agreed(step)
    if step < 0:
        return None
    return checkpoints.restore(jax.eval_shape(lambda: state), step=step)
