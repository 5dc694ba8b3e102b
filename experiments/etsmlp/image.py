r"""ETSMLP on Image: classification of greyscale photographs by pixels; table 1.

    python -m launch.train --config=experiments/etsmlp/image.py:model=gate \
        --data_dir=FOLDER --workdir=runs/image

``FOLDER`` contains cifar10 as prepared by ``python -m launch.prepare``. ``model=gate``
has a gate, other models are baselines, and ``size=small`` trains on two CPU cores in a
quarter of an hour.
"""

import dataclasses

from experiments.etsmlp import settings
from experiments.etsmlp.settings import Setting, Variant
from ssm_jax.config import Config, spec
from ssm_jax.tasks import PixelCifar10
from ssm_jax.variants import parse_variant

PAPER = {"": 0.7814, "model=gate": 0.7534}
FULL = Setting(
    d_model=160,
    n_layers=12,
    d_hidden=320,
    norm="batch",
    learning_rate=0.01,
    r_min=0.6,
    r_max=0.9,
    max_phase=3.14,
    steps=180_000,
    batch_size=50,
)
SMALL = dataclasses.replace(FULL, d_model=64, n_layers=3, d_hidden=64, steps=2_000)


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    small = choices.size == "small"
    setting = SMALL if small else FULL
    return settings.experiment(
        "etsmlp/image",
        choices,
        setting,
        published=PAPER,
        task=spec(PixelCifar10),
        length=1024,
        encoder=settings.pixel_encoder(setting),
        head=settings.pooled_head(10),
    )
