"""Optimizers with learning rate schedules and parameter groups."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import jax
import optax

from ssm_jax.fields import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Rule,
    check_fields,
)
from ssm_jax.layers.recurrent import LabelledParam
from ssm_jax.recurrences.families.base import ParamGroup
from ssm_jax.types import PyTree

Schedule = Literal["constant", "cosine", "linear", "staircase"]

# Smaller factors than 2^-126 are subnormal in float32, which devices may flush to 0.
_Staircase = Annotated[float, Rule("in (0, 1]", lambda x: 2.0**-126 <= x <= 1)]


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """AdamW, Lion or SGD, a learning rate schedule and clipping by the global norm.

    Attributes:
      learning_rate: Peak learning rate of a group with multiplier 1.
      kind: ``"adamw"``: Adam with decoupled weight decay. ``"lion"``: Lion, likewise.
        ``"sgd"``: SGD with weight decay.
      schedule: Schedule after the warmup. ``"constant"``: the peak. ``"cosine"`` and
        ``"linear"``: decay to zero. ``"staircase"``: exponential decay in a step every
        1,000 steps.
      warmup_steps: Number of steps of the linear warmup.
      warmup_from: Learning rate at the first step of the warmup.
      schedule_steps: Number of steps until the end of a cosine or linear decay,
        including the warmup; ignored by the other schedules.
      staircase: Factor on the learning rate every 1,000 steps of a staircase.
      weight_decay: Weight decay, multiplied by the learning rate; applied to the groups
        with weight decay.
      b1: Decay rate of the first moment of AdamW and Lion.
      b2: Decay rate of the second moment of AdamW, of the momentum of Lion.
      eps: Constant added to the square root of the second moment of AdamW.
      momentum: Decay rate of the momentum of SGD. 0: no momentum.
      clip_norm: Maximum global norm of the gradient. None means no clipping.

    Raises:
      ValueError: A field has another type or is out of range: ``b1``, ``b2`` and
        ``momentum`` are in [0, 1), ``staircase`` in (0, 1], the other numbers are not
        negative, and ``learning_rate``, ``eps`` and ``clip_norm`` are not 0; or a decay
        does not end after the warmup.
    """

    learning_rate: Annotated[PositiveFloat, "1e-3 is usual"]
    kind: Literal["adamw", "lion", "sgd"] = "adamw"
    schedule: Schedule = "constant"
    warmup_steps: NonNegativeInt = 0
    warmup_from: NonNegativeFloat = 0.0
    schedule_steps: PositiveInt | None = None
    staircase: _Staircase = 0.9
    weight_decay: NonNegativeFloat = 0.0
    b1: Fraction = 0.9
    b2: Fraction = 0.999
    eps: PositiveFloat = 1e-8
    momentum: Fraction = 0.0
    clip_norm: PositiveFloat | None = None

    def __post_init__(self):
        """Validates the fields, and that a decay ends after the warmup."""
        check_fields(self)
        steps = self.schedule_steps
        if self.schedule in ("cosine", "linear") and (
            steps is None or steps <= self.warmup_steps
        ):
            raise ValueError(
                f"`schedule_steps` must exceed warmup_steps = {self.warmup_steps} for "
                f"the {self.schedule} schedule, got {steps}; it is usually the number "
                "of training steps."
            )

    def rate(self, multiplier: float = 1.0) -> optax.Schedule:
        """Returns the schedule of a group with the given multiplier."""
        peak = multiplier * self.learning_rate
        # `join_schedules` counts the steps of the second schedule from the boundary.
        rest = (self.schedule_steps or 0) - self.warmup_steps
        # Lambdas: optax refuses the arguments of a decay when it is built, and `rest`
        # is negative or 0 for schedules without an end.
        after = {
            "constant": lambda: optax.constant_schedule(peak),
            "cosine": lambda: optax.cosine_decay_schedule(peak, rest),
            "linear": lambda: optax.linear_schedule(peak, 0.0, rest),
            "staircase": lambda: optax.exponential_decay(
                peak, 1000, self.staircase, staircase=True
            ),
        }[self.schedule]()
        if self.warmup_steps == 0:
            return after
        start = multiplier * self.warmup_from
        rise = optax.linear_schedule(start, peak, self.warmup_steps)
        return optax.join_schedules([rise, after], [self.warmup_steps])

    def transform(self, groups: PyTree) -> optax.GradientTransformation:
        """Returns the gradient transformation of a model.

        Args:
          groups: A `ParamGroup` for each parameter, as returned by `groups_of`.

        Returns:
          Clipping over all parameters, followed by the optimizer of each group.
        """
        # In a fixed order: the labels are keys of the optimizer state, so a checkpoint
        # must have the same ones.
        every = sorted(set(jax.tree.leaves(groups, is_leaf=_is_group)), key=str)
        labels = jax.tree.map(every.index, groups, is_leaf=_is_group)
        by_group = optax.partition(
            {label: self._of(group) for label, group in enumerate(every)}, labels
        )
        if self.clip_norm is None:
            return by_group
        # Outside of `partition`, which would clip each group by the norm of that group.
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), by_group)

    def _of(self, group):
        rate = self.rate(group.lr_multiplier)
        # A decay of 0 instead of `optax.adam`, so that all groups have states of one
        # structure.
        decay = self.weight_decay if group.weight_decay else 0.0
        if self.kind == "sgd":
            return optax.chain(
                optax.add_decayed_weights(decay),
                optax.sgd(rate, momentum=self.momentum or None),
            )
        if self.kind == "lion":
            return optax.lion(rate, b1=self.b1, b2=self.b2, weight_decay=decay)
        return optax.adamw(
            rate, b1=self.b1, b2=self.b2, eps=self.eps, weight_decay=decay
        )


def groups_of(boxed: PyTree) -> PyTree:
    """Returns the group of each parameter of a model.

    Args:
      boxed: Parameters as returned by ``model.init``, some boxed as `LabelledParam`.

    Returns:
      A tree with a `ParamGroup` in place of each parameter: that of its box, or the
      default group.
    """

    # A box is itself a pytree node, whose group `jax.tree.map` would not see.
    def group(leaf):
        return leaf.group if isinstance(leaf, LabelledParam) else ParamGroup()

    return jax.tree.map(
        group, boxed, is_leaf=lambda leaf: isinstance(leaf, LabelledParam)
    )


def describe(groups: PyTree, params: PyTree) -> Iterable[str]:
    """Describes the groups of a model and their numbers of parameters.

    Args:
      groups: Groups as returned by `groups_of`.
      params: The parameters, or their shapes.

    Yields:
      One line per group.

    Raises:
      ValueError: The trees of groups and parameters differ.
    """
    group_leaves, where = jax.tree.flatten(groups, is_leaf=_is_group)
    if jax.tree.structure(params) != where:
        raise ValueError(
            "`groups` must have one group for each parameter, got another tree; "
            "`groups_of` makes it from what `model.init` returns."
        )
    sizes: dict[ParamGroup, int] = {}
    for group, leaf in zip(group_leaves, jax.tree.leaves(params), strict=True):
        sizes[group] = sizes.get(group, 0) + leaf.size
    for group, size in sizes.items():
        decay = "with" if group.weight_decay else "without"
        yield f"{size:,} parameters {decay} weight decay, rate x{group.lr_multiplier:g}"


def _is_group(leaf):
    return isinstance(leaf, ParamGroup)
