"""What the endless tasks on tokens share: spec, checks and the level of chance."""

import abc
import dataclasses

from typing_extensions import override

from ssm_jax.fields import PositiveInt, check_fields
from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenTask(sequence.EndlessTask):
    """An endless task whose inputs are tokens and whose targets are classes.

    ``dataclasses.replace(task, length=n)`` has rows of the same kind with ``n`` steps,
    and the same tokens and classes, so that a model that was trained on one length is
    evaluated at others; see `ssm_jax.evaluation.accuracy_by_length`.

    Attributes:
      length: Number of steps of a row.

    Raises:
      ValueError: A field is out of range, or a row does not fit in ``length``.
    """

    # By name only, so that it needs no default as in the base.
    length: PositiveInt  # pyright: ignore[reportGeneralTypeIssues]

    @override
    def __post_init__(self) -> None:
        check_fields(self)

    @property
    @abc.abstractmethod
    def chance(self) -> float:
        """Accuracy of a prediction without what the task asks of a model."""

    def _check_length(self, minimum: int, why: str) -> None:
        """Raises ValueError unless a row has at least ``minimum`` steps."""
        if self.length < minimum:
            raise ValueError(
                f"`length` must be at least {minimum}, {why}, got {self.length}; take "
                "longer rows."
            )


def spec_of_tokens(
    *, length: int, vocabulary: int, n_classes: int, l_output: int
) -> base.TaskSpec:
    """Returns the spec of a classification of steps of a row of tokens.

    Args:
      length: Number of steps of a row.
      vocabulary: Number of tokens.
      n_classes: Number of classes of a target.
      l_output: Number of steps with a target, at the end.

    Returns:
      The spec.
    """
    return base.TaskSpec(
        length=length,
        inputs="token",
        d_input=vocabulary,
        targets="classification",
        d_output=n_classes,
        l_output=l_output,
    )
