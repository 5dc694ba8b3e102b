r"""FRU, SRU, LSTM and RNN on mixtures of curves; figures 3 and 4.

    python -m launch.train --config=experiments/fru/mixture.py:curves=sines,model=fru \
        --workdir=runs/sines_fru

``curves`` are sines or polynomials of a given degree; ``size=small`` trains for ten of
the hundred epochs. The network reads a curve of 176 steps and predicts all of it after
the last step, as in the authors' code. The paper plots the errors and states no
numbers. The learning rate is multiplied by 0.7 every 1,000 steps for the sines, as in
the authors' configurations; the paper states 0.9.

The gradients by the initial state are measured during training, for figure 5
(``curves=poly5``; `launch.report` draws it): those of the prediction from the first
``t`` steps, as in the caption, and those of each 20 outputs of the last prediction, as
in the authors' code. For this figure the paper uses scales up to 0.95 in its SRU.

"""

import dataclasses
from typing import Literal

from ml_collections import ConfigDict

from experiments.fru import units
from ssm_jax.config import Config, spec
from ssm_jax.tasks import Mixture
from ssm_jax.training import TrainConfig
from ssm_jax.variants import format_variant, parse_variant

FOURIER = {
    "n_frequencies": 120,
    "frequency_max": 58.0,
    "horizon": 176,
    "d_statistic": 5,
}
DEGREES = {"sines": None, "poly5": 5, "poly10": 10, "poly15": 15}


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    curves: Literal["sines", "poly5", "poly10", "poly15"]
    model: units.Unit
    size: Literal["full", "small"] = "full"


def get_config(variant: str = "curves=sines,model=fru") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    curves, unit, small = choices.curves, choices.model, choices.size == "small"
    is_clipped = curves == "sines" or unit in ("fru", "sru")
    training = spec(
        TrainConfig,
        steps=1_000 if small else 10_000,
        batch_size=32,
        evaluate_every=100 if small else 1_000,
        gradient_steps=tuple(range(16, 177, 20)),
        gradient_outputs=20,
    )
    return ConfigDict(
        {
            "experiment": "fru/mixture",
            "variant": format_variant(choices),
            "paper": None,
            "task": spec(Mixture, degree=DEGREES[curves]),
            "model": units.network(unit, d_output=175, fourier=FOURIER),
            "optimizer": units.optimizer(
                1e-3, 0.7 if curves == "sines" else 0.9, 5.0 if is_clipped else None
            ),
            "training": training,
        }
    )
