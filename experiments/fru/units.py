"""The four units that the paper compares, each with the sizes of its configurations."""

from ssm_jax.config import Config, nearest, spec
from ssm_jax.models import LastHead, RecurrentNetwork
from ssm_jax.recurrences import FRU, LSTM, RNN, SRU, log_spaced
from ssm_jax.training import Optimizer

NAMES = ("fru", "sru", "lstm", "rnn")


def chosen(variant: str, tasks: tuple[str, ...]) -> tuple[str, str, bool]:
    """Splits a variant into its task, its unit and whether it is small.

    Args:
      variant: ``TASK+UNIT``, or ``TASK+UNIT+small``.
      tasks: Names of the tasks.

    Raises:
      ValueError: The variant is none.
    """
    known = [f"{task}+{unit}" for task in tasks for unit in NAMES]
    name = variant.removesuffix("+small")
    if name not in known:
        raise ValueError(
            f"the variant must be one of {', '.join(known)}, or one of them +small, "
            f"got {variant!r}; {nearest(name, known)}"
        )
    task, unit = name.split("+")
    return task, unit, name != variant


def network(
    unit: str, *, d_output: int, frequencies: int, greatest: float, horizon: int
) -> Config:
    """The spec of a network of one unit and a linear map of its last output.

    Args:
      unit: One of `NAMES`.
      d_output: Values or classes to predict.
      frequencies: Waves of the FRU, 0 included.
      greatest: The last of them, over the horizon.
      horizon: Steps of a sequence.
    """
    waves = log_spaced(frequencies, greatest)
    recurrence = {
        "fru": lambda: spec(FRU, frequencies=waves, horizon=horizon, d_statistic=5),
        "sru": lambda: spec(SRU),
        "lstm": lambda: spec(LSTM),
        "rnn": lambda: spec(RNN),
    }[unit]()
    head = spec(LastHead, d_output=d_output)
    return spec(RecurrentNetwork, recurrence=recurrence, head=head)


def optimizer(learning_rate: float, stair: float, clip_norm: float | None) -> Config:
    """The spec of Adam on a staircase."""
    return spec(
        Optimizer,
        learning_rate=learning_rate,
        schedule="staircase",
        stair=stair,
        clip_norm=clip_norm,
    )
