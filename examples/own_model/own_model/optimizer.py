"""An optimizer: anything with `transform`."""

from dataclasses import dataclass
from typing import Any

import jax
import optax

from ssm_jax.fields import NonNegativeFloat, PositiveFloat, check_fields
from ssm_jax.recurrences import ParamGroup


@dataclass(frozen=True, kw_only=True)
class NAdam:
    """Adam with Nesterov momentum, and weight decay for the groups that allow it.

    Attributes:
      learning_rate: Learning rate of all parameters.
      weight_decay: Weight decay, multiplied by the learning rate.
    """

    learning_rate: PositiveFloat
    weight_decay: NonNegativeFloat = 0.0

    def __post_init__(self):
        check_fields(self)

    def transform(self, groups: Any) -> optax.GradientTransformation:
        """Returns the transformation; ``groups`` has a `ParamGroup` per parameter."""
        decayed = jax.tree.map(
            lambda group: group.weight_decay,
            groups,
            is_leaf=lambda node: isinstance(node, ParamGroup),
        )
        return optax.nadamw(
            self.learning_rate, weight_decay=self.weight_decay, mask=decayed
        )
