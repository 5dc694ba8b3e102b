"""The four units of the paper, with the sizes of the authors' configurations."""

from typing import Any, Literal

from ssm_jax.config import Config, spec
from ssm_jax.models import LastHead, RecurrentNetwork
from ssm_jax.recurrences import FRU, LSTM, RNN, SRU, log_spaced
from ssm_jax.training import Optimizer

Unit = Literal["fru", "sru", "lstm", "rnn"]


def network(
    unit: Unit,
    *,
    d_output: int,
    fourier: dict[str, Any],
    d_unit: int = 200,
    encoder: Config | None = None,
    dropout: float = 0.0,
    rnn_activation: str = "tanh",
    head_init: str = "truncated_normal",
) -> Config:
    """Returns the spec of a network: one unit and a linear map of its last output.

    Args:
      unit: Name of the unit.
      d_output: Number of values or classes of a prediction.
      fourier: For the FRU: ``n_frequencies`` and ``frequency_max`` for `log_spaced`,
        ``horizon`` and ``d_statistic``.
      d_unit: Width of the output of the unit.
      encoder: Spec of the encoder. None means no encoder.
      dropout: Dropout of the input and the output of the unit.
      rnn_activation: Activation of the RNN; see `RNN`.
      head_init: Initialization of the output layer; see `Linear`. In the authors' own
        training loop (mixtures, MNIST), weights and bias are truncated normal.
    """
    fields = dict(fourier)
    frequencies = log_spaced(fields.pop("n_frequencies"), fields.pop("frequency_max"))
    recurrence = {
        "fru": lambda: spec(FRU, frequencies=frequencies, d_output=d_unit, **fields),
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
    """Returns the spec of Adam with a staircase schedule."""
    return spec(
        Optimizer,
        learning_rate=learning_rate,
        schedule="staircase",
        staircase=staircase,
        clip_norm=clip_norm,
    )
