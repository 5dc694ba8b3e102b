"""Optimizers with learning rate schedules and parameter groups."""

import dataclasses
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, runtime_checkable

import optax

from ssm_jax.config import address_of, import_target, nearest
from ssm_jax.fields import (
    Fraction,
    Interval,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check_fields,
)
from ssm_jax.training.groups import Rates, check_patterns, without_vector_decay
from ssm_jax.training.transforms import Constructor, call_function
from ssm_jax.types import PyTree

OPTIMIZERS = (
    "adabelief",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamaxw",
    "adamw",
    "adan",
    "amsgrad",
    "fromage",
    "lamb",
    "lars",
    "lion",
    "novograd",
    "optimistic_gradient_descent",
    "radam",
    "rmsprop",
    "sgd",
    "sign_sgd",
    "yogi",
)
"""Constructors of optax that a config may name."""

SCHEDULES = (
    "cosine_decay_schedule",
    "cosine_onecycle_schedule",
    "exponential_decay",
    "linear_onecycle_schedule",
    "linear_schedule",
    "polynomial_schedule",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
)
"""Schedules of optax that a config may name."""

Arguments = tuple[tuple[str, Any], ...]
"""Pairs of a name and a value, for example ``(("nesterov", True),)``."""

DECAYS = ("cosine", "linear", "wsd")
"""Schedules that decay to 0 until `Optimizer.schedule_steps`."""

_OWN_SCHEDULES = ("constant", "staircase", *DECAYS)
_MOMENTS = ("b1", "b2", "eps", "momentum")
# The moments that the own kinds read.
_OWN_KINDS = {
    "adamw": ("b1", "b2", "eps"),
    "lion": ("b1", "b2"),
    "sgd": ("momentum",),
}

_Staircase = Annotated[float, Interval(gt=0, le=1)]


@runtime_checkable
class SupportsTransform(Protocol):
    """What the training loop asks of an optimizer; `Optimizer` is one of them."""

    def transform(self, groups: PyTree) -> optax.GradientTransformation:
        """Returns the gradient transformation; see `Optimizer.transform`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Any optimizer of optax, a learning rate schedule and clipping by the global norm.

    Attributes:
      learning_rate: Peak learning rate of a group with multiplier 1.
      kind: ``"adamw"``: Adam with decoupled weight decay. ``"lion"``: Lion, likewise.
        ``"sgd"``: SGD with weight decay. Another name of
        `ssm_jax.training.optimizer.OPTIMIZERS`: that constructor of optax. A
        function such as ``spec(optax.contrib.muon, nesterov=False)``, or its address
        ``"optax.contrib:muon"``: any with an argument ``learning_rate``, to which a
        schedule is passed, that returns a gradient transformation, whose update may
        take the loss as ``value``; it is called once for each group of parameters. See
        the notes on those of optax.
      arguments: Further arguments of a constructor that is given by its name or
        address, pairs of a name and a value.
      rates: Pairs of a regular expression and a factor on the learning rate. It applies
        to the parameters whose path, such as ``block_0/layer/mixing/out/dense/kernel``,
        contains a match; the first pair that matches counts. It multiplies the factor
        that a recurrence declares for the parameter. 0 freezes.
      schedule: Schedule after the warmup. ``"constant"``: the peak. ``"cosine"`` and
        ``"linear"``: decay to zero. ``"wsd"`` (warmup, stable, decay): the peak, then
        linear decay to zero over ``decay_steps``. ``"staircase"``: exponential decay in
        a step every 1,000 steps. A name of `ssm_jax.training.optimizer.SCHEDULES`, an
        address ``"module:function"`` or a function that returns a schedule, such as
        ``spec(optax.linear_schedule, init_value=1.0, end_value=0.0)``: the learning
        rate is multiplied by the values of that schedule, so that 1 is the peak.
      schedule_arguments: Arguments of a schedule of optax or at an address, pairs of a
        name and a value.
      warmup_steps: Number of steps of the linear warmup.
      warmup_from: Learning rate at the first step of the warmup.
      schedule_steps: Number of steps until the end of a cosine, linear or wsd schedule,
        including the warmup; ignored by the other schedules.
      decay_steps: Number of steps of the decay of a wsd schedule; ignored by the
        others. None means a tenth of ``schedule_steps``.
      staircase: Factor on the learning rate every 1,000 steps of a staircase;
        ignored by other schedules.
      weight_decay: Weight decay, multiplied by the learning rate. It is applied to all
        parameters but those that a recurrence labels without it, such as decay rates,
        phases and step sizes: matrices, embeddings, heads and convolution kernels,
        and, unless ``decay_vectors`` is False, norm scales, biases and feedthroughs.
      decay_vectors: Whether weight decay is applied to norm scales, biases and
        feedthroughs too, as by the authors of DLR and of ETSMLP. Language models are
        usually trained without.
      b1: Decay rate of the first moment of AdamW and Lion. Like the next three fields,
        it is passed to another constructor only if it is not the default.
      b2: Decay rate of the second moment of AdamW, of the momentum of Lion.
      eps: Constant added to the square root of the second moment of AdamW.
      momentum: Decay rate of the momentum of SGD. 0: no momentum.
      clip_norm: Maximum global norm of the gradient. None means no clipping.

    Raises:
      ValueError: A field has another type or is out of range: ``b1``, ``b2`` and
        ``momentum`` are in [0, 1), ``staircase`` in (0, 1], the other numbers are not
        negative, and ``learning_rate``, ``eps`` and ``clip_norm`` are not 0; a decay
        does not begin after the warmup; a name is not known; or ``b1``, ``b2``, ``eps``
        or ``momentum`` is given but not read.

    Note:
      Parameters are of a kind, which `ssm_jax.training.groups.groups_of` tells by their
      labels and paths. What optimizers of optax make of it, and of a whole model:

      - ``"optax.contrib:muon"`` orthogonalizes the updates of hidden matrices, those of
        recurrences whose name ends in ``_kernel`` included; Adam trains all others:
        embeddings, heads, convolution kernels, vectors and the parameters of
        recurrences. ``consistent_rms`` is 0.2 unless it is among ``arguments``, so that
        one learning rate, that of Adam, fits all. ``adam_learning_rate`` follows the
        schedule, too. ``"optax.contrib:galore"`` projects gradients of hidden matrices
        alone.
      - ``"optax.contrib:schedule_free_adamw"`` and ``schedule_free_sgd`` average their
        iterates: it is the average that is validated, restored and exported, as with
        ``TrainConfig.ema``. Their papers use a warmup and a constant schedule.
      - ``prodigy``, ``dadapt_adamw``, ``dog``, ``dowg``, ``momo`` and ``momo_adam`` of
        optax.contrib and ``"optax:noisy_sgd"`` are called once for all parameters;
        their updates are multiplied by the factors of the groups. The first four
        estimate the learning rate, which is to be 1 here. The two of momo take the loss
        of the batch to be at least 0, and no ``clip_norm``.
      - ``"optax.contrib:cocob"`` depends on neither the learning rate nor the factors.
      - Optimizers that evaluate the loss again, need its Hessian or the gradients of
        single examples, or do not accept a schedule are refused.

    References:
      Loshchilov and Hutter, `Decoupled Weight Decay Regularization
      <https://arxiv.org/abs/1711.05101>`_, 2019; Jordan et al., `Muon
      <https://kellerjordan.github.io/posts/muon/>`_, 2024; Liu et al., `Muon is
      Scalable for LLM Training <https://arxiv.org/abs/2502.16982>`_, 2025; Defazio et
      al., `The Road Less Scheduled <https://arxiv.org/abs/2405.15682>`_, 2024; Hu et
      al., `MiniCPM <https://arxiv.org/abs/2404.06395>`_, 2024, for ``"wsd"``

    Example:
      >>> optimizer = Optimizer(
      ...     learning_rate=0.1,
      ...     kind="rmsprop",
      ...     arguments=(("decay", 0.99),),
      ...     rates=(("^encoder/", 0.1),),
      ...     schedule="polynomial_schedule",
      ...     schedule_arguments=(
      ...         ("init_value", 1.0),
      ...         ("end_value", 0.0),
      ...         ("power", 2.0),
      ...         ("transition_steps", 10),
      ...     ),
      ... )
      >>> print(optimizer.rate()(5))
      0.025
    """

    learning_rate: Annotated[PositiveFloat, "1e-3 is usual"]
    kind: str | Callable[..., optax.GradientTransformation] = "adamw"
    arguments: Arguments = ()
    rates: Rates = ()
    schedule: str | Callable[..., optax.Schedule] = "constant"
    schedule_arguments: Arguments = ()
    warmup_steps: NonNegativeInt = 0
    warmup_from: NonNegativeFloat = 0.0
    schedule_steps: PositiveInt | None = None
    decay_steps: PositiveInt | None = None
    staircase: _Staircase = 0.9
    weight_decay: NonNegativeFloat = 0.0
    decay_vectors: bool = True
    b1: Fraction = 0.9
    b2: Fraction = 0.999
    eps: PositiveFloat = 1e-8
    momentum: Fraction = 0.0
    clip_norm: PositiveFloat | None = None

    def __post_init__(self):
        """Validates the fields, and that a decay ends after the warmup."""
        check_fields(self)
        schedules = (*_OWN_SCHEDULES, *SCHEDULES)
        _check_function("kind", self.kind, OPTIMIZERS)
        _check_function("schedule", self.schedule, schedules)
        _check_arguments("kind", self.kind, "arguments", self.arguments)
        arguments = self.schedule_arguments
        _check_arguments("schedule", self.schedule, "schedule_arguments", arguments)
        if self.schedule in _OWN_SCHEDULES and self.schedule_arguments:
            raise ValueError(
                f"`schedule_arguments` must be empty for {self.schedule!r}, got "
                f"{self.schedule_arguments}; its numbers are fields."
            )
        self._check_read()
        check_patterns(self.rates)
        steps = self.schedule_steps
        if self.schedule in DECAYS and (steps is None or steps <= self.warmup_steps):
            raise ValueError(
                f"`schedule_steps` must exceed warmup_steps = {self.warmup_steps} for "
                f"the {self.schedule} schedule, got {steps}; it is usually the number "
                "of training steps."
            )
        if self.schedule == "wsd" and self._stable_steps < 0:
            raise ValueError(
                f"`decay_steps` must be at most {steps} - {self.warmup_steps}, the "
                f"steps of the schedule after the warmup, got {self.decay_steps}; None "
                "is a tenth of schedule_steps."
            )

    @property
    def _stable_steps(self):
        """Number of steps at the peak of a wsd schedule."""
        steps = self.schedule_steps or 0
        rest = steps - self.warmup_steps
        # At least one step, and no more than there are.
        return rest - (self.decay_steps or min(rest, max(1, steps // 10)))

    def _check_read(self):
        """Checks that the kind reads the moments that are given."""
        read = _OWN_KINDS.get(str(self.kind), _MOMENTS)
        for name, value in self._changed(_MOMENTS).items():
            if name not in read:
                others = [kind for kind, read in _OWN_KINDS.items() if name in read]
                raise ValueError(
                    f"`{name}` must be left out for {self.kind!r}, which does not read "
                    f"it, got {value}; it is a field of {' and '.join(others)}."
                )

    def _changed(self, names):
        """The values of some fields that are not the default."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name in names and getattr(self, field.name) != field.default
        }

    def rate(self, multiplier: float = 1.0) -> optax.Schedule:
        """Returns the schedule of a group with the given multiplier."""
        peak = multiplier * self.learning_rate
        if not isinstance(self.schedule, str) or self.schedule not in _OWN_SCHEDULES:
            # A factor, so that it is the same schedule for every multiplier.
            name, schedule = _function(
                "schedule", self.schedule, self.schedule_arguments
            )
            factor = call_function("schedule", name, schedule)
            return self._after_warmup(lambda step: peak * factor(step), multiplier)
        # `join_schedules` counts the steps of the second schedule from the boundary.
        rest = (self.schedule_steps or 0) - self.warmup_steps
        # Lambdas: optax refuses the arguments of a decay when it is built, and `rest`
        # is negative or 0 for schedules without an end.
        after = {
            "constant": lambda: optax.constant_schedule(peak),
            "cosine": lambda: optax.cosine_decay_schedule(peak, rest),
            "linear": lambda: optax.linear_schedule(peak, 0.0, rest),
            "wsd": lambda: optax.linear_schedule(
                peak, 0.0, rest - self._stable_steps, self._stable_steps
            ),
            "staircase": lambda: optax.exponential_decay(
                peak, 1000, self.staircase, staircase=True
            ),
        }[self.schedule]()
        return self._after_warmup(after, multiplier)

    def _after_warmup(self, after, multiplier):
        if self.warmup_steps == 0:
            return after
        peak = multiplier * self.learning_rate
        start = multiplier * self.warmup_from
        rise = optax.linear_schedule(start, peak, self.warmup_steps)
        return optax.join_schedules([rise, after], [self.warmup_steps])

    def transform(self, groups: PyTree) -> optax.GradientTransformation:
        """Returns the gradient transformation of a model.

        Args:
          groups: A `ParamGroup` for each parameter, as returned by `groups_of`, or by
            `with_rates` if there are `rates`.

        Returns:
          Clipping over all parameters, followed by the optimizer of each group.

        Raises:
          ValueError: There is no function at an address, it does not accept its
            arguments, or has no weight decay.
        """
        moments = self._changed(_MOMENTS)
        if own := _OWN_KINDS.get(str(self.kind)):
            moments = {name: getattr(self, name) for name in own}
        if self.kind == "sgd":
            moments["momentum"] = self.momentum or None
        if not self.decay_vectors:
            groups = without_vector_decay(groups)
        name, function = _function("kind", self.kind, self.arguments)
        by_group = Constructor(
            kind=name,
            function=function,
            rate=self.rate,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            moments=moments,
        ).transform(groups)
        if self.clip_norm is None:
            return by_group
        # Outside of `partition`, which would clip each group by the norm of that group.
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), by_group)


def _check_function(field, function, names):
    """Checks that a string is a known name or an address, which is not imported."""
    if callable(function) or function in names:
        return
    if not re.fullmatch(r"\w+(\.\w+)*:\w+", function):
        raise ValueError(
            f"`{field}` must be a function, its address `module:function` or a known "
            f"name, got {function!r}; {nearest(function, names)}"
        )


def _check_arguments(field, function, arguments_field, arguments):
    """Checks that a function comes with its own arguments."""
    if callable(function) and arguments:
        raise ValueError(
            f"`{arguments_field}` must be empty if `{field}` is a function, got "
            f"{arguments}; give them to the function: spec(function, name=value)."
        )


def _function(
    field: str, function: str | Callable[..., Any], arguments: Arguments
) -> tuple[str, functools.partial[Any]]:
    """Returns the name of a function for errors, and the function with its arguments.

    Args:
      field: The field that holds it, for errors.
      function: A name in optax, the address of a function, or a function.
      arguments: Its arguments.

    Raises:
      ValueError: There is no function at the address.
    """
    if not isinstance(function, str):
        partial = functools.partial(function)
        return address_of(partial.func), partial
    address = function if ":" in function else f"optax:{function}"
    target = import_target(address, field)
    return function, functools.partial(target, **dict(arguments))
