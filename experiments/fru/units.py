"""The four units that the paper compares, each with the sizes of its configurations."""

from typing import Any

from ssm_jax.config import Config, nearest, spec
from ssm_jax.models import LastHead, RecurrentNetwork
from ssm_jax.recurrences import FRU, LSTM, RNN, SRU, log_spaced
from ssm_jax.training import Optimizer

NAMES = ("fru", "sru", "lstm", "rnn")


def chosen(
    variant: str,
    tasks: tuple[str, ...],
    sizes: tuple[str, ...] = ("small",),
    further: tuple[str, ...] = (),
) -> tuple[str, str, str]:
    """Splits a variant into its task, its unit and its size.

    Args:
      variant: ``TASK+UNIT``, or ``TASK+UNIT+SIZE``.
      tasks: Names of the tasks.
      sizes: Names of the sizes beside the full one, which is "".
      further: More of the form ``TASK+UNIT``, for units that only some tasks have.

    Raises:
      ValueError: The variant is none.
    """
    known = [f"{task}+{unit}" for task in tasks for unit in NAMES] + list(further)
    name, size = variant, ""
    for ending in sizes:
        if variant.endswith(f"+{ending}"):
            name, size = variant.removesuffix(f"+{ending}"), ending
    if name not in known:
        raise ValueError(
            f"the variant must be one of {', '.join(known)}, or one of them "
            f"+{' or +'.join(sizes)}, got {variant!r}; {nearest(name, known)}"
        )
    task, unit = name.split("+")
    return task, unit, size


def network(
    unit: str,
    *,
    d_output: int,
    waves: dict[str, Any],
    d_unit: int = 200,
    encoder: Config | None = None,
    dropout: float = 0.0,
    rnn_activation: str = "tanh",
    head_init: str = "truncated_normal",
) -> Config:
    """The spec of a network of one unit and a linear map of its last output.

    Args:
      unit: One of `NAMES`.
      d_output: Values or classes to predict.
      waves: Of the FRU: ``n`` and ``greatest`` of `log_spaced`, ``horizon`` and
        ``d_statistic``.
      d_unit: Numbers that the unit puts out.
      encoder: Spec of what comes before the unit. None: nothing.
      dropout: Of what enters and leaves the unit.
      rnn_activation: Of the RNN, as `RNN` takes it.
      head_init: How the output layer is initialized; see `Linear`. The authors' own
        loop (mixtures, MNIST) draws weights and bias from a truncated normal.
    """
    waves = dict(waves)
    frequencies = log_spaced(waves.pop("n"), waves.pop("greatest"))
    recurrence = {
        "fru": lambda: spec(FRU, frequencies=frequencies, d_output=d_unit, **waves),
        "sru": lambda: spec(SRU, d_output=d_unit),
        "lstm": lambda: spec(LSTM, d_state=d_unit),
        "rnn": lambda: spec(RNN, d_state=d_unit, activation=rnn_activation),
    }[unit]()
    head = spec(LastHead, d_output=d_output, kernel_init=head_init)
    return spec(
        RecurrentNetwork,
        recurrence=recurrence,
        head=head,
        encoder=encoder,
        dropout=dropout,
    )


def optimizer(
    learning_rate: float, staircase: float, clip_norm: float | None
) -> Config:
    """The spec of Adam on a staircase."""
    return spec(
        Optimizer,
        learning_rate=learning_rate,
        schedule="staircase",
        staircase=staircase,
        clip_norm=clip_norm,
    )
