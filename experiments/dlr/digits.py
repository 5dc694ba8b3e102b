"""DLR on handwritten digits of 8x8 pixels, one pixel per step; needs no download.

    python -m launch.train --config=experiments/dlr/digits.py --workdir=runs/digits

The data are part of scikit-learn: 1,347 images for training, 150 for validation and 300
for testing. Training takes a minute on 2 CPU cores.
"""

import dataclasses

from ml_collections import ConfigDict

from experiments.dlr import pixels
from ssm_jax.config import Config, spec
from ssm_jax.tasks import Digits
from ssm_jax.training import TrainConfig
from ssm_jax.variants import parse_variant


@dataclasses.dataclass(frozen=True)
class Variant:
    """The experiment has no variants."""


def get_config(variant: str = "") -> Config:
    """Returns the config."""
    parse_variant(variant, Variant)
    training = spec(TrainConfig, steps=600, batch_size=64, evaluate_every=100)
    return ConfigDict(
        {
            "experiment": "dlr/digits",
            "variant": variant,
            "paper": None,
            "task": spec(Digits),
            "model": pixels.model(d_model=48, d_state=32, n_layers=2, dropout=0.1),
            "optimizer": pixels.optimizer(5e-3, training),
            "training": training,
        }
    )
