"""The fields of the training loop, as the config of a run gives them."""

import dataclasses
from typing import Annotated, Literal

from ssm_jax.fields import (
    Interval,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Seed,
    check_fields,
)
from ssm_jax.training.initial import StateInitKind

_Decay = Annotated[float, Interval(gt=0, lt=1), "0.999 is usual"]


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
      evaluate_at_start: Whether the initial state is evaluated and saved too. It is the
        best one unless the main metric of another is more than 0.02 larger: for models
        that begin as a good prediction, as one of zeros on a `SeriesTask` with
        ``linear``.
      evaluation_batches: Number of batches of an evaluation during training. None means
        the whole split, which must then be finite.
      parallel: Transformation that maps the step over devices.
      mesh: ``"data=N,model=M,seq=K"``, with ``parallel="shard_map"``; what is 1 may be
        left out. The rows of a batch are sharded over ``N M`` devices. Large
        parameters, their average and the state of the optimizer are sharded over ``M``,
        see `DataParallel`; the length of each sequence over ``K``, which pass on states
        only, see `sharded_length`. The numbers are those of whole arrays. None: all
        devices share the rows.
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
      init_from: Work dir of another run, or a folder of Hugging Face as
        `ssm_jax.interop.load_pretrained` reads it, whose best parameters and variables
        of the same path and shape replace initial ones; the log lists them. It is read
        until the run has a checkpoint of its own. None means no other run.

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
    evaluate_at_start: bool = False
    evaluation_batches: PositiveInt | None = None
    parallel: Literal["pmap", "shard_map"] = "pmap"
    mesh: str | None = None
    initial_state: StateInitKind = "zero"
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
