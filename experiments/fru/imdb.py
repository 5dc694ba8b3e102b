r"""FRU, SRU, LSTM and RNN on film reviews as words; table 3.

    python -m launch.train --config=experiments/fru/imdb.py:model=fru \
        --data_dir=FOLDER --workdir=runs/imdb_fru

The FRU has five frequencies, or with ``n_frequencies=1`` the frequency 0 only;
``size=small`` trains for four of the twenty epochs. ``FOLDER`` contains imdb_reviews as
prepared by ``python -m launch.prepare``.

The authors' code for this table uses the library tflearn: its RNN has a sigmoid
activation, as here, and its output layer and embedding are initialized normal with
standard deviation 0.02, truncated at two standard deviations, here not truncated. Their
units also process the padding after a review; here the last word is the last step.
"""

import dataclasses
from typing import Literal

from ml_collections import ConfigDict

from experiments.fru import units
from ssm_jax.config import Config, spec
from ssm_jax.models import TokenEncoder
from ssm_jax.tasks import ImdbWords
from ssm_jax.training import TrainConfig
from ssm_jax.variants import format_variant, parse_variant

FOURIER = {"frequency_max": 100.0, "horizon": 300, "d_statistic": 10}
PAPER = {
    "model=fru": 0.8671,
    "model=fru,n_frequencies=1": 0.8644,
    "model=sru": 0.8640,
    "model=lstm": 0.8364,
    "model=rnn": 0.5053,
}
RATES = {
    "fru": (0.001, 0.2, 5.0),
    "sru": (0.001, 0.5, 5.0),
    "lstm": (0.01, 0.8, 5.0),
    "rnn": (0.01, 0.8, 5.0),
}


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant; ``n_frequencies`` applies to the FRU only."""

    model: units.Unit
    n_frequencies: Literal[5, 1] = 5
    size: Literal["full", "small"] = "full"


def get_config(variant: str = "model=fru") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    unit, variant = choices.model, format_variant(choices)
    if unit != "fru" and choices.n_frequencies != 5:
        raise ValueError(
            f"`variant: n_frequencies` must be left out for {unit}, got "
            f"{choices.n_frequencies}; it is of model=fru."
        )
    task = spec(ImdbWords, length=300, vocabulary=10_000)
    tokens = task.get_ref("vocabulary")
    encoder = spec(TokenEncoder, d_model=128, vocabulary=tokens, std=0.02)
    steps = 2_800 if choices.size == "small" else 14_000
    return ConfigDict(
        {
            "experiment": "fru/imdb",
            "variant": variant,
            "paper": PAPER.get(variant),
            "task": task,
            "model": units.network(
                unit,
                d_output=2,
                fourier=FOURIER | {"n_frequencies": choices.n_frequencies},
                d_unit=128,
                encoder=encoder,
                dropout=0.2,
                rnn_activation="sigmoid",
                head_init="normal",
            ),
            "optimizer": units.optimizer(*RATES[unit]),
            "training": spec(
                TrainConfig, steps=steps, batch_size=32, evaluate_every=steps // 10
            ),
        }
    )
