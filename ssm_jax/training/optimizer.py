"""Optimizers: schedules, and groups of parameters that are treated differently."""

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

_Staircase = Annotated[float, Rule("in (0, 1]", lambda x: 2.0**-126 <= x <= 1)]


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """AdamW or SGD under a schedule, after clipping by the global norm.

    Attributes:
      learning_rate: The greatest learning rate, of a group of multiplier 1.
      kind: ``"adamw"``, with decoupled weight decay; or ``"sgd"``, plain.
      schedule: What follows the warm-up: a constant, a fall to zero along a half cosine
        or a line, or a ``"staircase"`` that falls every 1,000 steps, without end.
      warmup_steps: Steps of the linear rise from ``warmup_from``.
      warmup_from: Learning rate at the first step of a warm-up.
      schedule_steps: Steps to the end of the fall, warm-up included; read where there
        is a fall.
      staircase: Factor on the learning rate every 1,000 steps of a staircase.
      weight_decay: Decay per unit of learning rate, of the groups that take it.
      b1: Adam's decay of the first moment.
      b2: Adam's decay of the second moment.
      eps: Added to the root of the second moment.
      clip_norm: Greatest global norm of the gradient. None means no clipping.

    Raises:
      ValueError: A field has another type or breaks its rule: ``b1`` and ``b2`` are in
        [0, 1), ``staircase`` in (0, 1], the other numbers are not negative, and
        ``learning_rate``, ``eps`` and ``clip_norm`` are not 0; or a fall has no end, or
        one before the warm-up's.
    """

    learning_rate: Annotated[PositiveFloat, "1e-3 is usual"]
    kind: Literal["adamw", "sgd"] = "adamw"
    schedule: Schedule = "constant"
    warmup_steps: NonNegativeInt = 0
    warmup_from: NonNegativeFloat = 0.0
    schedule_steps: PositiveInt | None = None
    staircase: _Staircase = 0.9
    weight_decay: NonNegativeFloat = 0.0
    b1: Fraction = 0.9
    b2: Fraction = 0.999
    eps: PositiveFloat = 1e-8
    clip_norm: PositiveFloat | None = None

    def __post_init__(self):
        """Validates the fields, and that the schedule has an end."""
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
        """The learning rate at each step, of a group with this multiplier."""
        peak = multiplier * self.learning_rate
        rest = (self.schedule_steps or 0) - self.warmup_steps
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
        """The transformation of a model whose parameters are in these groups.

        Args:
          groups: A `ParamGroup` for each parameter, as `groups_of` finds them.

        Returns:
          Clipping over all parameters, then the optimizer of each group.
        """
        every = sorted(set(jax.tree.leaves(groups, is_leaf=_is_group)), key=str)
        labels = jax.tree.map(every.index, groups, is_leaf=_is_group)
        by_group = optax.partition(
            {label: self._of(group) for label, group in enumerate(every)}, labels
        )
        if self.clip_norm is None:
            return by_group
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), by_group)

    def _of(self, group):
        rate = self.rate(group.lr_multiplier)
        if self.kind == "sgd":
            return optax.sgd(rate)
        decay = self.weight_decay if group.weight_decay else 0.0
        return optax.adamw(
            rate, b1=self.b1, b2=self.b2, eps=self.eps, weight_decay=decay
        )


def groups_of(boxed: PyTree) -> PyTree:
    """Finds the group of each parameter of a model.

    Args:
      boxed: Parameters as ``model.init`` gives them, some in `LabelledParam` boxes.

    Returns:
      A `ParamGroup` in place of each parameter: its box's, or the default one.
    """

    def group(leaf):
        return leaf.group if isinstance(leaf, LabelledParam) else ParamGroup()

    return jax.tree.map(
        group, boxed, is_leaf=lambda leaf: isinstance(leaf, LabelledParam)
    )


def describe(groups: PyTree, params: PyTree) -> Iterable[str]:
    """Says how many parameters each group has; together they are all of them.

    Args:
      groups: As `groups_of` finds them.
      params: The parameters, or their shapes.

    Yields:
      A line a group.

    Raises:
      ValueError: A parameter is in no group, or a group without parameter.
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
